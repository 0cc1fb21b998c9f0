"""Votes on a claim at a real endpoint: counted, remembered, recorded in the row."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.judge.estimate import Estimate
from claimflow.flows.runner.estimate import estimate
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import prepare
from tests.endpoint import faults
from tests.endpoint.fault import Rule
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import LABELS, STEPS, VERIFY, Judged, about

BALLOTS = """
SELECT sample_id, claim, verdict, agreement, ballot
FROM latest.verdicts JOIN latest.claims USING (claim_id) ORDER BY sample_id, claims.start
"""


def steps(votes: int | None = None, judge: list[str] | None = None) -> dict[str, Any]:
    """The usual steps with `votes` or these judges in the verifier."""
    more = {"votes": votes, "judge": judge}
    verify = VERIFY | {name: value for name, value in more.items() if value is not None}
    return STEPS | {"response_in_reference": verify}


def seeds(endpoint: Endpoint) -> list[int | None]:
    return [request.body.get("seed") for request in endpoint.requests]


def seeded(*numbers: int | None) -> Rule:
    """Requests with these seeds get other verdicts."""
    return faults.where(lambda body: body.get("seed") in numbers, faults.swayed())


def planned(judged: Judged) -> dict[str, Estimate]:
    from claimflow.flows.pipeline.rerun import Rerun, select_steps

    prepared = prepare(judged.path)
    steps = plan(prepared, judged.store, choice=select_steps(prepared.pipeline, Rerun()))
    return estimate(prepared, judged.store, steps)


def agreements(judged: Judged) -> list[tuple[Any, ...]]:
    return judged.ask("SELECT agreement, ballot FROM latest.verdicts ORDER BY ALL")


def test_each_vote_is_a_call_in_the_ledger(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a", "b"])
        judged.run()
        assert endpoint.hits == 2
        assert agreements(judged) == [(None, None)] * 6

        judged.write(["a", "b"], steps=steps(3))
        assert planned(judged)["response_in_reference"].calls == 4
        judged.run()
        # The vote that is already on file is not asked for again.
        assert sorted(seeds(endpoint)) == [1, 1, 2, 2]
        assert [agreement for agreement, _ in agreements(judged)] == [1.0] * 6
        assert judged.verdicts() == {"a": LABELS, "b": LABELS}

        judged.write(["a", "b"], steps=steps(2))
        judged.run()
        assert endpoint.hits == 0


def test_a_vote_that_fails_leaves_the_majority(tmp_path: Path) -> None:
    broken = faults.where(lambda body: body.get("seed") == 2, faults.prose())
    with serve(fault=broken) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a"], steps=steps(3))
        assert judged.command() == 0
        rows = judged.ask(BALLOTS)
        assert [(row[2], row[3]) for row in rows] == [(label, 1.0) for label in LABELS]
        assert [vote.get("failure") for vote in json.loads(rows[0][4])] == [
            None,
            None,
            "unparseable",
        ]
        # The row is a good one: the table is reused, and nobody is asked again.
        assert judged.command() == 0
        assert endpoint.hits == 0


def test_without_a_majority_the_row_fails_and_only_the_missing_votes_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = faults.where(lambda body: body.get("seed") in (1, 2), faults.prose())
    with serve(fault=faults.where(about("a"), broken)) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a", "b"], steps=steps(3))
        assert judged.command() == 1
        assert judged.ask("SELECT DISTINCT left(reason, 61) FROM verdicts WHERE failure <> ''") == [
            ("2 of 3 votes failed and no verdict has more than half of all ",)
        ]
        assert "4 rows failed" in capsys.readouterr().out
        endpoint.behaviour.fault = None
        assert judged.command() == 0
        assert sorted(seeds(endpoint)) == [1, 2]
    assert judged.verdicts() == {"a": LABELS, "b": LABELS}


def three(judged: Judged, **more: Any) -> dict[str, Any]:
    """Two more judges, of models of their own."""
    return {
        "judges": {
            name: judged.judge(model=f"hosted_vllm/{name}", **more) for name in ("second", "third")
        }
    }


def test_several_judges_vote_once_each(tmp_path: Path) -> None:
    swayed = faults.where(lambda body: body["model"] == "third", faults.swayed())
    with serve(fault=swayed) as endpoint:
        judged = Judged(tmp_path, endpoint)
        chosen = steps(judge=["judge", "second", "third"])
        judged.write(["a", "b"], steps=chosen, more=three(judged))
        estimated = planned(judged)["response_in_reference"]
        assert (estimated.calls, estimated.who) == (6, "judge and second and third")
        assert [(part.who, part.calls) for part in estimated.parts] == [
            ("judge", 2),
            ("second", 2),
            ("third", 2),
        ]
        judged.run()
        models = [request.body["model"] for request in endpoint.requests]
        assert sorted(models) == ["fake"] * 2 + ["second"] * 2 + ["third"] * 2
        assert seeds(endpoint) == [None] * 6
        rows = judged.ask(BALLOTS)
        assert [row[2] for row in rows] == LABELS * 2
        assert [vote["judge"] for vote in json.loads(rows[0][4])] == ["judge", "second", "third"]
        assert [row[3] for row in rows] == [2 / 3] * 6

        # Twice as many votes: one more of each judge.
        judged.write(
            ["a", "b"],
            steps=steps(6, chosen["response_in_reference"]["judge"]),
            more=three(judged),
        )
        judged.run()
        assert sorted(seeds(endpoint)) == [1] * 6


def test_a_plan_names_the_judge_whose_budget_is_too_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        chosen = steps(judge=["judge", "second", "third"])
        judged.write(["a", "b"], steps=chosen, more=three(judged, budget_calls=1))
        with chdir(tmp_path):
            assert main(["plan", "p.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("the budget of second would not suffice: 1 call (budget_calls)")
    assert lines[-1].startswith("the budget of third would not suffice")


def test_a_budget_gives_the_first_claims_all_of_their_votes(tmp_path: Path) -> None:
    # The first vote may be a few claims ahead when the last one begins; two votes decide a claim.
    with serve(latency=0.1) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abcdefgh", steps=steps(3), budget_calls=9, max_concurrency=1)
        judged.run()
        assert endpoint.hits == 9
        decided = {name for name, labels in judged.verdicts().items() if labels == LABELS}
        assert decided >= {"a", "b", "c"}

        # All that was paid for counts in the next run.
        judged.write("abcdefgh", steps=steps(3))
        judged.run()
        assert endpoint.hits == 15
    assert judged.verdicts() == dict.fromkeys("abcdefgh", LABELS)


def test_unstable_claims_are_listed_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(fault=faults.where(about("a"), seeded(2))) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a", "b"])
        assert judged.command() == 0
        assert "verdicts unstable" not in capsys.readouterr().out
        judged.write(["a", "b"], steps=steps(3))
        assert judged.command() == 0
    line = '3 of 6 verdicts unstable: see `claimflow sql "SELECT * FROM unstable"`'
    assert line in capsys.readouterr().out.splitlines()
    with chdir(tmp_path):
        assert main(["explain", "a"]) == 0
        assert "response_in_reference: neutral (2 of 3 votes); " in capsys.readouterr().out
        query = "SELECT step, sample_id, claim, verdict, agreement FROM unstable ORDER BY claim"
        assert main(["sql", query, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "step,sample_id,claim,verdict,agreement",
        "response_in_reference,a,Cheese comes from milk.,neutral,0.6666666666666666",
        "response_in_reference,a,The tower opened in 1890.,contradicted,0.6666666666666666",
        "response_in_reference,a,The tower stands in Paris.,entailed,0.6666666666666666",
    ]
