"""The commands of the README and the guides, run word for word, and their outputs."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest
import yaml

import claimflow
from claimflow.flows.cli.main import command_line
from claimflow.flows.pipeline.pipeline import build_pipeline
from claimflow.flows.pipeline.yaml_source import load_yaml
from tests.endpoint.server import serve
from tests.flows.foreign_packages import add_foreign_packages
from tests.flows.forks import Forks
from tests.flows.prefect_server import ask, environment
from tests.flows.trace_servers import Said, TraceServer, records

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
GUIDES = sorted(
    path for part in ("flows", "configs", "stages") for path in ROOT.glob(f"{part}/**/*.md")
)


def chapter(heading: str, page: str = README) -> str:
    """The text of a page below a heading."""
    return page.partition(f"## {heading}\n")[2].partition("\n## ")[0]


STORY = chapter("Rerun after a prompt change")
BY_HAND = chapter("Start a run by hand", (ROOT / "flows/guides/nightly.md").read_text("utf-8"))
NIGHTS = chapter("Every night")
TRACES = chapter("From traces and back")
RERUN = (ROOT / "flows/guides/rerun.md").read_text("utf-8")
PROMPTS = chapter("Prompts", (ROOT / "configs/guides/judges.md").read_text("utf-8"))
ELSEWHERE = README.replace(STORY, "").replace(NIGHTS, "").replace(TRACES, "") + RERUN
SHOWN = re.findall(r"```console\n\$ (claimflow .*)\n((?s:.*?))```", ELSEWHERE)
EXAMPLE, METRIC = re.findall(r"```python\n((?s:.*?))```", README)

WIDE = {"COLUMNS": "180"}
"""A window in which tables have all columns."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Path:
    """A folder with the demo pipelines, where the first command of the README was run."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "configs", folder / "configs")
    say(forks, "claimflow run configs/quickstart.yaml", folder)
    return folder


def say(forks: Forks, command: str, folder: Path, **environment: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "claimflow"
    going = forks.run(folder, *arguments, environment=WIDE | environment)
    assert going.code() == 0, going.err()
    return going.out()


def lines(text: str) -> list[str]:
    """Lines without blank ones, trailing blanks, run ids and the place of the clone."""
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "RUN", text)
    text = re.sub(r"store: .*/quickstart.duckdb", "store: quickstart.duckdb", text)
    text = re.sub(r"tokens, [0-9.]+ USD", "tokens, COST", text)  # by how many are cached in time
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_readme_shows_commands() -> None:
    assert len(SHOWN) >= 4


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_what_the_readme_shows_is_what_is_printed(
    command: str, output: str, clone: Path, forks: Forks
) -> None:
    printed = lines(say(forks, command, clone))
    if command.startswith("claimflow run"):  # the README shows a first run
        printed = [
            re.sub(r"0 steps made, 18 reused", "18 steps made, 0 reused", p) for p in printed
        ]
    assert_shown(output, printed)


def assert_shown(output: str, printed: list[str]) -> None:
    """Every line of `output` is printed, in that order; dots stand for any others."""
    rest = iter(printed)
    for line in lines(output):
        if line != "...":
            assert line in rest, f"{line!r} is not printed there:\n" + "\n".join(printed)


def test_the_python_of_the_readme_runs(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(clone)
    monkeypatch.syspath_prepend(clone)
    exec(EXAMPLE, {})
    printed = capfd.readouterr()
    assert re.search(r"^ factual_correctness +0\.453 ", printed.out, re.MULTILINE)
    assert "0.703" in printed.out
    assert printed.err == ""
    Path("my_metrics.py").write_text(METRIC, "utf-8")
    answers = [{"response": "The tower stands in Paris. It opened in 1889."}]
    result = claimflow.evaluate(answers, metrics=["my_metrics:claim_density"])
    assert result["claim_density"].mean == pytest.approx(2 / 9)


def commands(text: str) -> list[str]:
    """The commands of a text that are shown without their output."""
    blocks = re.findall(r"```console\n(?!\$)((?s:.*?))```", text)
    return [line for block in blocks for line in block.splitlines()]


def test_a_judge_is_asked_as_the_readme_says(clone: Path, forks: Forks) -> None:
    given = commands(chapter("A language model as judge")) + commands(PROMPTS)
    assert [command.split()[0] for command in given] == [
        "export", "claimflow", "claimflow", "cp", "claimflow",
    ]  # fmt: skip
    with serve() as endpoint:
        world = {"OPENAI_API_KEY": "sk-readme", "OPENAI_API_BASE": endpoint.api_base}
        outputs = {}
        for command in given:
            if command.startswith("claimflow"):
                outputs[command] = say(forks, command, clone, **world)
            elif command.startswith("cp"):
                subprocess.run(shlex.split(command), check=True, cwd=clone)
    assert "judge: openai/gpt-4o-mini" in outputs["claimflow doctor configs/llm/quickstart.yaml"]
    assert "0 failed" not in outputs["claimflow run configs/llm/quickstart.yaml"]
    assert "judge openai/gpt-4o-mini: " in outputs["claimflow run configs/llm/quickstart.yaml"]
    assert "tokens" in outputs["claimflow prompt check strict.md"]


def followed(text: str) -> list[tuple[str, str]]:
    """The commands of a chapter that begin with a dollar, each with what it prints."""
    blocks = "\n".join(re.findall(r"```console\n(\$(?s:.*?)```)", text))
    return re.findall(r"^\$ (.*)\n((?s:.*?))(?=^\$ |```)", blocks, re.MULTILINE)


def test_the_rerun_walkthrough_prints_what_the_readme_shows(tmp_path: Path, forks: Forks) -> None:
    message = followed(STORY)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    happened = []
    with serve() as endpoint:
        world = WIDE | {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": endpoint.api_base}
        for command, output in message:
            before = endpoint.hits
            program, *arguments = shlex.split(command)
            if program == "claimflow":
                going = forks.run(tmp_path, *arguments, environment=world)
                code, printed = going.code(), going.out()
            else:
                done = subprocess.run(command, shell=True, check=False, cwd=tmp_path)
                code, printed = done.returncode, ""
            assert_shown(output, lines(printed))
            happened.append((" ".join(command.split()[:2]), code, endpoint.hits - before))
    assert happened == [
        ("claimflow run", 5, 53),
        ("claimflow tag", 0, 0),
        ("sed -i.bak", 0, 0),
        ("claimflow plan", 0, 0),
        ("claimflow run", 4, 32),
        ("claimflow diff", 0, 0),
    ]
    # The edit is taken back.
    prompt = tmp_path / "configs/prompts/verify.md"
    prompt.with_suffix(".md.bak").replace(prompt)
    going = forks.run(tmp_path, "plan", "configs/llm/nightly.yaml", environment=world)
    assert going.code() == 0, going.err()
    assert lines(going.out())[-1] == "no calls"


def test_the_night_over_traces_prints_what_the_readme_shows(tmp_path: Path, forks: Forks) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    codes = []
    for command, output in followed(TRACES):
        going = forks.run(tmp_path, *shlex.split(command)[1:], environment=WIDE)
        codes.append(going.code())
        assert_shown(output, lines(going.out()))
    assert codes == [4, 0]
    with TraceServer(lambda _: Said()).running() as collector:
        world = WIDE | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        going = forks.run(tmp_path, "send", "--to", "otlp", environment=world)
        assert going.code() == 0, going.err()
        assert "20 evaluations sent" in going.out()
    spans = {one.trace_id.hex(): one.span_id.hex() for one in records(collector.got)}
    assert len(spans) == 20
    assert spans["2f392d4e5429787f1d5a305da7e62e5d"] == "3736d8b256d34c79"
    # The next night has the same files, and nothing to pay for: the red one still stands.
    going = forks.run(tmp_path, "run", "configs/traces.yaml", environment=WIDE)
    assert going.code() == 4, going.err()
    nothing, stands = going.out().splitlines()
    assert nothing == "nothing to evaluate: 0 of 20 samples; left out: since 20"
    assert "still stands: gate failed: faithfulness: min 0.95: 0.808" in stands


def test_a_start_with_own_answers_prints_what_the_guide_shows(tmp_path: Path, forks: Forks) -> None:
    guide = (ROOT / "configs/guides/start.md").read_text("utf-8")
    [answers] = re.findall(r"```json\n((?s:.*?))```", guide)
    (tmp_path / "answers.jsonl").write_text(answers, "utf-8")
    shown = followed(guide)
    assert len(shown) == 5
    for command, output in shown:
        going = forks.run(tmp_path, *shlex.split(command)[1:])
        assert going.code() == 0, going.err()
        assert_shown(output, lines(going.err() + going.out()))
    written = re.findall(r"^written: (.*)$", shown[-1][1], re.MULTILINE)[0].split(", ")
    assert all((tmp_path / name).is_file() for name in written)


SETTINGS = ("checks", "judges", "models", "pipelines", "schedules")
"""Guides that show settings of a pipeline."""


def until(true: Callable[[], bool], going: subprocess.Popen[bytes], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert going.poll() is None, going.args
        assert time.monotonic() < deadline, going.args
        time.sleep(0.1)


def of_nights() -> list[tuple[str, str]]:
    """The commands of the chapter about nights, in order, with what they print."""
    text = NIGHTS + BY_HAND
    shown = dict(followed(text))
    lines = re.findall(r"^(?:\$ )?((?:export|claimflow|prefect|ls) .*)$", text, re.MULTILINE)
    return [(line, shown.get(line, "")) for line in lines]


BLOCKING = {
    "claimflow serve configs/schedules.yaml": "serving until Ctrl-C",
    "prefect worker start --pool claimflow --limit 2": "started!",
}
"""What goes on until it is stopped, and the last that it says before it waits."""


def test_nights_run_as_the_readme_says(server: str, clone: Path, tmp_path: Path) -> None:
    """In a folder with packages `flows` and `stages` that are not ours."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    world = environment(
        tmp_path / "home",
        PATH=programs,
        PYTHONPATH=os.pathsep.join([add_foreign_packages(clone), str(ROOT / ".package")]),
        PREFECT_API_URL=server,
        PREFECT_WORKER_QUERY_SECONDS="1",
    )
    given = of_nights()
    with ExitStack() as terminals:
        for number, (command, output) in enumerate(given):
            if command.startswith("export ") or command == "prefect server start":
                continue  # a server that all tests share was started by that
            if command not in BLOCKING:
                done = subprocess.run(
                    command, shell=True, check=False, capture_output=True, text=True,
                    cwd=clone, env=world,
                )  # fmt: skip
                assert done.returncode == 0, done.stderr
                assert_shown(output, lines(done.stdout))
                continue
            outputs = tmp_path / f"{number}.txt"
            with outputs.open("w") as out:
                going = subprocess.Popen(
                    shlex.split(command), cwd=clone, env=world, stdout=out, stderr=out
                )
            terminals.callback(stop, going)
            until(lambda c=command, s=outputs: BLOCKING[c] in s.read_text("utf-8"), going)
            assert_shown(output, lines(outputs.read_text("utf-8")))
            if command.startswith("claimflow serve"):
                stop(going)
    assert [command for command, _ in given] == [
        "claimflow serve configs/schedules.yaml",
        "prefect server start",
        "export PREFECT_API_URL=http://127.0.0.1:4200/api",
        "claimflow deploy configs/schedules.yaml",
        "prefect worker start --pool claimflow --limit 2",
        "export PREFECT_API_URL=http://127.0.0.1:4200/api",
        "prefect deployment run evaluate/nightly --watch",
        "ls published/*",
        "prefect deployment run evaluate/nightly --param only='[\"faithfulness\"]' "
        "--param again='[\"faithfulness\"]' --watch",
    ]

    nightly, hourly = (
        ask(f"{server}/deployments/name/evaluate/{name}") for name in ("nightly", "hourly-sample")
    )
    assert (nightly["work_pool_name"], hourly["work_pool_name"]) == ("claimflow", "claimflow")
    (cron,) = (one["schedule"] for one in nightly["schedules"])
    assert (cron["cron"], cron["timezone"]) == ("0 2 * * *", "Europe/Berlin")
    assert [one["schedule"]["interval"] for one in hourly["schedules"]] == [3600]
    assert not nightly["paused"]

    by_hand = {"deployments": {"id": {"any_": [nightly["id"]]}}, "sort": "START_TIME_ASC"}
    runs = [
        run
        for run in ask(f"{server}/flow_runs/filter", by_hand)
        if run["state_type"] != "SCHEDULED"
    ]
    assert [run["state_type"] for run in runs] == ["COMPLETED"] * 2
    whole, part = (run["state"]["message"] for run in runs)
    assert whole.endswith(": 40 samples, 0 steps made, 18 reused")
    assert part.endswith(": 40 samples, 4 of 18 steps, 1 step made, 3 reused")
    assert all(re.fullmatch(r"nightly \d{4}-\d\d-\d\d \d\d:\d\d", run["name"]) for run in runs)
    for run in runs:
        of_run = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}}
        keys = {one["key"] for one in ask(f"{server}/artifacts/filter", of_run)}
        assert keys == {"quickstart-summary", "quickstart-worst"}
    published = clone / "published" / whole.split()[1].removesuffix(":")
    assert pl.read_parquet(published / "scores.parquet")["sample_id"].n_unique() == 40
    steps = ask(f"{server}/task_runs/filter", {"flow_runs": {"id": {"any_": [runs[0]["id"]]}}})
    assert "40 rows reused" in {step["state"]["message"] for step in steps}


def stop(going: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, where it still runs."""
    if going.poll() is None:
        going.send_signal(signal.SIGINT)
        going.wait(60)


UNITS = re.findall(
    r"`/etc/systemd/system/([\w-]+\.service)`.*?```ini\n(.*?)```",
    (ROOT / "flows/guides/nightly.md").read_text("utf-8"),
    re.DOTALL,
)


def test_the_units_start_what_was_followed() -> None:
    assert [name for name, _ in UNITS] == [
        "claimflow-serve.service",
        "claimflow-server.service",
        "claimflow-worker.service",
    ]
    started = [
        command
        for _, unit in UNITS
        for command in re.findall(r"^Exec\w+=/srv/evals/\.venv/bin/(.*)$", unit, re.MULTILINE)
    ]
    assert len(started) == sum(unit.count("Exec") for _, unit in UNITS) == 4
    known = {command for command, _ in of_nights()}
    assert {command.removesuffix(" --host 127.0.0.1") for command in started} <= known


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    bin_folder = str(Path(sys.executable).parent)
    paths = [tmp_path / name for name, _ in UNITS]
    for path, (_, unit) in zip(paths, UNITS, strict=True):
        here = unit.replace("/srv/evals/.venv/bin", bin_folder).replace("/srv/evals", str(tmp_path))
        path.write_text(here, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "claimflow" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.parametrize(
    "page", ["README.md", "configs/README.md", *(f"configs/guides/{name}.md" for name in SETTINGS)]
)
def test_the_settings_that_a_page_shows_are_right(page: str, tmp_path: Path) -> None:
    # A module of a name can be in one folder only, in one process.
    name = f"code_of_{Path(page).stem.lower()}"
    text = re.sub("my_(metrics|judges):", f"{name}:", (ROOT / page).read_text("utf-8"))
    blocks = re.findall(r"```yaml\n((?s:.*?))```", text)
    parts = [yaml.safe_load(block) for block in blocks]
    (tmp_path / "strict.md").write_text((ROOT / "configs/prompts/verify.md").read_text("utf-8"))
    code = [block for block in re.findall(r"```python\n((?s:.*?))```", text) if "\nclass " in block]
    (tmp_path / f"{name}.py").write_text("\n".join([METRIC, *code[:1]]), "utf-8")
    assert parts
    for part in parts:
        if "name" in part or "deployments" in part:
            continue
        above = (
            *("judge", "judges", "embedder", "entailment"),
            *("gates", "fail_when", "workers", "canaries"),
        )
        top = {key: part.pop(key) for key in above if key in part}
        judge = {"judge": {"model": "openai/any"}} if "judge" not in top else {}
        steps = {"response_claims": {"use": "decompose_claims", "of": "response"}}
        if "gates" in top:
            for name in ("noise_sensitivity", "quickstart"):
                text = (ROOT / f"configs/{name}.yaml").read_text("utf-8")
                steps |= yaml.safe_load(text)["steps"]
            del steps["noise_in_irrelevant"]
        pipeline = {
            "name": "shown",
            "samples": {"path": "answers.jsonl"},
            "store": "shown.duckdb",
            **top,
            **judge,
            "steps": steps | part.pop("steps", {}) | part,
        }
        path = tmp_path / "shown.yaml"
        path.write_text(yaml.safe_dump(pipeline), "utf-8")
        assert build_pipeline(load_yaml(path)).steps


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md", *GUIDES], ids=lambda p: p.name
)
def test_every_link_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]+))?\)", path.read_text("utf-8"))
    for target, anchor in links:
        page = path.parent / target if target else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), f"{target}#{anchor}"


@pytest.mark.parametrize(
    "path", [p for p in GUIDES if p.parent.name == "guides"], ids=lambda p: p.name
)
def test_a_long_page_begins_with_its_contents(path: Path) -> None:
    text = path.read_text("utf-8")
    listed = re.search(r"^Contents: (.*)$", text, re.MULTILINE)
    if listed is None:
        assert text.count("\n") <= 150
        return
    chapters = re.findall(r"^## (.*)$", text, re.MULTILINE)
    links = re.findall(r"\[([^]]+)\]\(#[^)]+\)", listed[1])
    assert [link.casefold() for link in links] == [chapter.casefold() for chapter in chapters]


def test_the_source_files_that_pages_name_exist() -> None:
    for page in [ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md", *GUIDES]:
        for name in re.findall(r"`((?!my_)[\w./]+\.py)`", page.read_text("utf-8")):
            places = (ROOT, ROOT / "flows", ROOT / "stages", page.parent)
            assert any((place / name).is_file() for place in places), f"{page.name}: {name}"


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_the_commands_of_a_guide_exist(path: Path) -> None:
    blocks = re.findall(r"```(?:console)?\n((?s:.*?))```", path.read_text("utf-8"))
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    for line in lines:
        if re.match(r"claimflow [a-z]+( |$)", line):
            command, *_ = line.split(" > ")  # into a file
            command_line().parse_args(shlex.split(command)[1:])


def test_the_two_commands_are_marked_for_the_machine_that_checks_them() -> None:
    for name in ("demo", "tests"):
        block = re.search(rf"<!-- {name} -->\n```console\n(.+)\n```\n<!-- end -->", README)
        assert block
        assert block[1].startswith("pip install -e ")
