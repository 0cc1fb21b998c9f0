"""Timeouts of runs and calls, against endpoints that hang, with and without Prefect."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.errors import InputError, RunTimeoutError, StoppedError
from claimflow.flows.pipeline.schedules import read_schedules
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.run import time_limit
from tests.endpoint import faults
from tests.endpoint.fault import Rule
from tests.endpoint.server import serve
from tests.flows.forks import Forks
from tests.flows.judged import LABELS, Judged, about
from tests.flows.test_prefect_flow import run, runs_of

pytestmark = pytest.mark.filterwarnings(
    # litellm may be stopped between making a coroutine and awaiting it.
    "ignore:coroutine '.*' was never awaited:RuntimeWarning"
)

LONG = 600
"""Seconds of the judge's own timeout: nothing but the timeout under test ends a call sooner."""


class TestRunTimeout:
    """A run that takes too long ends as failed, and the next one continues."""

    @pytest.mark.parametrize("fault", [faults.hang(), faults.drip(0.1, 1)], ids=["hang", "drip"])
    def test_a_run_ends_although_its_endpoint_does_not_reply(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: Rule
    ) -> None:
        silent = faults.where(lambda body: not about("a")(body), fault)
        with serve(fault=silent) as endpoint:
            # The first run of a process imports litellm, which may take as long as the timeout.
            (tmp_path / "first").mkdir()
            first = Judged(tmp_path / "first", endpoint)
            first.write("a")
            first.run()
            judged = Judged(tmp_path, endpoint)
            judged.write("abc", timeout=LONG)
            began = time.monotonic()
            assert judged.command("--timeout", "4s") == 8
            assert time.monotonic() - began < 60
            message = "the run took longer than its timeout of 0:00:04; finished work is kept"
            assert capsys.readouterr().err.splitlines()[-1] == (
                f"claimflow: failed: {message}; run again to continue"
            )
            runs = judged.ask("SELECT status, reason FROM audit.runs")
            assert runs == [("failed", message)]
            endpoint.behaviour.fault = None
            assert judged.command("--timeout", "10m") == 0
            assert endpoint.hits == 2
            assert judged.verdicts() == dict.fromkeys("abc", LABELS)

    def test_from_python(self, tmp_path: Path) -> None:
        with serve(fault=faults.hang()) as endpoint:
            judged = Judged(tmp_path, endpoint)
            judged.write("a", timeout=LONG)
            with pytest.raises(RunTimeoutError, match="timeout of 0:00:01"):
                run_pipeline(prepare(judged.path), judged.store, timeout=timedelta(seconds=1))

    def test_a_run_that_is_stopped_before_is_stopped(self) -> None:
        stop = threading.Event()
        with pytest.raises(StoppedError), time_limit(timedelta(hours=1), stop):
            raise StoppedError
        assert not stop.is_set()

    def test_the_flow_run_is_failed_and_says_so(
        self, server: str, tracked_forks: Forks, tmp_path: Path
    ) -> None:
        with serve(fault=faults.hang()) as endpoint:
            judged = Judged(tmp_path, endpoint)
            judged.write("a", timeout=LONG)
            done = run(judged.path, tmp_path / "home", "--timeout", "5", PREFECT_API_URL=server)
        assert done.returncode == 8, done.stderr
        [found] = runs_of(server, judged.path)
        assert found["state_name"] == "Failed"
        assert "the run took longer than its timeout of 0:00:05" in found["state"]["message"]


class TestCallTimeout:
    """The longest time of a call with all its attempts."""

    def test_calls_end_sooner_than_the_timeout_of_their_judge(self, tmp_path: Path) -> None:
        silent = faults.where(lambda body: not about("a")(body), faults.hang())
        with serve(fault=silent) as endpoint:
            judged = Judged(tmp_path, endpoint)
            judged.write("ab", timeout=LONG)
            began = time.monotonic()
            assert judged.command("--call-timeout", "2") == 1
            assert time.monotonic() - began < 60
            assert judged.verdicts() == {"a": LABELS, "b": ["timeout"] * 3}
            # Without the option nothing else is reused or asked.
            endpoint.behaviour.fault = None
            assert judged.command() == 0
            assert endpoint.hits == 1


SCHEDULE = """
deployments:
  nightly:
    pipeline: p.yaml
    cron: "0 2 * * *"
    timeout: {timeout}
    call_timeout: {call_timeout}
"""


class TestSchedules:
    """Both timeouts in a schedules file."""

    @pytest.fixture
    def written(self, tmp_path: Path) -> Callable[..., Path]:
        with serve() as endpoint:
            Judged(tmp_path, endpoint).write("a")
        path = tmp_path / "schedules.yaml"

        def write(**values: Any) -> Path:
            path.write_text(SCHEDULE.format(**values), "utf-8")
            return path

        return write

    def test_they_are_parameters_of_the_flow(self, written: Callable[..., Path]) -> None:
        [nightly] = read_schedules(written(timeout="2h", call_timeout=90)).scheduled
        assert nightly.parameters["timeout"] == "2h"
        assert nightly.parameters["call_timeout"] == 90

    @pytest.mark.parametrize("wrong", ["2 hours", "0", "-1s", "1.5h", "true"])
    def test_mistakes_have_a_line_and_a_hint(
        self, written: Callable[..., Path], wrong: str
    ) -> None:
        path = written(timeout=wrong, call_timeout="2m")
        with pytest.raises(InputError) as raised:
            read_schedules(path)
        [fault] = raised.value.faults
        assert fault.place == f"{path}:6 deployments.nightly.timeout"
        assert fault.hint == "write seconds, or a number with s, m, h or d, as in 6h"
