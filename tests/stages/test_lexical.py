import time
import unicodedata

import polars as pl
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.rows import Sample
from claimflow.stages.tables import build
from claimflow.stages.text.bleu import word_bleu
from claimflow.stages.text.chrf import chrf
from claimflow.stages.text.overlap import rouge_l
from claimflow.stages.text.unicode_words import to_nfc

PARTS = ["precision", "recall", "f1"]
MEASURES = [
    *("rouge_l_precision", "rouge_l_recall", "rouge_l_f1"),
    *("token_overlap_precision", "token_overlap_recall", "token_overlap_f1"),
    *("clipped_overlap_precision", "clipped_overlap_recall", "clipped_overlap_f1", "bleu"),
]
SHAKESPEARE = {
    "sample_id": "s",
    "response": "William Shakespeare wrote 'Romeo and Juliet'. He is born in Ireland",
    "reference": "William Shakespeare is the author of 'Romeo and Juliet'.",
    "retrieved_contexts": ["William Shakespeare is the author of 'Romeo and Juliet'."],
}


def match(*samples, against="retrieved_contexts", **settings):
    stage = LexicalMatch(against=against, **settings)
    return stage.make({"samples": build(Sample, samples)}, {})


def test_documented_example_to_the_last_digit():
    rows = match(SHAKESPEARE)
    assert rows["rouge_l_precision"].to_list() == [0.8333333333333334, 0.2]
    assert rows["token_overlap_precision"].to_list() == [0.875, 0.2]
    assert rows["bleu"].to_list() == [0.6855956729300113, 0.05488226210213251]
    assert sum(rows["bleu"]) / 2 == 0.37023896751607194


def test_rows_name_the_sentence_by_position_and_span():
    rows = match(SHAKESPEARE)
    assert rows["position"].to_list() == [0, 1]
    assert rows["source"].to_list() == [None, None]
    assert rows["against"].to_list() == ["retrieved_contexts"] * 2
    spans = zip(rows["start"], rows["end"], strict=True)
    assert [SHAKESPEARE["response"][a:b] for a, b in spans] == rows["sentence"].to_list()
    assert rows["sentence"][1] == "He is born in Ireland"


def test_content_tokens_give_the_overlap_of_later_releases():
    assert match(SHAKESPEARE, tokens="content")["token_overlap_precision"].to_list() == [0.8, 0]


def test_unicode_tokens_compare_words_without_case():
    rows = match(SHAKESPEARE | {"response": "WILLIAM, was author!"}, tokens="unicode")
    assert rows["token_overlap_precision"].to_list() == [2 / 3]


def test_whole_text_is_one_row_for_each_reference():
    response = " Rome.\nIt is old. "
    sample = {"response": response, "reference": "Rome", "other_references": ["It is old."]}
    rows = match({"sample_id": "s", **sample}, against="reference", unit="text")
    assert rows["source"].to_list() == [0, 1]
    assert rows["position"].to_list() == [None, None]
    assert rows.select("sentence", "start", "end").row(0) == (response, 0, len(response))
    assert rows["rouge_l_precision"].to_list() == [0.25, 0.75]
    assert rows["rouge_l_recall"].to_list() == [1, 1]


def test_contexts_are_joined_by_line_breaks():
    sample = {"sample_id": "s", "response": "ab\ncd", "retrieved_contexts": ["ab", "cd"]}
    assert match(sample, unit="text").select(MEASURES).row(0) == (1,) * 10


def test_word_bleu_counts_the_chosen_tokens():
    rows = match(SHAKESPEARE, bleu_unit="word", tokens="unicode")
    source = "william shakespeare is the author of romeo and juliet".split()
    first = word_bleu("william shakespeare wrote romeo and juliet".split(), source)
    second = word_bleu("he is born in ireland".split(), source)
    assert rows["bleu"].to_list() == [first, second]


@pytest.mark.parametrize("against", ["reference", "retrieved_contexts"])
@pytest.mark.parametrize("unit", ["sentence", "text"])
def test_missing_texts_give_no_rows(against, unit):
    texts = {"reference": "a", "retrieved_contexts": ["a"]}
    samples = [
        {"sample_id": "no response", **texts},
        {"sample_id": "empty", "response": "", **texts},
        {"sample_id": "blank", "response": " \n", **texts},
        {"sample_id": "no source", "response": "a"},
    ]
    assert match(*samples, against=against, unit=unit).height == 0


@pytest.mark.parametrize("unit", ["sentence", "text"])
def test_empty_sources_give_zeros(unit):
    sample = {"sample_id": "s", "response": "a", "reference": "", "retrieved_contexts": []}
    for against in ("reference", "retrieved_contexts"):
        rows = match(sample, against=against, unit=unit)
        assert rows.select(MEASURES).row(0) == (0,) * 10


def test_other_references_keep_their_number_when_the_first_is_missing():
    sample = {"sample_id": "s", "response": "a", "other_references": ["a", "b"]}
    assert match(sample, against="reference")["source"].to_list() == [1, 2]


def test_requires_the_response_and_its_source():
    for against in ("reference", "retrieved_contexts"):
        assert LexicalMatch(against=against).required_fields() == {"response", against}
    assert LexicalMatch(against="reference").per_sample


def test_unknown_settings_are_refused():
    with pytest.raises(ValidationError, match="'auto', 'treebank', 'content' or 'unicode'"):
        LexicalMatch(against="reference", tokens="words")


def test_clipped_overlap_counts_repeated_tokens():
    sample = {"sample_id": "s", "response": "a a a b", "retrieved_contexts": ["a a c"]}
    row = match(sample).row(0, named=True)
    distinct = [row[f"token_overlap_{part}"] for part in PARTS]
    assert distinct == pytest.approx([1 / 4, 1 / 3, 2 / 7])
    clipped = [row[f"clipped_overlap_{part}"] for part in PARTS]
    assert clipped == pytest.approx([2 / 4, 2 / 3, 4 / 7])


def test_chrf_is_measured_of_whole_responses():
    response, source = "Rome is old. It is big.", "Rome is very old."
    sample = {"sample_id": "s", "response": response, "retrieved_contexts": [source]}
    assert match(sample, unit="text")["chrf"].to_list() == [chrf(response, source)]
    assert match(sample)["chrf"].to_list() == [None, None]


def test_rows_of_many_samples_are_those_of_each_alone(monkeypatch):
    monkeypatch.setattr("claimflow.stages.lexical._SAMPLES_AT_ONCE", 2)
    monkeypatch.setattr("claimflow.stages.lexical._MOST_LETTERS", 5)
    samples = [
        SHAKESPEARE | {"sample_id": str(n), "response": f"He wrote {n}. No. {SHAKESPEARE[r]}"}
        for n, r in enumerate(["reference", "response", "reference", "response", "reference"])
    ]
    alone = pl.concat(match(sample) for sample in samples)
    assert_frame_equal(match(*samples), alone)


MARKED = "Zoë Núñez lives in Việt Nam, pág. 5. カード、한국 और क़लम. كِتاب آب, Évora."


@pytest.mark.parametrize("tokens", ["auto", "treebank", "content", "unicode"])
@pytest.mark.parametrize("unit", ["sentence", "text"])
@pytest.mark.parametrize("bleu_unit", ["character", "word"])
def test_decomposed_letters_have_the_same_measures(tokens, unit, bleu_unit):
    apart = unicodedata.normalize("NFD", MARKED)
    # The other is not identical, so that every measure has something to lose.
    other = MARKED.replace("lives", "lived").split(" ", 2)[2]
    rows = {
        (name, source): match(
            {"sample_id": "s", "response": response, "retrieved_contexts": [written]},
            tokens=tokens,
            unit=unit,
            bleu_unit=bleu_unit,
        )
        for name, response in (("together", MARKED), ("apart", apart))
        for source, written in (("together", other), ("apart", unicodedata.normalize("NFD", other)))
    }
    expected = rows["together", "together"].drop("sentence", "start", "end")
    assert 0 < expected["rouge_l_f1"].max() < 1
    for table in rows.values():
        assert_frame_equal(table.drop("sentence", "start", "end"), expected)
    kept = rows["apart", "together"]
    spans = zip(kept["start"], kept["end"], strict=True)
    assert [apart[a:b] for a, b in spans] == kept["sentence"].to_list()


def test_no_samples_give_no_rows():
    assert match().height == 0


@pytest.mark.parametrize("word", ["a", "the end. ", "東京。", "x'"])
def test_long_texts_take_bounded_time(word):
    text = word * (40_000 // len(word))
    sample = {"sample_id": "s", "response": text, "retrieved_contexts": [text]}
    started = time.process_time()
    for unit in ("sentence", "text"):
        match(sample, unit=unit)
    assert time.process_time() - started < 4


@given(
    st.text(max_size=60),
    st.lists(st.text(max_size=40), max_size=3),
    st.sampled_from(["auto", "treebank", "content", "unicode"]),
    st.sampled_from(["character", "word"]),
)
def test_measures_of_any_texts_lie_in_range(response, contexts, tokens, bleu_unit):
    sample = {"sample_id": "s", "response": response, "retrieved_contexts": contexts}
    rows = match(sample, tokens=tokens, bleu_unit=bleu_unit)
    for row in rows.iter_rows(named=True):
        assert all(0 <= row[measure] <= 1 for measure in MEASURES)
        sentence, source = response[row["start"] : row["end"]], "\n".join(contexts)
        if tokens != "auto" or not UNSPACED.search(f"{response}{source}"):
            ours = rouge_l(to_nfc(sentence), to_nfc(source))
            assert row["rouge_l_f1"] == ours.f1


# Texts of scripts without spaces: a context, a copied and a rephrased sentence, an unrelated one.

UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
CHINESE = (
    "故宫位于北京市中心，旧称紫禁城，是明清两代的皇家宫殿。它于1406年开始建造，1420年基本竣工。"
    "外朝的中心为太和殿、中和殿、保和殿，统称三大殿，是国家举行大典礼的地方。1987年，故宫被列为世界文化遗产。"
)
JAPANESE = (
    "富士山は静岡県と山梨県にまたがる活火山であり、標高3776メートルは日本で最も高い。"
    "その優美な姿は日本国外でも日本の象徴として広く知られている。噴火を沈静化するため朝廷により浅間神社が祭祀され、"
    "浅間信仰が確立された。2013年6月22日、富士山は世界文化遺産に登録された。"
)
THAI = (
    "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย ตั้งอยู่บนสามเหลี่ยมปากแม่น้ำเจ้าพระยา "
    "มีแม่น้ำเจ้าพระยาไหลผ่านและแบ่งเมืองออกเป็นสองฝั่ง คือฝั่งพระนครและฝั่งธนบุรี ปัจจุบันมีสถานที่ท่องเที่ยวสำคัญหลายแห่ง"
)
SUPPORT = {
    CHINESE: (
        "它于1406年开始建造，1420年基本竣工。",
        "紫禁城从1406年开始建造。",
        "医生建议他每天散步。",
    ),
    JAPANESE: (
        "その優美な姿は日本国外でも日本の象徴として広く知られている。",
        "富士山は2013年に世界文化遺産に登録された。",
        "このレストランの料理はとても美味しいですが、値段が少し高いです。",
    ),
    THAI: (
        "มีแม่น้ำเจ้าพระยาไหลผ่านและแบ่งเมืองออกเป็นสองฝั่ง",
        "กรุงเทพมหานครคือเมืองหลวงของประเทศไทย",
        "หมอแนะนำให้ออกกำลังกายวันละสามสิบนาที",
    ),
}


@pytest.mark.parametrize("context", SUPPORT, ids=["Chinese", "Japanese", "Thai"])
@pytest.mark.parametrize("bleu_unit", ["character", "word"])
def test_text_without_spaces_is_compared_by_characters(context, bleu_unit):
    samples = [
        {"sample_id": str(n), "response": sentence, "retrieved_contexts": [context]}
        for n, sentence in enumerate(SUPPORT[context])
    ]
    rows = match(*samples, bleu_unit=bleu_unit)
    for measure in ("rouge_l_precision", "token_overlap_precision"):
        copied, rephrased, unrelated = rows[measure]
        assert copied > 0.85
        assert 0.4 < rephrased < copied
        assert unrelated < 0.3
    assert rows["clipped_overlap_precision"][0] > 0.9
    assert rows["rouge_l_recall"][0] > rows["rouge_l_recall"][2]
    copied, rephrased, unrelated = rows["bleu"]
    assert copied >= rephrased >= unrelated
    assert copied > unrelated


def test_long_copied_sentences_without_spaces_are_supported():
    # By single letters a long Thai text shares few distinct ones with any text, itself included.
    sample = {"sample_id": "s", "response": THAI.replace(" ", ""), "retrieved_contexts": [THAI]}
    assert match(sample)["token_overlap_precision"].item() > 0.7
    assert match(sample, tokens="unicode")["token_overlap_precision"].item() < 0.5


def test_response_and_source_choose_the_tokens_together():
    context = {"retrieved_contexts": [f"这座桥长42米，{CHINESE}"]}
    short = match({"sample_id": "s", "response": "42", **context})
    assert short["token_overlap_precision"].to_list() == [1.0]
    assert short["rouge_l_precision"].to_list() == [1.0]
    latin = {"response": "Beijing (北京) is old.", "retrieved_contexts": ["Beijing is very old."]}
    named = match({"sample_id": "s", **latin})
    assert_frame_equal(named, match({"sample_id": "s", **latin}, tokens="treebank"))
    references = {"reference": "Beijing is old.", "other_references": ["北京是一座古老的城市"]}
    both = match(
        {"sample_id": "s", "response": "北京是古老的城市 Beijing", **references},
        against="reference",
        unit="text",
    )
    assert both["source"].to_list() == [0, 1]
    assert both["token_overlap_precision"][1] > 0.6


@given(st.text(max_size=60), st.lists(st.text(max_size=40), max_size=3), st.booleans())
def test_other_texts_have_the_rows_of_treebank_tokens(response, contexts, by_sentence):
    sample = {
        "sample_id": "s",
        "response": UNSPACED.sub("x", response),
        "retrieved_contexts": [UNSPACED.sub("x", text) for text in contexts],
    }
    unit = "sentence" if by_sentence else "text"
    auto = match(sample, unit=unit, bleu_unit="word")
    assert_frame_equal(auto, match(sample, unit=unit, bleu_unit="word", tokens="treebank"))


@given(st.text(st.sampled_from("故宫是の山が高ไทยกรุงเทพ 1a。，"), min_size=1, max_size=40))
def test_a_text_without_spaces_agrees_with_itself(text):
    sample = {"sample_id": "s", "response": text, "retrieved_contexts": [text]}
    for row in match(sample, unit="text").iter_rows(named=True):
        assert row["rouge_l_f1"] in (0.0, 1.0)
        assert row["clipped_overlap_f1"] in (0.0, 1.0)
