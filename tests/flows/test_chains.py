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


def test_tables_are_taken_once_and_only_where_they_were_made_of_the_inputs(
    steps: Mapping[str, Step],
) -> None:
    matches, scores = steps["context_matches"], steps["deterministic_faithfulness"]
    inputs = {"samples": artifact("samples", shards=2), "context_matches": artifact("matches")}

    def ahead(parts: int) -> MadeAhead:
        made = MadeAhead()
        made.expect([scores])
        for _ in range(parts):
            made.add(scores.name, SAMPLES)
        made.made("samples", inputs["samples"])
        made.made(matches.name, inputs["context_matches"])
        return made

    whole = ahead(2)
    taken = whole.take(scores, inputs)
    assert taken is not None
    assert [part.height for part in taken] == [1, 1]
    assert whole.take(scores, inputs) is None
    assert ahead(1).take(scores, inputs) is None
    for need, table in inputs.items():
        other = inputs | {need: table._replace(artifact_id="another")}
        assert ahead(2).take(scores, other) is None


def test_a_chain_begins_before_the_samples_are_stored(steps: Mapping[str, Step]) -> None:
    matches = steps["context_matches"]
    inputs = {"samples": artifact("samples")}
    made = MadeAhead()
    made.start(matches, (part for part in [SAMPLES, SAMPLES]))
    made.made("samples", inputs["samples"])
    taken = made.take(matches, inputs)
    assert taken is not None
    assert [part.height for part in taken] == [1, 1]
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


def test_workers_make_the_rows_of_a_run_and_of_one_process(
    write_small: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_builder, "SHARD", 1)
    monkeypatch.setattr(local, "WORTH", 1)
    asked = []

    def made_here(stage: Stage, *arguments: Any) -> pl.DataFrame:
        asked.append(stage.use)
        return make_table(stage, *arguments)

    make_table = part_maker.make_table
    for module in (part_maker, table_builder):
        monkeypatch.setattr(module, "make_table", made_here)
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
        assert here == ({"lexical_match", "deterministic_faithfulness"} if count == 1 else set())
        with Store(folder / "small.duckdb").reading() as connection:
            query = (
                "SELECT step, digest::VARCHAR FROM audit.run_steps "
                "JOIN (SELECT artifact_id, digest FROM audit.artifacts) USING (artifact_id) "
                "ORDER BY step"
            )
            found.append(read_table(connection, query))
    assert found[0].equals(found[1])
