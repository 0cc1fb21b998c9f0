"""A run that came to its end fails by `fail_when`: its status, exit code, reports and Prefect."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.orchestration.artifacts import final_state
from claimflow.flows.pipeline.gates import FailWhen
from claimflow.flows.pipeline.pipeline import build_pipeline
from claimflow.flows.pipeline.yaml_source import load_yaml
from claimflow.flows.report.html import html_report
from claimflow.flows.report.junit import run_junit
from claimflow.flows.report.markdown import run_markdown
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.testing import assert_scores
from tests.endpoint import faults
from tests.endpoint.fault import Rule
from tests.endpoint.server import Endpoint, serve
from tests.flows.forks import Forks
from tests.flows.judged import LABELS, STEPS, Judged, about, sample
from tests.flows.test_prefect_flow import run, runs_of

DEFAULT: dict[str, Any] = {"fail_when": {}}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture
def judged(tmp_path: Path, endpoint: Endpoint) -> Judged:
    return Judged(tmp_path, endpoint)


def failing(*names: str, rule: Rule | None = None) -> Rule:
    """A 400 for the samples of these names: no retry, so that the tests are fast."""
    return faults.where(
        lambda body: any(about(name)(body) for name in names), rule or faults.status(400)
    )


def ends(judged: Judged) -> tuple[str, str | None]:
    """Status and reason of the newest run."""
    query = "SELECT status, reason FROM audit.runs ORDER BY started_at DESC LIMIT 1"
    [(status, reason)] = judged.ask(query)
    return status, reason


class TestWhichRunsFail:
    """The share of failed rows in each table, and metrics without a score."""

    @pytest.mark.parametrize(
        ("limit", "code"), [("25 %", 1), (0.25, 1), ("24.9 %", 8), (0, 8), ("100 %", 1)]
    )
    def test_a_share_above_the_limit(
        self, judged: Judged, endpoint: Endpoint, limit: Any, code: int
    ) -> None:
        endpoint.behaviour.fault = failing("b")
        judged.write("abcd", more={"fail_when": {"failed_rows": limit}})
        assert judged.command() == code
        assert ends(judged)[0] == ("failed" if code == 8 else "done")

    def test_the_worst_step_counts(self, judged: Judged, endpoint: Endpoint) -> None:
        """Of all rows of the run fewer than 5 % failed, of one table 10 %."""
        endpoint.behaviour.fault = failing("s3")
        lexical = {
            f"overlap_{number}": {"use": "lexical_match", "against": "reference"}
            for number in range(4)
        }
        judged.write([f"s{number}" for number in range(10)], steps=STEPS | lexical, more=DEFAULT)
        assert judged.command() == 8
        rows = judged.ask("SELECT sum(row_count), sum(failures) FROM audit.artifacts")
        assert rows[0][1] / rows[0][0] < 0.05
        reason = str(ends(judged)[1])
        assert reason.startswith(
            "3 of 30 rows of response_in_reference failed (10 %), more than fail_when allows "
            "(5 %): bad_request: 400"
        )
        assert reason.endswith("; and 1 more")

    def test_a_metric_without_a_score_fails_whatever_the_limit(
        self, judged: Judged, endpoint: Endpoint
    ) -> None:
        endpoint.behaviour.fault = failing("a", "b")
        judged.write("ab", more={"fail_when": {"failed_rows": "100 %"}})
        assert judged.command() == 8
        reason = "no sample has a score for factual_correctness: 2 of 2 failed"
        assert ends(judged) == ("failed", reason)

    def test_a_metric_that_is_undefined_for_all_samples_is_a_warning(
        self, judged: Judged, capsys: pytest.CaptureFixture[str]
    ) -> None:
        judged.write([sample("a", response="")], more=DEFAULT)
        assert judged.command() == 0
        line = (
            "warning: no sample has a score for precision.factual_correctness: 1 undefined "
            "(no claims in the response; the response is empty (policy: formula))"
        )
        assert line in capsys.readouterr().out.splitlines()
        assert ends(judged) == ("done", None)
        assert line in final_state(RunDocument(judged.store, newest(judged))).message

    def test_failed_canaries_count_although_every_table_is_reused(
        self, judged: Judged, endpoint: Endpoint
    ) -> None:
        pairs = [
            {"premise": f"Canary {number}.", "claim": "It is.", "label": "neutral"}
            for number in range(6)
        ]
        lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
        judged.path.with_name("c.jsonl").write_text(lines, "utf-8")
        judged.write("ab", more=DEFAULT)
        assert judged.command() == 0
        judged.write("ab", more=DEFAULT | {"canaries": {"path": "c.jsonl"}})
        endpoint.behaviour.fault = faults.where(
            lambda body: "Canary" in json.dumps(body), faults.malformed()
        )
        assert judged.command() == 8
        reason = (
            "6 of 6 canaries of response_in_reference failed (100 %), "
            "more than fail_when allows (5 %)"
        )
        assert ends(judged) == ("failed", reason)

    @pytest.mark.parametrize(
        "fault",
        [faults.malformed(), faults.empty(), faults.wrong_schema(), faults.refused()],
        ids=["malformed", "empty", "schema", "refused"],
    )
    def test_an_endpoint_that_answers_nonsense(
        self, judged: Judged, endpoint: Endpoint, fault: Rule
    ) -> None:
        endpoint.behaviour.fault = fault
        judged.write("abc", more=DEFAULT)
        assert judged.command() == 8
        assert str(ends(judged)[1]).startswith(
            "9 of 9 rows of response_in_reference failed (100 %)"
        )

    def test_never(self, judged: Judged, endpoint: Endpoint) -> None:
        endpoint.behaviour.fault = failing("a", "b")
        judged.write("ab", more={"fail_when": "never"})
        assert judged.command() == 1
        assert ends(judged) == ("done", None)

    def test_five_percent_is_the_default(self, judged: Judged) -> None:
        judged.write("a")
        text = judged.path.read_text("utf-8").replace("fail_when: never\n", "")
        judged.path.write_text(text, "utf-8")
        assert build_pipeline(load_yaml(judged.path)).fail_when == FailWhen(failed_rows=0.05)

    @pytest.mark.parametrize(
        ("written", "place", "hint"),
        [
            ("", "fail_when", "write never, or a limit as in {failed_rows: 5 %}"),
            ("off", "fail_when", "write never, or a limit as in {failed_rows: 5 %}"),
            ("{failed_rows: 5}", "fail_when.failed_rows", "write a share, as in 5 % or 0.05"),
            ("{failed_rows: -1 %}", "fail_when.failed_rows", "write a share, as in 5 % or 0.05"),
            ("{failed_rows: 101 %}", "fail_when.failed_rows", "write a share, as in 5 % or 0.05"),
            ("{failed_rows: .nan}", "fail_when.failed_rows", "write a share, as in 5 % or 0.05"),
            ("{failed_rows: true}", "fail_when.failed_rows", "write a share, as in 5 % or 0.05"),
            ("{failed: 5 %}", "fail_when.failed", "did you mean 'failed_rows'?"),
        ],
    )
    def test_mistakes_have_a_line_and_a_hint(
        self, judged: Judged, written: str, place: str, hint: str
    ) -> None:
        judged.write("a")
        text = judged.path.read_text("utf-8").replace("fail_when: never", f"fail_when: {written}")
        line = text.splitlines().index(f"fail_when: {written}") + 1
        judged.path.write_text(text, "utf-8")
        with pytest.raises(InputError) as raised:
            build_pipeline(load_yaml(judged.path))
        [fault] = raised.value.faults
        assert fault.place == f"{judged.path}:{line} {place}"
        assert fault.hint == hint


def newest(judged: Judged) -> str:
    [(run_id,)] = judged.ask("SELECT arg_max(run_id, started_at) FROM audit.runs")
    return str(run_id)


REASON = "3 of 9 rows of response_in_reference failed (33.3 %), more than fail_when allows (5 %)"


class TestWhatAFailedRunIs:
    """Told everywhere, never latest, and green again when its failures are gone."""

    @pytest.fixture
    def failed(self, judged: Judged, endpoint: Endpoint) -> Judged:
        """A run that is done, and one of other samples that failed although its gate passes."""
        more = DEFAULT | {"gates": {"factual_correctness": {"min": 0.0}}}
        judged.write("ab", more=more)
        assert judged.command() == 0
        endpoint.behaviour.fault = failing("c")
        judged.write("abc", more=more)
        assert judged.command() == 8
        return judged

    def test_it_is_told_in_one_line_with_the_same_exit_code_by_show_report_and_gate(
        self, failed: Judged, capsys: pytest.CaptureFixture[str]
    ) -> None:
        line = re.compile(f"failed: {re.escape(REASON)}: bad_request: 400.*; and 1 more")
        store = ["--store", str(failed.store.path), "--live"]
        for command in (
            ["show", *store],
            ["gate", str(failed.path)],
            ["report", "--format", "markdown", *store],
        ):
            capsys.readouterr()
            assert main(command) == 8
            lines = capsys.readouterr().out.splitlines()
            found = [one.replace("**failed** `", "failed: ").rstrip("`") for one in lines]
            assert [one for one in found if one.startswith("failed:") and line.fullmatch(one)], (
                lines
            )

    def test_it_is_not_latest_and_no_baseline(self, failed: Judged) -> None:
        assert failed.ask("SELECT count(*) FROM latest.samples") == [(2,)]
        run = RunDocument(failed.store, newest(failed))
        assert run.run_before != run.run_id
        failed.run()
        assert RunDocument(failed.store, newest(failed)).run_before == run.run_before

    def test_reports_show_why(self, failed: Judged) -> None:
        run = RunDocument(failed.store, newest(failed))
        assert f"**failed** `{REASON}" in run_markdown(run)
        assert f"failed: <bdi>{REASON}" in html_report(run)
        assert f'<error message="the run is failed: {REASON}' in run_junit(run)
        assert str(run.head.reason).startswith(REASON)

    def test_in_prefect_the_flow_run_is_failed_with_that_line(self, failed: Judged) -> None:
        state = final_state(RunDocument(failed.store, newest(failed)))
        assert state.name == "Failed"
        assert str(state.message).startswith(f"failed: {REASON}")

    def test_from_python(self, failed: Judged) -> None:
        result = run_pipeline(prepare(failed.path), failed.store)
        assert str(result.failed).startswith(REASON)
        with pytest.raises(AssertionError, match=re.escape(f"failed: {REASON}")):
            assert_scores(store=failed.store.path, run=result.run_id, failed_rows=99)

    def test_a_rerun_of_what_failed_is_green(self, failed: Judged, endpoint: Endpoint) -> None:
        endpoint.behaviour.fault = None
        assert failed.command("--failed") == 0
        assert endpoint.hits == 1
        assert failed.verdicts()["c"] == LABELS
        assert ends(failed) == ("done", None)
        assert failed.command("--failed") == 0
        assert endpoint.hits == 0


def test_the_flow_run_is_failed_on_a_real_server(
    server: str, tracked_forks: Forks, tmp_path: Path
) -> None:
    with serve(fault=faults.malformed()) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abc", more=DEFAULT)
        done = run(judged.path, tmp_path / "home", PREFECT_API_URL=server)
    assert done.returncode == 8, done.stderr
    [found] = runs_of(server, judged.path)
    assert found["state_name"] == "Failed"
    assert found["state"]["message"].startswith("failed: 9 of 9 rows of response_in_reference")
