"""`claimflow calibrate`: judges compared with labels, recorded, and found stale."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.quality.calibration import corrected_steps, earlier_calibrations
from claimflow.flows.report.html import html_report
from claimflow.flows.report.json_document import run_json
from claimflow.flows.report.markdown import run_markdown
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.run_text import correction_lines
from claimflow.flows.store.results import chosen_run
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import CLAIMS, STEPS, Judged, about, sample
from tests.flows.sheets import read_sheet, save_sheet

TRUTH = dict(zip(CLAIMS, ("entailed", "contradicted", "neutral"), strict=True))
SWAYED = [f"swayed{n}" for n in range(4)]
SAMPLES = [f"plain{n}" for n in range(12)] + SWAYED
VERDICTS = "response_in_reference"


@pytest.fixture(scope="module")
def served() -> Iterator[Endpoint]:
    with serve() as endpoint:
        endpoint.behaviour.fault = faults.either(
            *(faults.where(about(name), faults.swayed()) for name in SWAYED)
        )
        yield endpoint


@pytest.fixture(scope="module")
def finished(served: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A run whose judge is wrong on all claims of 4 in 16 samples."""
    pipeline = Judged(tmp_path_factory.mktemp("finished"), served)
    pipeline.write([sample(name, kind=name.rstrip("0123456789")) for name in SAMPLES])
    pipeline.run()
    return pipeline


@pytest.fixture
def judged(finished: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    monkeypatch.chdir(tmp_path)
    return finished.copied(tmp_path)


def claimflow(*words: str) -> int:
    return main([*words, "--store", "s.duckdb"])


def label(
    *options: str,
    who: str = "ann",
    of: str = "verdicts",
    skip: int = 0,
    answer: str | None = None,
) -> None:
    """Draw, label and import a sheet: true labels or `said`, none for the first `skip` rows."""
    quiet = io.StringIO()
    with redirect_stdout(quiet), redirect_stderr(quiet):
        assert claimflow("label", "export", "--of", of, *options, "-o", "sheet.csv") == 0
        rows = read_sheet()
        for place, row in enumerate(rows):
            true = TRUTH[row["claim"]] if "claim" in row else "0.3333"
            row["label"] = "" if place < skip else answer or true
        save_sheet(rows)
        assert claimflow("label", "import", "sheet.csv", "--who", who) == 0


def calibrated(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert claimflow("calibrate", *options, "--format", "json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_agreement_on_all_verdicts(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    label()
    (found,) = calibrated(capsys)["found"]
    assert (found["kind"], found["step"], found["rows"]) == ("verdicts", VERDICTS, 48)
    assert (found["labelled"], found["divided"], found["failed"]) == (48, 0, 0)
    assert found["at_random"] is True
    agreed = found["agreement"]
    assert (agreed["n"], agreed["accuracy"]["value"]) == (48, 0.75)
    assert agreed["balanced_accuracy"]["value"] == pytest.approx(0.75)
    assert agreed["kappa"]["value"] == pytest.approx(0.625)
    assert sum(map(sum, agreed["confusion"])) == 48
    assert [agreed["confusion"][n][n] for n in range(3)] == [12, 12, 12]
    assert [rate["value"] for rate in agreed["base_rates"]] == pytest.approx([1 / 3] * 3)
    assert found["reliability"] is None  # a language model gives no probabilities
    for one in found["corrected"]:
        if one["method"] == "prediction-powered":
            # Every verdict has a label: what people say is what is corrected to.
            assert one["corrected"]["value"] == pytest.approx(1 / 3)


def test_labels_of_some_verdicts_correct_the_rate_of_all(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    label("--sample", "30", skip=2)
    (found,) = calibrated(capsys)["found"]
    assert found["drawing"] == {"draw": "random 30 of 48, seed 0", "labelled": 28, "drawn": 30}
    entailed = [one for one in found["corrected"] if one["what"] == "entailed"]
    assert [(one["method"], one["by"]) for one in entailed] == [
        ("prediction-powered", None),
        ("prediction-powered", "sample"),
        ("Rogan-Gladen", None),
    ]
    for one in entailed:
        interval = one["corrected"]
        assert 0 <= interval["low"] <= 1 / 3 <= interval["high"] <= 1
        assert interval["low"] <= interval["value"] <= interval["high"]


def test_reports_show_corrected_rates(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    label("--sample", "30")
    label("--metric", "factual_correctness", of="samples")
    run = chosen_run(judged.store, None)
    printed = [line.text for line in RunDocument(judged.store, run).judge_lines]
    (found, rated) = json.loads(run_json(RunDocument(judged.store, run)))["corrected"]
    assert [(one["what"], one["by"], one["method"]) for one in found["corrected"][:3]] == [
        ("entailed", None, "prediction-powered"),
        ("entailed", "sample", "prediction-powered"),
        ("entailed", None, "Rogan-Gladen"),
    ]
    assert (found["labelled"], found["drawing"]["drawn"], found["too_many"]) == (30, 30, False)
    words = [
        f"{one['judged']:.3f}{' by sample' if one['by'] else ''} as judged, "
        f"{one['corrected']['value']:.3f} [{one['corrected']['low']:.3f}, "
        f"{one['corrected']['high']:.3f}] corrected ({one['method']})"
        for one in found["corrected"][:3]
    ]
    assert printed == [
        f"entailed in {VERDICTS}: {'; '.join(words)}, by labels on 30 rows",
        "factual_correctness of precision: 0.333 as judged, 0.333 [0.333, 0.333] corrected "
        "(prediction-powered), by labels on 16 rows",
    ]
    assert rated["metric"] == "factual_correctness"
    assert printed[0] in html_report(RunDocument(judged.store, run))
    assert printed[0] in run_markdown(RunDocument(judged.store, run))
    assert claimflow("show", run) == 0
    assert printed[0] in capsys.readouterr().out


def test_large_steps_are_not_corrected_in_reports(
    judged: Judged,
) -> None:
    label()
    run = chosen_run(judged.store, None)
    [found] = corrected_steps(judged.store, run, max_rows=48)
    assert (found.too_many, found.labelled) == (False, 48)
    few = corrected_steps(judged.store, run, max_rows=47)
    assert list(correction_lines(few)) == [
        f"entailed in {VERDICTS}: not corrected here, more than 50,000 rows: "
        "see claimflow calibrate"
    ]


def test_by_slice(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    label()
    (found,) = calibrated(capsys, "--by", "kind")["found"]
    assert [
        (one["value"], one["agreement"]["n"], one["agreement"]["accuracy"]["value"])
        for one in found["slices"]
    ] == [("plain", 36, 1.0), ("swayed", 12, 0.0)]
    assert claimflow("calibrate", "--by", "kin") == 2
    assert capsys.readouterr().err == (
        "claimflow: --by: no sample has the field 'kin'; did you mean 'kind'?\n"
    )


def test_by_slice_of_claims_and_ratings(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    label(of="claims", answer="good")
    label("--metric", "factual_correctness", of="samples")
    assert claimflow("calibrate", "--by", "kind") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    after = lines[lines.index("kind good") :]
    assert after[2:4] == ["plain 1.000 [0.904, 1.000]", "swayed 1.000 [0.758, 1.000]"]
    after = lines[lines.index("kind n Spearman Kendall") :]
    assert after[2:4] == ["plain 12 - -", "swayed 4 - -"]


def test_several_annotators(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    label("--sample", "20")
    label("--sample", "20", who="bob", skip=5)
    people = calibrated(capsys)["found"][0]["annotators"]
    assert people["labels"] == {"ann": 20, "bob": 15}
    assert people["shared"] == 15
    assert people["alpha"]["value"] == 1
    ((one,),) = [people["pairs"]]
    assert (one["one"], one["other"], one["n"], one["kappa"]["value"]) == ("ann", "bob", 15, 1)


def test_claims_and_ratings(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    label("--metric", "factual_correctness", of="samples")
    (found,) = calibrated(capsys)["found"]
    assert (found["kind"], found["metric"], found["labelled"]) == (
        "samples",
        "factual_correctness",
        16,
    )
    assert found["ranks"]["n"] == 16
    assert found["ranks"]["spearman"]["value"] is None  # all ratings are alike
    (mean,) = found["corrected"]
    assert (mean["what"], mean["corrected"]["value"]) == (
        "factual_correctness",
        pytest.approx(0.3333),
    )


def test_labels_apply_to_a_new_prompt_and_the_old_calibration_is_stale(
    judged: Judged, served: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    label("--sample", "30")
    first = calibrated(capsys)
    assert first["earlier"] == {}
    again = calibrated(capsys)["earlier"][VERDICTS]
    assert (again["run_id"], again["labels"], again["causes"]) == (first["run_id"], 30, [])
    assert judged.ask("SELECT count(*) FROM audit.calibrations") == [(1,)]
    judged.write(
        [sample(name, kind=name.rstrip("0123456789")) for name in SAMPLES],
        steps=STEPS | {VERDICTS: STEPS[VERDICTS] | {"claims_per_call": 2}},
        model="hosted_vllm/other",
    )
    judged.run()
    ((newest,),) = judged.ask("SELECT arg_max(run_id, started_at) FROM audit.runs")
    assert earlier_calibrations(judged.store, newest)[VERDICTS].stale
    second = calibrated(capsys)
    assert second["run_id"] == newest != first["run_id"]
    assert second["earlier"][VERDICTS]["causes"] == ["judge", "settings"]
    # The texts are the same, so the same labels and the same draw hold.
    assert second["found"][0]["agreement"]["n"] == 30
    assert second["found"][0]["drawing"] == first["found"][0]["drawing"]
    rows = judged.ask(
        "SELECT run_id, step, stage, labels, tools->>'$.llm.model', figures->>'$.agreement.n' "
        "FROM audit.calibrations ORDER BY calibrated_at"
    )
    assert [row[:4] + row[5:] for row in rows] == [
        (run, VERDICTS, "verify_claims", 30, "30") for run in (first["run_id"], newest)
    ]


def test_labels_of_changed_texts_do_not_apply(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    label()
    run = calibrated(capsys)["run_id"]
    judged.write(["other"], claims_per_call=..., steps=STEPS)
    judged.run()
    found = calibrated(capsys)
    assert found["found"] == []
    assert found["earlier"][VERDICTS]["run_id"] == run
    judged.write(["other"], model="hosted_vllm/other")
    judged.run()
    capsys.readouterr()
    assert claimflow("calibrate") == 0
    printed = capsys.readouterr().out.splitlines()[2:]
    assert printed[0] == f"verdicts of step {VERDICTS}: none of its verdicts is labelled"
    assert printed[1].startswith(f"  calibration of run {run} (20")
    assert printed[1].endswith("48 labels, accuracy 0.750) is stale: another judge")


def test_as_a_table(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    label("--sample", "30")
    label("--sample", "30", who="bob", skip=10)
    capsys.readouterr()
    assert claimflow("calibrate", "--by", "kind") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"verdicts of step {VERDICTS}" in lines
    assert "30 of 48 rows labelled" in lines
    assert "ann: 30 labels, bob: 20 labels" in lines
    assert any(
        line.startswith("agreement among people, 20 shared: alpha 1.000 [") for line in lines
    )
    assert "judge and people, n = 30 95 % interval" in lines
    assert any(line.startswith("accuracy 0.") for line in lines)
    assert "people \\ judge entailed contradicted neutral base rate" in lines
    assert "kind n accuracy kappa" in lines
    assert "mean of corrected by as judged corrected" in lines
    assert "prediction-powered by the draw random 30 of 48, seed 0: 30 of 30 labelled" in lines
    assert claimflow("calibrate", "-o", "told.txt") == 0
    assert "Cohen's kappa" in Path("told.txt").read_text("utf-8")
    assert claimflow("calibrate", "-o", "no/told.txt") == 2
    assert capsys.readouterr().err == (
        "written: told.txt\nclaimflow: no/told.txt: cannot be written (No such file or directory); "
        "name a file in a folder that you can write to\n"
    )


def test_a_judge_without_probabilities_has_no_reliability(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    label()
    capsys.readouterr()
    answer = ["plot", VERDICTS, "--kind", "reliability", "-o", "r.svg", "--store", "s.duckdb"]
    assert main(answer) == 2
    assert capsys.readouterr().err == (
        f"claimflow: --kind reliability: the judge of step {VERDICTS} gives no probabilities; "
        "name a step whose judge is the embedded model\n"
    )


def test_without_labels_calibrate_fails(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    ((run,),) = judged.ask("SELECT run_id FROM audit.runs")
    assert claimflow("calibrate") == 2
    assert capsys.readouterr().err == (
        f"claimflow: {judged.store.path}: no label belongs to run {run}; "
        "write a sheet by `claimflow label export`, and take it in by `label import`\n"
    )


def test_missing_packages_are_named(
    judged: Judged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = util.find_spec
    monkeypatch.setattr(
        "claimflow.flows.quality.calibration.find_spec",
        lambda name: None if name == "sklearn" else there(name),
    )
    assert claimflow("calibrate") == 2
    assert capsys.readouterr().err == (
        "claimflow: calibrate: scikit-learn is not installed; "
        "run: pip install 'claimflow[calibrate]'\n"
    )
