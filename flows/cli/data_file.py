"""Commands that take a data file in place of a pipeline file: their options, and what they run."""

import argparse
import os
import shlex
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

from claimflow.flows.cli.output import write_message, write_text
from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from claimflow.flows.pipeline.rerun import Rerun
    from claimflow.flows.runner.data_file import DataPipeline
    from claimflow.flows.runner.prepare import Prepared


def add_pipeline_or_data(parser: argparse.ArgumentParser) -> argparse._ActionsContainer:
    """Add the pipeline file or data file, and the store; returns the options for a data file."""
    parser.add_argument(
        "config",
        metavar="FILE",
        help="a pipeline's YAML file, or the samples themselves: JSON Lines, JSON, CSV or Parquet, "
        "a glob of files, or s3://",
    )
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="use this DuckDB file as the store"
    )
    group = parser.add_argument_group("for a data file, which needs no pipeline file")
    add_data_options(group)
    return group


def add_data_options(parser: argparse._ActionsContainer) -> None:
    """Add the metrics, the judge, and the columns of a data file."""
    parser.add_argument(
        "--metrics",
        nargs="+",
        action="extend",
        default=[],
        metavar="METRIC",
        help="compute these metrics (default: those that the fields of the samples allow)",
    )
    parser.add_argument(
        "--judge",
        metavar="MODEL",
        help="let this model judge, by litellm's name, such as openai/gpt-4o-mini",
    )
    parser.add_argument(
        "--rename",
        nargs="+",
        action="extend",
        default=[],
        type=_renamed,
        metavar="COLUMN=FIELD",
        help="read a field from a column whose name is not recognised, as in antwort=response",
    )
    parser.add_argument(
        "--contexts-separator",
        type=_separator,
        metavar="TEXT",
        help="split contexts that are one text here, as in '||' or '\\n\\n' for blank lines",
    )
    parser.add_argument(
        "--earlier-turns",
        choices=("history", "contexts"),
        help="what earlier turns of a conversation are: history (default), or contexts, which can"
        " support claims",
    )


def _renamed(text: str) -> tuple[str, str]:
    column, separator, field = text.rpartition("=")
    if not (column and separator and field):
        raise argparse.ArgumentTypeError(f"{text!r} is not COLUMN=FIELD")
    return column, field


def _separator(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text.replace("\\n", "\n").replace("\\t", "\t")


class PreparedFile(NamedTuple):
    """A prepared run, and the pipeline file that it is of; None where a data file has none."""

    prepared: "Prepared"
    pipeline: Path | None


def prepare_file(options: Namespace, rerun: "Rerun") -> PreparedFile:
    """The run of the pipeline file or the data file that a command names.

    Says on standard error which pipeline the data file makes, and writes it to `--save`.
    """
    from claimflow.flows.runner.data_file import (
        data_pipeline,
        is_data_file,
        pipeline_text,
        relative_to,
    )
    from claimflow.flows.runner.prepare import prepare

    if not is_data_file(options.config):
        if faults := list(_misplaced(options)):
            raise InputError(faults)
        file = Path(options.config)
        return PreparedFile(
            prepare(file, limit=options.limit, rerun=rerun, store=options.store), file
        )
    save: Path | None = getattr(options, "save", None)
    if save is not None and os.path.lexists(save):
        raise InputError([Fault(f"--save {save}", "exists already", "name a new file")])
    with faults_of_options(options):
        made = data_pipeline(
            options.config,
            base=Path.cwd(),
            metrics=options.metrics,
            rename=dict(options.rename),
            contexts_separator=options.contexts_separator,
            earlier_turns=options.earlier_turns or "history",
            judge=options.judge,
            limit=options.limit,
            skip_unusable=rerun.skip_unusable,
        )
        prepared = prepare(
            made.config, answers=made.samples, limit=options.limit, rerun=rerun, store=options.store
        )
    if options.store is not None:
        made = made._replace(config={**made.config, "store": str(options.store)})
    write_message(describe(options.config, made))
    if save is None:
        write_message("as this pipeline, which `claimflow run --save FILE` writes:")
        write_message(indent(pipeline_text(made.config), "  "))
    else:
        write_text(pipeline_text(relative_to(made.config, save.parent)), save)
    return PreparedFile(prepared, save)


@contextmanager
def faults_of_options(options: Namespace) -> Iterator[None]:
    """Faults of a pipeline that was made for a data file name the options that it came from."""
    from claimflow.flows.runner.data_file import in_options, is_data_file

    try:
        yield
    except InputError as error:
        if is_data_file(options.config):
            raise in_options(error, options.config) from None
        raise


def arguments_of(options: Namespace) -> str:
    """The file of a command and its options for data files, as they are written in a shell."""
    arguments = [options.config]
    if options.metrics:
        arguments += ["--metrics", *options.metrics]
    if options.judge:
        arguments += ["--judge", options.judge]
    if options.rename:
        arguments += ["--rename", *("=".join(one) for one in options.rename)]
    if options.contexts_separator:
        escaped = options.contexts_separator.replace("\n", "\\n").replace("\t", "\\t")
        arguments += ["--contexts-separator", escaped]
    if options.earlier_turns:
        arguments += ["--earlier-turns", options.earlier_turns]
    return shlex.join(arguments)


def _misplaced(options: Namespace) -> Iterator[Fault]:
    """Faults of options for data files beside a pipeline file."""
    if Path(options.config).is_dir():
        yield Fault(options.config, "a folder", "name a file with samples, or a pipeline file")
        return
    for name in ("metrics", "judge", "rename", "contexts_separator", "earlier_turns", "save"):
        if getattr(options, name, None):
            what = f"is for a data file, and {options.config} is a pipeline file"
            yield Fault(f"--{name.replace('_', '-')}", what, "change the file instead")


def _made_beside(metrics: Sequence[str]) -> Iterator[str]:
    """A line for each metric that a stage makes together with others, which are not named."""
    from claimflow.stages.registry import STAGES

    for metric in metrics:
        if metric in STAGES:
            continue
        for stage in STAGES.values():
            others = len({*stage.metrics} - {*metrics})
            if metric in stage.metrics and stage.use not in metrics and others:
                more = f"{others} more" if others > 1 else "one more"
                yield f"with {metric} come {more} of {stage.use}, which computes them together"


def describe(path: str, made: "DataPipeline") -> str:
    """Lines on which columns fill which fields, on the metrics, and on those left out."""
    from claimflow.flows.report.formatting import format_count

    mapping = made.samples.mapping.items()
    named = [field if field == column else f"{field} from {column}" for field, column in mapping]
    more = f" (more by --metrics: {', '.join(made.more)})" if made.more else ""
    return "\n".join(
        [
            f"{path}: {format_count(made.samples.count, 'sample')} with {', '.join(named)}",
            f"metrics: {', '.join(made.metrics)}{more}",
            *_made_beside(made.metrics),
            *made.left_out_lines,
        ]
    )
