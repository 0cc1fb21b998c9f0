"""The systemd units of the guide: their command lines in a fresh folder, with their environment."""

import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flows.prefect_server import ask, until

GUIDE = Path(__file__).parents[2] / "flows/guides/nightly.md"


def units() -> dict[str, str]:
    """The units of the guide by name."""
    text = GUIDE.read_text("utf-8")
    return dict(
        re.findall(r"/etc/systemd/system/(\S+)\.service`.*?```ini\n(.*?)```", text, re.DOTALL)
    )


class Machine:
    """A folder in place of `/`, where the project is and its virtual environment."""

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self._port = port
        self.project = root / "srv/evals"
        (self.project / "configs").mkdir(parents=True)
        (self.project / ".venv").symlink_to(sys.prefix)

    def unit(self, name: str) -> str:
        """A unit with the paths and the port of this machine."""
        text = units()[name].replace("127.0.0.1:4200", f"127.0.0.1:{self._port}")
        return text.replace("/srv/evals", str(self.project)).replace(
            "/var/lib", str(self.root / "var/lib")
        )

    def values(self, name: str, key: str) -> list[str]:
        return re.findall(rf"^{key}=(.*)$", self.unit(name), re.MULTILINE)

    def environment(self, name: str) -> dict[str, str]:
        """What systemd gives to a service of a user who has no home directory."""
        for folder in self.values(name, "StateDirectory"):
            (self.root / "var/lib" / folder).mkdir(parents=True, exist_ok=True)
        own = dict(one.split("=", 1) for one in self.values(name, "Environment"))
        path = f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
        # Prefect's port, for which the units have no setting; and this checkout.
        mine = {"PREFECT_SERVER_API_PORT": str(self._port), "PYTHONPATH": ":".join(sys.path)}
        return {"PATH": path, "HOME": str(self.root / "home/evals")} | mine | own

    @contextmanager
    def started(self, name: str) -> Iterator[Path]:
        """A service while it runs; its log.

        It has to end on SIGTERM, `serve` with exit code 0 and without a trace. Which exit code
        Prefect's own commands choose depends on what they were doing at that moment: the worker
        ends with 1 if it is interrupted while it connects. systemd starts all of them again.
        """
        world = self.environment(name)
        (folder,) = self.values(name, "WorkingDirectory") or [str(self.root)]
        log = self.root / f"{name}.log"
        with log.open("w") as output:
            for line in self.values(name, "ExecStartPre"):
                subprocess.run(shlex.split(line), env=world, cwd=folder, check=True, stdout=output)
            (line,) = self.values(name, "ExecStart")
            process = subprocess.Popen(
                shlex.split(line), env=world, cwd=folder, stdout=output, stderr=output
            )
        try:
            yield log
            process.send_signal(signal.SIGTERM)
            code = process.wait(120)
            if Path(shlex.split(line)[0]).name == "claimflow":
                output_text = log.read_text("utf-8")
                assert code == 0, output_text
                assert "Traceback" not in output_text
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def machine(tmp_path: Path, small: Path) -> Machine:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    machine = Machine(tmp_path / "root", port)
    for name in ("small.yaml", "samples.jsonl"):
        shutil.copy(small.with_name(name), machine.project / "configs" / name)
    (machine.project / "configs/schedules.yaml").write_text(
        "deployments:\n  nightly: {pipeline: small.yaml, cron: '0 2 1 * *'}\n", "utf-8"
    )
    return machine


def test_the_server_and_a_worker_start_in_a_fresh_folder(machine: Machine) -> None:
    (url,) = re.findall("PREFECT_API_URL=(.*)", machine.unit("claimflow-worker"))

    def answers() -> bool:
        try:
            return bool(ask(f"{url}/health"))
        except OSError:
            return False

    with machine.started("claimflow-server"):
        until(answers)
        with machine.started("claimflow-worker") as log:
            workers = f"{url}/work_pools/claimflow/workers/filter"
            until(lambda: [one["status"] for one in ask(workers, {})] == ["ONLINE"])
            until(lambda: "started!" in log.read_text("utf-8"))
            assert "evaluate/nightly: small.yaml, cron 0 2 1 * * in UTC" in log.read_text("utf-8")
        assert (machine.root / "var/lib/claimflow/prefect.db").is_file()
    assert not (machine.root / "home").exists()


def test_serve_starts_in_a_fresh_folder(machine: Machine) -> None:
    with machine.started("claimflow-serve") as log:
        until(lambda: "serving until Ctrl-C" in log.read_text("utf-8"))
    assert "Warning" not in log.read_text("utf-8")
    assert (machine.project / ".claimflow/prefect/prefect.db").is_file()
    assert not (machine.project / ".claimflow/prefect/address").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", sorted(units()))
def test_systemd_accepts_the_units(machine: Machine, name: str) -> None:
    for key in units():
        (machine.root / f"{key}.service").write_text(machine.unit(key), "utf-8")
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(machine.root / f"{name}.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in checked.stderr.splitlines() if name in line] == []


def test_all_units_of_the_guide_are_found() -> None:
    assert sorted(units()) == ["claimflow-serve", "claimflow-server", "claimflow-worker"]
