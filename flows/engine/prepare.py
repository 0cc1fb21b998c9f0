"""Everything that is checked before a run: the pipeline, its samples, and whether they fit."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from flows.engine.errors import Fault, InputError, one_of
from flows.engine.fingerprint import Digest
from flows.engine.pipeline import Pipeline, build_pipeline, samples_source
from flows.engine.reader import SampleSource, open_samples
from flows.engine.yaml_source import YamlSource, load_yaml
from stages.rows import Sample

SHARD: Final = 2_000
"""Samples in one part of a table: bounds the memory of a run, whatever the input's size."""


class Prepared(NamedTuple):
    """A pipeline and its samples, both found right. `digest` is that of the samples' table."""

    pipeline: Pipeline
    samples: SampleSource
    digest: str


def prepare(config: Path, *, limit: int | None = None, again: Iterable[str] = ()) -> Prepared:
    """Read and check a pipeline file and its samples.

    `limit` takes the first samples only, `again` names steps that must exist. Raises one
    `InputError` with every fault of both files; nothing has been written then.
    """
    source = load_yaml(config)
    faults: list[Fault] = []
    pipeline: Pipeline | None = None
    samples: SampleSource | None = None
    try:
        pipeline = build_pipeline(source)
    except InputError as error:
        faults += error.faults
    try:
        samples = _samples(source, limit)
    except InputError as error:
        faults += error.faults
    if pipeline:
        faults += _unknown_steps(pipeline, again)
        if samples:
            faults += _missing_fields(pipeline, samples)
    if faults or pipeline is None or samples is None:
        raise InputError(faults)
    digest = Digest(Sample)
    for frame in samples.shards(SHARD):
        digest.add(frame)
    return Prepared(pipeline, samples, digest.value())


def _samples(source: YamlSource, limit: int | None) -> SampleSource | None:
    wanted = samples_source(source)
    if wanted is None:
        return None
    samples = open_samples(wanted.path, base=source.folder, rename=wanted.rename, limit=limit)
    if samples.faults:
        raise InputError([_placed(source, fault) for fault in samples.faults])
    return samples


def _placed(source: YamlSource, fault: Fault) -> Fault:
    """A fault of the samples that lies in the pipeline file, placed there."""
    section, _, column = fault.place.partition(".")
    if section != "rename":
        return fault
    return fault._replace(place=source.place("samples", "rename", column))


def _unknown_steps(pipeline: Pipeline, again: Iterable[str]) -> list[Fault]:
    names = [step.name for step in pipeline.steps]
    return [
        Fault("--again", f"there is no step {name!r}", one_of(name, names))
        for name in again
        if name not in names
    ]


def _missing_fields(pipeline: Pipeline, samples: SampleSource) -> list[Fault]:
    return [
        Fault(
            pipeline.source.place("steps", step.name),
            f"reads {field!r}, which no sample has",
            "rename a column to it under samples, or remove the step",
        )
        for step in pipeline.steps
        for field in sorted(step.stage.reads() - samples.present)
    ]
