"""Steps that workers make together with the step whose rows they need."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import StoppedError
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner import part_maker, table_builder
from claimflow.flows.runner.chains import MadeAhead, followers, link, sample_columns
from claimflow.flows.runner.make import make_chain
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.workers import local
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage
from claimflow.stages.rows import Sample
from claimflow.stages.tables import build

SAMPLES = build(
    Sample, [{"sample_id": "a", "response": "It is.", "retrieved_contexts": ["It is."]}]
)


@pytest.fixture
def steps(small: Path) -> dict[str, Step]:
    return {step.name: step for step in prepare(small).pipeline.steps}


def artifact(name: str, shards: int = 1) -> Artifact:
    return Artifact(name, f"digest of {name}", "scores", shards, 1, 0)


def no_edits(_: Step) -> bool:
    return False


def test_a_step_follows_where_it_needs_the_samples_and_rows_of_the_chain_alone(
    steps: Mapping[str, Step],
) -> None:
    matches, scores = steps["context_matches"], steps["deterministic_faithfulness"]
    assert followers(matches, steps.values(), no_edits) == [scores]
    # Verdicts need a model; the summary needs all samples at once.
    assert followers(steps["response_claims"], steps.values(), no_edits) == []
    assert followers(scores, steps.values(), no_edits) == []


def test_no_step_follows_one_with_corrections(steps: Mapping[str, Step]) -> None:
    matches, scores = steps["context_matches"], steps["deterministic_faithfulness"]
    every = [matches, scores]
    assert followers(matches, every, lambda step: step is matches) == []
    assert followers(matches, every, lambda step: step is scores) == [scores]


def test_the_tables_of_a_chain_are_those_of_its_stages(steps: Mapping[str, Step]) -> None:
    chain = [steps["context_matches"], steps["deterministic_faithfulness"]]
    assert set(sample_columns(chain)) < set(SAMPLES.columns)
    given = {"samples": SAMPLES.select(sample_columns(chain))}
    matches, scores = make_chain([link(step) for step in chain], given, {})
    assert matches.equals(chain[0].stage.make({"samples": SAMPLES}, {}))
    inputs = {"samples": SAMPLES, "context_matches": matches}
    own = {name: inputs[wire] for name, wire in link(chain[1]).inputs.items()}
    assert scores.equals(chain[1].stage.make(own, {}))


def test_a_chain_ends_before_a_step_that_fails(
    steps: Mapping[str, Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = [steps["context_matches"], steps["deterministic_faithfulness"]]

    def broken(self: Stage, tables: Any, tools: Any) -> pl.DataFrame:
        raise RuntimeError("broken")

    monkeypatch.setattr(type(chain[1].stage), "make", broken)
    (matches,) = make_chain([link(step) for step in chain], {"samples": SAMPLES}, {})
    assert matches.height == 1


def test_parts_of_a_chain_are_given_as_far_as_they_are_made(steps: Mapping[str, Step]) -> None:
    matches, scores = steps["context_matches"], steps["deterministic_faithfulness"]
    made = MadeAhead()
    made.expect(matches, [scores])
    assert made.followers == {matches.name: [scores]}
    for _ in range(3):
        made.add(scores.name, SAMPLES)
    found = made.next_parts(scores, 2)
    assert found is not None
    assert [part.height for part in found] == [1, 1]
    # The chain broke in the second part of these two.
    assert made.next_parts(scores, 2) is None
    made.forget(scores)
    made.add(scores.name, SAMPLES)
    assert made.take(scores, {"samples": artifact("samples")}) is None


def test_a_chain_begins_before_the_samples_are_stored(steps: Mapping[str, Step]) -> None:
    matches = steps["context_matches"]
    inputs = {"samples": artifact("samples")}
    made = MadeAhead()
    made.start(matches, (part for part in [SAMPLES, SAMPLES]))
    made.made("samples", inputs["samples"])
    taken = made.take(matches, inputs)
    assert taken is not None
    assert [part.height for part in taken] == [1, 1]
    assert made.take(matches, inputs) is None
    made.close()


def test_what_was_begun_with_other_samples_is_not_taken(steps: Mapping[str, Step]) -> None:
    matches = steps["context_matches"]
    made = MadeAhead()
    made.start(matches, (part for part in [SAMPLES]))
    made.made("samples", artifact("samples"))
    assert made.take(matches, {"samples": artifact("other samples")}) is None
    made.close()


def test_an_error_of_a_chain_is_raised_after_its_parts(steps: Mapping[str, Step]) -> None:
    def parts() -> Generator[pl.DataFrame]:
        yield SAMPLES
        raise StoppedError

    matches = steps["context_matches"]
    made = MadeAhead()
    made.start(matches, parts())
    made.made("samples", artifact("samples"))
    taken = made.take(matches, {"samples": artifact("samples")})
    assert taken is not None
    parts_read = iter(taken)
    assert next(parts_read).equals(SAMPLES)
    with pytest.raises(StoppedError):
        next(parts_read)
    made.close()


def test_a_chain_that_is_not_wanted_ends_with_the_run(steps: Mapping[str, Step]) -> None:
    begun, ended = threading.Event(), threading.Event()

    def parts() -> Generator[pl.DataFrame]:
        try:
            while True:
                begun.set()
                yield SAMPLES
        finally:
            ended.set()

    made = MadeAhead()
    made.start(steps["context_matches"], parts())
    begun.wait()
    made.close()
    assert ended.is_set()


@pytest.mark.parametrize("broken", [False, True])
def test_workers_make_the_rows_of_a_run_and_of_one_process(
    write_small: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    broken: bool,
) -> None:
    """Where a chain is `broken`, its second step is made here, since workers lack some of it."""
    monkeypatch.setattr(table_builder, "SHARD", 1)
    monkeypatch.setattr(table_builder, "AT_ONCE", 1)
    monkeypatch.setattr(local, "WORTH", 1)
    asked = []

    def made_here(stage: Stage, *arguments: Any) -> pl.DataFrame:
        asked.append(stage.use)
        return make_table(stage, *arguments)

    make_table = part_maker.make_table
    for module in (part_maker, table_builder):
        monkeypatch.setattr(module, "make_table", made_here)
    if broken:
        add, added = MadeAhead.add, []

        def add_all_but_the_second(self: MadeAhead, name: str, part: pl.DataFrame) -> None:
            added.append(name)
            if len(added) != 2:
                add(self, name, part)

        monkeypatch.setattr(MadeAhead, "add", add_all_but_the_second)
    found = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        path = write_small(folder)
        # A second chain, which reads other columns of the samples.
        step = "  reference_matches: {use: lexical_match, against: reference}\n"
        text = path.read_text("utf-8").replace("steps:\n", f"steps:\n{step}")
        path.write_text(f"{text}workers: {{count: {count}}}\n", "utf-8")
        asked.clear()
        with chdir(folder):
            assert main(["run", "small.yaml"]) == 0
        here = {"lexical_match", "deterministic_faithfulness"} & set(asked)
        both = {"lexical_match", "deterministic_faithfulness"}
        by_workers = {"lexical_match"} if broken else both
        assert here == (both if count == 1 else both - by_workers)
        with chdir(folder):
            # The scores, which are made with the matches, are reused nevertheless.
            assert main(["run", "small.yaml", "--again", "context_matches"]) == 0
        with Store(folder / "small.duckdb").reading() as connection:
            assert not connection.sql("FROM audit.artifacts WHERE digest IS NULL").fetchall()
            query = (
                "SELECT step, digest::VARCHAR FROM audit.run_steps "
                "JOIN (SELECT artifact_id, digest FROM audit.artifacts) USING (artifact_id) "
                "ORDER BY step"
            )
            found.append(read_table(connection, query))
    assert found[0].equals(found[1])
