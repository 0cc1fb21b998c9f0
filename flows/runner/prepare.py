"""Preparation of a run: pipeline, samples and canaries read and checked."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.pipeline import (
    Pipeline,
    build_pipeline,
    canary_source,
    samples_source,
)
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.pipeline.yaml_source import YamlSource, load_yaml
from claimflow.flows.samples.canaries import Canary, read_canaries
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.samples.subset import select_samples
from claimflow.flows.store.store import Store

SHARD: Final = 2_000
"""Samples in one part of a table: bounds the memory of a run, whatever the input's size."""

Found = TypeVar("Found")


class Prepared(NamedTuple):
    """A pipeline, its samples and its canaries, all found right."""

    pipeline: Pipeline
    samples: SampleSource
    canaries: tuple[Canary, ...] = ()


def prepare(
    config: Path, *, limit: int | None = None, rerun: Rerun | None = None, store: Path | None = None
) -> Prepared:
    """Read and check a pipeline file, its samples and canaries, and what is asked of them.

    `limit` takes the first samples only, `store` names another file than the pipeline's.
    Raises one `InputError` with every fault; nothing has been written then.
    """
    source = load_yaml(config)
    rerun = rerun or Rerun()
    faults = list(rerun.clashes(limit=limit))
    pipeline = _unless_wrong(lambda: build_pipeline(source), faults)
    samples = _unless_wrong(lambda: _samples(source, limit), faults)
    canaries = _unless_wrong(lambda: _canaries(source), faults)
    if pipeline:
        faults += rerun.unknown(pipeline)
        if samples:
            faults += _missing_fields(pipeline, samples)
    if faults or pipeline is None or samples is None:
        raise InputError(faults)
    if rerun.samples is not None:
        samples = select_samples(samples, rerun.samples, Store((store or pipeline.store).resolve()))
    return Prepared(pipeline, samples, canaries or ())


def open_store(prepared: Prepared, path: Path | None = None) -> Store:
    """The store at `path`, or else the one that the pipeline writes to.

    Raises `InputError` where a folder lies at its path.
    """
    path = (path or prepared.pipeline.store).resolve()
    if path.is_dir():
        raise InputError([Fault(str(path), "a folder", "name a file in it as the store")])
    return Store(path)


def _unless_wrong(found: Callable[[], Found], faults: list[Fault]) -> Found | None:
    """What is `found`, or None where its faults were added to those of all."""
    try:
        return found()
    except InputError as error:
        faults += error.faults
        return None


def _samples(source: YamlSource, limit: int | None) -> SampleSource | None:
    wanted = samples_source(source)
    if wanted is None:
        return None
    samples = read_samples(wanted.path, base=source.folder, rename=wanted.rename, limit=limit)
    if samples.faults:
        raise InputError([_placed(source, fault) for fault in samples.faults])
    return samples


def _canaries(source: YamlSource) -> tuple[Canary, ...]:
    wanted = canary_source(source)
    return read_canaries(wanted.path, base=source.folder) if wanted else ()


def _placed(source: YamlSource, fault: Fault) -> Fault:
    """A fault of the samples that lies in the pipeline file, placed there."""
    section, _, column = fault.place.partition(".")
    if section != "rename":
        return fault
    return fault._replace(place=source.place("samples", "rename", column))


def _missing_fields(pipeline: Pipeline, samples: SampleSource) -> list[Fault]:
    return [
        Fault(
            pipeline.source.place("steps", step.name),
            f"reads {field!r}, which no sample has",
            "rename a column to it under samples, or remove the step",
        )
        for step in pipeline.steps
        for field in sorted(step.stage.required_fields() - samples.present)
    ]
