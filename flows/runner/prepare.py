"""Reads and checks the pipeline, samples and canaries of a run."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import polars as pl

from claimflow.flows.errors import Fault, InputError, on_one_line, one_of
from claimflow.flows.files import checked_path, path_exists
from claimflow.flows.pipeline.gates import CanarySource
from claimflow.flows.pipeline.limits import COUNT
from claimflow.flows.pipeline.pipeline import Pipeline, build_pipeline, valid_section
from claimflow.flows.pipeline.rerun import Part, Rerun
from claimflow.flows.pipeline.sample_choice import LAST_RUN, Selection
from claimflow.flows.pipeline.schema import SamplesSource
from claimflow.flows.pipeline.yaml_source import YamlSource, load_yaml, source_from
from claimflow.flows.samples.canaries import Canary, read_canaries
from claimflow.flows.samples.fields import FIELDS
from claimflow.flows.samples.memory import samples_from
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.samples.subset import select_part, select_samples
from claimflow.flows.store.store import Store

if TYPE_CHECKING:
    # Few pipelines redact, and few read traces.
    from claimflow.flows.samples.redaction import Redactor
    from claimflow.flows.traces.reader import Quiet

SHARD: Final = 2_000
"""Samples in one part of a table; bounds the memory of a run for inputs of any size."""

Read = TypeVar("Read")

_SHOWN_COLUMNS: Final = 20

_LOG: Final = logging.getLogger("claimflow")


class Prepared(NamedTuple):
    """A checked pipeline with its samples and canaries, and the store that its runs write to.

    `nothing_selected` says that the pipeline's own selection leaves no sample, or that its files of
    traces hold none, None where there is one. `seen` are the keys of the samples that a finished
    run has seen, where the next one asks for those `since: last_run`.
    """

    pipeline: Pipeline
    samples: SampleSource
    store: Store
    canaries: tuple[Canary, ...] = ()
    nothing_selected: str | None = None
    seen: pl.Series | None = None


def in_batches(prepared: Prepared) -> Prepared:
    """The same with all judges asked in batches. Raises `InputError` where there is none."""
    pipeline = prepared.pipeline
    if not any(step.judges for step in pipeline.steps):
        what = "no step asks a judge behind an endpoint"
        raise InputError([Fault("--batch", what, "remove it")])
    judges = {
        name: judge.model_copy(update={"batch": True}) for name, judge in pipeline.judges.items()
    }
    return prepared._replace(pipeline=replace(pipeline, judges=judges))


def prepare(
    config: str | Path | Mapping[str, Any] | YamlSource,
    *,
    answers: Any = None,
    limit: int | None = None,
    rerun: Rerun | None = None,
    store: Path | None = None,
    warn: Callable[[Fault], None] | None = None,
) -> Prepared:
    """Read and check a pipeline file, its samples and canaries, and the rerun options.

    `config` is the path of the file, or what such a file holds as a mapping, in which paths are
    relative to the current folder. `answers` are samples to evaluate instead of those that it
    names: anything that `samples_from` reads, or samples that were read already. `limit` takes the
    first samples only; `store` is a file to use instead of the pipeline's.
    Raises one `InputError` with every fault. A column that is probably a misspelt field, but that
    no step needs, gives a warning: `warn` receives it, by default it is logged. Nothing is written.
    """
    source = pipeline_source(config)
    if answers is not None:
        named = {
            name: value
            for name, value in source.section("samples").items()
            if name not in ("traces", "format", "tools")
        }
        named["path"] = _name_of(answers)
        source = source.with_sections({"samples": named})
    rerun = rerun or Rerun()
    faults = list(rerun.clashes(limit=limit))
    check_limit(limit)
    part = _collect_faults(rerun.named_part, faults)
    pipeline = _collect_faults(lambda: build_pipeline(source), faults)
    read = _collect_faults(lambda: _samples(source, limit, rerun, answers), faults)
    canaries = _collect_faults(lambda: _canaries(source), faults)
    if pipeline:
        faults += rerun.misfits(pipeline)
        if read and read.quiet is None:
            faults += missing_fields(pipeline, read.samples)
        elif read and read.quiet and not _is_quiet_night(read.quiet, source, pipeline, store):
            faults += read.faults
    if faults or pipeline is None or read is None:
        raise InputError(faults)
    samples, quiet = read.samples, read.quiet
    warned = (
        *_misspelt_fields(source, samples),
        *samples.warnings,
        *([] if quiet else _unknown_slices(pipeline, samples)),
        *_unreadable_sources(pipeline),
    )
    for fault in warned:
        (warn or _log)(fault)
    prepared = Prepared(pipeline, samples, _store(source, pipeline, store), canaries or ())
    chosen = _with_choice(prepared, quiet, rerun, limit, warn or _log)
    if part is None or chosen.nothing_selected is not None:
        return chosen
    return _with_part(chosen, part)


def _with_choice(
    prepared: Prepared,
    quiet: "Quiet | None",
    rerun: Rerun,
    limit: int | None,
    warn: Callable[[Fault], None],
) -> Prepared:
    """The same with the samples that the options or the pipeline choose."""
    if rerun.samples is not None:
        # By name, whatever the pipeline selects.
        selected = select_samples(prepared.samples, rerun.samples, prepared.store)
        return prepared._replace(samples=selected)
    if quiet:
        return prepared._replace(nothing_selected=f"nothing to evaluate: {quiet.reason}")
    wanted = valid_section(prepared.pipeline.source, "samples", SamplesSource)
    if wanted is None or wanted.select is None:
        return prepared
    return _with_selection(prepared, wanted.select, rerun, limit, warn)


def _store(source: YamlSource, pipeline: Pipeline, store: Path | None) -> Store:
    """The store of a run: `store`, or that of the pipeline. Raises `InputError`."""
    place = source.place("store") if store is None else str(store)
    path = checked_path(place, store or pipeline.store, "name a DuckDB file").resolve()
    if path.is_dir():
        raise InputError([Fault(str(path), "a folder", "name a file in it as the store")])
    above = next((folder for folder in path.parents if path_exists(folder)), None)
    if above is not None and not above.is_dir():
        what = f"is below {above}, which is no folder"
        raise InputError([Fault(str(path), what, "name a file in a folder as the store")])
    return Store(path)


def _is_quiet_night(
    quiet: "Quiet", source: YamlSource, pipeline: Pipeline, store: Path | None
) -> bool:
    """Whether files of traces without a sample are no mistake of the pipeline.

    They hold spans, or an earlier night found some by the same path: a first night that finds
    nothing has more likely a wrong one.
    """
    from claimflow.flows.store.seen_samples import seen_samples

    if quiet.written:
        return True
    wanted = valid_section(source, "samples", SamplesSource)
    if wanted is None or wanted.select is None or wanted.select.since != LAST_RUN:
        return False
    seen = seen_samples(_store(source, pipeline, store), pipeline.name)
    return not seen.keys.is_empty()


def _with_selection(
    prepared: Prepared,
    wanted: Selection,
    rerun: Rerun,
    limit: int | None,
    warn: Callable[[Fault], None],
) -> Prepared:
    """The same with the samples that the pipeline selects, of these the first `limit`.

    A run that repeats steps of an earlier one has the samples that this one had.
    """
    from claimflow.flows.samples.selection import choose_samples
    from claimflow.flows.store.seen_samples import seen_samples

    place = partial(prepared.pipeline.source.place, "samples", "select")
    repeats = bool(rerun.again or rerun.scope())
    remembers = wanted.since == LAST_RUN
    seen = seen_samples(prepared.store, prepared.pipeline.name) if remembers else None
    chosen = choose_samples(
        prepared.samples,
        wanted,
        place=place,
        seen=seen.keys if seen else (),
        again=seen.again if seen and repeats else None,
    )
    samples, told = chosen.samples, chosen.text()
    if chosen.left_out:
        hint = "they are what `select` asks for"
        warn(Fault(prepared.pipeline.source.place("samples", "select"), told, hint))
    if limit is not None and samples.count > limit:
        samples = samples.first(limit, selection=f"--limit {limit}")
    whole = limit is None and not repeats
    keys = chosen.keys
    if seen is not None and prepared.samples.incomplete:
        # What could not be read now is not new once its file is whole again.
        keys = pl.concat([keys, seen.keys])
    return prepared._replace(
        samples=samples,
        nothing_selected=f"nothing to evaluate: {told}" if not samples.count else None,
        seen=keys if remembers and whole else None,
    )


def _with_part(prepared: Prepared, part: Part) -> Prepared:
    """The same with a part of the samples, which may be none."""
    samples = select_part(prepared.samples, part)
    nothing = (
        f"nothing to evaluate: none of the {prepared.samples.count:,} samples is in part {part}"
    )
    return prepared._replace(samples=samples, nothing_selected=None if samples.count else nothing)


def pipeline_source(config: str | Path | Mapping[str, Any] | YamlSource) -> YamlSource:
    """A pipeline file as read, by its path; a mapping stands for one in the current folder."""
    if isinstance(config, YamlSource):
        return config
    if isinstance(config, Mapping):
        return source_from(config, Path.cwd())
    return load_yaml(Path(config))


def check_limit(limit: int | None) -> None:
    """Raise `InputError` for a number of samples that cannot be taken."""
    if limit is None or (isinstance(limit, int) and 1 <= limit <= COUNT):
        return
    # Python does not write an integer of thousands of digits.
    shown = "more than a trillion" if isinstance(limit, int) and limit > COUNT else repr(limit)
    what, hint = f"{shown} is no number of samples", "give 1 or more, or leave it out"
    raise InputError([Fault("limit", what, hint)])


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


class _Read(NamedTuple):
    """The samples that were read; with `quiet` there are none, which `faults` say as a mistake."""

    samples: SampleSource
    quiet: "Quiet | None" = None
    faults: Sequence[Fault] = ()


def _samples(source: YamlSource, limit: int | None, rerun: Rerun, answers: Any) -> _Read | None:
    wanted = valid_section(source, "samples", SamplesSource)
    if wanted is None:
        return None
    redactor = _redactor(source, wanted)
    options: dict[str, Any] = {
        "rename": wanted.rename,
        "earlier_turns": wanted.earlier_turns,
        # The first ones are those of the selected samples.
        "limit": None if wanted.select is not None else limit,
        "skip_unusable": rerun.skip_unusable,
        "redactor": redactor,
    }
    # Messages name files as the user wrote the folder of the pipeline.
    base = source.path.parent
    quiet = None
    if isinstance(answers, SampleSource):
        # Those of a pipeline that was made for them, which redacts nothing.
        samples = answers
    elif wanted.traces is not None:
        from claimflow.flows.traces.reader import read_traces

        options |= {"trace_format": wanted.format, "tools": wanted.tools}
        samples, _, _, quiet = read_traces([wanted.traces], base=base, **options)
    else:
        options["contexts_separator"] = wanted.contexts_separator
        if answers is not None:
            samples = samples_from(answers, **options)
        else:
            samples = read_samples(str(wanted.path), base=base, **options)
    found: Sequence[Fault] = samples.faults
    if found and wanted.path is not None and answers is None:
        from claimflow.flows.traces.reader import with_traces_named

        found = with_traces_named(found, str(wanted.path), base=base)
    faults = [_with_position(source, samples, fault) for fault in found]
    if faults and quiet is None:
        raise InputError(faults)
    if redactor is not None:
        told = tuple(redactor.told(source.place("samples", "redact")))
        samples = replace(samples, warnings=(*samples.warnings, *told))
    return _Read(samples, quiet, faults)


def _redactor(source: YamlSource, wanted: SamplesSource) -> "Redactor | None":
    if wanted.redact is None:
        return None
    from claimflow.flows.samples.redaction import Redactor

    return Redactor(wanted.redact, source.folder, source.place("samples", "redact"))


def _canaries(source: YamlSource) -> tuple[Canary, ...]:
    wanted = valid_section(source, "canaries", CanarySource)
    return read_canaries(wanted.path, base=source.folder) if wanted else ()


def _with_position(source: YamlSource, samples: SampleSource, fault: Fault) -> Fault:
    """`fault` with its position in the pipeline file, if it is in the path or the renaming."""
    section, _, column = fault.place.partition(".")
    if section == "rename":
        return fault._replace(place=source.place("samples", "rename", column))
    if fault.place == samples.path:
        named = "traces" if "traces" in source.section("samples") else "path"
        place = source.place("samples", named)
        return Fault(place, f"{fault.place}: {fault.what}", fault.hint)
    return fault


def missing_fields(pipeline: Pipeline, samples: SampleSource) -> list[Fault]:
    """A fault for the fields that no sample has and some step needs; one for each of metadata."""
    needed = {step.name: step.stage.required_fields() - samples.present for step in pipeline.steps}
    missing = [field for field in FIELDS if any(field in fields for fields in needed.values())]
    faults = [*_missing_metadata(pipeline, samples)]
    if missing:
        lacking = [step for step in pipeline.steps if needed[step.name]]
        scoring = [step.name for step in lacking if step.stage.metrics]
        steps = _joined(scoring or [step.name for step in lacking], "and")
        fields = _joined([repr(field) for field in missing], "or")
        what = f"no sample has {fields}, which is needed by {steps} ({columns_text(samples)})"
        hint = _rename_hint(samples, missing)
        if "traces" in pipeline.source.section("samples"):
            hint = "record it in the spans, which `claimflow traces` shows, or remove these steps"
        faults.insert(0, Fault(pipeline.source.place("samples"), what, hint))
    return faults


def _missing_metadata(pipeline: Pipeline, samples: SampleSource) -> Iterator[Fault]:
    """A fault for each field of the metadata that no sample has and some step needs."""
    needed: dict[str, list[str]] = {}
    for step in pipeline.steps:
        known = samples.present | samples.metadata
        for field in sorted(step.stage.required_metadata() - known):
            needed.setdefault(field, []).append(step.name)
    hint = "add it to the samples"
    for field, steps in needed.items():
        what = f"no sample has {field!r}, which is needed by {_joined(steps, 'and')}"
        near = one_of(field, samples.metadata) if samples.metadata else hint
        yield Fault(pipeline.source.place("samples"), what, near)


def _joined(names: Sequence[str], word: str) -> str:
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def columns_text(samples: SampleSource) -> str:
    """The columns of the input, and which fields they fill."""
    columns = sorted({*samples.metadata, *samples.mapping.values()})
    names = columns[:_SHOWN_COLUMNS]
    more = len(columns) - len(names)
    found = ", ".join(names) + (f" and {more:,} more" if more else "")
    given = [
        field if field == column else f"{column} as {field}"
        for field, column in samples.mapping.items()
    ]
    return f"columns found: {found or 'none'}; recognised: {', '.join(given) or 'none'}"


def _rename_hint(samples: SampleSource, fields: Iterable[str]) -> str:
    misspelt = [
        f"if the column {samples.misspelt[field]!r} holds it, "
        f"write rename: {{{samples.misspelt[field]}: {field}}}"
        for field in fields
        if field in samples.misspelt
    ]
    rest = [field for field in fields if field not in samples.misspelt]
    if rest:
        named = f"as in rename: {{COLUMN: {rest[0]}}}"
        misspelt.append(f"name the column that holds it, {named}, or remove these steps")
    return "; ".join(misspelt)


def _misspelt_fields(source: YamlSource, samples: SampleSource) -> Iterator[Fault]:
    for field, column in samples.misspelt.items():
        what = f"no sample has {field!r}, and the column {column!r} becomes metadata"
        yield Fault(source.place("samples"), what, _rename_hint(samples, [field]))


def _unknown_slices(pipeline: Pipeline, samples: SampleSource) -> Iterator[Fault]:
    """Metadata fields to summarise by that no sample has."""
    for step in pipeline.steps:
        for name in getattr(step.stage, "slices", ()):
            if name not in samples.metadata:
                place = pipeline.source.place("steps", step.name, "slices")
                hint = one_of(name, samples.metadata)
                yield Fault(place, f"no sample has the field {name!r}", hint)


def _unreadable_sources(pipeline: Pipeline) -> Iterator[Fault]:
    """Stages of other packages whose edits cannot be seen."""
    for step in pipeline.steps:
        found = step.stage.source
        if found is None or (found.complete and not found.unseen):
            continue
        if found.complete:
            what = f"a change of {', '.join(found.unseen)}, which it uses, makes nothing again"
        else:
            seen = "an edit of the functions that it calls" if found.digest else "an edit"
            what = f"the source of {step.stage.use} cannot be read, and {seen} makes nothing again"
        place = pipeline.source.place("steps", step.name)
        yield Fault(place, what, "raise its version then")


def _log(warning: Fault) -> None:
    # File names and file contents may hold control characters.
    _LOG.warning("claimflow: warning: %s", on_one_line(warning))
