"""Canaries at the real endpoint: who is asked, how often, and what is told of it."""

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import chdir
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, StoppedError
from claimflow.flows.quality.canaries import CanaryResult, canary_results
from claimflow.flows.quality.gates import recorded_outcomes
from claimflow.flows.quality.labels import LabelRecord, record
from claimflow.flows.report.html import html_report
from claimflow.flows.report.json_document import run_json
from claimflow.flows.report.markdown import run_markdown
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.run_text import JudgeLine, canary_lines
from claimflow.flows.runner.canaries import canary_estimates
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.samples.canaries import read_canaries
from claimflow.flows.store.read_copy import refresh_read_copy
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import now
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import STEPS, Judged, sample

CANARIES = [
    {
        "premise": f"Canary {i}: The tower stands in Paris.",
        "claim": "The tower stands in Paris." if i % 2 else "Cheese comes from milk.",
        "label": "entailed" if i % 2 else "neutral",
    }
    for i in range(10)
]

TWO = STEPS | {
    "reference_claims": {"use": "decompose_claims", "of": "reference", "judge": "embedded"},
    "reference_in_response": {
        "use": "verify_claims",
        "claims": "reference_claims",
        "against": "response",
        "premises_per_call": 1,
    },
}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture
def judged(tmp_path: Path, endpoint: Endpoint) -> Judged:
    return Judged(tmp_path, endpoint)


def write(judged: Judged, **more: Any) -> None:
    """The usual pipeline with ten canaries; `more` is added to its `canaries`.

    But for `gates`, `steps` and the settings of the `judge`.
    """
    lines = "".join(json.dumps(one) + "\n" for one in more.pop("lines", CANARIES))
    judged.path.with_name("c.jsonl").write_text(lines, "utf-8")
    top: dict[str, Any] = {"gates": more.pop("gates")} if "gates" in more else {}
    judge = more.pop("judge", {})
    steps = more.pop("steps", STEPS)
    above = {"canaries": {"path": "c.jsonl", **more}, **top}
    judged.write(["a"], steps=steps, more=above, **judge)


def account(judged: Judged) -> CanaryResult:
    run_id = chosen_run(judged.store, None)
    with judged.store.reading() as connection:
        [found] = canary_results(connection, run_id)
    return found


def age(judged: Judged, days: int) -> None:
    """Make all recorded canary verdicts that many days older."""
    with judged.store.writing() as connection:
        span = {"span": timedelta(days=days)}
        connection.execute("UPDATE audit.canaries SET asked_at = asked_at - $span", span)


def stopping(stop: threading.Event, *, at: int, fault: Any) -> Any:
    """`fault`, and from request `at` on the run is asked to stop."""

    def meet(number: int, body: Any, key: str) -> Any:
        if number >= at:
            stop.set()
        return fault(number, body, key)

    return meet


def change_its_mind(endpoint: Endpoint, *, about: str = "Canary") -> None:
    """From now on the judge answers contradicted where the text contains the word."""
    endpoint.behaviour.fault = faults.where(
        lambda body: about in json.dumps(body),
        faults.entries(lambda found: [{**one, "verdict": "contradicted"} for one in found]),
    )


def test_a_judge_is_asked_once_and_kept_for_every_run(judged: Judged, endpoint: Endpoint) -> None:
    write(judged)
    judged.run()
    assert endpoint.hits == 11
    assert judged.ask(
        "SELECT step, label, verdict, status, anew, count(*) FROM audit.canaries "
        "GROUP BY ALL ORDER BY label"
    ) == [
        ("response_in_reference", "entailed", "entailed", "judged", False, 5),
        ("response_in_reference", "neutral", "neutral", "judged", False, 5),
    ]
    judged.run()
    assert endpoint.hits == 0
    found = account(judged)
    assert (found.canaries, found.agreed, found.failed, found.anew) == (10, 10, 0, 0)
    assert found.moved is not None
    assert (found.same, found.moved.both, found.moved.flipped, found.drifts) == (True, 10, 0, False)
    runs = judged.ask("SELECT count(DISTINCT run_id), count(DISTINCT asked_at) FROM audit.canaries")
    assert runs == [(2, 1)]


def test_steps_with_the_same_judge_ask_once(judged: Judged, endpoint: Endpoint) -> None:
    write(judged, steps=TWO)
    judged.run()
    calls = judged.ask(
        "SELECT step, count(*) FROM audit.calls WHERE starts_with(step, 'canaries') GROUP BY step"
    )
    assert calls == [("canaries.response_in_reference", 10)]
    found = account(judged)
    assert (found.steps, found.canaries) == (("response_in_reference", "reference_in_response"), 10)


def test_an_edited_prompt_or_another_model_is_compared_with_the_previous_one(
    judged: Judged, endpoint: Endpoint
) -> None:
    write(judged)
    judged.run()
    before = chosen_run(judged.store, None)
    change_its_mind(endpoint)
    verify = STEPS["response_in_reference"] | {"claims_per_call": 1}
    write(judged, steps=STEPS | {"response_in_reference": verify})
    judged.run()
    assert endpoint.hits == 13
    found = account(judged)
    assert (found.since, found.same, found.agreed) == (before, False, 0)
    assert found.drifts
    [first, then, warning] = RunDocument(judged.store, chosen_run(judged.store, None)).judge_lines
    assert first == JudgeLine(
        "canaries of response_in_reference: 0 of 10 verdicts are as labelled (0.0%, 95 % interval "
        "0.0% to 27.8%); 10 of 10 canaries judged"
    )
    assert then == JudgeLine(
        f"  since run {before}, by another judge, prompt or setting: 10 of 10 verdicts "
        "changed; 10 were as labelled and 0 are (exact McNemar test, p = 0.002)"
    )
    assert warning == JudgeLine(
        "warning: the judge of response_in_reference has moved further from the labels since "
        f"run {before}, by another judge, prompt or setting, by more than chance",
        warning=True,
    )
    from claimflow.flows.orchestration.artifacts import final_state

    state = final_state(RunDocument(judged.store, chosen_run(judged.store, None)))
    assert state.is_completed()
    assert str(state.message).endswith(f"; {warning.text}")


def test_a_silent_change_is_found_when_canaries_are_asked_again(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = {"canary_agreement": {"min": 0.1, "steady": True}}
    write(judged, fresh=5, gates=gates)
    assert judged.command() == 5  # nothing said before
    assert "the canaries have no earlier verdicts" in capsys.readouterr().out
    first = chosen_run(judged.store, None)
    for _ in range(3):
        assert judged.command() == 0
        assert endpoint.hits == 5
    found = account(judged)
    assert found.restless == (0, 5, 0.0, 1.0)
    change_its_mind(endpoint)
    assert judged.command() == 4
    assert endpoint.hits == 5
    found = account(judged)
    assert (found.anew, found.agreed, found.since) == (5, 5, first)
    assert found.moved is not None
    assert (found.moved.lost, found.moved.significant) == (5, False)
    assert found.restless == (5, 5, pytest.approx(5 / 3), pytest.approx(3**-5))
    printed = capsys.readouterr().out
    warning = (
        "warning: the judge of response_in_reference changes its verdicts more often than it used "
        "to: 5 of 5 canaries asked again got another verdict than usual, 1.7 by chance "
        "(exact permutation test, p = 0.004)"
    )
    assert warning in printed
    run = chosen_run(judged.store, None)
    [agreement, steady] = sorted(recorded_outcomes(judged.store, run), key=lambda one: one.rule)
    assert (agreement.rule, agreement.outcome, agreement.value) == ("min 0.1", "pass", 0.5)
    assert (steady.rule, steady.outcome, steady.value, steady.line) == ("steady", "fail", 0.5, 1.0)
    assert steady.reason == "more than chance; 10 of 10 canaries judged in both"
    assert f"- **warning** `{warning.removeprefix('warning: ')}`" in run_markdown(
        RunDocument(judged.store, run)
    )
    assert f"<bdi>{warning.replace('<', '&lt;')}</bdi>" in html_report(
        RunDocument(judged.store, run)
    )
    [judge] = json.loads(run_json(RunDocument(judged.store, run)))["canaries"]
    assert (judge["agreed"], judge["drifts"], judge["restless"]["unusual"]) == (5, True, 5)


def test_the_canaries_asked_longest_ago_come_first(judged: Judged, endpoint: Endpoint) -> None:
    write(judged, fresh=4)
    asked = []
    for _ in range(4):
        judged.run()
        rows = judged.ask(
            "SELECT canary FROM audit.canaries WHERE anew AND run_id = (SELECT arg_max("
            "run_id, judged_at) FROM audit.canaries)"
        )
        asked += [canary for (canary,) in rows]
    assert len(asked) == 12
    assert len(set(asked[:8])) == 8
    assert len(set(asked)) == 10


def test_replies_of_a_killed_run_are_not_asked_again(judged: Judged, endpoint: Endpoint) -> None:
    write(judged, fresh=8, judge={"max_concurrency": 1})
    judged.run()
    endpoint.clear()
    change_its_mind(endpoint)
    stop = threading.Event()

    class StopAmongCanaries(RunObserver):
        def step_finished(self, result: StepResult) -> None:
            if result.step == "response_in_reference":
                endpoint.behaviour.fault = stopping(stop, at=3, fault=endpoint.behaviour.fault)

    with pytest.raises(StoppedError):
        run_pipeline(prepare(judged.path), judged.store, observer=StopAmongCanaries(), stop=stop)
    calls = endpoint.hits
    assert 3 <= calls < 8
    endpoint.behaviour.fault = None
    steps = ("response_in_reference",)
    [planned] = canary_estimates(prepare(judged.path), judged.store, steps).values()
    assert planned.calls == 8 - calls
    judged.run()
    assert endpoint.hits == 8 - calls
    found = account(judged)
    # What the killed run was told counts, as said now.
    assert (found.anew, found.agreed) == (8, 10 - calls)
    judged.run()
    assert endpoint.hits == 8


def test_every_sets_the_age_at_which_canaries_are_asked_again(
    judged: Judged, endpoint: Endpoint
) -> None:
    write(judged, every="1d", fresh=3)
    judged.run()
    age(judged, 2)
    judged.run()
    assert endpoint.hits == 3
    write(judged, every="1d")
    judged.run()
    assert endpoint.hits == 7
    judged.run()
    assert endpoint.hits == 0


def test_failed_canaries_are_asked_again_and_counted(judged: Judged, endpoint: Endpoint) -> None:
    write(judged)
    endpoint.behaviour.fault = faults.where(
        lambda body: "Canary 3" in json.dumps(body), faults.prose()
    )
    judged.run()
    found = account(judged)
    assert (found.canaries, found.judged, found.failed, found.agreed) == (10, 9, 1, 9)
    [line] = canary_lines(found)
    assert line.text.endswith("9 of 10 canaries judged, 1 failed")
    endpoint.behaviour.fault = None
    judged.run()
    assert endpoint.hits == 1
    assert account(judged).agreed == 10


def test_a_run_of_other_steps_asks_no_canaries(judged: Judged, endpoint: Endpoint) -> None:
    write(judged)
    judged.run()
    assert judged.command("--only", "precision") == 0
    assert RunDocument(judged.store, chosen_run(judged.store, None)).canaries == []


def test_plan_estimates_the_calls_of_canaries(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    write(judged, fresh=4)
    steps = ("response_in_reference",)
    [one] = canary_estimates(prepare(judged.path), judged.store, steps).values()
    assert (one.calls, one.answers) == (10, 0)
    judged.run()
    [one] = canary_estimates(prepare(judged.path), judged.store, steps).values()
    assert (one.who, one.calls, one.answers) == ("judge", 4, 6)
    with chdir(judged.path.parent):
        assert main(["plan", "p.yaml"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "canaries of response_in_reference verify_claims ask 4" in output
    assert "4 calls" in output
    assert endpoint.hits == 11


def test_the_embedded_judge_is_tried_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        write(
            judged,
            fresh=4,
            steps=STEPS
            | {"response_in_reference": STEPS["response_in_reference"] | {"judge": "embedded"}},
        )
        judged.run()
        judged.run()
        assert endpoint.hits == 0
    assert (account(judged).judged, account(judged).anew) == (10, 0)


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ({"claim": "c", "label": "entailed"}, "lacks 'premise'; a canary has premise, claim and"),
        ({"premise": "p", "claim": " ", "label": "entailed"}, "lacks 'claim'"),
        ({"premise": "p", "claim": 7, "label": "entailed"}, "claim is not text: 7; write a text"),
        (
            {"premise": "p", "claim": "c", "label": "entaild"},
            "'entaild' is not a label; did you mean 'entailed'?",
        ),
        (CANARIES[0], "the same pair is already at c.jsonl:1; delete one of them"),
    ],
)
def test_faults_of_a_canary(judged: Judged, line: dict[str, Any], output: str) -> None:
    write(judged, lines=[*CANARIES, line])
    with pytest.raises(InputError) as error:
        prepare(judged.path)
    [fault] = error.value.faults
    assert fault.place == "c.jsonl:11"
    assert output in str(fault)


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ({"every": "soon"}, "write seconds, or a number with s, m, h or d, as in 6h"),
        ({"fresh": 0}, "0 is out of range; write 1 or more"),
        ({"path": "none.jsonl"}, "no such file"),
        ({"steps": {"claims": {"use": "decompose_claims", "of": "response"}}}, "no step verifies"),
        ({"gates": {"factual_correctness": {"steady": True}}}, "steady is for canaries only"),
        ({"steps": TWO, "gates": {"canary_agreement": {"min": 0.5}}}, "2 steps make"),
    ],
)
def test_faults_of_the_settings(judged: Judged, more: dict[str, Any], output: str) -> None:
    write(judged, **more)
    with pytest.raises(InputError) as error:
        prepare(judged.path)
    assert output in str(error.value)


def test_canaries_from_labels_by_the_query_of_the_readme(judged: Judged) -> None:
    write(judged)
    judged.run()
    labelled_pairs = [
        ("a", "The tower stands in Paris.", "entailed"),
        ("a", "Cheese comes from milk.", None),
    ]
    record(judged.store, [labelled(judged, *one) for one in labelled_pairs])
    refresh_read_copy(judged.store)
    page = Path(__file__).parents[2].joinpath("flows/guides/quality.md").read_text("utf-8")
    [command] = [line for line in page.splitlines() if "-o canaries.csv" in line]
    with chdir(judged.path.parent):
        assert main([*shlex.split(command)[1:], "--store", "s.duckdb"]) == 0
    [one, other] = sorted(read_canaries("canaries.csv", base=judged.path.parent), reverse=True)
    assert {one[1:], other[1:]} == {
        (sample("a")["reference"], "The tower stands in Paris.", "entailed"),
        (sample("a")["reference"], "Cheese comes from milk.", "neutral"),
    }


def labelled(judged: Judged, name: str, claim: str, label: str | None) -> LabelRecord:
    """A label of a claim of a sample, verified against the reference."""
    step, key = "response_in_reference", str(uuid4())
    run = chosen_run(judged.store, None)
    of = (key, run, step, name, None, claim, "reference", None, None)
    how = ("ann", "sheet.csv", "random 2 of 3, seed 0", key, 1.0, now())
    return LabelRecord(key, "verdicts", *of, label or "neutral", None, *how)


def test_a_stale_calibration_is_reported_with_the_run(judged: Judged) -> None:
    write(judged)
    judged.run()
    run = chosen_run(judged.store, None)
    with judged.store.writing() as connection:
        connection.execute(
            """
            INSERT INTO audit.calibrations
            SELECT uuid(), run_steps.run_id, 'p', step, stage, version, settings,
                   '{"llm": {"model": "another"}}', 40,
                   '{"agreement": {"accuracy": {"value": 0.9}}}', TIMESTAMP '2026-11-01'
            FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
            WHERE step = 'response_in_reference'
            """
        )
    assert RunDocument(judged.store, run).judge_lines[-1] == JudgeLine(
        f"warning: response_in_reference: calibration of run {run} (2026-11-01, 40 labels, "
        "accuracy 0.900) is stale: another judge",
        warning=True,
    )
