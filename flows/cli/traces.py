"""The command `traces`: what would be read as samples from files of traces."""

import json
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from claimflow.flows.cli.options import Commands, add_command
from claimflow.flows.errors import Fault, InputError, one_of

if TYPE_CHECKING:
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.samples.reader import SampleSource
    from claimflow.flows.traces.reader import FileReport

_KNOWN: Final = 20
"""Samples whose ids are proposed for one that is unknown."""


def add(commands: Commands) -> None:
    """Declare `traces`."""
    parser = add_command(
        commands,
        "traces",
        show_traces,
        "show what files of traces give as samples, and what is left out",
        example="traces/*.jsonl --tools",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="files of traces, globs of them, or s3://"
    )
    parser.add_argument(
        "--format", default="auto", metavar="F", help="their format (default: found in each file)"
    )
    parser.add_argument(
        "--tools", action="store_true", help="take results of tools as retrieved contexts too"
    )
    parser.add_argument(
        "--sample", metavar="ID", help="show this sample in full (default: the first)"
    )


def show_traces(options: Namespace) -> int:
    """Print counts and reasons for each file, and one sample; raises `InputError` at the end."""
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.traces.formats import FORMATS
    from claimflow.flows.traces.reader import AUTO, read_traces

    if options.format not in (AUTO, *FORMATS):
        what = f"{options.format!r} is no format of traces"
        raise InputError([Fault("--format", what, one_of(options.format, [AUTO, *FORMATS]))])
    samples, files = read_traces(
        options.files, base=Path(), trace_format=options.format, tools=options.tools
    )
    terminal = Terminal()
    if files:
        _print_files(terminal, files)
    shown = next((row for row in _rows(samples) if _is_wanted(row, options.sample)), None)
    if shown is not None:
        terminal.print_line()
        _print_sample(terminal, shown)
    faults = list(samples.faults)
    if shown is None and options.sample is not None and not faults:
        hint = one_of(options.sample, [row["sample_id"] for row in islice(_rows(samples), _KNOWN)])
        faults.append(Fault("--sample", f"no sample {options.sample!r}", hint))
    if faults:
        raise InputError(faults)
    return 0


def _rows(samples: "SampleSource") -> Iterator[dict[str, Any]]:
    for table in samples.shards(250):
        yield from table.iter_rows(named=True)


def _is_wanted(row: dict[str, Any], sample_id: str | None) -> bool:
    return sample_id is None or row["sample_id"] == sample_id


def _print_files(terminal: "Terminal", files: "list[FileReport]") -> None:
    counts = ["spans", "traces", "samples"]
    terminal.print_table(
        ["file", "format", *counts, "left out"],
        [
            [
                one.name,
                one.format or "unknown",
                *(f"{getattr(one, name):,}" for name in counts),
                one.left_out_text() or "nothing",
            ]
            for one in files
        ],
        right=counts,
        texts=("file", "left out"),
    )


def _print_sample(terminal: "Terminal", sample: dict[str, Any]) -> None:
    metadata = json.loads(sample["metadata"])
    history = metadata.pop("history", [])
    indent = len("retrieved_contexts") + 4
    terminal.print_text(sample["sample_id"], label="sample", indent=indent)
    for message in history:
        terminal.print_text(
            f"{message['role']}: {message['content']}", label="history", indent=indent
        )
    for name in ("user_input", "response"):
        terminal.print_text(sample[name], label=name, indent=indent)
    for number, text in enumerate(sample["retrieved_contexts"] or [], start=1):
        label = f"retrieved_contexts {number}"
        terminal.print_text(text, label=label, indent=indent)
    for name, value in metadata.items():
        terminal.print_text(value, label=name, indent=indent)
