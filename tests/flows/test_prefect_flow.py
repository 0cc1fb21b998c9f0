"""The flow on a real Prefect server, read back through its API."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claimflow.flows.store.store import Store
from tests.endpoint.server import serve
from tests.flows.forks import Forks
from tests.flows.judged import STEPS, Judged
from tests.flows.limits import Limit
from tests.flows.prefect_server import MAIN, ask, environment
from tests.flows.trace_servers import Said, TraceServer
from tests.flows.traced_runs import span, trace


def run(small: Path, folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, "run", str(small), *options],
        env=environment(folder, **more),
        cwd=small.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def runs_of(url: str, config: Path) -> list[dict[str, Any]]:
    """The flow runs of a pipeline file; others use the server, too."""
    found: list[dict[str, Any]] = []
    # The server gives no more than so many at a time, and schedules of others fill it.
    while some := ask(
        f"{url}/flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC", "offset": len(found)}
    ):
        found += some
    return [run for run in found if run["parameters"].get("config") == str(config)]


def wait_for(happened: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def finished_tasks(url: str, flow_run: str, count: int) -> dict[str, dict[str, Any]]:
    """The task runs of a flow run by name, once the server has recorded how they all ended."""
    for _ in range(120):
        found = ask(f"{url}/task_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})
        if len(found) == count and all(task["state_type"] == "COMPLETED" for task in found):
            return {task["name"]: task for task in found}
        time.sleep(0.5)
    raise AssertionError(found)


def artifacts_of(url: str, flow_run: str) -> dict[str, Any]:
    """The artifacts of a flow run, by key; tables as rows."""
    found = ask(f"{url}/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [flow_run]}}})
    return {
        one["key"]: json.loads(one["data"]) if one["type"] == "table" else one["data"]
        for one in found
    }


def test_every_step_is_a_task_run(
    server: str, tracked_forks: Forks, small: Path, tmp_path: Path
) -> None:
    done = run(small, tmp_path / "home", PREFECT_API_URL=server)
    assert done.returncode == 0, done.stderr
    assert "3 samples, 8 steps made, 0 reused" in done.stdout
    assert "leaked" not in done.stderr

    (flow_run,) = runs_of(server, small)
    assert flow_run["state_type"] == "COMPLETED"
    assert re.fullmatch(r"small \d{4}-\d\d-\d\d \d\d:\d\d", flow_run["name"])
    printed = r"run [0-9a-f-]{20}: 3 samples, 8 steps made, 0 reused"
    assert re.fullmatch(printed, flow_run["state"]["message"])
    tasks = finished_tasks(server, flow_run["id"], 8)
    assert set(tasks) == {
        "samples",
        "response_claims",
        "reference_claims",
        "response_in_reference",
        "context_matches",
        "precision",
        "deterministic_faithfulness",
        "summary",
    }
    assert re.fullmatch(r"3 rows made in \d+\.\d s", tasks["precision"]["state"]["message"])
    assert done.stderr.count("Task run ") == 8
    reads = {
        entry["id"] for inputs in tasks["precision"]["task_inputs"].values() for entry in inputs
    }
    needed = ("samples", "response_claims", "response_in_reference")
    assert reads == {tasks[name]["id"] for name in needed}
    page = artifacts_of(server, flow_run["id"])["small-summary"]
    assert "| `factual_correctness` | 0.500 | 0.095 to 0.905 | 2 | 1 | 0 | 3 |" in page
    assert "No whole run of its pipeline is older" in page

    ids = small.with_name("ids")
    ids.write_text("tower\n", "utf-8")
    options = ["--only", "response_claims", "context_matches", "--again", "context_matches"]
    some = ["--samples", str(ids), *options, "--fresh"]
    part = tracked_forks.run(small.parent, "run", str(small), *some)
    assert part.code() == 0, part.err()
    assert "1 of 3 samples, 3 of 8 steps, 3 steps made, 0 reused" in part.out()
    (_, flow_run) = runs_of(server, small)
    tasks = finished_tasks(server, flow_run["id"], 3)
    taken = r"1 row made in \d+\.\d s, rows of 1 sample reused"
    assert re.fullmatch(taken, tasks["response_claims"]["state"]["message"])


def test_a_failed_gate_fails_the_flow_run_in_one_line(
    server: str, tracked_forks: Forks, small: Path
) -> None:
    gates = "gates: {factual_correctness: {max: 0.01}, bleu_faithfulness: {min: 0.3}}\n"
    small.write_text(small.read_text("utf-8") + gates, "utf-8")
    samples = small.with_name("samples.jsonl")
    evil = "Einstein was born in `1879` | ![x](http://evil) <img src=x>."
    hostile = samples.read_text("utf-8").replace("Einstein was born in 1879.", evil)
    samples.write_text(hostile, "utf-8")
    failed = tracked_forks.run(small.parent, "run", str(small))
    assert failed.code() == 4, failed.err()

    (flow_run,) = runs_of(server, small)
    assert flow_run["state_type"] == "FAILED"
    assert flow_run["state"]["message"] == (
        "gate failed: factual_correctness: max 0.01: 0.500 (0.095 to 0.905), 2 of 3 samples scored"
    )
    found = artifacts_of(server, flow_run["id"])
    assert (
        "| `factual_correctness: max 0.01` | 0.500 | 0.095 to 0.905 | fail |"
        in (found["small-summary"])
    )
    written = "`` Einstein was born in `1879` \u2502 ![x](http://evil) <img src=x>. ``"
    worst = found["small-worst"][0]
    assert worst["sample"] == "`birth`"
    assert worst["response"] == written
    assert worst["claims"] == "contradicted: `Einstein was born in 1879 \u2502 !x <img src=x>.`"

    samples.write_text(hostile.replace("1879", "1905"), "utf-8")
    small.write_text(small.read_text("utf-8").replace("max: 0.01", "max: 0.9"), "utf-8")
    unclear = tracked_forks.run(small.parent, "run", str(small))
    assert unclear.code() == 5, unclear.err()
    (_, flow_run) = runs_of(server, small)
    assert flow_run["state_type"] == "COMPLETED"
    assert "; gate inconclusive: factual_correctness: max 0.9: " in flow_run["state"]["message"]
    page = artifacts_of(server, flow_run["id"])["small-summary"]
    assert "### What changed from A to B" in page
    assert "2 samples the same, 1 changed, 0 new, 0 removed" in page


PASSING_ON = """
import asyncio, sys
async def pump(reader, writer):
    try:
        while some := await reader.read(65536):
            writer.write(some)
            await writer.drain()
    finally:
        writer.close()
async def pass_on(reader, writer):
    there, back = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def test_a_run_finishes_when_the_server_is_lost(server: str, tmp_path: Path) -> None:
    port = re.findall(r":(\d+)/", server)[0]
    command = [sys.executable, "-c", PASSING_ON, port]
    # To a run it is the server, but killing it leaves the other tests theirs.
    lost = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert lost.stdout is not None
    api = f"http://127.0.0.1:{lost.stdout.readline().strip()}/api"
    with serve(latency=3) as endpoint:
        judged = Judged(tmp_path, endpoint)
        steps = {name: STEPS[name] for name in list(STEPS)[:2]}
        limit = Limit(server, "lost", 600)
        judged.write(["one", "two"], steps=steps, shared_limit=limit.name)
        going = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", str(judged.path)],
            env=environment(tmp_path / "home", PREFECT_API_URL=api, PREFECT_CLIENT_MAX_RETRIES="0"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not endpoint.hits:
            assert going.poll() is None, going.communicate()
            time.sleep(0.05)
        (flow_run,) = runs_of(server, judged.path)
        assert flow_run["state_type"] == "RUNNING"
        lost.kill()
        lost.communicate()
        out, err = going.communicate()
    assert going.returncode == 0, err
    assert "2 samples, 3 steps made, 0 reused" in out
    assert "the summary could not be posted" in err
    printed = [line for line in err.splitlines() if "shared limit" in line]
    assert len(printed) == 1
    assert "shared limit lost: Prefect does not answer" in printed[0]
    assert printed[0].endswith("; going on with 600 requests a minute, the part it had")
    assert "failed to process item" not in err
    assert judged.ask("SELECT status FROM audit.runs") == [("done",)]
    assert {name: len(found) for name, found in judged.verdicts().items()} == {"one": 3, "two": 3}
    (flow_run,) = runs_of(server, judged.path)
    assert flow_run["state_type"] == "RUNNING", "nobody could tell the server"


NIGHTS = """
import json, sys
from pathlib import Path
from claimflow.flows.orchestration.flow import evaluate
keep = {"publish": "out", "report": "pages", "keep_runs": 1}
print(evaluate("small.yaml", **(keep | json.loads(sys.argv[1])), return_state=True).type.value)
"""


def test_old_runs_go_after_the_night_and_what_hinders_that_is_logged(
    server: str, small: Path, tmp_path: Path
) -> None:
    def night(**more: Any) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", NIGHTS, json.dumps(more)],
            env=environment(tmp_path / "home", PREFECT_API_URL=server),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout, done.stderr

    def left() -> tuple[list[str], list[str], list[str]]:
        with Store(tmp_path / "small.duckdb").reading() as connection:
            query = "SELECT run_id FROM audit.runs WHERE pipeline = 'small' ORDER BY 1"
            runs = [run for (run,) in connection.execute(query).fetchall()]
        pages = sorted(path.stem for path in (tmp_path / "pages").iterdir())
        return runs, sorted(path.name for path in (tmp_path / "out").iterdir()), pages

    assert night()[0] == "COMPLETED\n"
    out, err = night()
    assert (out, "1 old run removed, as keep says" in err) == ("COMPLETED\n", True)
    runs, tables, pages = left()
    assert len(runs) == 1
    assert (tables, pages) == (runs, runs)

    # A run of another pipeline that is in progress holds the store against pruning.
    with Store(tmp_path / "small.duckdb").writing() as connection:
        connection.execute(
            "INSERT INTO audit.runs BY NAME SELECT * REPLACE ('other' AS pipeline, 'x' AS run_id, "
            "'running' AS status, $process AS process) FROM audit.runs",
            {"process": os.getpid()},
        )
    out, err = night()
    assert out == "COMPLETED\n"
    assert "old runs could not be removed: " in err
    assert f"run x is in progress (process {os.getpid()}" in err
    runs, tables, pages = left()
    assert len(runs) == 2
    assert (tables, pages) == (runs, runs)


def test_a_cancelled_run_is_recorded_as_stopped(
    server: str, tracked_forks: Forks, tmp_path: Path
) -> None:
    with serve(latency=30) as endpoint:
        judged = Judged(tmp_path, endpoint)
        # One request a minute for each of two: the second call waits for its turn.
        limit = Limit(server, "slow", 2)
        limit.take()
        judged.write(["one", "two"], shared_limit=limit.name)
        going = tracked_forks.run(tmp_path, "run", str(judged.path))
        wait_for(lambda: endpoint.hits)
        # What Prefect sends to a run that is cancelled.
        going.send(signal.SIGTERM)
        assert going.code() == -signal.SIGTERM, going.err()
        assert endpoint.hits == 1
    assert limit.places() == 1
    assert judged.ask("SELECT status, reason FROM audit.runs") == [("stopped", "asked to stop")]


def test_two_runs_on_one_store_take_turns(
    server: str, tracked_forks: Forks, write_small: Callable[[Path], Path], tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    configs = [write_small(tmp_path / name) for name in "ab"]
    store = tmp_path / "both.duckdb"
    text = configs[1].read_text("utf-8")
    configs[1].write_text(text.replace("name: small", "name: other"), "utf-8")
    runs = [
        tracked_forks.run(config.parent, "run", str(config), "--store", str(store))
        for config in configs
    ]
    codes = [going.code() for going in runs]
    assert codes == [0, 0], [going.err() for going in runs]
    with Store(store).reading() as connection:
        found = connection.execute(
            "SELECT pipeline, status, count(DISTINCT step) FROM audit.runs "
            "JOIN audit.run_steps USING (run_id) GROUP BY ALL ORDER BY pipeline"
        ).fetchall()
    assert found == [("other", "done", 8), ("small", "done", 8)]
    for config in configs:
        (flow_run,) = runs_of(server, config)
        assert flow_run["state_type"] == "COMPLETED"


def test_an_unreachable_server_is_one_line(small: Path, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        done = run(small, tmp_path / "home", PREFECT_API_URL=f"http://127.0.0.1:{port}/api")
    assert done.returncode == 2
    assert done.stderr == (
        "claimflow: PREFECT_API_URL: no Prefect server answers there; start one with "
        "`prefect server start`, or unset it to run without Prefect\n"
    )
    assert not small.with_name("small.duckdb").exists()


def test_a_data_file_runs_in_prefect_by_the_pipeline_that_is_saved(
    server: str, tmp_path: Path
) -> None:
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"answer": "Goethe wrote it.", "ground_truth": "Goethe."}\n', "utf-8")
    options = ("--metrics", "chrf", "--save", "saved.yaml", "--prefect")
    done = run(answers, tmp_path / "home", *options, PREFECT_API_URL=server)
    assert done.returncode == 0, done.stderr
    [tracked] = runs_of(server, Path("saved.yaml"))
    assert tracked["state_type"] == "COMPLETED"


def sending_night(server: str, small: Path, folder: Path, url: str, **more: Any) -> tuple[str, str]:
    """A night over traced samples whose scores go to a collector; its state and its log."""
    lines = small.with_name("samples.jsonl").read_text("utf-8").splitlines()
    traced = [
        json.dumps(json.loads(line) | {"trace_id": trace(number), "span_id": span(number)})
        for number, line in enumerate(lines)
    ]
    small.with_name("samples.jsonl").write_text("\n".join(traced), "utf-8")
    send = {"send": [{"to": "otlp", "metrics": ["factual_correctness"]}], "keep_runs": None}
    done = subprocess.run(
        [sys.executable, "-c", NIGHTS, json.dumps(send | more)],
        env=environment(folder / "home", PREFECT_API_URL=server, OTEL_EXPORTER_OTLP_ENDPOINT=url),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


def test_a_night_sends_its_scores_and_those_of_the_night_that_could_not(
    server: str, small: Path, tmp_path: Path
) -> None:
    def night(url: str) -> tuple[str, str]:
        return sending_night(server, small, tmp_path, url)

    with TraceServer(lambda _: Said(500)).running() as broken:
        out, err = night(broken.url)
    assert out == "FAILED\n", err
    assert "the scores could not be sent to otlp" in err
    assert list((tmp_path / "pages").iterdir())
    (flow_run,) = runs_of(server, Path("small.yaml"))[-1:]
    assert "is stored, and the next one sends them" in flow_run["state"]["message"]
    with TraceServer(lambda _: Said()).running() as taking:
        out, err = night(taking.url)
    assert out == "COMPLETED\n", err
    assert err.count("3 evaluations sent") == 2
    assert len(taking.got) == 2


def test_a_night_with_nothing_to_do_sends_what_is_missing(
    server: str, small: Path, tmp_path: Path
) -> None:
    with TraceServer(lambda _: Said(500)).running() as broken:
        out, err = sending_night(server, small, tmp_path, broken.url)
        assert out == "FAILED\n", err
        out, err = sending_night(server, small, tmp_path, broken.url, failed=True)
    assert out == "FAILED\n", err
    assert "the scores could not be sent to otlp" in err
    (flow_run,) = runs_of(server, Path("small.yaml"))[-1:]
    assert "nothing failed in run" in flow_run["state"]["message"]
    assert "the next run sends what is missing" in flow_run["state"]["message"]
    with TraceServer(lambda _: Said()).running() as taking:
        for _ in range(2):
            out, err = sending_night(server, small, tmp_path, taking.url, failed=True)
            assert out == "COMPLETED\n", err
    assert len(taking.got) == 1


RED = """
name: red
samples: {traces: "*.jsonl", select: {since: last_run}}
store: red.duckdb
read_copy: false
steps:
  context_matches: {use: lexical_match, against: retrieved_contexts}
  faithful: {use: deterministic_faithfulness}
gates: {token_overlap_faithfulness: {min: 0.6}}
"""


def test_a_quiet_night_after_a_red_one_names_it_and_sends_what_is_missing(
    server: str, tmp_path: Path
) -> None:
    found = {"id": "found", "type": "RETRIEVER", "output": ["Tin is a metal."]}
    asked = {"input": "Is tin a metal?", "output": "Never ever.", "observations": [found]}
    lines = "".join(f"{json.dumps({'id': trace(n), **asked})}\n" for n in range(30))
    (tmp_path / "traces.jsonl").write_text(lines, "utf-8")
    (tmp_path / "small.yaml").write_text(RED, "utf-8")

    def night(url: str) -> dict[str, Any]:
        more = {"send": [{"to": "otlp"}], "keep_runs": None, "publish": None, "report": None}
        done = subprocess.run(
            [sys.executable, "-c", NIGHTS, json.dumps(more)],
            env=environment(
                tmp_path / "home", PREFECT_API_URL=server, OTEL_EXPORTER_OTLP_ENDPOINT=url
            ),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        state: dict[str, Any] = runs_of(server, Path("small.yaml"))[-1]["state"]
        return state

    with TraceServer(lambda _: Said(500)).running() as broken:
        red = night(broken.url)
    assert (red["type"], red["name"]) == ("FAILED", "Failed")
    # The next night has health checks alone.
    (tmp_path / "traces.jsonl").write_text('{"id": "h", "input": null, "output": null}', "utf-8")
    with TraceServer(lambda _: Said()).running() as taking:
        quiet = night(taking.url)
        assert len(taking.got) == 1
    assert (quiet["type"], quiet["name"]) == ("COMPLETED", "NothingNewAfterFailure")
    assert quiet["message"].startswith("nothing to evaluate: no trace gives a sample; left out: ")
    assert "still stands: gate failed: token_overlap_faithfulness: min 0.6: " in quiet["message"]
