"""A data file as a pipeline: its fields found, the metrics that they allow, the steps wired."""

import glob
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import yaml

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.object_storage import is_remote
from claimflow.flows.pipeline.compose import compose, makes_scores, metrics_for
from claimflow.flows.pipeline.pipeline import build_pipeline
from claimflow.flows.pipeline.schema import EarlierTurns
from claimflow.flows.pipeline.yaml_source import source_from
from claimflow.flows.runner.prepare import columns_text, missing_fields
from claimflow.flows.samples.formats import GZIP, ending_of, format_of
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.traces.protobuf import ENDINGS
from claimflow.flows.traces.reader import with_traces_named
from claimflow.stages.registry import STAGES, find_stage

STORE: Final = "evaluations.duckdb"
"""The store of pipelines that are made from a data file."""

CONTENT: Final = ("response", "reference", "retrieved_contexts")
"""The fields that metrics are computed from."""


class DataPipeline(NamedTuple):
    """What a pipeline file for a data file would hold, its samples, and metrics left out.

    The steps are wired for `metrics`. Where those were chosen by the fields of the samples,
    `left_out` says by metric what it lacks, and `more` are metrics that the samples allow as well.
    """

    config: dict[str, Any]
    samples: SampleSource
    metrics: list[str]
    left_out: Mapping[str, str]
    more: list[str]

    @property
    def left_out_lines(self) -> list[str]:
        """A line for each reason why metrics were left out."""
        by_reason: dict[str, list[str]] = {}
        for metric, why in self.left_out.items():
            by_reason.setdefault(why, []).append(metric)
        return [f"left out: {', '.join(names)} ({why})" for why, names in by_reason.items()]


def is_data_file(name: str) -> bool:
    """Whether a command's argument names samples rather than a pipeline file."""
    path = Path(name)
    ending = path.suffix.lower()
    if ending in (".yaml", ".yml"):
        return False
    # Files of traces in protobuf are told what to do with them, not that they are no YAML.
    known = format_of(path) or ending_of(path).removesuffix(GZIP) in (".tsv", *ENDINGS)
    return is_remote(name) or glob.has_magic(name) or bool(known)


def data_pipeline(
    path: str,
    *,
    base: Path,
    metrics: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    contexts_separator: str | None = None,
    earlier_turns: EarlierTurns = "history",
    judge: str | None = None,
    limit: int | None = None,
    skip_unusable: bool = False,
) -> DataPipeline:
    """A pipeline over the samples of `path`: a file or glob below the folder `base`, or s3://.

    Without `metrics` it has those that the fields of the samples allow. `judge` is a model by
    litellm's name; the other options are those of `read_samples`. Raises `InputError`; `in_options`
    translates it.
    """
    rename = dict(rename or {})
    samples = read_samples(
        path,
        base=base,
        rename=rename,
        contexts_separator=contexts_separator,
        earlier_turns=earlier_turns,
        limit=limit,
        skip_unusable=skip_unusable,
    )
    if samples.faults:
        raise InputError(with_traces_named(samples.faults, path, base=base))
    chosen, left_out = (list(metrics), {}) if metrics else metrics_for(samples.present)
    if not chosen:
        fault = no_metric_fault(path, samples, "--rename {}={}".format)
        raise InputError(with_traces_named([fault], path, base=base, whole=True))
    config = {
        "name": _name(path),
        "samples": {
            "path": path,
            **({"rename": rename} if rename else {}),
            **({"contexts_separator": contexts_separator} if contexts_separator else {}),
            **({"earlier_turns": earlier_turns} if earlier_turns != "history" else {}),
        },
        "store": STORE,
        **({"judge": {"model": judge}} if judge else {}),
        "steps": compose(
            chosen, judged=judge is not None, talks="history" in samples.metadata, folder=base
        ),
    }
    if faults := missing_fields(build_pipeline(source_from(config, base)), samples):
        raise InputError(with_traces_named(faults, path, base=base, whole=True))
    others = {stage.use for stage in STAGES.values() if makes_scores(stage)} - {*chosen, *left_out}
    more = [] if metrics else [one for one in sorted(others) if _allowed(one, samples, config)]
    return DataPipeline(config, samples, chosen, left_out, more)


def _allowed(metric: str, samples: SampleSource, config: Mapping[str, Any]) -> bool:
    """Whether a metric needs no settings and no fields that the samples lack."""
    try:
        source = source_from({**config, "steps": compose([metric])}, Path.cwd())
        return not missing_fields(build_pipeline(source), samples)
    except (InputError, ValueError):
        return False


def in_options(error: InputError, path: str) -> InputError:
    """The error of a pipeline that was made for `path`, in terms of the command's options."""
    return InputError(_of_options(fault, path) for fault in error.faults)


_PLACES: Final = (
    (re.compile(r"^rename\.|^pipeline\.samples\.rename\."), "--rename "),
    (re.compile(r"^pipeline\.judge\b[.\w]*"), "--judge"),
    (re.compile(r"^metrics$|^pipeline\.steps\b[.\w]*"), "--metrics"),
)
"""The beginnings of a fault's place, and the option that it comes from."""

_RENAMING: Final = (
    (re.compile(r", as in rename: \{(.+?): (\w+)\}, or remove these steps"), r" by --rename \1=\2"),
    (
        re.compile(r"(?:write |under )rename(?:, such as|:) \{(.+?): (\w+)\}"),
        r"write --rename \1=\2",
    ),
)
"""How hints speak of `rename` in a pipeline file, and how of the option."""


def relative_to(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same pipeline for a file in `folder`; before, its paths are relative to this folder.

    Raises `InputError` where a metric is of a module that lies in this folder only.
    """
    for step in config["steps"].values():
        module, colon, _ = step["use"].partition(":")
        file = f"{module.partition('.')[0]}.py"
        if colon and Path(file).exists() and not (folder / file).exists():
            what = (
                f"{step['use']} is in this folder, and the pipeline in {folder} would not find it"
            )
            raise InputError([Fault("--metrics", what, f"copy {file} there first")])
    samples = dict(config["samples"])
    if not is_remote(samples["path"]):
        samples["path"] = _moved(samples["path"], folder)
    return {**config, "samples": samples, "store": _moved(config["store"], folder)}


def _moved(path: str, folder: Path) -> str:
    return path if Path(path).is_absolute() else Path(os.path.relpath(path, folder)).as_posix()


def _of_options(fault: Fault, path: str) -> Fault:
    place = re.sub(r"^pipeline\.samples$", path, fault.place)
    for pattern, option in _PLACES:
        place = pattern.sub(option, place)
    hint = fault.hint
    for pattern, option in _RENAMING:
        hint = pattern.sub(option, hint)
    return fault._replace(place=place, hint=hint)


def no_metric_fault(place: str, samples: SampleSource, rename: Callable[[str, str], str]) -> Fault:
    """That the fields of samples allow no metric; `rename` writes how to name a column's field."""
    lacking = [field for field in CONTENT if field not in samples.present]
    lacked = f"no sample has {' or '.join(lacking)} ({columns_text(samples)})"
    column = samples.misspelt.get(lacking[0])
    hint = (
        f"name the column that holds it by {rename('COLUMN', lacking[0])}"
        if column is None
        else f"if the column {column!r} holds it, add {rename(column, lacking[0])}"
    )
    return Fault(place, f"no metric can be computed: {lacked}", hint)


def _name(path: str) -> str:
    """A name for a pipeline over a path: its last part that is no pattern, without its ending."""
    parts = [part for part in path.partition("://")[2 if is_remote(path) else 0].split("/") if part]
    plain = [part for part in parts if not glob.has_magic(part)]
    return Path(plain[-1]).stem or "answers" if plain else "answers"


_COMMENTS: Final = {
    "claims": "What the texts say, claim by claim.",
    "citations": "Which passages the response cites for each claim.",
    "verdicts": "Which of those claims another text entails or contradicts.",
    "similarities": "How alike the texts are in meaning.",
    "sentence_matches": "How alike the texts are in words.",
    "scores": "Scores, one row a sample. A step reads the tables that are named like its inputs.",
    "summaries": "Means with 95 % intervals. Add slices: [FIELD] for those by a metadata field.",
}
"""What steps do, by the table that they make."""


def pipeline_text(
    config: Mapping[str, Any], *, comments: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A pipeline as the text of a YAML file; `comments` stand above the keys that they are of.

    With comments groups of steps have theirs, too.
    """
    lines: list[str] = []
    table = ""
    for key, value in config.items():
        if comments and lines:
            lines.append("")
        lines += [f"# {line}" for line in comments.get(key, "").splitlines()]
        if not isinstance(value, Mapping):
            lines.append(f"{key}: {_flow(value)}")
            continue
        lines.append(f"{key}:")
        for name, inner in value.items():
            before, table = table, _table_of(inner) if key == "steps" else ""
            if comments and table in _COMMENTS and table != before:
                lines += [*([""] if before else []), f"  # {_COMMENTS[table]}"]
            lines.append(f"  {name}: {_flow(inner)}")
    return "".join(f"{line}\n" for line in lines)


def _table_of(step: Mapping[str, Any]) -> str:
    stage = find_stage(step["use"])
    return stage.makes.table if stage else ""


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, str) and not value.isprintable():
        return json.dumps(value)
    listed = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return str(listed).strip()[1:-1]
