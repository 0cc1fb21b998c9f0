"""Terminal output: runs, comparisons, calibrations and audits as lines and tables."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from io import StringIO
from typing import Any, Final, Literal

import polars as pl
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from claimflow.flows.quality.agreement import Agreement, AnnotatorAgreement, RankCorrelations
from claimflow.flows.quality.calibration import RunCalibration
from claimflow.flows.quality.claim_audit import ClaimAudit
from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.quality.gates import Outcome
from claimflow.flows.quality.step_calibration import Slice, StepCalibration
from claimflow.flows.report import comparison_text
from claimflow.flows.report.formatting import (
    escape_controls,
    format_count,
    format_interval,
    format_number,
    shorten,
)
from claimflow.flows.report.run_document import LowSample, RunDocument
from claimflow.flows.report.run_text import (
    GATE_COLUMNS,
    audit_example_text,
    audit_finding_text,
    audit_step_text,
    audited_samples_text,
    earlier_calibration_text,
    format_estimate,
    gate_cells,
)
from claimflow.flows.report.table_layout import lay_out, left_out_note
from claimflow.flows.store.edits import UnusedEdit
from claimflow.flows.store.runs import newest_run

_LOG_WIDTH: Final = 160
"""Where texts are wrapped in output that goes to a file or a pipe."""

_TERMINAL_WIDTH: Final = 80
"""The width of a terminal that does not tell its own."""

_IDENTIFIERS: Final = frozenset(
    {"run_id", "run", "metric", "step", "sample_id", "started_at", "ended_at", "made_at"}
)
"""Columns whose cells are copied or looked for, and are useless in parts."""

_LONGEST_NAME: Final = 40

_LONGEST_LABEL: Final = 24
"""The width up to which the names of columns are aligned where each row is a block."""


def safe_text(text: object, style: str = "") -> Text:
    """Text under evaluation without control characters and markup, which could steer a terminal."""
    return Text(escape_controls(text), style=style)


class Terminal(Console):
    """Standard output: as wide as `COLUMNS`, else as the terminal.

    Where it is neither, or a file, tables have all their columns, however wide they are. A reader
    that closes the pipe does not end the command, whose exit code still counts.
    """

    def __init__(self, file: StringIO | None = None) -> None:
        window = _window_width() if file is None else None
        self._in_window = window is not None
        # In a notebook rich would display a table where it is asked for the text of one.
        super().__init__(
            file=file,
            highlight=False,
            width=window or _LOG_WIDTH,
            force_jupyter=False,
            color_system="auto" if file is None else None,  # A kernel sets FORCE_COLOR.
        )

    def on_broken_pipe(self) -> None:
        """Discard what is still to be written."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def print_line(self, text: object = "", style: str = "") -> None:
        """Print text on one line that is never wrapped."""
        line = text if isinstance(text, Text) else safe_text(text, style)
        self.print(line, soft_wrap=True)

    def print_text(self, text: object, *, label: str = "", indent: int) -> None:
        """Print text wrapped between words, every line indented, the first one after `label`."""
        start = Text(label.ljust(indent))
        room = max(self.width - indent, _LONGEST_LABEL)
        for line in safe_text(text).wrap(self, room, overflow="fold"):
            self.print_line(start + line)
            start = Text(" " * indent)

    def print_table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Collection[str] = (),
        texts: Collection[str] = (),
        drop: Sequence[str] = (),
    ) -> None:
        """Print a table, in which the columns in `right` align right.

        Only the columns in `texts` are wrapped. Where the window is too narrow, the columns in
        `drop` are left out, the first one first, and a line names them; where that does not
        suffice, each row becomes a block of lines.
        """
        cells = [[escape_controls(cell).expandtabs(4) for cell in row] for row in rows]
        found = lay_out(
            columns, cells, self.width, texts=texts, drop=drop, may_exceed=not self._in_window
        )
        if found is None:
            self._print_blocks(columns, cells, texts)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, width, wrapped in found.shown:
            name = columns[place]
            justify: Literal["left", "right"] = "right" if name in right else "left"
            table.add_column(
                Text(name), justify=justify, width=width, no_wrap=not wrapped, overflow="fold"
            )
        for row in cells:
            table.add_row(*(Text(row[place]) for place, _, _ in found.shown))
        table.width = found.width
        self.print(table, crop=False)
        if found.left_out:
            self.print_line(f"{left_out_note(columns, cells, found, self.width)}\n", "dim")

    def _print_blocks(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], texts: Collection[str]
    ) -> None:
        """Print each row as a block of lines, one for each column."""
        indent = min(max(map(cell_len, columns)), _LONGEST_LABEL) + 2
        for number, row in enumerate(rows, start=1):
            self.print_line(f"record {number:,} of {len(rows):,}", "bold")
            for name, cell in zip(columns, row, strict=True):
                label = name.ljust(indent - 2) + "  "
                if name in texts:
                    self.print_text(cell, label=label, indent=indent)
                else:
                    self.print_line(label + cell)
            self.print()

    def print_tree(self, tree: Tree) -> None:
        """Print a tree: texts wrapped between words, ids and names in one piece."""
        longest = Measurement.get(self, self.options.update(max_width=_LOG_WIDTH), tree).minimum
        self.print(tree, width=max(self.width, longest), crop=False)

    def print_frame(self, frame: pl.DataFrame, *, drop: Sequence[str] = ()) -> None:
        """Print every row of a frame: long texts wrapped, NULL as a dash."""
        numeric = [name for name, dtype in frame.schema.items() if dtype.is_numeric()]
        rows = [[_cell(value) for value in row] for row in frame.iter_rows()]
        texts = [
            name
            for place, name in enumerate(frame.columns)
            if name not in _IDENTIFIERS and any(_is_text(row[place]) for row in rows)
        ]
        self.print_table(frame.columns, rows, right=numeric, texts=texts, drop=drop)


def _window_width() -> int | None:
    """The width of the window by `COLUMNS` or the terminal; None where there is no window."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) < 6 and int(columns):
        return int(columns)
    if sys.stdout.isatty():
        return os.get_terminal_size(sys.stdout.fileno()).columns or _TERMINAL_WIDTH
    return None


def _is_text(cell: str) -> bool:
    """Whether a cell is wrapped where it does not fit: it is long and has more than one word."""
    return len(cell) > _LONGEST_NAME and len(cell.split()) > 1


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if hasattr(value, "strftime"):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)


def rendered_text(render: Callable[[Terminal], None]) -> str:
    """What `render` prints to a terminal, as text."""
    text = StringIO()
    render(Terminal(text))
    return text.getvalue()


# One run.

_LOWEST: Final = 3
_SHOWN_CLAIMS: Final = 4
_SHOWN_EDITS: Final = 5
_LATEST_CONTRADICTED: Final = (
    "SELECT sample_id, claim, verdicts.step FROM latest.claims JOIN latest.verdicts "
    "USING (run_id, claim_id) WHERE verdict = 'contradicted'"
)
_CONTRADICTED: Final = (
    "SELECT sample_id, claim, verdicts.step FROM claims JOIN verdicts USING (run_id, claim_id) "
    "WHERE verdict = 'contradicted' AND run_id = '{run}'"
)


def print_run(
    terminal: Terminal, run: RunDocument, *, slices: bool = False, store: str = "", plan: str = ""
) -> None:
    """Print a run: metrics, gates, failures, judges, cost and the lowest samples.

    `slices` adds the means by metadata. Commands that are proposed name the store by the options
    in `store`; one that plans the next run has the arguments in `plan`.
    """
    terminal.print(f"\nrun {run.run_id}: {run.counts}")
    if run.failed:
        terminal.print_line(run.failed, "bold")
    if run.partial_line:
        terminal.print_line(run.partial_line, "yellow")
    if run.means:
        print_means(terminal, [*run.means, *(run.slices if slices else [])])
    else:
        if run.score_means:
            print_means(terminal, run.score_means)
        terminal.print_line(f"{run.no_means}\n")
    if run.untaught_line:
        terminal.print_line(f"{run.untaught_line}\n", "bold")
    print_gates(terminal, run.gates)
    _print_block(terminal, _failure_lines(run))
    _print_block(terminal, _unused_edit_lines(run.unused_edits))
    _print_block(terminal, [line for line in (run.vote_line, run.ambiguity_line) if line])
    _print_block(terminal, [line for lines in run.cascade_lines for line in lines])
    for line in run.judge_lines:
        terminal.print_line(line.text, "bold" if line.warning else "")
    if run.judge_lines:
        terminal.print()
    _print_block(terminal, run.call_lines)
    _print_block(terminal, [run.open_batches_line] if run.open_batches_line else [])
    lowest = run.lowest(_LOWEST)
    _print_lowest(terminal, lowest)
    terminal.print_line(f"store: {run.store.path}")
    commands = [*_next_commands(run, lowest, store), *([f"claimflow plan {plan}"] if plan else [])]
    if commands:
        terminal.print_line("\n  ".join(["next:", *commands]))


def _next_commands(run: RunDocument, lowest: Sequence[LowSample], store: str) -> Iterator[str]:
    if run.has_contradicted:
        latest = run.is_only_latest
        query = _LATEST_CONTRADICTED if latest else _CONTRADICTED.format(run=run.run_id)
        yield f'claimflow sql{store} "{query}"'
    if lowest:
        of_run = "" if newest_run(run.store) == run.run_id else f" --run {run.run_id}"
        sample = shlex.quote(lowest[0].sample_id)
        yield f"claimflow explain{store}{of_run} {'-- ' if sample[0] == '-' else ''}{sample}"


def print_gates(terminal: Terminal, outcomes: Sequence[Outcome]) -> None:
    """Print a line for every rule of a gate; nothing where there are none."""
    if outcomes:
        gate, value, interval, _, why = GATE_COLUMNS
        terminal.print_table(
            GATE_COLUMNS,
            map(gate_cells, outcomes),
            right=(value, interval),
            texts=(gate, why),
            drop=(interval,),
        )


def _print_block(terminal: Terminal, lines: Sequence[str]) -> None:
    """Print lines and an empty one below; nothing where there are none."""
    for line in lines:
        terminal.print_line(line)
    if lines:
        terminal.print()


def print_means(terminal: Terminal, rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows of `RunDocument.means` or `slices` as a table."""
    micro = [_micro_mean(row) for row in rows]
    right = ["mean", "95 % interval", *(["micro mean"] if any(micro) else [])]
    right += ["scored", "undefined", "failed", "of"]
    cells = []
    for row, pooled in zip(rows, micro, strict=True):
        field, value = row["slice_field"], row["slice_value"]
        name = row["name"] if field is None else f"{row['name']} [{field}={value}]"
        interval = format_interval(row["low"], row["high"])
        means = [format_number(row["mean"]), interval, *([pooled] if any(micro) else [])]
        counts = [f"{row[c]:,}" for c in ("n_scored", "n_undefined", "n_failed", "n")]
        cells.append([name, *means, *counts])
    terminal.print_table(
        ["metric", *right],
        cells,
        right=right,
        drop=("of", "failed", "micro mean", "undefined", "scored", "95 % interval"),
    )


def _micro_mean(row: dict[str, Any]) -> str:
    """The mean over all claims, if it differs from the mean over the samples; else empty."""
    micro = "" if row["micro_mean"] is None else format_number(row["micro_mean"])
    return "" if micro == format_number(row["mean"]) else micro


def _failure_lines(run: RunDocument) -> list[str]:
    """The number of failed rows of each step and kind, with one of the reasons."""
    failures, again = run.failures, run.failures_to_ask
    if not failures:
        return []
    more = f"; run again to ask for {again:,} of them" if again else ""
    count = format_count(sum(row["failed"] for row in failures), "row")
    lines = [f"{count} failed{more}"]
    for row in failures:
        kind = f" {row['failure']}" if row["failure"] else ""
        such = ", such as" if row["failed"] > 1 else ""
        reason = shorten(row["reason"], 160)
        lines.append(f"  {row['step']}: {row['failed']:,}{kind}{such}: {reason}")
    return lines


def _unused_edit_lines(unused: Sequence[UnusedEdit]) -> list[str]:
    if not unused:
        return []
    apply = "applies" if len(unused) == 1 else "apply"
    lines = [f"{format_count(len(unused), 'edit')} by hand no longer {apply}:"]
    for edit, why in unused[:_SHOWN_EDITS]:
        made = f"edit {edit.edit_id[:8]} by {edit.who}: {edit.why}"
        lines.append(f"  {edit.sample_id}, step {edit.step}: {why} ({made})")
    if len(unused) > _SHOWN_EDITS:
        lines.append(f"  ... and {len(unused) - _SHOWN_EDITS:,} more")
    return lines


def _print_lowest(terminal: Terminal, lowest: Sequence[LowSample]) -> None:
    if not lowest:
        return
    what = "claim metrics" if lowest[0].by_claims else "scores"
    several = len(lowest) > 1
    count, their = (
        (f"{len(lowest)} lowest samples", "their") if several else ("lowest sample", "its")
    )
    terminal.print_line(f"the {count}, by the mean of {their} {what}\n")
    for sample in lowest:
        terminal.print_line(f"  {sample.mean:.3f}  {sample.sample_id}", "bold")
        if sample.user_input:
            terminal.print_text(f"asked: {shorten(sample.user_input)}", indent=9)
        for claim in sample.claims[:_SHOWN_CLAIMS]:
            verdict = f"{claim['verdict']} ({claim['step']})"
            terminal.print_text(f"{verdict}: {shorten(claim['claim'])}", indent=9)
        if len(sample.claims) > _SHOWN_CLAIMS:
            terminal.print(f"         and {len(sample.claims) - _SHOWN_CLAIMS} more")
        terminal.print()


# Two runs compared.

_RIGHT: Final = frozenset({"n", "A", "B", "B - A", "95 % interval", "p", "p (Holm)", "claims"})


def print_comparison(terminal: Terminal, comparison: Comparison, *, limit: int) -> None:
    """Print metrics, then scores, then claims, of scores and claims at most `limit`."""
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        terminal.print_line(f"{side}  {run.run_id}  {comparison_text.run_facts_text(run)}")
    terminal.print(comparison_text.sample_counts_text(comparison))
    for line in comparison_text.step_change_lines(comparison):
        terminal.print_line(f"made differently: {line}")
    for line in comparison_text.one_sided_lines(comparison):
        terminal.print_line(line)
    _print_metric_differences(terminal, comparison)
    _print_score_differences(terminal, comparison, limit)
    _print_claim_changes(terminal, comparison, limit)


def _print_metric_differences(terminal: Terminal, comparison: Comparison) -> None:
    rows = comparison_text.metric_rows(comparison)
    if not rows:
        terminal.print("\nno metric was scored in both runs\n")
        return
    columns = len(comparison_text.METRIC_COLUMNS) - (not any(row[-1] for row in rows))
    names = comparison_text.METRIC_COLUMNS[:columns]
    unfailed = () if any("failed" in row[-1] for row in rows) else ("left out",)
    terminal.print_table(
        names,
        [row[:columns] for row in rows],
        right=_RIGHT,
        texts=("left out",),
        drop=("p", "n", *unfailed, "p (Holm)", "95 % interval", "A", "B"),
    )
    by = f"; one unit for each {comparison.by}" if comparison.by else ""
    terminal.print_text(f"{comparison_text.METRIC_NOTE}{by}", indent=0)
    terminal.print()


def _print_score_differences(terminal: Terminal, comparison: Comparison, limit: int) -> None:
    if comparison.scores.is_empty():
        terminal.print("no score changed\n")
        return
    terminal.print(_count_line(comparison.scores.height, limit, "score", "the largest"))
    rows = comparison_text.score_rows(comparison, limit)
    terminal.print_table(comparison_text.SCORE_COLUMNS, rows, right=_RIGHT)


def _print_claim_changes(terminal: Terminal, comparison: Comparison, limit: int) -> None:
    claims = comparison.claims
    if claims.is_empty():
        terminal.print("no claim and no verdict changed")
        return
    terminal.print(_count_line(claims.height, limit, "claim", "the first"))
    rows = comparison_text.cause_rows(comparison)
    terminal.print_table(comparison_text.CAUSE_COLUMNS, rows, right=_RIGHT)
    for row in claims.head(limit).iter_rows(named=True):
        change = f"{row['change']} ({row['step']}, {row['cause']})"
        result = comparison_text.claim_change_text(row)
        terminal.print_line(f"  {row['sample_id']}: {change}: {result}", "bold")
        if row["claim"]:
            terminal.print_line(f"      {shorten(row['claim'], 160)}")
        for side in "ab":
            if row[f"reason_{side}"]:
                reason = shorten(row[f"reason_{side}"], 160)
                terminal.print_line(f"      {side.upper()}: {reason}")


def _count_line(count: int, limit: int, thing: str, which: str) -> str:
    rest = f", {which} {limit:,} of them below" if count > limit else ""
    return f"{format_count(count, thing)} changed{rest}"


# Judges compared with labels.


def print_calibration(terminal: Terminal, found: RunCalibration) -> None:
    """Print for each step: how much is labelled, how far judge and people agree, corrections."""
    terminal.print_line(f"run {found.run_id}\n")
    for one in found.found:
        _print_step_calibration(terminal, one, found.by)
        if one.kind in ("verdicts", "checks") and one.step in found.earlier:
            terminal.print_line(f"  {earlier_calibration_text(found.earlier[one.step])}")
        terminal.print()
    fresh = {one.step for one in found.found if one.agreement}
    for step, before in found.earlier.items():
        if step not in fresh:
            terminal.print_line(f"verdicts of step {step}: none of its verdicts is labelled")
            terminal.print_line(f"  {earlier_calibration_text(before)}")


def _print_step_calibration(terminal: Terminal, one: StepCalibration, by: str | None) -> None:
    metric = f" {one.metric}" if one.metric else ""
    terminal.print_line(f"{one.kind} of step {one.step}{metric}", "bold")
    for line in (*_label_counts(one), *_annotator_lines(one.annotators)):
        terminal.print_line(f"  {line}")
    if one.good is not None:
        terminal.print_line(f"  good: {format_estimate(one.good)}")
    if one.agreement is not None:
        _print_agreement(terminal, one.agreement)
    if one.ranks is not None:
        terminal.print_line(f"  {_rank_line(one.ranks)}")
    _print_slices(terminal, one, by)
    _print_reliability(terminal, one)
    _print_corrected(terminal, one)


def _label_counts(one: StepCalibration) -> Iterator[str]:
    line = f"{one.labelled:,} of {format_count(one.rows, 'row')} labelled"
    if one.texts < one.labelled:
        line += f" by labels of {format_count(one.texts, 'text')}"
    if one.divided:
        line += f", people disagree on {one.divided:,}"
    if one.failed:
        line += f", the judge failed on {one.failed:,}"
    if one.adjudicated:
        line += f", {one.adjudicated:,} adjudicated"
    yield line
    if one.seen:
        yield f"{format_count(one.seen, 'text')} labelled after the judge's result was shown"
    if not one.at_random:
        yield "not drawn at random: agreement is that of the rows that were labelled, not of all"


def _annotator_lines(people: AnnotatorAgreement) -> Iterator[str]:
    yield ", ".join(f"{name}: {format_count(n, 'label')}" for name, n in people.labels.items())
    if people.shared:
        alpha = format_estimate(people.alpha)
        yield f"agreement among people, {people.shared:,} shared: alpha {alpha}"
    for pair in people.pairs:
        kappa = f"kappa {format_estimate(pair.kappa)}" if pair.kappa else ""
        agreement = _rank_line(pair.ranks) if pair.ranks else kappa
        yield f"{pair.one} and {pair.other}, {pair.n:,} shared: {agreement}"


def _rank_line(ranks: RankCorrelations) -> str:
    spearman, kendall = format_estimate(ranks.spearman), format_estimate(ranks.kendall)
    return f"Spearman {spearman}, Kendall {kendall}, {format_count(ranks.n, 'sample')}"


def _print_agreement(terminal: Terminal, one: Agreement) -> None:
    rows = [
        [name, format_estimate(figure)]
        for name, figure in (
            ("accuracy", one.accuracy),
            ("balanced accuracy", one.balanced_accuracy),
            ("Cohen's kappa", one.kappa),
            ("Krippendorff's alpha", one.alpha),
        )
    ]
    _print_figures(terminal, [f"judge and people, n = {one.n:,}", "95 % interval"], rows)
    confusion = [
        [label, *(f"{count:,}" for count in counts), format_estimate(rate)]
        for label, counts, rate in zip(one.labels, one.confusion, one.base_rates, strict=True)
    ]
    _print_figures(terminal, ["people \\ judge", *one.labels, "base rate"], confusion)


def _print_slices(terminal: Terminal, one: StepCalibration, by: str | None) -> None:
    if not one.slices:
        return
    columns = {
        "verdicts": ["n", "accuracy", "kappa"],
        "checks": ["n", "accuracy", "kappa"],
        "claims": ["good"],
        "samples": ["n", "Spearman", "Kendall"],
    }[one.kind]
    rows = [["(none)" if a.value is None else a.value, *_slice_cells(a)] for a in one.slices]
    _print_figures(terminal, [by or "check", *columns], rows)


def _slice_cells(one: Slice) -> list[str]:
    if one.good:
        return [format_estimate(one.good)]
    if one.agreement:
        found = one.agreement
        return [f"{found.n:,}", format_estimate(found.accuracy), format_estimate(found.kappa)]
    if one.ranks:
        ranks = one.ranks
        return [f"{ranks.n:,}", format_estimate(ranks.spearman), format_estimate(ranks.kendall)]
    return ["0", "-", "-"]


def _print_reliability(terminal: Terminal, one: StepCalibration) -> None:
    if one.reliability is None:
        return
    rows = [
        [
            f"{a.low:.1f} to {a.high:.1f}",
            f"{a.n:,}",
            format_number(a.mean),
            format_estimate(a.entailed),
        ]
        for a in one.reliability.bins
    ]
    _print_figures(terminal, ["p entailed", "n", "mean", "entailed by people"], rows)
    off, brier = format_number(one.reliability.off), format_number(one.reliability.brier)
    terminal.print(f"  off by {off} on average, Brier score {brier}\n")


def _print_corrected(terminal: Terminal, one: StepCalibration) -> None:
    if not one.corrected:
        return
    rows = [
        [
            c.what + (" by sample" if c.by else ""),
            c.method,
            format_number(c.judged),
            format_estimate(c.corrected),
        ]
        for c in one.corrected
    ]
    _print_figures(terminal, ["mean of", "corrected by", "as judged", "corrected"], rows)
    if one.drawing is not None:
        draw, labelled, drawn = one.drawing
        line = f"prediction-powered by the draw {draw}: {labelled:,} of {drawn:,} labelled"
        if labelled < drawn:
            line += ", assuming that the rest are like them"
        terminal.print_line(f"  {line}")


def _print_figures(
    terminal: Terminal, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """A table whose first column names the rows."""
    terminal.print_table(columns, rows, right=columns[1:])


# The claims of a run, checked without a judge.


def print_claim_audit(terminal: Terminal, audit: ClaimAudit) -> None:
    """Print what was found in the claims of each step, with examples."""
    terminal.print_line(f"run {audit.run_id}: {audited_samples_text(audit)}")
    if not audit.steps:
        terminal.print_line("none of its steps makes claims")
    for step in audit.steps:
        terminal.print_line(f"\n{audit_step_text(step)}", "bold")
        for one in step.checks:
            terminal.print_line(f"  {audit_finding_text(one)}")
            for example in one.examples:
                terminal.print_line(
                    f"    {example.sample_id}: {audit_example_text(one.check, example)}"
                )
            if one.found > len(one.examples):
                terminal.print_line(f"    and {one.found - len(one.examples):,} more")
