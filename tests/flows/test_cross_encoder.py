"""Cross-encoders as entailment models, with a model small enough to check by hand."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.errors import InputError, WorkersError
from claimflow.flows.models.cross_encoder import CrossEncoder, text_windows
from claimflow.flows.models.loading import load_entailment_model
from claimflow.flows.pipeline.model_settings import EntailmentSource
from claimflow.flows.runner.embedded_models import judgement_replies, worker_judgements
from claimflow.stages.tools import Judgement, Pair

TINY = Path(__file__).parents[1] / "data" / "tiny_cross_encoder"
"""Its README says what each word adds to which output."""

FILLED = "One two three four five six seven eight."
PROVED = "It was proved by many of us here."
DENIED = "But others denied all of it at once."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "mine"))


def judge(premise: str, claim: str, folder: Path = TINY) -> Judgement:
    pair = Pair(premise, claim)
    return CrossEncoder(folder, threads=1).judge([pair])[pair]


@pytest.mark.parametrize(
    ("claim", "probabilities"),
    [
        ("It is in Paris.", (0.965, 0.018, 0.017)),
        ("Cheese is old.", (0.018, 0.018, 0.964)),
        ("It is old.", (0.333, 0.333, 0.334)),
    ],
)
def test_probabilities_are_matched_to_labels_by_output_names(
    claim: str, probabilities: tuple[float, ...]
) -> None:
    assert judge("One two three.", claim) == Judgement(*probabilities, 0, 14)


@pytest.mark.parametrize(("premise", "claim"), [("", "Paris"), (" \n", "Paris"), ("One.", " ")])
def test_texts_without_tokens_are_neutral(premise: str, claim: str) -> None:
    assert judge(premise, claim) == Judgement(0.0, 0.0, 1.0, 0, 0)


@pytest.mark.parametrize(
    ("sentences", "best", "label"),
    [
        ([FILLED, PROVED, FILLED], PROVED, "entailed"),
        ([DENIED, FILLED, PROVED], PROVED, "entailed"),
        ([FILLED, FILLED, DENIED], DENIED, "contradicted"),
        ([FILLED, FILLED, FILLED], FILLED, "neutral"),
    ],
)
def test_the_best_window_of_a_long_premise_counts(
    sentences: list[str], best: str, label: str
) -> None:
    premise = " ".join(sentences)
    found = judge(premise, "A cheese.")
    assert premise[found.start : found.end] == best
    assert max(("entailed", "contradicted", "neutral"), key=lambda w: getattr(found, w)) == label


def test_a_claim_longer_than_half_the_window_is_truncated() -> None:
    long = "one two three four five six seven"
    assert judge("One.", f"{long} eight cheese").neutral == 0.334
    assert judge("One.", f"cheese {long} eight").neutral == 0.964


def test_a_judgement_depends_on_its_pair_alone() -> None:
    pairs = [
        Pair(premise, claim)
        for premise in (PROVED, f"{FILLED} {DENIED}", FILLED)
        for claim in ("Paris", "A cheese of old", "so")
    ]
    model = CrossEncoder(TINY)
    together = model.judge([*pairs, *pairs])
    assert list(together) == pairs
    assert together == {pair: judge(*pair) for pair in pairs}
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(model.judge, [pairs] * 4)) == [together] * 4


def test_no_pairs_load_no_model() -> None:
    model = CrossEncoder(TINY)
    assert model.judge([]) == {}
    assert "_session" not in vars(model)


def test_the_identity_needs_no_model_and_changes_with_every_file(folder: Path) -> None:
    before = CrossEncoder(folder)
    assert before.identity["labels"] == "entailed,neutral,contradicted"
    assert before.identity["max_length"] == 16
    assert "_session" not in vars(before)
    assert CrossEncoder(TINY).identity == before.identity | {"name": "tiny_cross_encoder"}
    change(folder, "config.json", max_position_embeddings=12)
    assert CrossEncoder(folder).identity == before.identity | {"max_length": 12}
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + "\n")
    (folder / "model.onnx").write_bytes(b"other")
    changed = CrossEncoder(folder).identity
    assert {name for name in changed if changed[name] != before.identity[name]} == {
        "max_length",
        "model_sha256",
        "tokenizer_sha256",
    }


def change(folder: Path, name: str, **values: Any) -> None:
    found = json.loads((folder / name).read_text()) if (folder / name).is_file() else {}
    (folder / name).write_text(json.dumps(found | values))


@pytest.mark.parametrize(
    ("config", "tokenizer", "window"),
    [
        ({"max_position_embeddings": 514}, {"model_max_length": 512}, 512),
        ({"max_position_embeddings": 4096}, {"model_max_length": 10**30}, 512),
        ({"max_position_embeddings": 514}, {"model_max_length": 128}, 128),
        ({"max_position_embeddings": None}, {}, 512),
    ],
)
def test_the_window_is_the_smallest_that_is_named(
    folder: Path, config: dict[str, Any], tokenizer: dict[str, Any], window: int
) -> None:
    change(folder, "config.json", **config)
    change(folder, "tokenizer_config.json", **tokenizer)
    assert CrossEncoder(folder).identity["max_length"] == window


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["ENTAILMENT", "Neutral", "contradiction"], "entailed,neutral,contradicted"),
        (["not_entailment", "entailment"], "neutral,entailed"),
    ],
)
def test_output_names_of_published_models(folder: Path, names: list[str], labels: str) -> None:
    change(folder, "config.json", id2label=dict(enumerate(names)))
    assert CrossEncoder(folder).identity["labels"] == labels


def test_a_model_with_two_outputs_never_says_contradicted(folder: Path) -> None:
    shutil.copy(folder / "two_outputs.onnx", folder / "model.onnx")
    change(folder, "config.json", id2label={"0": "entailment", "1": "not_entailment"})
    assert judge("One two three.", "Paris", folder) == Judgement(0.982, 0.0, 0.018, 0, 14)
    assert judge(f"{FILLED} {PROVED}", "A cheese.", folder).start == len(FILLED) + 1
    # The model with three outputs calls this a contradiction.
    assert judge(DENIED, "It is old.", folder) == Judgement(0.5, 0.0, 0.5, 0, len(DENIED))


def test_weights_beside_the_model_are_part_of_its_identity(folder: Path) -> None:
    alone = CrossEncoder(folder).identity
    (folder / "model.onnx_data").write_bytes(b"weights")
    first = CrossEncoder(folder).identity
    assert first == alone | {"model.onnx_data_sha256": first["model.onnx_data_sha256"]}
    (folder / "model.onnx_data").write_bytes(b"others")
    assert CrossEncoder(folder).identity != first


def test_weights_that_the_model_names_are_part_of_its_identity(folder: Path) -> None:
    """Not those outside of its folder, which are never loaded."""
    names = [b"weights.bin", b"../config.json", b"missing.bin"]
    entries = [b"\x0a\x08location\x12" + bytes([len(name)]) + name for name in names]
    with (folder / "model.onnx").open("ab") as model:
        model.write(b"".join(entries))
    alone = CrossEncoder(folder).identity
    (folder / "weights.bin").write_bytes(b"weights")
    first = CrossEncoder(folder).identity
    assert first == alone | {"weights.bin_sha256": first["weights.bin_sha256"]}
    (folder / "weights.bin").write_bytes(b"others")
    assert CrossEncoder(folder).identity != first


LABELS = (
    'give id2label with entailment and neutral, or not_entailment, as in {"0": "entailment", '
    '"1": "neutral", "2": "contradiction"}; or in the pipeline the template of the model, '
    "or an answer, as in {outputs: [entailed, neutral, contradicted]}"
)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (None, "nothing"),
        ({}, "nothing"),
        ({"0": "LABEL_0", "1": "LABEL_1"}, "'LABEL_0', 'LABEL_1'"),
        ({"0": "entailment", "1": "contradiction"}, "'entailment', 'contradiction'"),
        ({"0": "entailment", "2": "neutral"}, "'entailment', ''"),
        ({"0": "neutral", "1": "neutral", "2": "entailed"}, "'neutral', 'neutral', 'entailed'"),
    ],
)
def test_outputs_of_unknown_meaning_are_refused(folder: Path, names: Any, shown: str) -> None:
    change(folder, "config.json", id2label=names)
    with pytest.raises(InputError) as caught:
        CrossEncoder(folder)
    assert str(caught.value) == f"{folder / 'config.json'}: id2label names {shown}; {LABELS}"


def test_all_missing_files_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        CrossEncoder(tmp_path)
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'model.onnx'}: no such file; put a cross-encoder there in ONNX format",
        f"{tmp_path / 'tokenizer.json'}: no such file; put the model's tokenizer there",
        f"{tmp_path / 'config.json'}: no such file; put the model's configuration there",
    ]


def test_a_missing_folder_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        CrossEncoder(tmp_path / "some/model")
    right = "name a folder with model.onnx, tokenizer.json and config.json"
    assert str(caught.value) == f"{tmp_path / 'some/model'}: no such folder; {right}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "[]", "no JSON object; it must be one"),
        ("config.json", "{", "cannot be read ("),
        ("tokenizer_config.json", "3", "no JSON object; it must be one"),
        ("tokenizer_config.json", "[" * 200_000, "cannot be read ("),
    ],
)
def test_files_that_are_not_json_objects(
    folder: Path, name: str, content: str, message: str
) -> None:
    (folder / name).write_text(content)
    with pytest.raises(InputError) as caught:
        CrossEncoder(folder)
    assert str(caught.value).startswith(f"{folder / name}: {message}")


@pytest.mark.parametrize(
    ("name", "kind"), [("tokenizer.json", "a tokenizers file"), ("model.onnx", "an ONNX model")]
)
def test_a_file_that_cannot_be_loaded(folder: Path, name: str, kind: str) -> None:
    (folder / name).write_text("no")
    with pytest.raises(InputError, match=f"cannot be loaded .*; it must be {kind}"):
        judge("One.", "two", folder)


def test_a_model_that_does_not_fit_its_labels(folder: Path) -> None:
    change(folder, "config.json", id2label={"0": "entailment", "1": "not_entailment"})
    with pytest.raises(InputError) as caught:
        judge("One.", "two", folder)
    assert str(caught.value) == (
        f"{folder / 'model.onnx'}: has the output shape ['batch', 3]; it must give a text "
        "2 numbers, as id2label has it"
    )


def test_a_sentence_encoder_is_refused(folder: Path) -> None:
    shutil.copy(TINY.parent / "tiny_encoder" / "model.onnx", folder / "model.onnx")
    with pytest.raises(
        InputError, match=r"has the output shape \['batch', 'sequence', 3\]; it must give"
    ):
        judge("One.", "two", folder)


def test_the_model_may_be_in_the_folder_onnx(folder: Path) -> None:
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    assert judge("One.", "Paris", folder) == judge("One.", "Paris")


def test_workers_must_have_the_same_model(folder: Path) -> None:
    pairs = [Pair(PROVED, "Paris"), Pair(FILLED, "cheese")]
    source = EntailmentSource(folder)
    here = load_entailment_model(source)
    assert worker_judgements(source, here.identity, pairs) == judgement_replies(here, pairs)
    with pytest.raises(WorkersError, match=r"another entailment model in .*mine than"):
        worker_judgements(source, {"name": "other"}, pairs)
    with pytest.raises(
        WorkersError, match="a worker does not have the entailment model of this run"
    ):
        worker_judgements(EntailmentSource(folder / "nowhere"), here.identity, pairs)


def words(text: str) -> list[tuple[int, int]]:
    """A token for each word."""
    found, at = [], 0
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        found.append((start, at))
    return found


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(4, 20))
def test_windows_hold_every_token_and_have_a_bounded_size(lengths: list[int], room: int) -> None:
    text = " ".join("Ab" + " cd" * (length - 1) + "." for length in lengths)
    tokens = words(text)
    found = text_windows(text, tokens, room)
    held = [[token for token in tokens if span.start <= token[0] < span.end] for span in found]
    assert all(1 <= len(inside) <= room for inside in held)
    assert {token for inside in held for token in inside} == set(tokens)
    assert all(one.start < two.start and one.end < two.end for one, two in pairwise(found))


def test_a_window_begins_with_the_last_sentence_of_the_one_before() -> None:
    sentences = ["Ann left.", "Bob ran off.", "Cy sat down.", "Di sang."]
    text = " ".join(sentences)
    spans = text_windows(text, words(text), 6)
    assert [text[start:end] for start, end in spans] == [
        "Ann left. Bob ran off.",
        "Bob ran off. Cy sat down.",
        "Cy sat down. Di sang.",
    ]


def test_a_long_sentence_is_cut_into_pieces_that_share_a_quarter() -> None:
    text = "Aa bb cc dd ee ff gg hh ii jj."
    assert [text[start:end] for start, end in text_windows(text, words(text), 4)] == [
        "Aa bb cc dd",
        "dd ee ff gg",
        "gg hh ii jj.",
    ]
