"""Rows copied from an earlier table equal the rows that would have been made."""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner import table_builder
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.table_builder import TableBuilder
from claimflow.flows.runner.workers.local import LocalWorkers
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.store.artifacts import Artifact, Provenance, read_shards
from claimflow.flows.store.fingerprint import Digest, step_recipe
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.tables import Samples, Scores, schema

PIPELINE = """
name: p
samples: {path: s.jsonl}
store: s.duckdb
steps:
  claims: {use: decompose_claims, of: response}
  matches: {use: lexical_match, against: reference, compat: continuous-eval-0.3}
"""


class Lengths(Stage):
    """The length of each response, sample by sample: scores have columns of many names."""

    use: ClassVar[str] = "lengths"
    metrics: ClassVar[tuple[str, ...]] = ("length",)
    by_row: ClassVar[bool] = True
    columns: ClassVar = {"samples": ("sample_id", "response", "reference")}

    def run(self, samples: Samples) -> Scores:
        lengths = [float(len(one or "")) for one in samples["response"]]
        scores = pl.Series("score", lengths, pl.Float64)
        return samples.select("sample_id", scores, metric=pl.lit("length"), status=pl.lit("scored"))


STAGES = {
    "claims": DecomposeClaims(of="response"),
    "matches": LexicalMatch(against="reference", compat="continuous-eval-0.3"),
    "lengths": Lengths(),
}

Row = dict[str, Any]


def sample(name: str, **more: Any) -> Row:
    answer = f"The {name} is old. It stands in Paris, and it opened in 1889."
    return {"sample_id": name, "response": answer, "reference": f"The {name} stands."} | more


def silent(name: str) -> Row:
    """A sample without text, of which no row is made."""
    return sample(name, response="")


def write(folder: Path, samples: Sequence[Row]) -> SampleSource:
    lines = [json.dumps(one) + "\n" for one in samples]
    (folder / "s.jsonl").write_text("".join(lines), "utf-8")
    return read_samples("s.jsonl", base=folder, rename={})


class Tables:
    """Builds tables in a store as a run does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "s.duckdb")

    def made(
        self, samples: Sequence[Row], stages: Mapping[str, Stage]
    ) -> dict[str, tuple[Artifact, int]]:
        """The table of each stage, and the number of samples whose rows were copied."""
        source = write(self.folder, samples)
        stop = threading.Event()
        workers = LocalWorkers(stop)
        going = TableBuilder(source, self.store, workers, stop, RunObserver())
        key = "00000000-0000-0000-0000-000000000000"
        samples_table = going.build_samples(Provenance("r", key, key, {}, "samples", 1, {}, {}))
        inputs = {"samples": samples_table}
        made = {}
        for name, stage in stages.items():
            step = Step(name, stage, {"samples": "samples"})
            ids = {"samples": samples_table.artifact_id}
            making = Provenance("r", key, step_recipe(stage, {}), ids, stage.use, 1, {}, {})
            made[name] = going.build(step, making, inputs)
        workers.close()
        return made

    def rows(self, stage: Stage, table: Artifact) -> pl.DataFrame:
        """Every column of every row, after the number of its part."""
        columns = tuple(schema(stage.makes))
        with self.store.reading() as connection:
            return read_shards(connection, stage.makes, table, range(table.shards), columns=columns)


def whole(folder: Path, stage: Stage) -> tuple[pl.DataFrame, str]:
    """The rows that the stage makes of all samples, two at a time, and their digest."""
    parts, digest = [], Digest(stage.makes)
    source = read_samples("s.jsonl", base=folder, rename={})
    for number, samples in enumerate(source.shards(2)):
        made = stage.make({"samples": samples}, {})
        digest.add(made)
        parts.append(made.select(pl.lit(number, pl.Int32).alias("shard"), pl.all()))
    return pl.concat(parts), digest.value()


ONE, TWO, THREE, FOUR, FIVE = (sample(name) for name in ("tower", "bridge", "gate", "hall", "well"))
LONGER = sample(
    "bridge", response="The bridge is long. It is new.", reference="It is new, says one."
)
VERSIONS = [
    ("the first time", [ONE, TWO, silent("s"), THREE], 0),
    ("one more at the end", [ONE, TWO, silent("s"), THREE, FOUR], 4),
    ("one more in front", [FIVE, ONE, TWO, silent("s"), THREE, FOUR], 5),
    ("one in the middle, one removed", [FIVE, ONE, sample("inn"), TWO, THREE, FOUR], 5),
    ("one changed", [FIVE, ONE, sample("inn"), LONGER, THREE, FOUR], 5),
    ("the change taken back, a silent one again", [FIVE, ONE, TWO, silent("s"), THREE], 5),
    ("another order", [THREE, silent("s"), TWO, ONE, FIVE], 5),
    ("metadata, which the stages do not read", [THREE | {"topic": "x"}, ONE, TWO], 3),
    ("nothing but new ones", [sample("inn2"), silent("s2")], 0),
    ("one that fell silent", [silent("gate"), ONE, FIVE], 2),
]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples in a part, two parts at a time."""
    monkeypatch.setattr(table_builder, "GROUP", 2)
    monkeypatch.setattr("claimflow.flows.runner.table_builder.SHARD", 2)


@pytest.mark.usefixtures("small_parts")
def test_a_table_is_the_same_whether_rows_are_reused_or_made(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    for what, samples, expected in VERSIONS:
        for name, (table, reused_samples) in tables.made(samples, STAGES).items():
            rows, digest = whole(tmp_path, STAGES[name])
            assert reused_samples == expected, (what, name)
            assert tables.rows(STAGES[name], table).equals(rows), (what, name)
            assert table.digest == digest, (what, name)


@pytest.mark.usefixtures("small_parts")
def test_workers_make_the_rows_of_many_new_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, stage = Tables(tmp_path), DecomposeClaims(of="response")
    tables.made([TWO, FOUR], {"claims": stage})
    monkeypatch.setattr("claimflow.flows.runner.workers.local.WORTH", 1)
    ((table, reused_samples),) = tables.made(
        [ONE, TWO, THREE, FOUR, FIVE], {"claims": stage}
    ).values()
    assert reused_samples == 2
    assert tables.rows(stage, table).equals(whole(tmp_path, stage)[0])


class TakenOver(RunObserver):
    def __init__(self) -> None:
        self.reused_samples: dict[str, int] = {}

    def step_finished(self, result: StepResult) -> None:
        self.reused_samples[result.step] = result.reused_samples


def run(folder: Path, samples: Sequence[Row], *again: str) -> TakenOver:
    (folder / "p.yaml").write_text(PIPELINE, "utf-8")
    write(folder, samples)
    seen = TakenOver()
    run_pipeline(prepare(folder / "p.yaml"), rerun=Rerun(again=again), observer=seen)
    return seen


def test_a_step_that_is_made_again_copies_no_rows(tmp_path: Path) -> None:
    run(tmp_path, [ONE])
    seen = run(tmp_path, [ONE, TWO], "claims")
    assert (seen.reused_samples["claims"], seen.reused_samples["matches"]) == (0, 1)


def test_a_plan_counts_copied_rows_and_other_settings_copy_none(tmp_path: Path) -> None:
    run(tmp_path, [ONE, TWO, THREE])
    write(tmp_path, [ONE, LONGER, FOUR, THREE])
    config = tmp_path / "p.yaml"
    for text, expected in (
        (PIPELINE, [("make", 2), ("make", 2)]),
        (PIPELINE.replace("response}", "response, atomicity: high}"), [("make", 0), ("make", 2)]),
    ):
        config.write_text(text, "utf-8")
        prepared = prepare(config)
        found = plan(prepared, prepared.store)
        assert [(one.action, one.reused_samples) for one in found] == expected


def test_only_the_newest_tables_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimflow.flows.runner.incremental._TABLES", 1)
    tables, claims = Tables(tmp_path), {"claims": STAGES["claims"]}
    for samples, expected in (([ONE, TWO], 0), ([ONE], 1), ([ONE, TWO, THREE], 1)):
        assert tables.made(samples, claims)["claims"][1] == expected


def test_two_samples_with_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sample_id 'tower' is already at s\.jsonl:1"):
        run(tmp_path, [ONE, ONE])


def test_a_table_without_any_sample_can_be_made_by_these_stages() -> None:
    """A part whose samples are all unchanged leaves none to make rows of."""
    none = pl.DataFrame(schema=dict.fromkeys(LexicalMatch.columns["samples"], pl.String))
    none = none.cast({"other_references": pl.List(pl.String)})
    match = LexicalMatch(against="reference", compat="continuous-eval-0.3")
    assert match.make({"samples": none}, {}).is_empty()
    stage = DecomposeClaims(of="response")
    names = stage.columns_of("samples")
    brought = pl.DataFrame(schema=dict.fromkeys(names, pl.List(pl.String)))
    assert stage.make({"samples": brought}, {}).is_empty()
