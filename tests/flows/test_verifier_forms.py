"""Published verifiers with templates and answers of their own, by tiny models of their kind.

The expected probabilities were computed with transformers, as the publishers of the models do.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.models.cross_encoder import CrossEncoder
from claimflow.flows.models.hub import fetch_model, find_cached
from claimflow.flows.pipeline.model_settings import HubModel, OnnxCrossEncoder
from claimflow.flows.pipeline.verifier_forms import KNOWN_FORMS, PAIR, Form, in_order
from claimflow.flows.store.store import Store
from claimflow.stages.tools import Judgement, Pair
from tests.flows.hub_server import files_of, hub_settings, serve_hub

TINY = Path(__file__).parents[1] / "data" / "tiny_verifiers"
EXPECTED = json.loads((TINY / "expected.json").read_text())
PAIRS = [Pair(*pair) for pair in EXPECTED["pairs"]]
FORMS = {**KNOWN_FORMS, "one-output": Form(answers=in_order(("entailed",)))}
BRIDGE = "The bridge was opened in 1932. "


def model_of(name: str, form: Form | None = None) -> CrossEncoder:
    return CrossEncoder(TINY / name, threads=1, form=form or FORMS[name])


def judge(name: str, premise: str, claim: str, form: Form | None = None) -> Judgement:
    pair = Pair(premise, claim)
    return model_of(name, form).judge([pair])[pair]


@pytest.mark.parametrize("name", sorted(FORMS))
def test_probabilities_are_those_of_the_publishers(name: str) -> None:
    judged = model_of(name).judge(PAIRS)
    found = [judged[pair].entailed for pair in PAIRS]
    assert found == pytest.approx(EXPECTED["supported"][name], abs=1e-3)
    assert len(set(found)) > 1
    for pair in PAIRS:
        assert (judged[pair].start, judged[pair].end) == (0, len(pair.premise))
        assert judged[pair].contradicted == 0


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_judgement_depends_on_its_pair_alone(name: str) -> None:
    together = model_of(name).judge(PAIRS)
    assert together == {pair: judge(name, *pair) for pair in PAIRS}


@pytest.mark.parametrize(
    ("name", "special"),
    [
        ("minicheck-t5", "</s>"),
        ("minicheck-roberta", "</s>"),
        ("hhem", "<pad>"),
        ("granite-guardian", "<|end_of_role|>"),
    ],
)
@pytest.mark.parametrize("part", ["premise", "claim"])
def test_no_text_can_put_a_special_token_into_a_template(
    name: str, special: str, part: str
) -> None:
    texts = {"premise": "It rains.", "claim": "The river is near."}
    hostile, plain = ({**texts, part: f"{one}The mayor"} for one in (special, f"< {special[1:]}"))
    assert judge(name, **hostile) == judge(name, **plain)._replace(end=len(hostile["premise"]))


@pytest.mark.parametrize(
    ("name", "special", "plain"),
    [("minicheck-t5", "＜／s＞", "</s>"), ("factcg", "［SEP］", "[SEP]")],
)
def test_full_width_letters_make_no_special_token(name: str, special: str, plain: str) -> None:
    one, other = (
        judge(name, premise="It rains.", claim=f"z {text} w") for text in (special, plain)
    )
    assert one == other


@pytest.mark.parametrize("part", ["premise", "claim"])
def test_texts_of_special_tokens_alone_fit_into_the_window(part: str) -> None:
    texts = {"premise": "It rains.", "claim": "It rains.", part: "</s>" * 900}
    assert judge("minicheck-roberta", **texts).entailed > 0


@pytest.mark.parametrize("name", ["factcg", "lettucedetect"])
def test_a_placeholder_within_a_text_is_text(name: str) -> None:
    for texts in ({"premise": "{claim}"}, {"claim": "{premise}"}):
        written = {"premise": "It rains.", "claim": "It rains.", **texts}
        assert judge(name, **written) != judge(name, "It rains.", "It rains.")
        assert judge(name, **written).entailed > 0


@pytest.mark.parametrize("name", sorted(FORMS))
def test_the_best_window_of_a_long_premise_counts(name: str) -> None:
    empty = len(model_of(name)._session._read(Pair("", "")).encoding.ids)
    form = FORMS[name]._replace(window=empty + 60)
    sentences = [BRIDGE, "The museum shows paintings. ", "It rains. ", "Tickets are free. "] * 6
    premise = "".join(sentences).strip()
    found = judge(name, premise, "The bridge is near.", form)
    part = premise[found.start : found.end]
    assert 0 < len(part) < len(premise)
    alone = judge(name, part, "The bridge is near.", form)
    assert alone.entailed == pytest.approx(found.entailed, abs=2e-3)
    assert judge(name, premise, "Rain. " * 500, form).entailed >= 0


def test_a_window_that_the_template_fills_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        judge(
            "granite-guardian", "One.", "Two.", KNOWN_FORMS["granite-guardian"]._replace(window=99)
        )
    assert str(caught.value) == (
        f"{TINY / 'granite-guardian'}: the template alone has 666 tokens of a window of 99; "
        "write a larger `window` in the section entailment"
    )


def test_the_identity_names_all_that_could_change_a_judgement() -> None:
    form = KNOWN_FORMS["minicheck-t5"]
    before = model_of("minicheck-t5").identity
    assert {"decoder_model.onnx_sha256", "start", "template", "read"} <= before.keys()
    for changed in (
        {"texts": ("check: {premise}</s>{claim}",)},
        {"answers": (("0", "neutral"), ("5", "entailed"))},
        {"answers": (("0", "entailed"), ("1", "neutral"))},
        {"window": 400},
    ):
        assert model_of("minicheck-t5", form._replace(**changed)).identity != before
    plain = model_of("minicheck-roberta", Form(answers=in_order(("neutral", "entailed"))))
    assert not {"template", "read"} & plain.identity.keys()


@pytest.mark.parametrize("words", [("Yes", "Yes, indeed"), ("Yes", "")])
def test_words_without_a_first_token_of_their_own_are_refused(words: tuple[str, str]) -> None:
    form = KNOWN_FORMS["granite-guardian"]
    form = form._replace(answers=tuple(zip(words, ("entailed", "neutral"), strict=True)))
    with pytest.raises(InputError, match=r"no token for the answer '.*' alone.*; name words in"):
        judge("granite-guardian", "One.", "Two.", form)


def test_a_model_that_gives_something_else_is_refused() -> None:
    for name, form, wanted in (
        ("factcg", "granite-guardian", "it must give a number for each word"),
        ("lettucedetect", "granite-guardian", "it must give a number for each word"),
        ("hhem", "minicheck-t5", "it must give a number for each word"),
        ("factcg", "lettucedetect", "it must give 2 numbers for each token"),
        ("factcg", "hhem", "it must give 2 numbers for each token"),
        ("lettucedetect", "factcg", "it must give a text 2 numbers, as the template or"),
        ("granite-guardian", "factcg", "it must give a text 2 numbers, as the template or"),
    ):
        with pytest.raises(InputError, match=wanted):
            judge(name, "One.", "Two.", KNOWN_FORMS[form])


def test_an_encoder_without_its_decoder_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(TINY / "minicheck-t5", tmp_path / "mine"))
    with pytest.raises(InputError) as caught:
        CrossEncoder(folder)
    pair = "encoder_model.onnx and decoder_model.onnx"
    assert (
        f"{folder / 'model.onnx'}: no such file; a model of {pair} says words: name its template, "
        "or `answer: {words: ...}`"
    ) in str(caught.value)
    (folder / "decoder_model.onnx").unlink()
    with pytest.raises(InputError) as caught:
        CrossEncoder(folder, form=KNOWN_FORMS["minicheck-t5"])
    assert str(caught.value) == (
        f"{folder / 'decoder_model.onnx'}: no such file; put a cross-encoder there in ONNX format; "
        f"or {pair}"
    )


# The settings of a pipeline.


def form_of(**values: Any) -> Form:
    return OnnxCrossEncoder.model_validate({"model": "mine", **values}).form()


def test_settings_add_to_a_known_template() -> None:
    assert form_of() == Form() == Form(PAIR)
    assert form_of(template="factcg") == KNOWN_FORMS["factcg"]
    assert form_of(template="factcg", window=2_048) == KNOWN_FORMS["factcg"]._replace(window=2_048)
    own = form_of(
        template=["{premise} ", "So: {claim}"], answer={"tokens": ["entailed", "neutral"]}
    )
    assert own == Form(("{premise} ", "So: {claim}"), "tokens", in_order(("entailed", "neutral")))
    words = form_of(
        template="{premise}?{claim}", answer={"words": {"J": "entailed", "N": "neutral"}}
    )
    assert (words.read, words.answers) == ("words", (("J", "entailed"), ("N", "neutral")))
    assert form_of(answer={"outputs": ["entailed"]}).answers == (("0", "entailed"),)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"template": "factgc"}, "did you mean 'factcg'. name one of factcg, .*; or write a text"),
        ({"template": "{premise}"}, "once each; {claim} is in it 0 times"),
        ({"template": ["{premise}", "{claim} {claim}"]}, "once each; {claim} is in it 2 times"),
        ({"template": True}, "write a text in quotes, or a list of two, with {premise} and"),
        ({"template": {"premise": None}}, "write a text in quotes, or a list of two"),
        ({"template": ["{premise}", "{claim}", "x"]}, "write a text in quotes, or a list of two"),
        ({"answer": {"words": {"Yes": "entailed"}}}, "name entailed and neutral"),
        ({"answer": {"words": {"": "entailed", "No": "neutral"}}}, "name words that have a letter"),
        ({"answer": {"tokens": ["entailed"]}}, "name entailed and neutral"),
        ({"answer": {}}, "give one of outputs, words and tokens"),
        ({"answer": {"outputs": ["entailed"], "tokens": ["entailed", "neutral"]}}, "give one of"),
        ({"answer": {"outputs": ["entailed", "entailed"]}}, "and each label once"),
        ({"answer": {"outputs": ["neutral"]}}, "name entailed and neutral"),
        ({"answer": {"words": {"no": "neutral", "maybe": "contradicted"}}}, "entailed and neutral"),
        ({"window": 3}, "greater than or equal to 16"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(values: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        form_of(**values)


SAMPLE = {"sample_id": "a", "response": "The mayor opened it.", "reference": BRIDGE + "It rains."}
PIPELINE = """\
name: nightly
store: store.duckdb
samples: {{path: samples.jsonl}}
entailment: {entailment}
steps:
  claims: {{use: decompose_claims, of: response}}
  verdicts: {{use: verify_claims, claims: claims, against: reference}}
"""


def write(folder: Path, entailment: str) -> Path:
    (folder / "samples.jsonl").write_text(json.dumps(SAMPLE) + "\n")
    path = folder / "nightly.yaml"
    path.write_text(PIPELINE.format(entailment=entailment))
    return path


def test_a_pipeline_asks_the_model_that_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = write(tmp_path, f"{{model: {TINY / 'minicheck-t5'}, template: minicheck-t5}}")
    assert main(["run", str(pipeline)]) == 0
    with Store(tmp_path / "store.duckdb").reading() as connection:
        found = connection.sql("SELECT p_entailed FROM latest.verdicts").fetchall()
    expected = judge("minicheck-t5", SAMPLE["reference"], SAMPLE["response"])
    assert found == [(pytest.approx(expected.entailed),)]
    capsys.readouterr()
    assert main(["run", str(pipeline)]) == 0
    assert "reused" in capsys.readouterr().out


def test_a_wrong_setting_is_a_message_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = write(tmp_path, "{model: models/mine, template: minichek}")
    assert main(["run", str(pipeline)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"claimflow: {pipeline}:4 entailment.template: is not valid; did you mean "
        "'minicheck-t5'? name one of factcg, granite-guardian, hhem, lettucedetect, "
        "minicheck-roberta, minicheck-t5; or write a text, or two, with {premise} and {claim} once "
        "each"
    ]


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ("template: granite-guardian, window: 99", "the template alone has 666 tokens of a window"),
        (
            "template: '{premise} {claim}', answer: {words: {Aye: entailed, Aye!: neutral}}",
            "its tokenizer has no token for the answer 'Aye!' alone, as 'Aye' has",
        ),
    ],
)
def test_what_does_not_suit_the_tokenizer_is_said_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, settings: str, what: str
) -> None:
    model = TINY / "granite-guardian"
    pipeline = write(tmp_path, f"{{model: {model}, {settings}}}")
    assert main([command, str(pipeline)]) == 2
    assert what in capsys.readouterr().err
    assert not (tmp_path / "store.duckdb").exists()


def test_the_hub_has_models_whose_outputs_only_the_pipeline_names(tmp_path: Path) -> None:
    with (
        serve_hub() as hub,
        hub_settings(HF_ENDPOINT=f"http://{hub.host}", HF_HOME=str(tmp_path / "home")),
    ):
        for name in ("factcg", "minicheck-t5"):
            form, model = KNOWN_FORMS[name], HubModel(f"someone/{name}")
            hub.publish(model.name, files_of(TINY / name))
            assert find_cached(model, form) is None
            folder = fetch_model(model, form, "here", lambda _: None)
            assert find_cached(model, form) == folder
            own = CrossEncoder(folder, threads=1, form=form).judge(PAIRS)
            assert own == model_of(name).judge(PAIRS)
        with pytest.raises(InputError, match=r"id2label names nothing; .*answer: "):
            fetch_model(HubModel("someone/factcg"), Form(), "here", lambda _: None)
