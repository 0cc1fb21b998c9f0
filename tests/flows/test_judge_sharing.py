"""Steps that ask at the same time share calls: fewer of them, and the same results."""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.judge import PART
from claimflow.flows.judge.panel import JudgePanel
from claimflow.flows.judge.sharing import SharingJudge, StepGroup, steps_that_share
from claimflow.flows.runner.estimate import estimate
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.results import calls_of_step
from claimflow.stages.tools import Question, Respondent
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import FORM, QUESTIONS, Judged, judge_of, label_of

DECOMPOSE = {"use": "decompose_claims"}
VERIFY = {"use": "verify_claims", "against": "retrieved_contexts"}
STEPS: dict[str, Any] = {
    "response_claims": DECOMPOSE | {"of": "response"},
    "reference_claims": DECOMPOSE | {"of": "reference"},
    "response_in_contexts": VERIFY | {"claims": "response_claims"},
    "reference_in_contexts": VERIFY | {"claims": "reference_claims"},
    "faithfulness": {"use": "faithfulness"},
    "context_recall": {"use": "context_recall"},
}


def sample(name: str, **more: Any) -> dict[str, Any]:
    """A sample about a place of its own, with two claims on each side."""
    contexts = [f"The {name} stands in Paris. The {name} was opened in 1889.", "Cheese is food."]
    return {
        "sample_id": name,
        "user_input": f"Where does the {name} stand?",
        "response": f"The {name} stands in Paris. The {name} was opened in 1890.",
        "reference": f"The {name} was opened in 1889. The {name} was built by many.",
        "retrieved_contexts": contexts,
    } | more


PLACES = [sample(name) for name in ("tower", "bridge", "station", "library", "castle")]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture
def judged(tmp_path: Path, endpoint: Endpoint) -> Judged:
    return Judged(tmp_path, endpoint)


def asked(endpoint: Endpoint) -> list[str]:
    return [one.body["messages"][-1]["content"] for one in endpoint.requests]


def scores_by_metric(judged: Judged) -> Mapping[tuple[str, str], float | None]:
    rows = judged.ask("SELECT sample_id, metric, score FROM latest.scores")
    return {(sample_id, metric): score for sample_id, metric, score in rows}


def test_both_sides_share_calls_and_each_text_is_sent_once(
    judged: Judged, endpoint: Endpoint
) -> None:
    judged.write(PLACES, steps=STEPS)
    judged.run()
    texts = asked(endpoint)
    # Four texts to decompose or two premises to judge by in a call: five samples make three each.
    assert len(texts) == 3 + 3
    for one in PLACES:
        for text in (one["user_input"], one["retrieved_contexts"][0]):
            assert sum(text in content for content in texts) == 1
    assert set(judged.calls("step")) == {
        ("response_claims, reference_claims",),
        ("response_in_contexts, reference_in_contexts",),
    }
    ((run_id,),) = judged.ask("SELECT run_id FROM audit.runs")
    for step in STEPS.keys() - {"faithfulness", "context_recall"}:
        assert calls_of_step(judged.store, run_id, step)[0] == 3
    found = scores_by_metric(judged)
    assert found == {
        **{(one["sample_id"], "faithfulness"): 0.5 for one in PLACES},
        **{(one["sample_id"], "context_recall"): 0.5 for one in PLACES},
    }


def test_the_results_are_those_of_calls_that_are_not_shared(
    judged: Judged, endpoint: Endpoint, tmp_path: Path
) -> None:
    judged.write(PLACES, steps=STEPS)
    judged.run()
    (tmp_path / "alone").mkdir()
    alone = Judged(tmp_path / "alone", endpoint)
    decompose, verify = {"texts_per_call": 1}, {"claims_per_call": 1, "premises_per_call": 1}
    more = {"decompose_claims": decompose, "verify_claims": verify}
    steps = {name: step | more.get(step["use"], {}) for name, step in STEPS.items()}
    alone.write(PLACES, steps=steps)
    alone.run()
    assert endpoint.hits == 2 * len(PLACES) + 4 * len(PLACES)
    assert scores_by_metric(alone) == scores_by_metric(judged)
    query = "SELECT sample_id, claim, verdict, evidence FROM latest.claim_verdicts ORDER BY ALL"
    assert alone.ask(query) == judged.ask(query)


def test_the_plan_counts_shared_calls_once(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    judged.write(PLACES, steps=STEPS)
    prepared = prepare(judged.path)
    before = estimate(prepared, judged.store, plan(prepared, judged.store))
    judged.run()
    assert sum(one.calls for one in before.values()) == endpoint.hits == 6
    assert before["reference_claims"].calls == before["reference_in_contexts"].calls == 0
    judged.write([*PLACES, sample("school")], steps=STEPS)
    assert main(["plan", str(judged.path)]) == 0
    printed = capsys.readouterr().out
    assert "response_claims and reference_claims share calls\n" in printed
    assert "response_in_contexts and reference_in_contexts share calls\n" in printed
    judged.run()
    assert endpoint.hits == 2


def test_a_new_sample_and_an_edited_text_cost_their_own_share(
    judged: Judged, endpoint: Endpoint
) -> None:
    judged.write(PLACES, steps=STEPS)
    judged.run()
    edited = PLACES[2] | {"response": "The station stands in Rome."}
    judged.write([*PLACES[:2], edited, *PLACES[3:], sample("school")], steps=STEPS)
    judged.run()
    decomposed, verified = asked(endpoint)
    assert decomposed.count("</text-") == 3
    assert verified.count("</claim-") == 1 + 4
    assert verified.count("</premise-") == 2


def test_one_step_asks_alone_when_the_other_has_nothing_to_ask(
    judged: Judged, endpoint: Endpoint
) -> None:
    """Its table is reused, or it comes with claims, or its samples lack the text."""
    first = {name: step for name, step in STEPS.items() if "reference" not in name}
    first.pop("context_recall")
    judged.write(PLACES, steps=first)
    judged.run()
    judged.write(PLACES, steps=STEPS)
    judged.run()
    assert {content.count("</text-") for content in asked(endpoint)[:2]} == {4, 1}
    assert set(judged.calls("step", "run_id = (SELECT max(run_id) FROM audit.runs)")) != set()
    supplied = [sample(f"new {n}", reference_claims=["Cheese is food."]) for n in range(2)]
    judged.write([*supplied, sample("bare", reference=None)], steps=STEPS)
    judged.run()
    texts = asked(endpoint)
    assert sum(content.count("</text-") for content in texts) == 3
    assert sum(content.count("</claim-") for content in texts) == 3 * 2 + 2


def test_two_steps_that_compute_the_same_table_do_not_wait_for_each_other(
    judged: Judged, endpoint: Endpoint
) -> None:
    twin = {"twin": dict(STEPS["response_claims"])}
    judged.write(PLACES, steps=STEPS | twin)
    judged.run()
    assert sum(content.count("</text-") for content in asked(endpoint)) == 2 * len(PLACES)


def test_steps_that_wait_for_others_keep_none_from_asking(
    judged: Judged, endpoint: Endpoint
) -> None:
    """More of them than are computed at a time, between steps that share calls."""
    steps: dict[str, Any] = {}
    for number in range(6):
        how = {"atomicity": ["low", "high"][number % 2], "coverage": ["low", "high"][number // 3]}
        claims = f"claims_{number}"
        verdicts = f"verdicts_{number}"
        inputs = {"response_claims": claims, "response_in_contexts": verdicts}
        steps[claims] = DECOMPOSE | {"of": "response", **how}
        steps[verdicts] = VERIFY | {"claims": claims}
        for other in range(4):
            steps[f"score_{number}_{other}"] = {"use": "faithfulness", **inputs}
    judged.write(PLACES, steps=steps)
    judged.run()
    assert judged.ask("SELECT count(*) FROM scores WHERE score = 0.5") == [(24 * len(PLACES),)]


def test_a_text_that_is_declined_fails_alone(judged: Judged, endpoint: Endpoint) -> None:
    bad = faults.where(lambda body: "library" in json.dumps(body), faults.refused("No."))
    with serve(fault=bad) as declining:
        one = Judged(judged.path.parent, declining)
        one.write(PLACES, steps=STEPS)
        one.run()
        found = one.ask("SELECT sample_id, status FROM latest.scores ORDER BY ALL")
        assert {name for name, status in found if status != "scored"} == {"library"}
        # Two calls of four texts and one of two; that with the library again text by text.
        assert len(one.calls("call_id", "step = 'response_claims, reference_claims'")) == 3 + 4
        one.run()
        assert declining.hits == 0


def test_a_premise_that_is_too_long_fails_alone(judged: Judged, endpoint: Endpoint) -> None:
    long = sample("tower", retrieved_contexts=["The tower stands. " * 200])
    bad = faults.where(
        lambda body: "The tower stands. The tower stands." in json.dumps(body),
        faults.status(400, message="This model's maximum context length is 10 tokens"),
    )
    with serve(fault=bad) as small:
        one = Judged(judged.path.parent, small)
        one.write([long, *PLACES[1:]], steps=STEPS)
        one.run()
        found = one.ask("SELECT DISTINCT sample_id FROM latest.scores WHERE status = 'failed'")
        assert found == [("tower",)]


def test_a_fatal_error_ends_all_steps_that_share_calls(judged: Judged) -> None:
    with serve(fault=faults.wrong_key()) as closed:
        one = Judged(judged.path.parent, closed)
        one.write(PLACES, steps=STEPS)
        assert one.command() == 6
        assert one.ask("SELECT count(*) FROM claims") == [(0,)]


def test_which_steps_share(judged: Judged) -> None:
    steps = STEPS | {
        "by_rules": DECOMPOSE | {"of": "response", "judge": "embedded"},
        "rules_in_contexts": VERIFY | {"claims": "by_rules"},
    }
    judged.write(PLACES, steps=steps)
    assert steps_that_share(prepare(judged.path).pipeline.steps) == [
        ["response_claims", "reference_claims"],
        ["response_in_contexts", "reference_in_contexts"],
    ]


def test_a_step_that_ends_lets_the_others_go_on(tmp_path: Path, endpoint: Endpoint) -> None:
    group = StepGroup(["a", "b", "c"], threading.Event())
    found: dict[str, Any] = {}
    with judge_of(endpoint, tmp_path / "s.duckdb") as judge:

        def ask(step: str, questions: list[Question]) -> None:
            found[step] = group.ask(judge, questions, FORM, step=step)

        threads = [
            threading.Thread(target=ask, args=("a", QUESTIONS[:2])),
            threading.Thread(target=ask, args=("b", QUESTIONS[1:])),
        ]
        for thread in threads:
            thread.start()
        threads[0].join(0.5)
        assert found == {}
        group.leave("c")
        for thread in threads:
            thread.join(30)
        assert found["a"].keys() == set(QUESTIONS[:2])
        assert [label_of(answer) for answer in found["b"].values()] == ["contradicted", "neutral"]
        assert endpoint.hits == 1
        group.leave("a")
        assert group.ask(judge, QUESTIONS, FORM, step="a").keys() == set(QUESTIONS)


def test_a_step_that_waits_can_be_stopped(tmp_path: Path, endpoint: Endpoint) -> None:
    stop = threading.Event()
    group = StepGroup(["a", "b"], stop)
    with judge_of(endpoint, tmp_path / "s.duckdb", stop) as judge:
        threading.Timer(0.3, stop.set).start()
        with pytest.raises(StoppedError):
            group.ask(judge, QUESTIONS, FORM, step="a")

        def ask() -> None:
            with pytest.raises(StoppedError):
                group.ask(judge, QUESTIONS, FORM, step="b")
            stopped.set()

        # One that asks after that does not wait for what the stopped one would have asked.
        stopped = threading.Event()
        threading.Thread(target=ask, daemon=True).start()
        assert stopped.wait(20)
        assert endpoint.hits == 0


def test_steps_share_calls_about_the_same_part_of_the_samples(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    """A step is waited for until it has asked about a part or made it, in whatever order."""
    group = StepGroup(["a", "b"], threading.Event())
    order: list[tuple[str, int]] = []
    with judge_of(endpoint, tmp_path / "s.duckdb") as judge:

        def work(step: str, part: int, questions: list[Question]) -> None:
            PART.set(part)
            if questions:
                group.ask(judge, questions, FORM, step=step)
            order.append((step, part))
            group.finish_part(step)

        def start(step: str, part: int, questions: list[Question]) -> threading.Thread:
            thread = threading.Thread(target=work, args=(step, part, questions))
            thread.start()
            return thread

        early = [start("a", 1, QUESTIONS[:1]), start("b", 0, QUESTIONS[1:2])]
        early[0].join(0.5)
        assert (order, endpoint.hits) == ([], 0)
        for thread in (start("a", 0, QUESTIONS[2:]), early[1]):
            thread.join(30)
        assert (sorted(order), endpoint.hits) == ([("a", 0), ("b", 0)], 1)
        for thread in (start("b", 1, []), early[0]):
            thread.join(30)
        assert (max(order), len(order), endpoint.hits) == (("b", 1), 4, 2)


def test_a_part_of_the_samples_is_asked_about_while_the_one_before_is_waited_for(
    judged: Judged, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimflow.flows.runner.table_builder.SHARD", 2)
    slow = faults.where(lambda body: "tower" in json.dumps(body), faults.slow(3.0))
    endpoint.behaviour.fault = slow
    judged.write(PLACES, steps=STEPS)
    judged.run()
    first, *_ = (one for one in endpoint.requests if "tower" in json.dumps(one.body))
    third, *_ = (one for one in endpoint.requests if "station" in json.dumps(one.body))
    assert third.arrived < first.replied
    assert judged.ask("SELECT count(*) FROM latest.claims") == [(20,)]


def test_a_stage_that_asks_in_threads_of_its_own_is_answered(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    """The part of the samples is not known there."""
    group = StepGroup(["a", "b"], threading.Event())
    answered: list[str] = []
    with judge_of(endpoint, tmp_path / "s.duckdb") as judge:

        def work(step: str, part: int) -> None:
            PART.set(part)
            ask = partial(group.ask, judge, QUESTIONS[part : part + 1], FORM, step=step)
            inner = threading.Thread(target=lambda: answered.append(f"{step}{len(ask())}"))
            inner.start()
            inner.join(30)
            group.finish_part(step)

        threads = [
            threading.Thread(target=work, args=(step, part), daemon=True)
            for step in "ab"
            for part in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(answered) == ["a1", "a1", "b1", "b1"]


def test_steps_that_vote_share_the_calls_of_each_vote(tmp_path: Path, endpoint: Endpoint) -> None:
    """In whatever order the votes ask; once all have ended, the step is asked for as before."""
    group = StepGroup(["a", "b"], threading.Event())
    found: list[tuple[str, int]] = []
    with judge_of(endpoint, tmp_path / "s.duckdb") as judge:

        def work(step: str, questions: list[Question], pauses: Sequence[float]) -> None:
            judges = {"judge": SharingJudge(judge, group)}
            panel = JudgePanel(judges, step=step, group=group)
            pause = iter(pauses)

            def ask(voter: Respondent) -> int:
                time.sleep(next(pause))
                return len(voter.ask(questions, FORM))

            found.extend((step, answers) for _, answers in panel.vote(3, ask))
            found.append((step, len(panel.ask(questions, FORM._replace(prompt="2" + FORM.prompt)))))

        threads = [
            threading.Thread(target=work, args=("a", QUESTIONS[:2], [0.6, 0.3, 0])),
            threading.Thread(target=work, args=("b", QUESTIONS[1:], [0, 0.3, 0.6])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(found) == [("a", 2)] * 4 + [("b", 2)] * 4
    assert endpoint.hits == 4
