from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.flows.models.sentence_encoder import SentenceEncoder
from claimflow.stages.rows import Sample
from claimflow.stages.similarity import EmbeddingSimilarity
from claimflow.stages.tables import build
from claimflow.stages.tools import embedding_table

TEXTS = {
    "same": ("A cat sat on the mat.", "A cat sat on the mat."),
    "near": ("A cat sat on the mat.", "A cat did not sit on the mat."),
    "far": ("A cat sat on the mat.", "Preferred stocks have no voting rights."),
    "blank": (" \n\u2003", "A cat sat on the mat."),
    "missing": ("A cat sat on the mat.", None),
    "neither": (None, None),
    "emoji": ("😀", "😡"),
}
SAMPLES = build(
    Sample,
    [{"sample_id": key, "response": a, "reference": b} for key, (a, b) in TEXTS.items()],
)


class Recording:
    """The real embedder; `asked` holds every text it was given, `loses` what it fails on."""

    def __init__(self, *loses: str) -> None:
        self.asked: list[str] = []
        self._loses = loses

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        self.asked += texts
        return ONNX.embed([text for text in texts if text not in self._loses])


ONNX = SentenceEncoder(threads=1)


def similarities(samples=SAMPLES, embedder=None, **settings):
    stage = EmbeddingSimilarity(**{"left": "response", "right": "reference"} | settings)
    table = stage.make({"samples": samples}, {"embedder": embedder or ONNX})
    return {row["sample_id"]: row for row in table.iter_rows(named=True)}


def test_one_row_per_sample_in_their_order():
    rows = similarities()
    assert list(rows) == list(TEXTS)
    assert {row["left"] for row in rows.values()} == {"response"}
    assert {row["right"] for row in rows.values()} == {"reference"}


def test_cosines():
    rows = similarities()
    assert rows["same"]["cosine"] == 1
    assert rows["near"]["cosine"] == pytest.approx(0.7872, abs=0.02)
    assert rows["far"]["cosine"] < 0.2
    assert all(row["cosine"] is None or -1 <= row["cosine"] <= 1 for row in rows.values())


@pytest.mark.parametrize(
    ("sample_id", "reason"),
    [
        ("blank", "the response is empty"),
        ("missing", "missing: reference"),
        ("neither", "missing: response"),
    ],
)
def test_missing_and_blank_texts_are_undefined_with_a_reason(sample_id, reason):
    row = similarities(threshold=0.0)[sample_id]
    assert (row["status"], row["reason"]) == ("undefined", reason)
    assert row["cosine"] is None
    assert row["similar"] is None


def test_distinct_texts_are_embedded_once_and_blank_ones_never():
    recording = Recording()
    similarities(embedder=recording)
    assert sorted(recording.asked) == [
        "A cat did not sit on the mat.",
        "A cat sat on the mat.",
        "Preferred stocks have no voting rights.",
        "😀",
        "😡",
    ]


@pytest.mark.parametrize(("lost", "field"), [("😀", "response"), ("😡", "reference")])
def test_a_text_without_embedding_is_a_failure_of_its_sample_alone(lost, field):
    rows = similarities(embedder=Recording(lost))
    assert (rows["emoji"]["status"], rows["emoji"]["cosine"]) == ("failed", None)
    assert rows["emoji"]["reason"] == f"the {field} has no embedding"
    assert rows["near"]["status"] == "measured"


def test_similar_needs_a_threshold():
    assert {row["similar"] for row in similarities().values()} == {None}


def test_zero_is_a_threshold():
    rows = similarities(threshold=0.0)
    assert rows["near"]["similar"] is True
    assert similarities(threshold=0.95)["near"]["similar"] is False


def test_the_cosine_does_not_depend_on_the_side():
    there, back = similarities(), similarities(left="reference", right="response")
    assert {name: row["cosine"] for name, row in there.items()} == {
        name: row["cosine"] for name, row in back.items()
    }


class Vectors:
    """Gives each text the vector listed for it."""

    def __init__(self, **vectors: Sequence[float]) -> None:
        self._vectors = vectors

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        packed = [np.array(self._vectors[text], "<f4").tobytes() for text in texts]
        return embedding_table(texts, packed, dimension=3)


def samples_of(*pairs: tuple[str, str]) -> pl.DataFrame:
    rows = [{"sample_id": f"{a} {b}", "response": a, "reference": b} for a, b in pairs]
    return build(Sample, rows)


component = st.floats(-1, 1, width=32)


@given(st.lists(st.tuples(component, component, component), min_size=2, max_size=2))
def test_a_cosine_is_at_most_1_and_that_of_equal_vectors_is_1(vectors):
    """Whatever rounding to 32 bits has made of their lengths."""
    embedder = Vectors(a=vectors[0], same=vectors[0], b=vectors[1])
    pairs = samples_of(("a", "same"), ("a", "a"), ("a", "b"))
    rows = similarities(pairs, embedder, threshold=1.0)
    if any(vectors[0]):
        for pair in ("a same", "a a"):
            assert (rows[pair]["cosine"], rows[pair]["similar"]) == (1.0, True)
    cosine = rows["a b"]["cosine"]
    assert (cosine is None) == (not any(vectors[0]) or not any(vectors[1]))
    if cosine is not None:
        assert -1 <= cosine <= 1
        exact = np.array(vectors, np.longdouble)
        lengths = np.sqrt((exact**2).sum(axis=1))
        assert cosine == pytest.approx(
            float((exact[0] * exact[1]).sum() / lengths.prod()), abs=1e-14
        )


@pytest.mark.parametrize(
    ("pair", "field"),
    [(("zero", "a"), "response"), (("a", "zero"), "reference"), (("zero", "zero"), "response")],
)
def test_a_zero_vector_has_no_cosine(pair, field):
    embedder = Vectors(a=[1, 0, 0], zero=[0, 0, 0])
    (row,) = similarities(samples_of(pair), embedder, threshold=-1.0).values()
    assert (row["status"], row["cosine"], row["similar"]) == ("undefined", None, None)
    assert row["reason"] == f"the embedding of the {field} is zero"


def test_no_samples_no_rows():
    assert similarities(SAMPLES.clear()) == {}


def test_requires_its_two_texts():
    stage = EmbeddingSimilarity(left="user_input", right="response")
    assert stage.required_fields() == {"user_input", "response"}


def test_a_text_is_not_compared_with_itself():
    with pytest.raises(
        ValidationError, match="left and right are both response; compare two different texts"
    ):
        EmbeddingSimilarity(left="response", right="response")


@pytest.mark.parametrize("threshold", [1.5, -2, float("nan")])
def test_a_threshold_is_a_cosine(threshold):
    with pytest.raises(ValidationError):
        EmbeddingSimilarity(left="response", right="reference", threshold=threshold)
