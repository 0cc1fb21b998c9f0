"""A run for programs: JSON, JUnit XML and Markdown of `claimflow report`."""

import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.gates import Gate
from claimflow.flows.quality.gates import evaluate_gates
from claimflow.flows.report.junit import run_junit
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store import runs
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.runs import add_tag
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, claims, put_run, samples, scores, verdicts

HOSTILE = "]]> <b>&amp;</b> \x00\x1b[31m\x0b\ufffe \ud83d\ude00 \u202e ü"
SHOWN = "]]> <b>&amp;</b> \ufffd\ufffd[31m\ufffd\ufffd \U0001f600 \u202e ü"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A run of 25 samples of which most failed, with gates of every outcome."""
    store = Store(tmp_path_factory.mktemp("formats") / "s.duckdb")
    names = ["a", "b", *(f"s{number:02}" for number in range(23))]
    hostile = HOSTILE.encode("utf-16", "surrogatepass").decode("utf-16")
    recall = {name: 0.5 if name == "a" else 1.0 if name == "b" else "failed" for name in names}
    names_of = ("mean", "low", "high", "micro_mean", "minimum", "median", "maximum")
    none: dict[str, Any] = dict.fromkeys(names_of)
    counts = {"n": 25, "n_scored": 2, "n_undefined": 0, "n_failed": 23}
    whole = {"scores": "recall", "metric": "recall", **counts, **none}
    counts = {"n": 25, "n_scored": 0, "n_undefined": 25, "n_failed": 0}
    empty = {"scores": "empty", "metric": "empty", **counts, **none}
    run_id = put_run(
        store,
        {
            "samples": samples(names, response="The tower stands in Paris."),
            "response_claims": claims({"a": ["One."], "b": hostile}),
            "verdicts": verdicts({("a", "One."): "timeout"}),
            "recall": scores("recall", recall),
            "empty": scores("empty", dict.fromkeys(names, "undefined")),
            "summary": Table(
                "summaries",
                [
                    whole | {"mean": 0.75, "low": 0.5, "high": 1.0},
                    empty,
                    whole | {"slice_field": "topic", "slice_value": "t", "mean": 0.5},
                ],
            ),
        },
        pipeline=f"p {hostile}",
    )
    gates = {"recall": Gate(min=0.25, max=0.25), "empty": Gate(min=0.5)}
    evaluate_gates(store, run_id, gates)
    add_tag(store, run_id, "main")
    add_tag(store, run_id, "best")
    return store


def reported(store: Store, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert main(["report", *options, "--store", str(store.path), "--live"]) == 0
    return capsys.readouterr().out


@pytest.fixture
def junit(store: Store, capsys: pytest.CaptureFixture[str]) -> Element:
    return fromstring(reported(store, capsys, "--format", "junit"))


def suite(junit: Element, name: str) -> dict[str, Element]:
    [found] = junit.findall(f"testsuite[@name='{name}']")
    cases = {case.get("name", ""): case for case in found}
    assert found.get("tests") == str(len(cases))
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert found.get(kind) == str(len(found.findall(f"*/{tag}")))
    return cases


def test_each_gate_is_a_case(junit: Element) -> None:
    cases = suite(junit, "gates")
    assert list(cases) == ["recall: min 0.25", "recall: max 0.25", "empty: min 0.5"]
    passed, failed, unclear = cases.values()
    assert [child.tag for child in passed] == ["system-out"]
    assert passed[0].text == "0.750 (0.500 to 1.000), 2 of 25 samples scored"
    assert failed.find("failure").attrib == {  # type: ignore[union-attr]
        "message": "gate fail: recall: max 0.25: 0.750 (0.500 to 1.000), 2 of 25 samples scored"
    }
    assert unclear.find("skipped").attrib == {  # type: ignore[union-attr]
        "message": "gate inconclusive: empty: min 0.5: - (-), 0 of 25 samples scored"
    }


def test_each_step_is_a_case_with_the_reasons_of_its_failed_rows(junit: Element) -> None:
    cases = suite(junit, "steps")
    output = {name: [(case.get("message"), case.text) for case in cases[name]] for name in cases}
    reasons = [f"s{number:02}: why failed" for number in range(20)]
    assert output == {
        "samples": [],
        "response_claims": [("1 of 2 rows failed", f"b: timeout: {SHOWN}")],
        "verdicts": [("1 of 1 rows failed", "a: timeout: it was timeout")],
        "recall": [("23 of 25 rows failed", "\n".join([*reasons, "and 3 more"]))],
        "empty": [],
        "summary": [],
    }
    assert {case.get("classname") for case in cases.values()} == {f"p {SHOWN}.steps"}


def test_each_metric_is_a_case(junit: Element) -> None:
    cases = suite(junit, "metrics")
    assert list(cases) == ["recall", "empty"]
    assert cases["recall"][0].text == "mean 0.750 (0.500 to 1.000), 2 of 25 samples scored"
    assert cases["empty"][0].tag == "skipped"
    assert cases["empty"][0].get("message") == "0 of 25 samples scored"


def test_an_unfinished_run_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    run_id, _ = runs.start_run(store, pipeline="p", config_path="p.yaml", config="")
    runs.end_run(store, run_id, "failed", "the judge said no")
    junit = fromstring(run_junit(RunDocument(store, run_id)))
    [case] = suite(junit, "run").values()
    assert (case[1].tag, case[1].get("message"), case[1].text) == (
        "error",
        "the run is failed: the judge said no",
        "the judge said no",
    )
    assert [found.get("name") for found in junit] == ["run"]


def test_json_has_every_part(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = json.loads(reported(store, capsys, "main", "--format", "json"))
    assert list(found) == [
        "run",
        "metrics",
        "slices",
        "gates",
        "steps",
        "failures",
        "calls",
        "votes",
        "cascades",
        "canaries",
        "untaught",
        "claims",
        "corrected",
        "lowest",
    ]
    assert found["run"]["run_id"] == chosen_run(store, "latest")
    assert (found["run"]["status"], found["run"]["tags"]) == ("done", ["best", "main"])
    assert found["run"]["started_at"].endswith("Z")
    assert [row["mean"] for row in found["metrics"]] == [0.75, None]
    assert [(row["slice_value"], row["mean"]) for row in found["slices"]] == [("t", 0.5)]
    assert [row["outcome"] for row in found["gates"]] == ["pass", "fail", "inconclusive"]
    assert [row["failures"] for row in found["steps"]] == [0, 1, 1, 23, 0, 0]
    assert [(row["step"], row["failed"]) for row in found["failures"]] == [
        ("response_claims", 1),
        ("verdicts", 1),
        ("recall", 23),
    ]
    assert (found["calls"], found["cascades"], found["canaries"]) == ([], [], [])
    assert found["votes"] == {"unstable": 0, "of": 0}
    [audited] = found["claims"]["steps"]
    assert (audited["step"], audited["claims"], audited["failed"]) == ("response_claims", 1, 1)
    checks = {one["check"]: (one["found"], one["of"]) for one in audited["checks"]}
    assert (checks["repeated"], checks["unplaced"]) == ((0, 1), (1, 1))
    assert [(row["sample_id"], row["mean"]) for row in found["lowest"]] == [("a", 0.5), ("b", 1.0)]
    assert [score["status"] for score in found["lowest"][0]["scores"]] == ["scored", "undefined"]
    fewer = json.loads(reported(store, capsys, "--format", "json", "--samples", "1"))
    assert [row["sample_id"] for row in fewer["lowest"]] == ["a"]


def test_markdown_is_the_page_of_a_nightly_run(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.md"
    assert reported(store, capsys, "--format", "markdown", "-o", str(out)) == ""
    page = out.read_text("utf-8")
    assert page.startswith(f"### Run `{chosen_run(store, 'latest')}`\n")
    assert "| `recall: max 0.25` | 0.750 | 0.500 to 1.000 | fail |" in page
    claims = "- `response_claims: 1 claim of 25 responses, 1 of which failed (all 25 samples)`"
    assert f"{claims}\n  - `1 of 1 claims cannot be located in the text`\n" in page


def test_only_html_compares_two_runs(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["report", "--against", "main", "--format", "junit", "--store", str(store.path)]
    assert main([*options, "--live"]) == 2
    assert capsys.readouterr().err == (
        "claimflow: --against: is not for --format junit; "
        "compare two runs by `claimflow diff`, or write HTML\n"
    )
