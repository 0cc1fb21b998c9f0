"""Reads and checks the pipeline, samples and canaries of a run."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.files import path_exists
from claimflow.flows.pipeline.gates import CanarySource
from claimflow.flows.pipeline.pipeline import Pipeline, build_pipeline, valid_section
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.pipeline.schema import SamplesSource
from claimflow.flows.pipeline.yaml_source import YamlSource, load_yaml, source_from
from claimflow.flows.samples.canaries import Canary, read_canaries
from claimflow.flows.samples.fields import FIELDS
from claimflow.flows.samples.memory import samples_from
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.samples.subset import select_samples
from claimflow.flows.store.store import Store

SHARD: Final = 2_000
"""Samples in one part of a table; bounds the memory of a run for inputs of any size."""

Read = TypeVar("Read")

_LOG: Final = logging.getLogger("claimflow")


class Prepared(NamedTuple):
    """A checked pipeline with its samples and canaries, and the store that its runs write to."""

    pipeline: Pipeline
    samples: SampleSource
    store: Store
    canaries: tuple[Canary, ...] = ()


def prepare(
    config: str | Path | Mapping[str, Any] | YamlSource,
    *,
    answers: Any = None,
    limit: int | None = None,
    rerun: Rerun | None = None,
    store: Path | None = None,
) -> Prepared:
    """Read and check a pipeline file, its samples and canaries, and the rerun options.

    `config` is the path of the file, or what such a file holds as a mapping, in which paths are
    relative to the current folder. `answers` are samples to evaluate instead of those that it
    names: anything that `samples_from` reads, or samples that were read already. `limit` takes the
    first samples only; `store` is a file to use instead of the pipeline's.
    Raises one `InputError` with every fault. A column that is probably a misspelt field, but that
    no step needs, gives a logged warning. Nothing is written.
    """
    if isinstance(config, YamlSource):
        source = config
    elif isinstance(config, Mapping):
        source = source_from(config, Path.cwd())
    else:
        source = load_yaml(Path(config))
    if answers is not None:
        named = {**source.section("samples"), "path": _name_of(answers)}
        source = source.with_sections({"samples": named})
    rerun = rerun or Rerun()
    faults = list(rerun.clashes(limit=limit))
    check_limit(limit)
    pipeline = _collect_faults(lambda: build_pipeline(source), faults)
    samples = _collect_faults(lambda: _samples(source, limit, answers), faults)
    canaries = _collect_faults(lambda: _canaries(source), faults)
    if pipeline:
        faults += rerun.unknown(pipeline)
        if samples:
            faults += _missing_fields(pipeline, samples)
    if faults or pipeline is None or samples is None:
        raise InputError(faults)
    _warn_of_misspelt_fields(source, samples)
    path = (store or pipeline.store).resolve()
    if path.is_dir():
        raise InputError([Fault(str(path), "a folder", "name a file in it as the store")])
    above = next((folder for folder in path.parents if path_exists(folder)), None)
    if above is not None and not above.is_dir():
        what = f"is below {above}, which is no folder"
        raise InputError([Fault(str(path), what, "name a file in a folder as the store")])
    opened = Store(path)
    if rerun.samples is not None:
        samples = select_samples(samples, rerun.samples, opened)
    return Prepared(pipeline, samples, opened, canaries or ())


def check_limit(limit: int | None) -> None:
    """Raise `InputError` for a number of samples that cannot be taken."""
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise InputError([Fault("limit", f"{limit!r} is no number of samples", "give 1 or more")])


def _collect_faults(read: Callable[[], Read], faults: list[Fault]) -> Read | None:
    """The result of `read`, or None if it failed; its faults are added to `faults`."""
    try:
        return read()
    except InputError as error:
        faults += error.faults
        return None


def _name_of(answers: Any) -> str:
    """What a pipeline calls its samples: their path, or `answers` where they have none."""
    path = answers.path if isinstance(answers, SampleSource) else answers
    return str(path) if isinstance(path, str | Path) else "answers"


def _samples(source: YamlSource, limit: int | None, answers: Any) -> SampleSource | None:
    wanted = valid_section(source, "samples", SamplesSource)
    if wanted is None:
        return None
    if isinstance(answers, SampleSource):
        samples = answers
    elif answers is not None:
        samples = samples_from(answers, rename=wanted.rename, limit=limit)
    else:
        samples = read_samples(wanted.path, base=source.folder, rename=wanted.rename, limit=limit)
    if samples.faults:
        raise InputError([_with_position(source, fault) for fault in samples.faults])
    return samples


def _canaries(source: YamlSource) -> tuple[Canary, ...]:
    wanted = valid_section(source, "canaries", CanarySource)
    return read_canaries(wanted.path, base=source.folder) if wanted else ()


def _with_position(source: YamlSource, fault: Fault) -> Fault:
    """A fault in the renaming of columns, with its position in the pipeline file."""
    section, _, column = fault.place.partition(".")
    if section != "rename":
        return fault
    return fault._replace(place=source.place("samples", "rename", column))


def _missing_fields(pipeline: Pipeline, samples: SampleSource) -> list[Fault]:
    """A fault for each field that no sample has and some step needs."""
    needed: dict[str, list[str]] = {}
    for step in pipeline.steps:
        known = samples.present | samples.metadata
        for field in sorted(
            {*step.stage.required_fields(), *step.stage.required_metadata()} - known
        ):
            needed.setdefault(field, []).append(step.name)
    return [
        Fault(
            pipeline.source.place("samples"),
            f"no sample has {field!r}, which is needed by {' and '.join(steps)}",
            _rename_hint(samples, field),
        )
        for field, steps in needed.items()
    ]


def _rename_hint(samples: SampleSource, field: str) -> str:
    if field not in FIELDS:
        return one_of(field, samples.metadata) if samples.metadata else "add it to the samples"
    column = samples.misspelt.get(field)
    if column is None:
        named = f"as in rename: {{COLUMN: {field}}}"
        return f"name the column that holds it, {named}, or remove these steps"
    return f"if the column {column!r} holds it, write rename: {{{column}: {field}}}"


def _warn_of_misspelt_fields(source: YamlSource, samples: SampleSource) -> None:
    for field, column in samples.misspelt.items():
        what = f"no sample has {field!r}, and the column {column!r} becomes metadata"
        fault = Fault(source.place("samples"), what, _rename_hint(samples, field))
        _LOG.warning("claimflow: warning: %s", fault)
