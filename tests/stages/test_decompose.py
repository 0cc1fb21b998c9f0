"""The stage: claims of samples as rows."""

import json
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from pydantic import ValidationError

from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.judging.claims import ContextDecomposition, Decomposition
from claimflow.stages.rows import Claim, Sample, content_key
from claimflow.stages.tables import build, schema
from claimflow.stages.tools import Failure, Form, Question, Reply
from tests.stages.parsing import PARSER

TEXT = "Nikola Tesla was born in Smiljan and died in New York."
PROMPT = "Claims, {{atomicity}} and {{ coverage }}:\n{{texts}}"


class FakeLlm:
    """A language model that names the claims listed for a text, or fails as listed."""

    def __init__(self, **answer: Sequence[str] | Failure) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.forms: list[Form] = []

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Reply | Failure]:
        self.asked += [text for text, _ in questions]
        self.forms.append(form)
        return {question: self.reply(question.text) for question in questions}

    def reply(self, text: str) -> Reply | Failure:
        answer = self.answer[text.split(maxsplit=1)[0]]
        if isinstance(answer, Failure):
            return answer
        return Reply(Decomposition(claims=list(answer)), content_key("call", text))


def samples(*texts: str | None) -> pl.DataFrame:
    return build(Sample, [{"sample_id": f"s{i}", "response": t} for i, t in enumerate(texts)])


def test_one_row_per_claim_in_text_order() -> None:
    stage = DecomposeClaims(of="response", atomicity="high", coverage="high")
    table = stage.make({"samples": samples(TEXT, "Rome is old.")}, {"parser": PARSER})
    assert table.rows(named=True) == [
        {
            "claim_id": content_key("claim", sample_id, "response", claim),
            "sample_id": sample_id,
            "of": "response",
            "claim": claim,
            "start": start,
            "end": end,
            "status": "made",
            "kind": None,
            "ambiguous": None,
            "failure": None,
            "reason": None,
            "call_id": None,
        }
        for sample_id, claim, start, end in [
            ("s0", "Nikola Tesla was born in Smiljan.", 0, 32),
            ("s0", "Nikola Tesla died in New York.", 37, 53),
            ("s1", "Rome is old.", 0, 12),
        ]
    ]


def test_missing_and_empty_texts_give_no_rows() -> None:
    table = DecomposeClaims(of="response").make({"samples": samples(None, "", " \n")}, {})
    assert table.height == 0
    assert table.schema == schema(Claim)


def test_the_defaults_keep_the_sentence() -> None:
    stage = DecomposeClaims(of="response")
    assert (stage.atomicity, stage.coverage) == ("low", "low")
    assert stage.make({"samples": samples(TEXT)}, {})["claim"].to_list() == [TEXT]


def test_the_other_side_has_other_claims() -> None:
    table = build(Sample, [{"sample_id": "s", "response": "Rome is old.", "reference": "Oslo."}])
    ids = set()
    for of, claim in (("response", "Rome is old."), ("reference", "Oslo.")):
        stage = DecomposeClaims.model_validate({"of": of})
        assert stage.required_fields() == {of}
        made = stage.make({"samples": table}, {})
        assert made["claim"].to_list() == [claim]
        ids |= set(made["claim_id"])
    assert len(ids) == 2


def test_equal_claims_of_two_samples_have_their_own_ids() -> None:
    table = DecomposeClaims(of="response").make(
        {"samples": samples(TEXT, TEXT, f"{TEXT} {TEXT}")}, {}
    )
    assert table["sample_id"].to_list() == ["s0", "s1", "s2"]
    assert table["claim_id"].n_unique() == 3


def test_settings_are_checked() -> None:
    with pytest.raises(ValidationError, match="'low' or 'high'"):
        DecomposeClaims.model_validate({"of": "response", "atomicity": "middle"})


def ask(table: pl.DataFrame, llm: FakeLlm) -> pl.DataFrame:
    return DecomposeClaims(of="response", prompt=PROMPT).make({"samples": table}, {"llm": llm})


def test_claims_of_a_language_model_with_their_call_and_the_sentence_they_are_from() -> None:
    text = "Ann met Bob. She left Rome."
    llm = FakeLlm(Ann=["Ann left Rome.", "It rained.", "Ann  met Bob.", "Ann met Bob."])
    table = ask(samples(text), llm)
    assert table.rows(named=True) == [
        {
            "claim_id": content_key("claim", "s0", "response", claim),
            "sample_id": "s0",
            "of": "response",
            "claim": claim,
            "start": start,
            "end": end,
            "status": "made",
            "kind": None,
            "ambiguous": None,
            "failure": None,
            "reason": None,
            "call_id": content_key("call", text),
        }
        for claim, start, end in [
            ("Ann left Rome.", 13, 27),
            ("It rained.", None, None),
            ("Ann met Bob.", 0, 12),
        ]
    ]


def test_a_text_that_the_language_model_could_not_decompose_is_one_failed_row() -> None:
    call_id = content_key("call", 1)
    llm = FakeLlm(
        One=Failure("refused", "no", call_id), Two=Failure("not_asked", "spent"), Six=["A"]
    )
    table = ask(samples("One", "Two", "Six"), llm)
    columns = ["sample_id", "claim", "status", "failure", "reason", "call_id"]
    assert table.select(columns).rows() == [
        ("s0", None, "failed", "refused", "no", call_id),
        ("s1", None, "failed", "not_asked", "spent", None),
        ("s2", "A", "made", None, None, content_key("call", "Six")),
    ]
    assert table["claim_id"][0] == content_key("claim", "s0", "response", None)
    assert table["start"].to_list() == [None, None, None]


def test_a_language_model_is_asked_once_about_each_text_that_is_not_blank() -> None:
    llm = FakeLlm(One=["A.", "B."], Two=[])
    table = ask(samples("One", None, "", " \n", "Two", "One"), llm)
    assert llm.asked == ["One", "Two"]
    assert table.select("sample_id", "claim").rows() == [
        ("s0", "A."),
        ("s0", "B."),
        ("s5", "A."),
        ("s5", "B."),
    ]
    assert table["claim_id"].n_unique() == 4


def test_a_text_cut_in_parts_has_the_claims_of_all_each_with_its_call() -> None:
    text = "One is. Two are."
    llm = FakeLlm(One=["One is."], Two=["Two are."])
    whole = {text: Failure("truncated", "cut off")}
    reply = llm.reply
    llm.reply = lambda text: whole.get(text) or reply(text)  # type: ignore[method-assign]
    rows = ask(samples(text), llm).select("claim", "start", "end", "call_id").rows()
    assert rows == [
        ("One is.", 0, 7, content_key("call", "One is.")),
        ("Two are.", 8, 16, content_key("call", "Two are.")),
    ]


def test_the_form_has_the_settings_filled_in() -> None:
    llm = FakeLlm(One=[])
    stage = DecomposeClaims(of="response", atomicity="high", prompt=PROMPT, texts_per_call=7)
    stage.make({"samples": samples("One")}, {"llm": llm})
    prompt = "Claims, high and low:\n{{texts}}"
    assert llm.forms == [Form(prompt, "texts", Decomposition, 7, keep_part=False, about="context")]
    assert DecomposeClaims(of="response", prompt=PROMPT).form().per_call == 1
    for wrong in (0, 51):
        with pytest.raises(ValidationError, match="texts_per_call"):
            DecomposeClaims(of="response", prompt=PROMPT, texts_per_call=wrong)


def test_a_language_model_is_needed_only_for_a_prompt_and_a_parser_to_split() -> None:
    assert list(DecomposeClaims.tools) == ["llm", "parser"]
    assert DecomposeClaims(of="response").ignores() == {"llm", "parser"}
    assert DecomposeClaims(of="response", atomicity="high").ignores() == {"llm"}
    for fine in ("low", "high"):
        stage = DecomposeClaims.model_validate(
            {"of": "response", "atomicity": fine, "prompt": PROMPT}
        )
        assert stage.ignores() == {"parser"}


CITING = "Rome is old [1, 3].\nOslo is cold (2).[^1]\n\n[^1]: Bonn is small.\n"


@pytest.mark.parametrize("by_llm", [False, True])
def test_citation_markers_are_removed(by_llm: bool) -> None:
    found = ["Rome is old.", "Oslo is cold."]
    llm = FakeLlm(Rome=found)
    settings = {"of": "response", "citation_markers": "remove"}
    stage = DecomposeClaims(**settings, **({"prompt": PROMPT} if by_llm else {}))
    rows = stage.make({"samples": samples(CITING, "[1]")}, {"llm": llm} if by_llm else {})
    assert [claim for claim in rows["claim"] if "Rome" in claim] == ["Rome is old."]
    assert not rows["claim"].str.contains(r"\d|Bonn").any()
    spans = [CITING[start:end] for start, end in rows.select("start", "end").iter_rows()]
    assert spans == ["Rome is old [1, 3].", "Oslo is cold (2)."]
    if by_llm:
        assert llm.asked == ["Rome is old.\nOslo is cold.\n\n"]


def test_markers_are_kept_as_in_earlier_releases() -> None:
    stage = DecomposeClaims(of="response")
    assert "citation_markers" not in stage.fingerprint_settings()
    assert "Rome is old [1, 3]." in stage.make({"samples": samples(CITING)}, {})["claim"]


CONTEXT_PROMPT = f"Context: {{{{context}}}}\n{PROMPT}"
ASKED = {"sample_id": "s", "user_input": "Who came?", "response": "Ann"}
TALK = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


class Listener(FakeLlm):
    """Notes the whole questions."""

    def __init__(self) -> None:
        super().__init__(Ann=["Ann came."])
        self.questions: list[Question] = []

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Reply | Failure]:
        self.questions += questions
        return super().ask(questions, form)


@pytest.mark.parametrize(
    ("settings", "premise"),
    [
        ({}, "user: Who came?"),
        ({"context": "question"}, "user: Who came?"),
        ({"context": "conversation"}, "user: Hello\n\nassistant: Hi\n\nuser: Who came?"),
        ({"context": "none"}, ""),
    ],
)
def test_a_language_model_reads_the_context(settings: dict[str, str], premise: str) -> None:
    table = build(Sample, [ASKED | {"metadata": json.dumps({"history": TALK})}])
    stage = DecomposeClaims.model_validate(settings | {"of": "response", "prompt": CONTEXT_PROMPT})
    llm = Listener()
    assert stage.make({"samples": table}, {"llm": llm})["claim"].to_list() == ["Ann came."]
    assert llm.questions == [Question("Ann", premise)]
    assert llm.forms[0].answer is ContextDecomposition


@pytest.mark.parametrize(
    "history", [None, "Hello", [], ["Hello"], [{"role": "user"}], {"role": 1, "content": 2}]
)
def test_metadata_without_earlier_messages_are_no_history(history: object) -> None:
    table = build(Sample, [ASKED | {"metadata": json.dumps({"history": history})}])
    settings = {"of": "response", "prompt": CONTEXT_PROMPT, "context": "conversation"}
    llm = Listener()
    DecomposeClaims.model_validate(settings).make({"samples": table}, {"llm": llm})
    assert llm.questions == [Question("Ann", "user: Who came?")]


def test_a_prompt_without_the_blank_is_asked_as_before() -> None:
    llm = Listener()
    stage = DecomposeClaims(of="response", prompt=PROMPT)
    stage.make({"samples": build(Sample, [ASKED])}, {"llm": llm})
    assert llm.questions == [Question("Ann")]
    assert llm.forms[0].answer is Decomposition
    with pytest.raises(ValidationError, match=r"put \{\{contexts\}\} in place of \{\{texts\}\}"):
        DecomposeClaims(of="response", prompt=PROMPT, context="question")
    assert DecomposeClaims(of="response", prompt=PROMPT, context="none").context == "none"


def test_the_question_is_read_only_where_it_is_the_context() -> None:
    def columns(context: str) -> set[str]:
        stage = DecomposeClaims.model_validate({"of": "response", "context": context})
        return {"user_input", "metadata"}.intersection(stage.columns_of("samples"))

    assert columns("none") == set()
    assert columns("question") == {"user_input"}
    assert columns("conversation") == {"user_input", "metadata"}
    made = [
        DecomposeClaims.model_validate({"of": "response", "context": context})
        .make({"samples": build(Sample, [ASKED])}, {})["claim"]
        .to_list()
        for context in ("none", "question")
    ]
    assert made == [["Ann"], ["Ann came."]]


def test_an_ambiguous_claim_says_what_is_unclear() -> None:
    table = samples("Ann met Eva. She was ill.")
    rows = DecomposeClaims(of="response").make({"samples": table}, {})
    assert rows.select("claim", "ambiguous").rows() == [
        ("Ann met Eva.", None),
        ("She was ill.", "She"),
    ]


@pytest.mark.parametrize(("prompt", "rows"), [(CONTEXT_PROMPT, 1), (PROMPT, 2)])
def test_yes_is_no_greeting_where_the_language_model_knew_the_question(
    prompt: str, rows: int
) -> None:
    sample = {"sample_id": "s", "user_input": "Is tin a metal?", "response": "Yes."}
    table = build(Sample, [sample])
    llm = FakeLlm(**{"Yes.": ["Tin is a metal."]})
    made = DecomposeClaims(of="response", prompt=prompt).make({"samples": table}, {"llm": llm})
    assert made["claim"][0] == "Tin is a metal."
    assert made.height == rows
