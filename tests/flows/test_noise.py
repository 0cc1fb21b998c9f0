"""`claimflow noise`: repeats at a real endpoint, estimated, remembered and reported."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.results import chosen_run
from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import CLAIMS, DECOMPOSE, EMBEDDED, SCORE, VERIFY, Judged, sample

LEXICAL = {"use": "lexical_match", "against": "reference", "unit": "text"}
FAITHFUL = {"use": "deterministic_correctness", "reference_matches": "matches"}
BY_JUDGE = {"response_claims": DECOMPOSE, "response_in_reference": VERIFY, "precision": SCORE}
BY_RULES = BY_JUDGE | {"response_claims": EMBEDDED}

NAMES = ["a", "b", "c", "d"]


def noise(judged: Judged, *options: str) -> int:
    with chdir(judged.path.parent):
        return main(["noise", "p.yaml", *options])


def measured(judged: Judged, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """The JSON that the command prints."""
    capsys.readouterr()
    assert noise(judged, "--json", *options) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def kinds(endpoint: Endpoint) -> tuple[int, int]:
    """How many requests were for claims, and how many for verdicts."""
    bodies = [json.dumps(request.body) for request in endpoint.requests]
    verdicts = sum("<claim-" in body for body in bodies)
    return len(bodies) - verdicts, verdicts


def entry_of(label: str) -> Fault:
    """Every verdict is this one."""
    return faults.entries(lambda found: [{**one, "verdict": label} for one in found])


def test_repeats_are_independent_calls_and_remembered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(NAMES, steps=BY_JUDGE)
        printed = measured(judged, capsys, "--repeats", "2")
        assert (printed["decompositions"], printed["verifications"]) == (2, 2)
        # All four have the same response: one request for each decomposition of it.
        assert kinds(endpoint) == (2, 4 * 4)
        assert {request.body.get("seed") for request in endpoint.requests} == {None, 1, 2, 3}

        endpoint.clear()
        assert measured(judged, capsys, "--repeats", "2") == printed
        assert endpoint.hits == 0

        measured(judged, capsys, "--repeats", "3")
        assert kinds(endpoint) == (1, 2 * 4)

        # The usual answers are those of a run, which asks for nothing more.
        endpoint.clear()
        judged.run()
        assert endpoint.hits == 0


def test_the_estimate_is_printed_before_any_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        names = [sample(name, response=f"{CLAIMS[0]} It is {name}.") for name in NAMES]
        judged.write(names, steps=BY_JUDGE)
        assert noise(judged, "--repeats", "2", "--limit", "3") == 0
        first, second = capsys.readouterr().err.splitlines()[:2]
        assert first == "3 of 4 samples, 2 decompositions, each verified 2 times"
        assert second.startswith("about 18 calls, ")
        assert kinds(endpoint) == (2 * 3, 4 * 3)
        assert noise(judged, "--repeats", "2", "--limit", "3") == 0
        assert "no calls; 30 answers are on file" in capsys.readouterr().err.splitlines()


def test_a_noise_run_is_recorded_and_never_the_latest_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(NAMES, steps=BY_RULES)
        judged.run()
        noise(judged, "--repeats", "2")
    runs = judged.ask("SELECT pipeline, status, run_id FROM audit.runs ORDER BY started_at")
    assert [run[:2] for run in runs] == [("p", "done"), ("p (noise)", "measured")]
    assert chosen_run(judged.store, None) == runs[0][2]
    assert len(judged.scores()) == 4
    by_run = judged.ask("SELECT run_id, count(*) FROM audit.calls GROUP BY run_id ORDER BY run_id")
    assert dict(by_run) == {runs[0][2]: 4, runs[1][2]: 4}


def test_steps_without_a_judge_are_deterministic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(NAMES, steps=BY_RULES | {"matches": LEXICAL, "lexical": FAITHFUL})
        printed = measured(judged, capsys, "--repeats", "3")
        assert (printed["decompositions"], printed["verifications"]) == (1, 3)
        assert kinds(endpoint) == (0, 3 * 4)
        by_name = {one["metric"]: one for one in printed["metrics"]}
        assert by_name["factual_correctness"]["deterministic"] == ["decomposition"]
        assert by_name["rouge_l_f1"]["deterministic"] == ["decomposition", "verification"]
        assert by_name["rouge_l_f1"]["smallest_difference"] == 0.0

        endpoint.clear()
        verify = VERIFY | {"judge": "embedded"}
        judged.write(NAMES, steps=BY_JUDGE | {"response_in_reference": verify})
        printed = measured(judged, capsys, "--repeats", "3")
        assert (printed["decompositions"], printed["verifications"]) == (3, 1)
        assert kinds(endpoint) == (3, 0)

        endpoint.clear()
        judged.write(NAMES, steps=BY_RULES | {"response_in_reference": verify})
        assert noise(judged, "--repeats", "3") == 0
        assert endpoint.hits == 0
    message = capsys.readouterr()
    assert message.err.startswith("4 of 4 samples, nothing to repeat: no judge is asked\n")
    assert "deterministic: 0 deterministic: 0 any 4 0 0" in " ".join(message.out.split())


def test_the_variance_is_attributed_to_verification(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One verification in two says everything is supported, the other half nothing.
    odd = faults.where(lambda body: (body.get("seed") or 0) % 2 == 1, entry_of("neutral"))
    with serve(fault=faults.either(odd, entry_of("entailed"))) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(NAMES, steps=BY_RULES)
        printed = measured(judged, capsys, "--repeats", "4")
        (metric,) = printed["metrics"]
        # Scores 1, 0, 1, 0 of each sample: a variance of 1/3, and none between samples.
        assert metric["mean"] == 0.5
        assert metric["deviation"]["verification"] == pytest.approx(3**-0.5)
        assert metric["deviation"]["sampling"] == 0.0
        assert metric["below_0"] == ["sampling"]
        assert metric["share"] == {"sampling": 0.0, "decomposition": 0.0, "verification": 1.0}
        assert metric["smallest_difference"] == pytest.approx(2.801585 * (2 / 3 / 4) ** 0.5)
        assert noise(judged, "--repeats", "4") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "factual_correctness 0.500 0.000 (0%) deterministic: 0 0.577 (100%) 1.144 4 0 0" in lines
    assert lines[-1] == (
        "factual_correctness: between samples came out below 0 and counts as 0; "
        "repeat more often for a better estimate"
    )


def test_the_variance_is_attributed_to_decomposition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(body: Any) -> bool:
        return body.get("seed") == 1 and "<claim-" not in json.dumps(body)

    with serve(fault=faults.where(other, faults.swayed())) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(NAMES, steps=BY_JUDGE)
        (metric,) = measured(judged, capsys, "--repeats", "2")["metrics"]
    # One claim in three is supported, and of the other decomposition none.
    assert metric["mean"] == pytest.approx(1 / 6)
    assert metric["deviation"]["decomposition"] == pytest.approx((1 / 18) ** 0.5)
    assert metric["deviation"]["verification"] == 0.0


def test_samples_without_a_score_in_each_repeat_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = faults.where(lambda body: "Case b." in json.dumps(body), faults.prose())
    with serve(fault=faults.where(lambda body: body.get("seed") == 1, broken)) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write([*NAMES, sample("silent", response="")], steps=BY_RULES)
        assert noise(judged, "--repeats", "2", "--json") == 1
        (metric,) = json.loads(capsys.readouterr().out)["metrics"]
    counts = [metric[name] for name in ("scored", "undefined", "failed", "of")]
    assert counts == [3, 1, 1, 3]


def test_votes_are_repeated_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify = VERIFY | {"votes": 3}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a"], steps=BY_RULES | {"response_in_reference": verify})
        measured(judged, capsys, "--repeats", "2")
        seeds = [request.body.get("seed") for request in endpoint.requests]
    assert sorted(one or 0 for one in seeds) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("repeats", ["1", "0"])
def test_repeats_must_be_two_or_more(
    repeats: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["noise", "p.yaml", "--repeats", repeats])
    assert caught.value.code == 2
    assert "argument --repeats: must be 2 or more" in capsys.readouterr().err


def test_a_pipeline_without_scores_is_refused_before_any_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        steps = {name: step for name, step in BY_RULES.items() if name != "precision"}
        judged.write(NAMES, steps=steps)
        assert noise(judged, "--repeats", "2") == 2
        assert endpoint.hits == 0
    assert prepare(judged.path).samples.count == 4
    assert not judged.store.path.exists()
    assert capsys.readouterr().err == (
        "claimflow: p.yaml: no step makes scores; "
        "add a step that makes some, such as faithfulness\n"
    )
