from collections.abc import Sequence

import pytest

from flows.engine.embedder import OnnxEmbedder
from flows.engine.recent import RecentEmbedder


class Counting(OnnxEmbedder):
    """The embedder that we ship, noting what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []

    def vectors(self, texts: Sequence[str]) -> dict[str, bytes]:
        self.asked.append(list(texts))
        return super().vectors(texts)


@pytest.fixture
def model() -> Counting:
    return Counting()


def test_a_text_is_embedded_once_and_comes_back_the_same(model: Counting) -> None:
    recent = RecentEmbedder(model)
    first = recent.embed(["Paris.", "Rome.", "Paris."])
    again = recent.embed(["Rome.", "Oslo.", "Paris."])
    assert model.asked == [["Paris.", "Rome."], ["Oslo."]]
    assert again["text"].to_list() == ["Rome.", "Oslo.", "Paris."]
    assert again[[2, 0]].equals(first)
    assert recent.identity == model.identity


def test_the_oldest_are_forgotten(model: Counting) -> None:
    recent = RecentEmbedder(model, kept=1)
    recent.embed(["Paris.", "Rome."])
    recent.embed(["Rome.", "Paris."])
    assert model.asked == [["Paris.", "Rome."], ["Paris."]]


def test_nothing_is_asked_for_nothing(model: Counting) -> None:
    assert RecentEmbedder(model).embed([]).is_empty()
