"""A plan counts exactly the calls that a run then makes, and writes nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.judge.call_statistics import CallStatistics, recall_call_statistics
from claimflow.flows.judge.estimate import Estimate
from claimflow.flows.models.parser import EmbeddedParser
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.runner.estimate import ClaimEstimate, estimate
from claimflow.flows.runner.plan import choose, plan
from claimflow.flows.runner.prepare import prepare
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.rows import Sample
from claimflow.stages.tables import build
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import (
    CLAIMS,
    DECOMPOSE,
    PROMPT,
    SCORE,
    STEPS,
    VERIFY,
    Judged,
    about,
    sample,
)

SAMPLES = ["one", "two", "three", "four", "five"]
PAIRS = STEPS | {"response_in_reference": VERIFY | {"claims_per_call": 2}}
"""Two calls for each sample: its three claims go two at a time."""

BY_JUDGE = PAIRS | {"response_claims": DECOMPOSE}
NEWEST = "run_id = (SELECT arg_max(run_id, started_at) FROM audit.runs)"
CONFIGS = Path(__file__).parents[2] / "configs"
PRICE = {"input": 1.0, "output": 10.0}


def own(name: str, last: str = "Milk is white.") -> dict[str, Any]:
    """A sample of three claims that no other sample has."""
    return sample(name, response=f"{CLAIMS[0]} Cheese is {name}. {last}")


SAMPLES = [own("one"), own("two"), own("three")]
MORE = [*SAMPLES, own("four")]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with serve() as serving:
        yield serving


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> Judged:
    """A finished pipeline, which no test changes."""
    judged = Judged(tmp_path_factory.mktemp("ran"), endpoint)
    judged.write(SAMPLES, steps=BY_JUDGE, price=PRICE)
    judged.run()
    return judged


def planned(judged: Judged, *again: str) -> dict[str, Estimate]:
    return estimated(judged, Rerun(again=again))


def estimated(judged: Judged, rerun: Rerun) -> dict[str, Estimate]:
    prepared = prepare(judged.path, rerun=rerun)
    steps = plan(prepared, judged.store, choice=choose(prepared, judged.store, rerun))
    return estimate(prepared, judged.store, steps)


def calls(estimates: Mapping[str, Estimate]) -> dict[str, int]:
    return {name: one.calls for name, one in estimates.items()}


def made(judged: Judged) -> dict[str, int]:
    """How many calls each step of the newest run made."""
    counts = f"SELECT step, count(*) FROM audit.calls WHERE {NEWEST} GROUP BY step"
    return dict(judged.ask(counts))


def run(judged: Judged, endpoint: Endpoint, *options: str) -> None:
    endpoint.clear()
    with chdir(judged.path.parent):
        assert main(["run", judged.path.name, *options]) in (0, 1)


def printed(judged: Judged, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    """The lines that `claimflow plan` prints, with single spaces."""
    capsys.readouterr()
    with chdir(judged.path.parent):
        assert main(["plan", str(judged.path), *options]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def as_planned(judged: Judged, endpoint: Endpoint) -> int:
    """The number of planned calls; asserts that a run makes them, step by step."""
    estimates = planned(judged)
    assert not any(one.about for one in estimates.values())
    run(judged, endpoint)
    expected = {name: number for name, number in calls(estimates).items() if number}
    assert made(judged) == expected
    assert endpoint.hits == sum(expected.values())
    return endpoint.hits


def test_a_run_makes_the_calls_that_were_planned(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=PAIRS)
        assert as_planned(judged, endpoint) == 6
        assert as_planned(judged, endpoint) == 0

        judged.write(MORE, steps=PAIRS)
        assert as_planned(judged, endpoint) == 2

        (tmp_path / "strict.md").write_text(PROMPT, "utf-8")
        verify = PAIRS["response_in_reference"] | {"prompt": "strict.md"}
        judged.write(MORE, steps=PAIRS | {"response_in_reference": verify})
        assert as_planned(judged, endpoint) == 8

        changed = [MORE[0], own("two", last="The tower is made of iron."), *MORE[2:]]
        edited = PAIRS | {"response_in_reference": verify}
        judged.write(changed, steps=edited)
        assert as_planned(judged, endpoint) == 1

        judged.write(changed, steps=edited, seed=1)
        assert as_planned(judged, endpoint) == 8


def test_another_decomposer_costs_the_verdicts_on_new_claims(tmp_path: Path) -> None:
    response = "The tower stands in Paris and opened in 1889. Cheese comes from milk."
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        samples = [sample(name, response=response) for name in ("one", "two", "three")]
        judged.write(samples, steps=PAIRS)
        assert as_planned(judged, endpoint) == 3
        fine = PAIRS["response_claims"] | {"atomicity": "high"}
        judged.write(samples, steps=PAIRS | {"response_claims": fine})
        assert as_planned(judged, endpoint) == 3


def test_claims_that_a_judge_has_yet_to_make_are_estimated(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE)
        first = planned(judged)
        assert calls(first) == {"response_claims": 3, "response_in_reference": 6}
        assert [one.about for one in first.values()] == [False, True]
        run(judged, endpoint)
        assert made(judged) == calls(first)

        judged.write(MORE, steps=BY_JUDGE)
        second = planned(judged)
        assert calls(second) == {"response_claims": 1, "response_in_reference": 2}
        assert [one.answers for one in second.values()] == [3, 9]
        assert [one.about for one in second.values()] == [False, True]


def actions(judged: Judged) -> list[str]:
    return [one.action for one in plan(prepare(judged.path), judged.store)]


def test_a_changed_aggregation_costs_no_call_and_a_changed_prompt_its_verdicts(
    tmp_path: Path,
) -> None:
    (tmp_path / "strict.md").write_text(PROMPT, "utf-8")
    verify = BY_JUDGE["response_in_reference"] | {"prompt": "strict.md"}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE)
        run(judged, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE | {"precision": SCORE | {"beta": 2.0}})
        assert actions(judged) == ["reuse", "reuse", "make"]
        assert as_planned(judged, endpoint) == 0

        judged.write(SAMPLES, steps=BY_JUDGE | {"response_in_reference": verify})
        assert actions(judged) == ["reuse", "make", "wait"]
        assert calls(planned(judged)) == {"response_claims": 0, "response_in_reference": 6}
        assert as_planned(judged, endpoint) == 6


def test_a_changed_decomposition_prompt_costs_the_verdicts_on_new_claims(tmp_path: Path) -> None:
    """What a judge will say is not known: the plan waits, and estimates."""
    text = (CONFIGS / "prompts" / "decompose.md").read_text("utf-8")
    (tmp_path / "other.md").write_text(f"Be brief.\n{text}", "utf-8")
    other = BY_JUDGE | {"response_claims": DECOMPOSE | {"prompt": "other.md"}}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE)
        run(judged, endpoint)

        judged.write(SAMPLES, steps=other)
        assert actions(judged) == ["make", "wait", "wait"]
        found = planned(judged)
        assert calls(found)["response_claims"] == 3
        assert [one.about for one in found.values()] == [False, True]
        endpoint.behaviour.fault = faults.where(
            lambda body: "Cheese is two." in json.dumps(body),
            faults.content(lambda reply: reply.replace("Milk is white.", "Milk is pale.")),
        )
        run(judged, endpoint)
        assert made(judged) == {"response_claims": 3, "response_in_reference": 1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Rerun(again=("response_in_reference",)), 0),
        (Rerun(again=("response_in_reference",), fresh=True), 6),
        (Rerun(only=("response_claims",), fresh=True), 3),
        (Rerun(samples="SELECT 'two' AS sample_id"), 0),
    ],
)
def test_reruns_are_planned_as_they_are_run(
    ran: Judged, endpoint: Endpoint, options: Rerun, expected: int
) -> None:
    prepared = prepare(ran.path, rerun=options)
    choice = choose(prepared, ran.store, options)
    estimates = estimate(prepared, ran.store, plan(prepared, ran.store, choice=choice))
    assert sum(calls(estimates).values()) == expected
    endpoint.clear()
    run_pipeline(prepared, ran.store, rerun=options)
    assert endpoint.hits == expected
    assert made(ran) == {name: number for name, number in calls(estimates).items() if number}


def test_the_plan_has_the_selected_steps_only(
    ran: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(ran, capsys, "--only", "response_in_reference", "--fresh")
    assert lines[2].startswith("samples samples reuse ")
    assert lines[3] == "response_claims decompose_claims reuse 9 rows 0 0 + 0 0.00"
    assert lines[4].startswith("response_in_reference verify_claims make, ask again 6 ")
    assert lines[5].startswith("partial run (--only response_in_reference): ")
    assert lines[6].startswith("6 calls, about ")
    assert len(lines) == 7


def test_the_table_counts_copied_samples(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_pipeline(prepare(small), rerun=Rerun(only=("response_claims", "context_matches")))
    samples = small.with_name("samples.jsonl")
    more = '{"sample_id": "new", "response": "Rome is old.", "reference": "Rome is old."}\n'
    samples.write_text(more + samples.read_text("utf-8"), "utf-8")
    assert main(["plan", str(small)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "response_claims decompose_claims make, 3 samples reused" in lines
    assert "reference_claims decompose_claims make" in lines


def test_claims_in_the_store_are_not_estimated(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE)
        run(judged, endpoint)
        (tmp_path / "strict.md").write_text(PROMPT, "utf-8")
        verify = BY_JUDGE["response_in_reference"] | {"prompt": "strict.md"}
        judged.write(SAMPLES, steps=BY_JUDGE | {"response_in_reference": verify})
        again = planned(judged, "response_claims")
        assert calls(again) == {"response_claims": 0, "response_in_reference": 6}
        assert not any(one.about for one in again.values())


def test_a_question_of_two_steps_is_counted_once(tmp_path: Path) -> None:
    other = VERIFY | {"claims_per_call": 2, "threshold": 0.7}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=PAIRS | {"precision": other})
        assert sum(calls(planned(judged)).values()) == 6
        run(judged, endpoint)
        assert endpoint.hits == 6


def test_final_failures_are_kept_and_other_failures_are_asked_again(tmp_path: Path) -> None:
    refused = faults.where(about("one"), faults.refused())
    lacking = faults.where(about("two"), faults.missing(1))
    with serve(fault=faults.either(refused, lacking)) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES)
        run(judged, endpoint)
        endpoint.behaviour.fault = None
        assert planned(judged)["response_in_reference"].answers == 8
        assert as_planned(judged, endpoint) == 1


@pytest.mark.parametrize("size", [1, 2])
def test_parts_of_the_samples_count_as_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("claimflow.flows.runner.estimate.SHARD", size)
    monkeypatch.setattr("claimflow.flows.runner.table_builder.SHARD", size)
    same = own("one") | {"sample_id": "copy"}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write([*SAMPLES[:2], same], steps=PAIRS)
        assert as_planned(judged, endpoint) == 4


def test_of_very_many_samples_some_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimflow.flows.runner.estimate.SHARD", 1)
    monkeypatch.setattr("claimflow.flows.runner.estimate._SHARDS", 3)
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write([own(str(number)) for number in range(12)], steps=PAIRS)
        found = planned(judged)["response_in_reference"]
    assert (found.calls, found.about) == (24, True)


def test_tokens_and_cost_follow_earlier_calls(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE, price=PRICE)
        unknown = planned(judged)["response_in_reference"]
        assert unknown.completion_tokens == 9 * 60
        run(judged, endpoint)
        for name in ("five", "six"):
            judged.write([*MORE, own(name)], steps=BY_JUDGE, price=PRICE)
            expected = planned(judged)["response_in_reference"]
            run(judged, endpoint)
            sums = "sum(prompt_tokens)::BIGINT, sum(completion_tokens)::BIGINT"
            ((prompt, completion),) = judged.ask(
                f"SELECT {sums} FROM audit.calls WHERE step = 'response_in_reference' AND {NEWEST}"
            )
            assert expected.prompt_tokens == pytest.approx(prompt, rel=0.02)
            assert expected.completion_tokens == pytest.approx(completion, rel=0.1)
            money = expected.prompt_tokens * 1 + expected.completion_tokens * 10
            assert expected.cost == Decimal(money) / 1_000_000


def test_no_price_is_no_cost_and_nothing_to_ask_costs_nothing(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES)
        assert planned(judged)["response_in_reference"].cost is None
        run(judged, endpoint)
        assert planned(judged) == {"response_in_reference": Estimate("judge")}


def test_replies_are_no_longer_than_they_may_be(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=PAIRS, max_tokens=100)
        assert planned(judged)["response_in_reference"].completion_tokens == 3 * (100 + 60)


def test_redacted_calls_give_no_statistics(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE)
        run(judged, endpoint, "--redact")
        judge = judged.judge()
        asked = judge["model"], judge["api_base"]
        assert recall_call_statistics(judged.store, *asked) == CallStatistics()
        judged.write(MORE, steps=BY_JUDGE)
        run(judged, endpoint)
        assert recall_call_statistics(judged.store, *asked).per_entry.keys() == {"claims", "texts"}
        other = "openai/other", judge["api_base"]
        assert recall_call_statistics(judged.store, *other) == CallStatistics()


def test_embeddings_are_counted_in_batches(tmp_path: Path) -> None:
    similarity = {"use": "embedding_similarity", "left": "response", "right": "reference"}
    steps = {"similarity": similarity}
    with serve(dimension=8) as endpoint:
        settings = {
            "provider": "litellm",
            "model": "hosted_vllm/fake",
            "api_base": endpoint.api_base,
            "texts_per_call": 2,
            "price": {"input": 1.0},
        }
        judged = Judged(tmp_path, endpoint)
        for samples, number in ((SAMPLES, 3), (SAMPLES, 0), ([*MORE, own("five")], 2)):
            judged.write(samples, steps=steps, more={"judge": None, "embedder": settings})
            found = planned(judged)["similarity"]
            assert (found.who, found.calls, found.completion_tokens) == ("embedder", number, 0)
            assert (found.cost == 0) is (number == 0)
            run(judged, endpoint)
            assert endpoint.hits == number


def test_the_table_has_calls_tokens_cost_and_ledger_hits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE, price=PRICE, budget_calls=8, budget_usd=0.001)
        lines = printed(judged, capsys)
        found = planned(judged)
        tokens = sum(one.prompt_tokens + one.completion_tokens for one in found.values())
        assert lines[0] == "step uses plan calls tokens (in + out) cost (USD)"
        assert lines[2] == "samples samples make - - -"
        assert lines[3].startswith("response_claims decompose_claims make 3 ")
        waits = "response_in_reference verify_claims waits for response_claims about 6 "
        assert lines[4].startswith(waits)
        assert lines[5].endswith("waits for response_claims, response_in_reference - - -")
        assert lines[6].startswith(f"about 9 calls, {tokens:,} tokens, 0.0")
        assert lines[7] == (
            "the budget of judge would not suffice: 8 calls (budget_calls) and 0.001 USD "
            "(budget_usd); the rest becomes rows that failed, not_asked"
        )
        assert len(lines) == 8

        judged.write(SAMPLES, steps=BY_JUDGE)
        assert printed(judged, capsys)[6].endswith(" tokens, price unknown")
        run(judged, endpoint)
        lines = printed(judged, capsys)
        assert lines[3] == "response_claims decompose_claims reuse 9 rows 0 0 + 0 0.00"
        assert lines[-1] == "no calls"

        judged.write(MORE, steps=BY_JUDGE, price={"input": 0, "output": 0})
        last = printed(judged, capsys)[-1]
        assert last.startswith("about 3 calls, ")
        assert last.endswith(" tokens, 0.00 USD; 12 answers are on file")


def test_a_pipeline_without_endpoints_has_no_call_columns(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(small)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["step", "uses", "plan"]
    assert lines[-1][0] == "summary"


def test_a_plan_writes_nothing_and_needs_neither_litellm_nor_key_nor_endpoint(
    tmp_path: Path,
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE, model="openai/gpt-4o-mini", price=PRICE)
    code = (
        "import sys; from claimflow.flows.cli.main import main; code = main(['plan', 'p.yaml']); "
        "assert 'litellm' not in sys.modules; sys.exit(code)"
    )
    before = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "about 9 calls" in done.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_a_plan_leaves_the_store_unchanged(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BY_JUDGE)
        run(judged, endpoint)
        judged.write(MORE, steps=BY_JUDGE)
        before = judged.store.path.read_bytes()
        endpoint.clear()
        assert planned(judged)["response_claims"].calls == 1
        assert endpoint.hits == 0
    assert judged.store.path.read_bytes() == before


@pytest.mark.parametrize(
    ("atomicity", "other"), [("low", "Is it old?"), ("high", "Oslo is old and Rome is older.")]
)
def test_estimated_claims_keep_the_rate_of_the_decomposed_texts(
    monkeypatch: pytest.MonkeyPatch, atomicity: Any, other: str
) -> None:
    monkeypatch.setattr("claimflow.flows.runner.estimate._BY_RULES", 10)
    texts = (other, "The tower stands in Paris and it opened in 1889.")
    rows = [{"sample_id": str(number), "response": texts[number % 2]} for number in range(40)]
    samples = build(Sample, rows)
    stage = DecomposeClaims(of="response", atomicity=atomicity, prompt="{{texts}}")
    by_rules = stage.without_llm()
    tools = dict.fromkeys(by_rules.needed_tools, EmbeddedParser(threads=1))
    made = by_rules.make({"samples": samples}, tools).filter(pl.col("status") == "made")
    guess = ClaimEstimate(by_rules, tools, "response")
    found = pl.concat([guess.claims(samples.head(5)), guess.claims(samples.slice(5))])
    assert abs(found.height - made.height) <= 1
    assert found["claim_id"].n_unique() == found.height
    pairs = found.select("sample_id", "claim")
    assert pairs.n_unique() == found.height
    assert json.loads(found.head(1).write_json())[0]["status"] == "made"


def test_long_instructions_are_counted_as_cached_from_the_second_call_on(tmp_path: Path) -> None:
    price = {"input": 1.0, "cached_input": 0.1, "output": 10.0}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        instructions = "Judge. " * 1_000  # 1,750 tokens
        prompt = instructions + PROMPT
        (tmp_path / "long.md").write_text(prompt, "utf-8")
        steps = STEPS | {"response_in_reference": VERIFY | {"prompt": "long.md"}}
        judged.write(SAMPLES, steps=steps, price=price)
        found = planned(judged)["response_in_reference"]
        assert found.calls == 3
        static = len(prompt.partition("{{premise}}")[0]) / 4
        full = (found.prompt_tokens + 10 * found.completion_tokens) / 1e6
        assert float(found.cost or 0) == pytest.approx(full - 2 * 0.9 * static / 1e6, rel=1e-3)
        run(judged, endpoint)
        (spent,) = judged.ask("SELECT sum(cost) FROM audit.calls")[0]
        assert float(spent) == pytest.approx(float(found.cost or 0), rel=0.35)
        (cached,) = judged.ask("SELECT sum(cached_tokens) FROM audit.calls")[0]
        assert cached > 2 * 1_500
        ((run_id,),) = judged.ask(f"SELECT DISTINCT run_id FROM audit.calls WHERE {NEWEST}")
        (line,) = RunDocument(judged.store, run_id).call_lines
        assert f"tokens ({cached:,} cached), " in line
