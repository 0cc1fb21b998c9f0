"""Files of traces as samples: spans brought together by trace, and what is left out counted.

A trace may be spread over lines and files. Its spans wait in a temporary database without a name,
which keeps at most 64 MiB in memory; one trace has at most 64 MiB. Samples come in the order in
which their traces began.
"""

import gzip
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.object_storage import is_remote
from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.samples.files import NOTHING_THERE, find_files, shown_path
from claimflow.flows.samples.formats import FORMATS as FILE_FORMATS
from claimflow.flows.samples.formats import GZIP, SampleFile, ending_of, format_of, read_records
from claimflow.flows.samples.json_files import decode_object, read_damaged_array, read_json_lines
from claimflow.flows.samples.reader import SampleSource, checked_samples
from claimflow.flows.samples.records import Format, Record, RecordError
from claimflow.flows.samples.table_files import read_damaged_csv
from claimflow.flows.samples.temporary import copies_folder
from claimflow.flows.traces.assembly import (
    NO_ANSWER,
    NO_QUESTION,
    NO_ROOT,
    TOO_LARGE,
    UNUSABLE,
    Assembled,
    assemble,
)
from claimflow.flows.traces.formats import FORMATS, read_spans, trace_format_of
from claimflow.flows.traces.protobuf import ENDINGS, is_framed, read_protobuf
from claimflow.flows.traces.received import is_waiting
from claimflow.flows.traces.spans import (
    LOGGED,
    NO_RECORD,
    PYTHON_VALUES,
    Reason,
    Span,
    span_of,
)

if TYPE_CHECKING:
    # The schema loads all stages.
    from claimflow.flows.pipeline.schema import EarlierTurns
    from claimflow.flows.samples.redaction import Redactor

DAMAGED: Final = "damaged records"
EMPTY: Final = "files without a trace"

_LOST: Final = frozenset({NO_ANSWER, NO_QUESTION, NO_ROOT, NO_RECORD, TOO_LARGE, UNUSABLE})
"""Why there is no sample although there should be: something is recorded or sent wrongly."""
AUTO: Final = "auto"
"""Find the format of each file by its records."""

EXAMPLES: Final = 3
"""Traces or places that are kept of what is left out for a reason."""

SHOWN_HINT: Final = "`claimflow traces` shows what is read"

_BATCH: Final = 1_000
_CACHE_KIB: Final = 64 << 10
_TRIED: Final = 10
"""Records of a file that are looked at to find its format."""

_SHOWN_NAMES: Final = 8
_SHOWN_CHARACTERS: Final = 40
_SHOWN_DAMAGE: Final = 200
_STARTS: Final = (b"{", b"[", b"\0", b"\n")
"""The bytes that files of JSON and of protobuf begin with."""

_LIKE_SAMPLES: Final = ("chat", "langfuse")
"""The formats whose records may be samples as well."""

_START: Final = 1 << 16
_PLACE: Final = "{name}:{number}"
_PRINTED_HINT: Final = "write the rows as Parquet or JSON Lines instead"
_DOCUMENT_HINT: Final = "write one JSON object on each line, or one document"

_TABLES: Final = """
    CREATE TABLE spans (trace TEXT, file INTEGER, body TEXT);
    CREATE TABLE traces (
        trace TEXT PRIMARY KEY, file INTEGER, line INTEGER, start INTEGER, bytes INTEGER
    );
"""
_ADD_TRACE: Final = """
    INSERT INTO traces VALUES (?, ?, ?, ?, ?) ON CONFLICT (trace) DO UPDATE SET
        start = coalesce(min(start, excluded.start), start, excluded.start),
        bytes = bytes + excluded.bytes
"""
_TRACES: Final = "SELECT trace, file, line, bytes FROM traces ORDER BY coalesce(start, 0), rowid"


@dataclass
class FileReport:
    """What a file of traces holds: counts, and why parts of it are no samples.

    A trace is counted for the file in which it comes first. `log_records` are those with messages
    of spans. `examples` are the first few traces, or places in the file, of which something is left
    out for a reason. `damage` is the first damaged record; the file is `cut` where one stands
    before its end, so that records of earlier nights may be missing, and `begun` where nothing
    could be read since it is still being written.
    """

    name: str
    format: str | None = None
    spans: int = 0
    log_records: int = 0
    traces: int = 0
    samples: int = 0
    left_out: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, list[str]] = field(default_factory=dict)
    used: bool = False
    alike: str | None = None
    damage: Fault | None = None
    cut: bool = False
    begun: bool = False

    @property
    def hint(self) -> str:
        """What to do about what is left out; `alike` is the format of records of another one."""
        if self.alike is not None:
            return f"its records look like {self.alike}: name that format, or {AUTO}"
        return SHOWN_HINT if self.damage is None else self.damage_text()

    @property
    def is_damaged(self) -> bool:
        """Whether not one record could be read."""
        return set(self.left_out) == {DAMAGED} and not (self.spans or self.log_records)

    def leave_out(self, reason: Reason, example: str, count: int = 1) -> None:
        """Count parts that are left out of a trace or at a place, which is `example`."""
        self.left_out[reason] += count
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES and example not in shown:
            shown.append(example)

    def damage_text(self) -> str:
        """Where the first damaged record stands, and what is wrong with it."""
        return f"first damaged record: {self.damage}"

    def left_out_text(self) -> str:
        """`damaged records 2, traces without an answer 1`; empty where nothing was left out."""
        return _counted(self.left_out)


def _counted(left_out: Mapping[Reason, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(left_out.items()))


class Quiet(NamedTuple):
    """No sample, and nothing wrong with the files: `reason` says what there was instead.

    `written` is whether they hold spans; where they hold none, the path may be a wrong one.
    """

    reason: str
    written: bool


class TraceOrigin(NamedTuple):
    """A file that traces come from, as an origin of records; lists in it are lists."""

    name: str
    cells: bool = False

    def place(self, number: int) -> str:
        """The place of the trace that begins at line or row `number`."""
        return f"{self.name}:{number}"


class TraceFiles:
    """Files of traces, and what is found in them; `reports` are complete when all was read.

    What no file can be read for is added to `faults`. `sought_left_out` says why traces are no
    samples whose ids are `sought`, or begin so; of the latter there are only some. `shown` redacts
    a message that may quote a file.
    """

    def __init__(
        self,
        files: Sequence[SampleFile],
        faults: list[Fault],
        *,
        trace_format: str = AUTO,
        tools: bool = False,
        sought: str | None = None,
        shown: Callable[[str], str] = str,
    ) -> None:
        self.sought_left_out: dict[str, Reason] = {}
        self.reports = [FileReport(file.name) for file in files]
        self._files = files
        self._faults = faults
        self._format = trace_format
        self._tools = tools
        self._sought = sought
        self._shown = shown

    def records(self) -> Iterator[tuple[TraceOrigin, Record]]:
        """The samples of all traces as records; their columns are the fields of a sample."""
        with closing(sqlite3.connect("")) as database:
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            database.executescript(_TABLES)
            for number in range(len(self._files)):
                self._store(number, database)
            database.execute("CREATE INDEX by_trace ON spans (trace)")
            for trace, number, line, size in database.execute(_TRACES):
                report = self.reports[number]
                report.traces += 1
                found = self._assembled(trace, size, database)
                for reason, count in found.left_out.items():
                    report.leave_out(reason, trace, count)
                if found.reason is not None:
                    self._note(trace, found.reason)
                if found.values is not None:
                    report.samples += 1
                    yield TraceOrigin(report.name), Record(line, found.values)

    def _note(self, trace: str, reason: Reason) -> None:
        found, sought = self.sought_left_out, self._sought
        begins = sought is not None and trace.startswith(sought)
        if trace == sought or (begins and len(found) < EXAMPLES):
            found[trace] = reason

    def _assembled(self, trace: str, size: int, database: sqlite3.Connection) -> Assembled:
        if size > RECORD_BYTES:
            return Assembled(None, Counter([TOO_LARGE]), TOO_LARGE)
        rows = database.execute("SELECT file, body FROM spans WHERE trace = ?", [trace]).fetchall()
        found = assemble([span_of(body) for _, body in rows], tools=self._tools)
        if found.values is not None:
            for file in {file for file, _ in rows}:
                self.reports[file].used = True
        return found

    def _store(self, number: int, database: sqlite3.Connection) -> None:
        """Put the spans of a file into the database."""
        file, report = self._files[number], self.reports[number]
        told = len(self._faults)
        waiting: list[tuple[str, int, int, Span]] = []
        for line, found in self._spans(number):
            if not isinstance(found, Span):
                report.leave_out(found, file.place(line))
                continue
            if found.kind in LOGGED:
                report.log_records += 1
            else:
                report.spans += 1
            waiting.append((found.trace_id, number, line, found))
            if len(waiting) == _BATCH:
                _insert(waiting, database)
                waiting = []
        _insert(waiting, database)
        # A copy is gone when all files are read.
        report.begun = report.is_damaged and _is_begun(file)
        is_empty = not (report.spans or report.log_records or report.left_out)
        if is_empty and len(self._faults) == told:
            report.leave_out(EMPTY, file.name)

    def _spans(self, number: int) -> Iterator[tuple[int, Span | Reason]]:
        """(line, span or why there is none) of a file, whose format is found on the way."""
        file, report = self._files[number], self.reports[number]
        known = None if self._format == AUTO else self._format
        early: list[tuple[int, dict[str, Any]]] = []
        for record in self._records(file):
            report.cut = report.cut or record.ends_file or report.damage is not None
            if isinstance(record.values, RecordError):
                report.damage = report.damage or self._damage(file, record.number, record.values)
                yield record.number, DAMAGED
                continue
            early.append((record.number, record.values))
            known = known or trace_format_of(record.values)
            if known is None:
                if len(early) == _TRIED:
                    break
                continue
            for line, values in early:
                for span in read_spans(values, known, f"{file.name}:{line}"):
                    if span == NO_RECORD and self._format != AUTO:
                        alike = trace_format_of(values)
                        report.alike = report.alike or (alike if alike != known else None)
                    if span == PYTHON_VALUES and file.cells:
                        # What is left out would be lacking in samples of the same traces.
                        report.format = known
                        what = "a list or an object as Python prints it, which is no JSON"
                        self._faults.append(Fault(file.place(line), what, _PRINTED_HINT))
                        return
                    yield line, span
            early = []
        report.format = known
        if early:
            self._faults.append(_unknown_format(file.name, early[0][1]))

    def _damage(self, file: SampleFile, number: int, error: RecordError) -> Fault:
        return Fault(file.place(number), self._shown(error.what)[:_SHOWN_DAMAGE], error.hint)

    def _records(self, file: SampleFile) -> Iterator[Record]:
        try:
            for _, record in read_records([] if _is_empty(file.path) else [file], self._faults):
                yield record
        except InputError as error:
            # A copy of the file may have been read.
            self._faults += [fault._replace(place=file.name) for fault in error.faults]

    def unused(self) -> Iterator[Fault]:
        """A fault for each file that gives no sample, if nothing worse is wrong with it.

        Where any other file gives one, only those are at fault of which no format is known or no
        record can be read, but for a file whose first record is still being written.
        """
        told = tuple(fault.place for fault in self._faults)
        any_used = any(report.used for report in self.reports)
        for report in self.reports:
            empty = EMPTY in report.left_out
            known = report.format is not None and not report.is_damaged
            is_fine = report.used or (any_used and (empty or report.begun or known))
            if is_fine or any(place.startswith(report.name) for place in told):
                continue
            if empty:
                yield Fault(report.name, "no traces", "write at least one")
            else:
                # The traces of a file of log records are those of the files with the spans.
                why = report.left_out_text() or "its traces begin in other files"
                yield Fault(report.name, f"no trace gives a sample ({why})", report.hint)

    def quiet(self, path: str) -> Quiet | None:
        """Why no file gives a sample, if nothing is wrong with any; `path` names them all."""
        reports = self.reports
        fine = all(one.spans or EMPTY in one.left_out or one.begun for one in reports)
        if self._faults or not reports or not fine or any(one.used for one in reports):
            return None
        counts = sum((one.left_out for one in reports), Counter[Reason]())
        if _LOST & counts.keys():
            return None
        written = any(one.spans for one in reports)
        why = "no trace gives a sample" if written else f"no traces in {path}"
        return Quiet(f"{why}; left out: {_counted(counts)}", written)


def _is_empty(path: Path) -> bool:
    """Whether nothing was written to a file yet; not every format can be read then."""
    try:
        return not path.stat().st_size
    except OSError:
        return False


def _is_begun(file: SampleFile) -> bool:
    """Whether a file of which nothing could be read may be one that is still being written."""
    with suppress(OSError):
        if ending_of(file.path).endswith(GZIP):
            return _is_cut_gzip(file.path)
        with file.path.open("rb") as opened:
            start = opened.read(1)
            opened.seek(-1, SEEK_END)
            return (file.cells or start in _STARTS) and opened.read(1) != b"\n"
    return False


def _is_cut_gzip(path: Path) -> bool:
    """Whether the compressed data end too early; not where they are damaged, or large."""
    left = RECORD_BYTES
    try:
        with gzip.open(path) as file:
            while left > 0 and (block := file.read1(_START)):
                left -= len(block)
    except EOFError:
        return True
    except (gzip.BadGzipFile, zlib.error):
        pass
    return False


def _read_json(path: Path) -> Iterator[Record]:
    """The objects in a file; damaged ones are errors of their own.

    What the file holds is told by its beginning, since collectors write lines, and protobuf too,
    to files called .json.
    """
    lines = partial(read_json_lines, path, lenient=True)
    with path.open("rb") as file:
        start = file.read(_START)
        if is_framed(start):
            yield from read_protobuf(path)
            return
        start = start.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"["):
            yield from read_damaged_array(path)
            return
        first, end, _ = start.partition(b"\n")
        if first.rstrip().endswith(b"}") or not end:
            # A line longer than the block is one of many, or the only one.
            yield from lines()
            return
        file.seek(0)
        text = file.read(RECORD_BYTES + 1)
    if len(text) <= RECORD_BYTES:
        try:
            found = decode_object(text.removeprefix(b"\xef\xbb\xbf"), hint=_DOCUMENT_HINT)
        except UnicodeDecodeError:
            found = None
        if isinstance(found, dict):
            yield Record(1, found)
            return
    # Lines of which the first one is damaged.
    yield from lines()


_JSON: Final = Format(_read_json, _PLACE, partial=True)
_CSV: Final = Format(read_damaged_csv, _PLACE, cells=True, partial=True)
_PROTOBUF: Final = Format(read_protobuf, _PLACE, text=False, partial=True)
_FILE_FORMATS: Final = {
    ending: (_CSV if known.cells else _JSON) if known.text else known
    for ending, known in FILE_FORMATS.items()
} | dict.fromkeys(ENDINGS, _PROTOBUF)
"""How files of traces are read, by the endings of their names."""


def _insert(spans: Sequence[tuple[str, int, int, Span]], database: sqlite3.Connection) -> None:
    rows = [(trace, file, line, span.start, span.text()) for trace, file, line, span in spans]
    database.executemany(
        _ADD_TRACE,
        [(trace, file, line, start, len(body)) for trace, file, line, start, body in rows],
    )
    database.executemany(
        "INSERT INTO spans VALUES (?, ?, ?)",
        [(trace, file, body) for trace, file, _, _, body in rows],
    )


def _nothing_received(path: Path, faults: list[Fault]) -> list[Fault]:
    """`faults` of files that are missing, told as what they are in the folder of a receiver."""
    if not is_waiting(path.parent):
        return faults
    what, hint = "nothing was received yet", "send spans to `claimflow receive`, and wait for one"
    return [fault._replace(what=what, hint=hint) for fault in faults]


def with_traces_named(
    faults: Sequence[Fault], path: str, *, base: Path, whole: bool = False
) -> Sequence[Fault]:
    """What is wrong with the samples at `path`: that it holds traces, where it does.

    `faults` are those of the samples, below the folder `base`. They stay where the records may be
    samples as well as traces and the first one is not at fault, unless the faults are of the
    samples as a `whole`. Objects of S3 are not copied again for it.
    """
    if is_remote(path):
        return faults
    files, _ = find_files(path, base, base, _FILE_FORMATS)
    if not files:
        return faults
    file = files[0]
    places = [file.name]
    known = "otlp" if ending_of(file.path).removesuffix(GZIP) in ENDINGS else None
    if known is None:
        record = next((found for _, found in read_records([file], [])), None)
        if record is None or isinstance(record.values, RecordError):
            return faults
        known = trace_format_of(record.values)
        as_samples = file._replace(format=format_of(file.path) or file.format)
        places.append(as_samples.place(record.number))
    is_first = known not in _LIKE_SAMPLES or faults[0].place in places
    if known is None or not (whole or is_first):
        return faults
    what = f"looks like traces ({known})"
    hint = (
        f"write samples: {{traces: {path}}} into a pipeline file; `claimflow traces {path}` shows "
        "what is read"
    )
    return [Fault(file.name, what, hint)]


def _unknown_format(name: str, record: Mapping[str, Any]) -> Fault:
    if not record:
        what, hint = "its first record is empty", "write at least one span, or leave the file out"
        return Fault(name, f"no known format of traces; {what}", hint)
    names = [name[:_SHOWN_CHARACTERS] for name in sorted(record)]
    more = f" and {len(names) - _SHOWN_NAMES:,} more" if len(names) > _SHOWN_NAMES else ""
    found = ", ".join(names[:_SHOWN_NAMES])
    what = f"no known format of traces; its first record has {found}{more}"
    sought = "; ".join(f"{one.sought} ({known})" for known, one in FORMATS.items())
    return Fault(name, what, f"looked for {sought}")


class TracesRead(NamedTuple):
    """The samples of files of traces, what was found in each file, and why sought traces lack.

    Where `quiet` has a value, the faults of the samples say no more than that there are none.
    """

    samples: SampleSource
    files: list[FileReport]
    left_out: Mapping[str, Reason]
    quiet: Quiet | None


def read_traces(  # noqa: PLR0913
    paths: Sequence[str],
    *,
    base: Path,
    trace_format: str = AUTO,
    tools: bool = False,
    rename: Mapping[str, str] | None = None,
    earlier_turns: "EarlierTurns" = "history",
    limit: int | None = None,
    skip_unusable: bool = False,
    redactor: "Redactor | None" = None,
    sought: str | None = None,
) -> TracesRead:
    """Read and check the samples of the traces in `paths`, as `read_samples` does for samples.

    What is left out is a warning for each file, with its reasons counted. A file of which no format
    is known or no record can be read is a fault, and so is every file where none gives a sample.
    `sought` is an id, or the beginning of one, of traces of which `left_out` says why they are no
    samples.
    """
    with copies_folder() as folder:
        files: dict[str, SampleFile] = {}
        faults: list[Fault] = []
        missing: list[Fault] = []
        for number, path in enumerate(paths):
            copies = folder / str(number)
            copies.mkdir()
            found, more = find_files(path, base, copies, _FILE_FORMATS)
            files |= {file.name: file for file in found}
            if not found and any(one.what in NOTHING_THERE for one in more):
                more = more if is_remote(path) else _nothing_received(base / path, more)
                missing += more
            faults += more
        traces = TraceFiles(
            [*files.values()],
            faults,
            trace_format=trace_format,
            tools=tools,
            sought=sought,
            shown=redactor.message if redactor is not None else str,
        )
        samples = checked_samples(
            traces.records(),
            faults,
            path=shown_path(paths[0], base),
            rename=rename or {},
            earlier_turns=earlier_turns,
            limit=limit,
            skip_unusable=skip_unusable,
            redactor=redactor,
        )
    told = [
        Fault(report.name, f"left out: {reasons}", report.hint)
        for report in traces.reports
        if (reasons := report.left_out_text())
    ]
    samples = replace(
        samples,
        incomplete=any(report.cut for report in traces.reports),
        warnings=(*told, *samples.warnings),
        faults=(*samples.faults, *traces.unused()),
    )
    if missing and len(missing) == len(samples.faults):
        quiet: Quiet | None = Quiet(f"{missing[0].place}: {missing[0].what}", written=False)
    else:
        quiet = traces.quiet(samples.path)
    return TracesRead(samples, traces.reports, traces.sought_left_out, quiet)
