"""The commands of flows/guides/send.md, and their output."""

import json
import re
import shlex
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.schedules import read_schedules
from tests.flows.trace_servers import Said, TraceServer
from tests.flows.traced_runs import span, trace

GUIDE = (Path(__file__).parents[2] / "flows/guides/send.md").read_text("utf-8")
SHOWN = re.findall(r"```console\n\$ (claimflow .*)\n((?s:.*?))```", GUIDE)


def test_the_commands_of_the_guide_say_what_it_shows(
    write_small: Callable[[Path], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_small(tmp_path)
    lines = (tmp_path / "samples.jsonl").read_text("utf-8").splitlines()
    for number in range(2):
        ids = {"trace_id": trace(number), "span_id": span(number)}
        lines[number] = json.dumps(json.loads(lines[number]) | ids)
    (tmp_path / "samples.jsonl").write_text("\n".join(lines), "utf-8")
    with TraceServer(lambda _: Said()).running() as server, chdir(tmp_path):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        assert main(["run", "small.yaml"]) == 0
        assert len(SHOWN) == 2
        for command, output in SHOWN:
            capsys.readouterr()
            assert main(shlex.split(command)[1:]) == 0
            printed = capsys.readouterr()
            wanted = re.escape(output).replace(r"\.\.\.", "[0-9a-f-]+")
            said = printed.err.split("\n", 1)[1]
            assert re.fullmatch(wanted, printed.out + said)


def test_the_schedule_of_the_guide_is_right(small: Path) -> None:
    (block,) = re.findall(r"```yaml\n((?s:.*?))```", GUIDE)
    path = small.with_name("s.yaml")
    path.write_text(block.replace("quickstart.yaml", "small.yaml"), "utf-8")
    (one,) = read_schedules(path).scheduled
    assert [target.to for target in one.deployment.send] == ["otlp", "langfuse"]
    assert yaml.safe_load(block)
