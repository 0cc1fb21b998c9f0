"""Nights over files of traces, of which each pays for what no finished night has seen."""

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows import api
from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, StoppedError
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.run import Run
from claimflow.flows.store.runs import find_run
from claimflow.flows.store.store import Store

PIPELINE = """
name: nightly
samples:
  traces: traces/*.jsonl
  select: {since: last_run}
store: nightly.duckdb
read_copy: false
steps:
  context_matches: {use: lexical_match, against: retrieved_contexts}
"""


def trace(name: str, *, day: int = 1, model: str = "m") -> dict[str, Any]:
    time = f"2026-01-{day:02}T00:00:00Z"
    call = {"id": f"{name}-call", "traceId": name, "type": "GENERATION", "model": model}
    found = {"id": f"{name}-found", "traceId": name, "type": "RETRIEVER", "output": [f"On {name}."]}
    return {
        "id": name,
        "timestamp": time,
        "input": f"What is {name}?",
        "output": f"A thing called {name}.",
        "observations": [call | {"startTime": time}, found | {"startTime": time}],
    }


def write(file: str, *traces: dict[str, Any]) -> None:
    Path("traces", file).write_text("".join(f"{json.dumps(one)}\n" for one in traces), "utf-8")


def write_pipeline(select: str = "{since: last_run}") -> None:
    Path("p.yaml").write_text(PIPELINE.replace("{since: last_run}", select), "utf-8")


def planned() -> set[str]:
    shards = prepare("p.yaml").samples.shards(100)
    return {sample_id for shard in shards for sample_id in shard["sample_id"]}


def night() -> set[str]:
    """The samples of a run that begins now; none where it has nothing to do."""
    expected = planned()
    result = run_pipeline(prepare("p.yaml"))
    if result.nothing_to_do is not None:
        assert not expected
        return set()
    with result.store.reading() as connection:
        rows = connection.execute(
            "SELECT sample_id FROM samples WHERE run_id = $run", {"run": result.run_id}
        ).fetchall()
    found = {sample_id for (sample_id,) in rows}
    assert found == expected
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """The current folder, with the traces of a first day and the pipeline of the night."""
    with chdir(tmp_path):
        Path("traces").mkdir()
        write("1.jsonl", trace("a"), trace("b"))
        write_pipeline()
        yield tmp_path


def test_a_night_has_the_traces_that_no_finished_night_has_seen() -> None:
    assert night() == {"a", "b"}
    write("2.jsonl", trace("c", day=2))
    assert night() == {"c"}
    # One that arrives late, with a time before those that were seen, in a file that was read.
    write("1.jsonl", trace("late"), trace("a"), trace("b"))
    write("3.jsonl", trace("d", day=3))
    assert night() == {"late", "d"}
    # A trace of which more has come is another sample.
    write("3.jsonl", trace("d", day=3) | {"output": "More."})
    assert night() == {"d"}


def test_a_night_that_was_killed_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert night() == {"a", "b"}
    write("2.jsonl", trace("c", day=2))

    def killed(run: Run) -> None:
        raise StoppedError("as if killed")

    with monkeypatch.context() as patched:
        patched.setattr(Run, "execute", killed)
        with pytest.raises(StoppedError):
            run_pipeline(prepare("p.yaml"))
    assert night() == {"c"}
    assert night() == set()


def test_a_night_killed_after_its_end_pays_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(api, "remember_seen", killed)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(prepare("p.yaml"))
    again = run_pipeline(prepare("p.yaml"))
    assert all(step.reused for step in again.steps.values())
    assert night() == set()


def test_a_night_without_new_traces_says_so_and_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "p.yaml"]) == 0
    runs = len(Store(Path("nightly.duckdb").resolve()).path.read_bytes())
    capsys.readouterr()
    for command in ("plan", "run"):
        assert main([command, "p.yaml"]) == 0
        printed = capsys.readouterr().out
        assert printed == "nothing to evaluate: 0 of 2 samples; left out: since 2\n"
    assert runs
    with pytest.raises(InputError, match="nothing to evaluate"):
        api.evaluate(pipeline="p.yaml", progress=False)


def health_check(name: str) -> dict[str, Any]:
    """A trace that calls no model."""
    return {"id": name, "input": None, "output": None, "observations": []}


HEALTH = "traces without a question, an answer or documents"


@pytest.mark.parametrize(
    "select", ["{since: last_run}", "{where: \"model = 'm'\", by: model, at_most: 3}"]
)
def test_traces_that_give_no_sample_are_a_quiet_night(
    select: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_pipeline(select)
    write("1.jsonl", health_check("x"), health_check("y"))
    write("2.jsonl", health_check("z"))
    # A file whose first line is still being written, and one without content.
    Path("traces/3.jsonl").write_text('{"id": "c", "inp', "utf-8")
    write("4.jsonl")
    for command in ("plan", "run"):
        assert main([command, "p.yaml"]) == 0
        assert capsys.readouterr().out == (
            "nothing to evaluate: no trace gives a sample; left out: damaged records 1, "
            f"files without a trace 1, {HEALTH} 3\n"
        )
    assert any(f"traces/1.jsonl: left out: {HEALTH} 2" in one for one in caplog.messages)
    write("1.jsonl", trace("a"))
    assert main(["run", "p.yaml"]) == 0


@pytest.mark.parametrize("kept", [True, False])
def test_a_path_without_files_is_a_quiet_night_after_one_that_found_some(
    kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def forget() -> str:
        """Remove the files, or empty them; returns what a run says of that."""
        if kept:
            write("1.jsonl")
            return "no traces in traces/*.jsonl; left out: files without a trace 1"
        Path("traces/1.jsonl").unlink(missing_ok=True)
        return "traces/*.jsonl: no file matches"

    mistake = "no traces" if kept else "p.yaml:4 samples.traces: traces/*.jsonl: no file matches"
    forget()
    assert main(["run", "p.yaml"]) == 2
    assert mistake in capsys.readouterr().err
    write("1.jsonl", trace("a"))
    assert night() == {"a"}
    told = forget()
    capsys.readouterr()
    assert main(["run", "p.yaml"]) == 0
    assert capsys.readouterr().out == f"nothing to evaluate: {told}\n"
    # What was seen is remembered over a quiet night.
    write("1.jsonl", trace("a"), trace("b"))
    assert night() == {"b"}
    forget()
    write_pipeline("{since: 24h}")
    assert main(["run", "p.yaml"]) == 2
    assert mistake in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1}', "no known format of traces"),
        # Contents are not recorded any more.
        (json.dumps(trace("c") | {"output": None}), "no trace gives a sample (traces without an"),
        ("{\n{\n", "no trace gives a sample (damaged records 2)"),
        (json.dumps({"id": "a", "run_type": "llm"}), "its records look like langsmith"),
        (json.dumps(trace("c") | {"observations": []}), "no sample has 'retrieved_contexts'"),
        (json.dumps(trace("c") | {"observations": []}), "record it in the spans, which"),
    ],
)
def test_wrong_files_are_no_quiet_night(
    text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert night() == {"a", "b"}
    Path("traces/1.jsonl").write_text(text, "utf-8")
    if "langsmith" in told:
        named = PIPELINE.replace("select:", "format: langfuse\n  select:")
        Path("p.yaml").write_text(named, "utf-8")
    assert main(["run", "p.yaml"]) == 2
    assert told in capsys.readouterr().err


def test_a_night_with_nothing_new_is_no_better_than_the_last_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    faithful = "  faithful: {use: deterministic_faithfulness}\n"
    gate = "gates: {token_overlap_faithfulness: {min: 0.6}}\n"
    Path("p.yaml").write_text(f"{PIPELINE.lstrip()}{faithful}{gate}", "utf-8")
    # Of a gate it takes a few samples to be sure.
    answers = {"output": "Nothing of the kind."}
    write("1.jsonl", *(trace(f"t{n}") | answers for n in range(30)))
    assert main(["run", "p.yaml"]) == 4
    red = find_run(Store(Path("nightly.duckdb").resolve()), "latest")
    told = f"the last run, {red}, still stands: gate failed: token_overlap_faithfulness: min 0.6: "
    for options in ([], ["--failed"]):
        capsys.readouterr()
        assert main(["run", "p.yaml", *options]) == 4
        nothing, stands = capsys.readouterr().out.splitlines()
        assert nothing.startswith("nothing ")
        assert stands.startswith(told)
        assert stands.endswith(f"; see it by claimflow show {red}")
    # Also where the files are gone.
    Path("traces/1.jsonl").unlink()
    assert main(["run", "p.yaml"]) == 4
    right = {"output": "On x."}
    write("2.jsonl", *(trace("x") | right | {"id": f"good-{n}"} for n in range(30)))
    assert main(["run", "p.yaml"]) == 0
    capsys.readouterr()
    assert main(["run", "p.yaml"]) == 0
    assert capsys.readouterr().out == ("nothing to evaluate: 0 of 30 samples; left out: since 30\n")


def test_a_run_that_repeats_steps_has_the_samples_of_the_last_night() -> None:
    night()
    write("2.jsonl", trace("c", day=2))
    assert night() == {"c"}
    write("3.jsonl", trace("d", day=3))
    assert main(["run", "p.yaml", "--again", "context_matches"]) == 0
    store = Store(Path("nightly.duckdb").resolve())
    with store.reading() as connection:
        query = "SELECT sample_id FROM latest.samples"
        assert connection.execute(query).fetchall() == [("c",)]
    assert night() == {"d"}


def test_a_run_of_some_traces_is_no_night() -> None:
    assert main(["run", "p.yaml", "--limit", "1"]) == 0
    Path("ids.txt").write_text("b\n", "utf-8")
    assert main(["run", "p.yaml", "--samples", "ids.txt"]) == 0
    assert night() == {"a", "b"}
    # By name, whatever is selected.
    assert main(["run", "p.yaml", "--samples", "ids.txt"]) == 0


def test_a_selection_of_the_pipeline_is_a_whole_run_that_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    write("2.jsonl", *(trace(f"t{n}", model="n" if n % 2 else "m") for n in range(10)))
    write_pipeline("{where: \"model = 'n'\", at_most: 3, seed: 1}")
    assert main(["run", "p.yaml"]) == 0
    store = Store(Path("nightly.duckdb").resolve())
    run_id = find_run(store, "latest")
    assert run_id is not None
    document = RunDocument(store, run_id)
    assert document.head.partial is None
    assert document.counts.startswith("3 of 12 samples, ")
    told = "3 of 12 samples; left out: where 7, at_most 2"
    assert any(told in message for message in caplog.messages)
    assert main(["run", "p.yaml", "--limit", "1"]) == 0
    assert find_run(store, "latest") == run_id


def test_a_wrong_condition_is_told_with_file_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    write_pipeline("{where: \"model = 'n' AND latency > 3\"}")
    assert main(["run", "p.yaml"]) == 2
    told = capsys.readouterr().err
    assert "p.yaml:5 samples.select.where, column 17: no sample has 'latency'" in told
