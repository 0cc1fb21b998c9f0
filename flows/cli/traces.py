"""The command `traces`: what would be read as samples from files of traces."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from claimflow.flows.cli.options import Commands, add_command
from claimflow.flows.errors import Fault, InputError, nearest, one_of

if TYPE_CHECKING:
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.samples.reader import SampleSource
    from claimflow.flows.traces.reader import FileReport
    from claimflow.flows.traces.spans import Reason

_KNOWN: Final = 20
"""Samples whose ids are named for one that is unknown."""

_COMPARED: Final = 1_000
"""Samples among whose ids the nearest is sought."""

_ID_CHARACTERS: Final = 80
"""Characters of an example of what is left out; the beginning of an id names a sample too."""


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
        "--sample",
        metavar="ID",
        help="show this sample in full, or why there is none; the beginning of its id will do "
        "(default: the first)",
    )


def show_traces(options: Namespace) -> int:
    """Print counts and reasons for each file, and one sample; raises `InputError` at the end."""
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.traces.formats import FORMATS
    from claimflow.flows.traces.reader import AUTO, SHOWN_HINT, read_traces

    if options.format not in (AUTO, *FORMATS):
        what = f"{options.format!r} is no format of traces"
        raise InputError([Fault("--format", what, one_of(options.format, [AUTO, *FORMATS]))])
    samples, files, left_out, _ = read_traces(
        options.files,
        base=Path(),
        trace_format=options.format,
        tools=options.tools,
        sought=options.sample,
    )
    terminal = Terminal()
    if files:
        _print_files(terminal, files)
    if any(one.left_out for one in files):
        _print_left_out(terminal, files)
    for one in files:
        if one.damage is not None:
            terminal.print_line(one.damage_text())
    hint = "the table names what is left out"
    faults = [
        fault._replace(hint=hint) if fault.hint == SHOWN_HINT else fault for fault in samples.faults
    ]
    if options.sample is None:
        shown = next(_rows(samples), None)
    else:
        shown, unknown = _chosen(samples, options.sample, left_out)
        # What is wrong with the files may be why it is unknown.
        faults += unknown if left_out or not faults else []
    if shown is not None:
        terminal.print_line()
        _print_sample(terminal, shown)
    if faults:
        raise InputError(faults)
    return 0


def _rows(samples: "SampleSource") -> Iterator[dict[str, Any]]:
    for table in samples.shards(250):
        yield from table.iter_rows(named=True)


def _chosen(
    samples: "SampleSource", wanted: str, left_out: "Mapping[str, Reason]"
) -> tuple[dict[str, Any] | None, list[Fault]]:
    """The sample whose id is `wanted` or alone begins so, or why there is none."""
    ids, begun, first = [], [], None
    for row in _rows(samples):
        sample_id = row["sample_id"]
        if sample_id == wanted:
            return row, []
        ids.append(sample_id)
        if sample_id.startswith(wanted):
            first = first or row
            begun.append(sample_id)
    if len(begun) == 1 and wanted not in left_out:
        return first, []
    what = f"no sample {wanted!r}"
    if begun and wanted not in left_out:
        what, hint = f"{len(begun):,} samples begin with {wanted!r}", f"name one: {_listed(begun)}"
    elif left_out:
        reasons = {wanted: left_out[wanted]} if wanted in left_out else left_out
        found = [_singular(trace, reason, wanted) for trace, reason in reasons.items()]
        hint = f"left out: {'; '.join(found)}"
    else:
        near = nearest(wanted, ids[:_COMPARED])
        hint = f"did you mean {near!r}?" if near else f"known are {_listed(ids) or 'none'}"
    return None, [Fault("--sample", what, hint)]


def _singular(trace: str, reason: "Reason", wanted: str) -> str:
    """Why one trace is left out, with its id where only the beginning of that was given."""
    one = reason.replace("traces", "trace", 1).replace("their", "its")
    return one if trace == wanted else f"{one} ({_short(trace)})"


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _KNOWN:,} more" if len(ids) > _KNOWN else ""
    return f"{', '.join(map(_short, ids[:_KNOWN]))}{more}"


def _short(text: str) -> str:
    return text if len(text) <= _ID_CHARACTERS else f"{text[:_ID_CHARACTERS]}…"


def _print_files(terminal: "Terminal", files: "list[FileReport]") -> None:
    has_logs = any(one.log_records for one in files)
    counts = ["spans", *(["log records"] * has_logs), "traces", "samples"]
    terminal.print_table(
        ["file", "format", *counts, "left out"],
        [
            [
                one.name,
                one.format or "unknown",
                *(f"{getattr(one, name.replace(' ', '_')):,}" for name in counts),
                one.left_out_text() or "nothing",
            ]
            for one in files
        ],
        right=counts,
        texts=("file", "left out"),
    )


def _print_left_out(terminal: "Terminal", files: "list[FileReport]") -> None:
    terminal.print_table(
        ["left out", "count", "file", "such as"],
        [
            [reason, f"{count:,}", one.name, ", ".join(map(_short, one.examples[reason]))]
            for one in files
            for reason, count in sorted(one.left_out.items())
        ],
        right=["count"],
        texts=("left out", "file", "such as"),
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
