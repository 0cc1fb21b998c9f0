"""Automations and names of schedules files, on a real Prefect server."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from tests.endpoint.server import serve
from tests.flows.forks import Forks
from tests.flows.judged import Judged
from tests.flows.prefect_server import Api, ask, environment, until

KINDS = ("a run failed", "a run is late", "a run is silent")


@pytest.fixture
def api(server: str) -> Api:
    return Api(server)


@pytest.fixture
def rung() -> Iterator[tuple[str, list[str]]]:
    """The address of a web server, and what was posted to it."""
    posted: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as hook:
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{hook.server_port}/ring", posted
        hook.shutdown()


def write(folder: Path, *lines: str, more: str = "", name: str = "s.yaml") -> Path:
    folder.mkdir(exist_ok=True)
    text = "\n".join(["deployments:", *(f"  {line}" for line in lines), more, ""])
    (folder / name).write_text(text, "utf-8")
    return folder / name


def deploy(forks: Forks, folder: Path, *options: str) -> tuple[int, str, str]:
    done = forks.run(folder, "deploy", "s.yaml", "--pool", "rings", *options)
    return done.code(), done.out(), done.err()


def deployed(forks: Forks, folder: Path, *options: str) -> str:
    code, out, err = deploy(forks, folder, *options)
    assert code == 0, err
    return out


def automations(api: Api, file: Path) -> dict[str, Any]:
    """The automations of a schedules file, by what they are about."""
    found = ask(f"{api.url}/automations/filter", {"limit": 200})
    names = {f"claimflow: {kind} ({file})": kind for kind in KINDS}
    ours = [one for one in found if one["name"] in names]
    assert len({one["name"] for one in ours}) == len(ours)
    return {names[one["name"]]: one for one in ours}


REGISTER = """
import sys
from datetime import timedelta
from claimflow.flows.orchestration.automations import register_automations
from claimflow.flows.orchestration.deployments import api
soon = timedelta(seconds=10)
with api() as client:
    register_automations(client, sys.argv[1], sys.argv[2], late=soon, silent=soon)
"""

SAVE = """
import sys
from prefect.blocks.webhook import Webhook
from prefect.blocks.notifications import CustomWebhookNotificationBlock
body = {"text": "{{subject}}|{{body}}"}
Webhook(url=sys.argv[1]).save("rings", overwrite=True)
CustomWebhookNotificationBlock(name="rings", url=sys.argv[1], json_data=body).save(
    "rings", overwrite=True
)
"""


def python(api: Api, folder: Path, code: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment(folder / "home", PREFECT_API_URL=api.url),
        check=True,
    )


def test_failed_late_and_silent_runs_ring(
    api: Api, tracked_forks: Forks, small: Path, tmp_path: Path, rung: tuple[str, list[str]]
) -> None:
    url, posted = rung
    python(api, tmp_path, SAVE, url)
    file = write(
        tmp_path,
        "rings: {pipeline: small.yaml, cron: '0 2 1 * *', overlap: wait}",
        more="notify: {block: webhook/rings}",
    )
    told = deployed(tracked_forks, tmp_path)
    assert "messages about runs that failed or are late are sent by webhook/rings" in told
    python(api, tmp_path, REGISTER, str(file), "webhook/rings")
    assert {*automations(api, file)} == {*KINDS}

    # One that no worker starts: Prefect calls it late after 15 seconds.
    api.trigger("rings")
    # One whose process and worker are lost, from the start and after a heartbeat.
    starting = api.trigger("rings")
    assert api.propose(starting, "PENDING") == "Pending"
    assert api.ended(starting) == "CRASHED"
    assert "nothing was heard of it for 0:00:10" in api.run(starting)["state"]["message"]

    running = api.trigger("rings")
    with serve(latency=60) as endpoint:
        Judged(tmp_path, endpoint).write(["one"])
        small.write_text((tmp_path / "p.yaml").read_text("utf-8"), "utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect.engine"],
            env=environment(
                tmp_path / "home", PREFECT_API_URL=api.url, PREFECT__FLOW_RUN_ID=running
            ),
            cwd=tmp_path,
        )
        try:
            until(lambda: endpoint.hits or process.poll() is not None)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
    assert api.ended(running) == "CRASHED"
    named = api.run(running)["name"]
    assert named.startswith("rings 20")

    until(lambda: any("is late" in text for text in posted))
    until(lambda: any(named in text for text in posted))
    texts = [json.loads(text)["text"] for text in posted]
    assert f"{named}: Crashed: nothing was heard of it for 0:00:10" in texts
    assert any(text.startswith("rings: a run is late: No worker has started") for text in texts)


def test_a_run_that_wrote_its_last_words_is_not_silent(
    api: Api, tracked_forks: Forks, small: Path, tmp_path: Path, rung: tuple[str, list[str]]
) -> None:
    url, posted = rung
    python(api, tmp_path, SAVE, url)
    file = write(tmp_path, "ends: {pipeline: small.yaml, cron: '0 2 1 * *', overlap: wait}")
    deployed(tracked_forks, tmp_path)
    python(api, tmp_path, REGISTER, str(file), "custom-webhook/rings")
    done = api.trigger("ends")
    for state in ("PENDING", "RUNNING", "COMPLETED"):
        api.propose(done, state)
    failed = api.trigger("ends")
    for state in ("PENDING", "RUNNING", "FAILED"):
        api.propose(failed, state)
    # A run that began later and is silent crashes: by then the others would have, too.
    silent = api.trigger("ends")
    for state in ("PENDING", "RUNNING"):
        api.propose(silent, state)
    assert api.ended(silent) == "CRASHED"
    until(lambda: any(": Crashed|" in text for text in posted))
    # A process that only seemed to be gone.
    assert api.propose(silent, "COMPLETED") == "Completed"
    assert [api.run(one)["state_type"] for one in (done, failed)] == ["COMPLETED", "FAILED"]
    name = api.run(failed)["name"]
    assert {json.loads(text)["text"] for text in posted if name in text} == {f"{name}: Failed|"}


def test_automations_are_updated_and_not_doubled(
    api: Api, tracked_forks: Forks, small: Path, tmp_path: Path, rung: tuple[str, list[str]]
) -> None:
    python(api, tmp_path, SAVE, rung[0])
    file = write(tmp_path, "again: {pipeline: small.yaml, cron: '0 2 1 * *'}")
    told = deployed(tracked_forks, tmp_path, "--no-automations")
    text = told[told.index("automations:") : told.index("work pool")]
    assert len(yaml.safe_load(text)["automations"]) == 3
    assert automations(api, file) == {}

    assert "sent nowhere: name a block under notify" in deployed(tracked_forks, tmp_path)
    first = automations(api, file)
    assert {*first} == {*KINDS}
    assert first["a run failed"]["actions"] == [{"type": "do-nothing"}]
    known = first["a run is late"]["id"]
    api.patch(f"automations/{known}", {"enabled": False})

    (tmp_path / "automations.yaml").write_text(text, "utf-8")
    made = [sys.executable, "-m", "prefect", "automation", "create", "--from-file"]
    world = environment(tmp_path / "home", PREFECT_API_URL=api.url)
    subprocess.run([*made, str(tmp_path / "automations.yaml")], env=world, check=True)

    block = "notify: {block: custom-webhook/rings}"
    write(tmp_path, "again: {pipeline: small.yaml, cron: '0 2 1 * *'}", more=block)
    deployed(tracked_forks, tmp_path)
    second = automations(api, file)
    assert {*second} == {*KINDS}
    assert [second[kind]["enabled"] for kind in ("a run failed", "a run is silent")] == [True] * 2
    assert {one["actions"][0]["type"] for one in second.values()} == {
        "send-notification",
        "change-flow-run-state",
    }


def test_a_block_that_is_not_there_or_sends_nothing_is_refused(
    tracked_forks: Forks, small: Path, tmp_path: Path
) -> None:
    lines = ("unheard: {pipeline: small.yaml, cron: '0 2 1 * *'}",)
    write(tmp_path, *lines, more="notify: {block: slack-webhook/nowhere}")
    code, out, err = deploy(tracked_forks, tmp_path)
    assert (code, out) == (2, "")
    assert err == (
        "claimflow: notify: slack-webhook/nowhere: the Prefect server has no such block; "
        "save one as flows/guides/nightly.md says\n"
    )


def test_a_name_of_another_file_is_refused_unless_replaced(
    api: Api, tracked_forks: Forks, write_small: Callable[[Path], Path], tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    mine = "Mine: {pipeline: small.yaml, cron: '0 2 1 * *'}"
    file = write(one, mine, more="limits: {of-two-files: {rpm: 60}}")
    other = write(
        two,
        "mine: {pipeline: small.yaml, cron: '0 3 1 * *'}",
        "own: {pipeline: small.yaml, cron: '0 3 1 * *'}",
        more="limits: {of-two-files: {rpm: 1200}}",
    )
    for folder in (one, two):
        write_small(folder)
    deployed(tracked_forks, one)
    known = api.deployment("Mine")["id"]
    ask(f"{api.url}/deployments/{known}/pause_deployment", {})
    code, out, err = deploy(tracked_forks, two)
    assert (code, out) == (2, "")
    hint = "choose another name, or take it over by --replace"
    assert err.splitlines() == [
        "claimflow: s.yaml deployments.mine: there is a deployment evaluate/Mine "
        f"of {file}; {hint}",
        f"s.yaml limits.of-two-files: {file} gives this limit 60 requests a minute; "
        "write the same in both, or overrule it by --replace",
    ]
    with pytest.raises(HTTPError):
        api.deployment("own")

    # The file moves, with the same name.
    write(two, mine)
    file.unlink()
    assert deploy(tracked_forks, two)[0] == 2
    assert {*automations(api, file)} == {*KINDS}
    deployed(tracked_forks, two, "--replace")
    assert api.deployment("Mine")["id"] == known
    assert api.deployment("Mine")["tags"] == ["claimflow", str(other)]
    assert api.deployment("Mine")["paused"]
    assert automations(api, file) == {}
    assert {*automations(api, other)} == {*KINDS}

    # In another case it is another deployment for Prefect: the first must not run beside it.
    (one / "s.yaml").write_text((two / "s.yaml").read_text("utf-8").replace("Mine", "mine"))
    api.patch(f"deployments/{known}", {"tags": ["mine", "claimflow", str(other)]})
    assert deploy(tracked_forks, one)[0] == 2
    deployed(tracked_forks, one, "--replace")
    assert api.deployment("mine")["id"] != known
    assert api.deployment("Mine")["schedules"] == []
    assert f"mine of {file} took its place" in api.deployment("Mine")["description"]
    assert automations(api, other) == {}


FOREIGN = """
from prefect import flow
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

@flow(name="evaluate")
def evaluate(): ...

kind = EntrypointType.MODULE_PATH
RunnerDeployment.from_flow(evaluate, "theirs", entrypoint_type=kind).apply()
"""


def test_a_deployment_that_claimflow_did_not_make_is_refused(
    api: Api, tracked_forks: Forks, small: Path, tmp_path: Path
) -> None:
    python(api, tmp_path, FOREIGN)
    write(tmp_path, "theirs: {pipeline: small.yaml, cron: '0 2 1 * *'}")
    code, _, err = deploy(tracked_forks, tmp_path)
    assert code == 2
    assert "there is a deployment evaluate/theirs that claimflow did not register" in err
    assert api.deployment("theirs")["schedules"] == []


def test_an_entry_that_left_is_paused_and_resumed_when_it_is_back(
    api: Api, tracked_forks: Forks, small: Path, tmp_path: Path
) -> None:
    stays, leaves = (
        f"{name}: {{pipeline: small.yaml, cron: '0 2 1 * *'}}" for name in ("stays", "leaves")
    )
    file = write(tmp_path, stays, leaves)
    deployed(tracked_forks, tmp_path)
    write(tmp_path, stays)
    told = deployed(tracked_forks, tmp_path)
    line = (
        "evaluate/leaves is no longer in the file: it is paused; "
        "`prefect deployment delete evaluate/leaves` removes it"
    )
    assert line in told.splitlines()
    left = api.deployment("leaves")
    assert left["paused"]
    assert left["schedules"] == []
    assert left["description"] == f"Paused without a schedule: leaves is no longer in {file}."
    assert "no longer in the file" not in deployed(tracked_forks, tmp_path)

    # Another file may have the name now; here it comes back to the same one.
    write(tmp_path, stays, leaves)
    deployed(tracked_forks, tmp_path)
    back = api.deployment("leaves")
    assert not back["paused"]
    assert len(back["schedules"]) == 1
    assert "no longer" not in back["description"]
    assert back["tags"] == ["claimflow", str(file)]


def test_a_pool_that_is_paused_or_of_another_type_is_told(
    api: Api, tracked_forks: Forks, small: Path, tmp_path: Path
) -> None:
    write(tmp_path, "pooled: {pipeline: small.yaml, cron: '0 2 1 * *'}")
    pool = {"name": "boxes", "type": "docker", "is_paused": True, "base_job_template": {}}
    ask(f"{api.url}/work_pools/", pool)
    told = deployed(tracked_forks, tmp_path, "--pool", "boxes")
    assert "work pool boxes is of type docker: claimflow and the files must be where" in told
    assert "work pool boxes is paused: no run starts until" in told
