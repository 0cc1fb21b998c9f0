"""A panel of judges at the real endpoint: who is asked which draw, and by which seed."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.judge.panel import JudgePanel
from claimflow.stages.judging.votes import VotedVerdict, ask_votes
from claimflow.stages.tools import Failure, Pair
from tests.endpoint import faults
from tests.endpoint.fault import Rule
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import FORM, LABELS, PREMISE, QUESTIONS, judge_of

PAIRS = [Pair(PREMISE, question.text) for question in QUESTIONS]
OTHER = ["contradicted", "neutral", "entailed"]


def seeds(endpoint: Endpoint) -> list[int]:
    """The seeds of the requests that were answered, sorted; -1 for one without."""
    answered = (one.body for one in endpoint.requests if one.status == 200)
    return sorted(body.get("seed", -1) for body in answered)


def seeded(*numbers: int | None) -> Rule:
    """Strikes the requests with these seeds: every answer is another one."""
    return faults.where(lambda body: body.get("seed") in numbers, faults.swayed())


@contextmanager
def panel(
    folder: Path,
    *,
    fault: Rule | None = None,
    refuses: Collection[str] = (),
    repeat: int = 0,
    **settings: Any,
) -> Iterator[tuple[JudgePanel, Endpoint]]:
    """A panel of one judge, and the endpoint that it asks."""
    with (
        serve(fault=fault, refuses=refuses) as endpoint,
        judge_of(endpoint, folder / "s.duckdb", **settings) as judge,
    ):
        yield JudgePanel({"judge": judge}, step="step", repeat=repeat), endpoint


def voted(asked: JudgePanel, votes: int) -> tuple[list[str], list[float | None]]:
    """The verdicts, or kinds of failure, and their agreements."""
    decided = ask_votes(PAIRS, FORM, asked, votes=votes)
    return [_label(decided[pair]) for pair in PAIRS], [decided[pair].agreement for pair in PAIRS]


def _label(decided: VotedVerdict) -> str:
    outcome = decided.verdict
    return outcome.kind if isinstance(outcome, Failure) else outcome.verdict


@pytest.mark.parametrize(("swayed", "labels"), [((2,), LABELS), ((1, 2), OTHER), ((None,), LABELS)])
def test_the_majority_of_three_draws_counts(
    swayed: tuple[int | None, ...], labels: list[str], tmp_path: Path
) -> None:
    with panel(tmp_path, fault=seeded(*swayed)) as (asked, endpoint):
        assert voted(asked, 3) == (labels, [2 / 3] * 3)
        assert seeds(endpoint) == [-1, 1, 2]
        assert voted(asked, 3) == (labels, [2 / 3] * 3)
        assert endpoint.hits == 3
        voted(asked, 4)
        assert seeds(endpoint) == [-1, 1, 2, 3]


def test_the_seed_of_a_judge_is_where_its_draws_start(tmp_path: Path) -> None:
    with panel(tmp_path, seed=40) as (asked, endpoint):
        voted(asked, 3)
        assert seeds(endpoint) == [40, 41, 42]


def test_an_endpoint_that_takes_no_seed_is_asked_without(tmp_path: Path) -> None:
    with panel(tmp_path, refuses=["seed"]) as (asked, endpoint):
        assert voted(asked, 3) == (LABELS, [1.0] * 3)
        assert seeds(endpoint) == [-1, -1, -1]
        # Requests that were sent at the same time may be turned down; from then on none has a seed.
        refused = endpoint.hits - 3
        assert 1 <= refused <= 2
        voted(asked, 4)
        assert (seeds(endpoint), endpoint.hits) == ([-1] * 4, 4 + refused)


def test_draws_in_the_same_words_are_answered_one_by_one(tmp_path: Path) -> None:
    once = faults.first(1, faults.swayed())
    with panel(tmp_path, refuses=["seed"], fault=once) as (asked, endpoint):
        assert voted(asked, 3) == (LABELS, [2 / 3] * 3)
        answered = [one.body for one in endpoint.requests if one.status == 200]
        assert answered == [answered[0]] * 3


def test_every_repeat_draws_again_with_votes_and_without(tmp_path: Path) -> None:
    with panel(tmp_path, repeat=2) as (asked, endpoint):
        voted(asked, 3)
        assert seeds(endpoint) == [6, 7, 8]
        endpoint.clear()
        asked.ask(QUESTIONS, FORM)
        assert seeds(endpoint) == [2]


def test_several_judges_share_the_votes(tmp_path: Path) -> None:
    with (
        serve() as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb") as one,
        judge_of(endpoint, tmp_path / "s.duckdb", model="hosted_vllm/two") as two,
    ):
        judges = {"one": one, "two": two}
        asked = JudgePanel(judges, step="step", repeat=1)
        names = [name for name, _ in asked.vote(4, lambda voter: voter.ask(QUESTIONS, FORM))]
        assert names == ["one", "one", "two", "two"]
        sent = [(request.body["model"], request.body["seed"]) for request in endpoint.requests]
        assert sorted(sent) == [("fake", 2), ("fake", 3), ("two", 2), ("two", 3)]
        assert asked.identity == {"judges": [one.identity, two.identity]}
        assert JudgePanel({"one": judges["one"]}).identity == one.identity
        asked.ask(QUESTIONS, FORM)
        assert endpoint.requests[-1].body["seed"] == 1
        assert endpoint.requests[-1].body["model"] == "fake"
