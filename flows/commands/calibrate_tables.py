"""A calibration as it is printed on a terminal."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from claimflow.flows.commands.answers import shown
from claimflow.flows.quality.agreement import Agreement, AnnotatorAgreement, RankCorrelations
from claimflow.flows.quality.calibration import EarlierCalibration, RunCalibration
from claimflow.flows.quality.step_calibration import Slice, StepCalibration
from claimflow.flows.report.phrases import earlier_words, figure_words
from claimflow.flows.report.text import counted, number


def print_calibration(console: Console, found: RunCalibration) -> None:
    """Print part by part: who labelled what, agreement, and what is made of it."""
    console.print(shown(f"run {found.run_id}\n"), soft_wrap=True)
    for one in found.found:
        _print_part(console, one, found.by)
        if one.kind == "verdicts" and one.step in found.earlier:
            _print_earlier(console, found.earlier[one.step])
        console.print()
    fresh = {one.step for one in found.found if one.kind == "verdicts" and one.agreement}
    for step, before in found.earlier.items():
        if step not in fresh:
            console.print(shown(f"verdicts of step {step}: no label is about them"))
            _print_earlier(console, before)


def _print_part(console: Console, one: StepCalibration, by: str | None) -> None:
    metric = f" {one.metric}" if one.metric else ""
    console.print(shown(f"{one.kind} of step {one.step}{metric}", style="bold"), soft_wrap=True)
    for line in _counts(one):
        console.print(shown(f"  {line}"), soft_wrap=True)
    for line in _people(one.annotators):
        console.print(shown(f"  {line}"), soft_wrap=True)
    if one.good is not None:
        console.print(shown(f"  good: {figure_words(one.good)}"))
    if one.agreement is not None:
        _print_agreement(console, one.agreement)
    if one.ranks is not None:
        console.print(shown(f"  {_ranks(one.ranks)}"), soft_wrap=True)
    _print_slices(console, one, by)
    _print_reliability(console, one)
    _print_corrected(console, one)


def _counts(one: StepCalibration) -> Iterator[str]:
    words = f"{one.labelled:,} of {counted(one.rows, 'row')} labelled"
    if one.divided:
        words += f", people are divided on {one.divided:,}"
    if one.failed:
        words += f", the judge gave nothing on {one.failed:,}"
    yield words
    if not one.at_random:
        yield "not drawn at random: agreement is that of the rows that were labelled, not of all"


def _people(people: AnnotatorAgreement) -> Iterator[str]:
    yield ", ".join(f"{name}: {counted(n, 'label')}" for name, n in people.labels.items())
    if people.shared:
        words = figure_words(people.alpha)
        yield f"people among themselves, {people.shared:,} shared: alpha {words}"
    for pair in people.pairs:
        said = f"kappa {figure_words(pair.kappa)}" if pair.kappa else ""
        if pair.ranks:
            said = _ranks(pair.ranks)
        yield f"{pair.one} and {pair.other}, {pair.n:,} shared: {said}"


def _ranks(ranks: RankCorrelations) -> str:
    spearman, kendall = figure_words(ranks.spearman), figure_words(ranks.kendall)
    return f"Spearman {spearman}, Kendall {kendall}, {counted(ranks.n, 'sample')}"


def _print_agreement(console: Console, one: Agreement) -> None:
    rows = [
        [name, figure_words(figure)]
        for name, figure in (
            ("accuracy", one.accuracy),
            ("balanced accuracy", one.balanced_accuracy),
            ("Cohen's kappa", one.kappa),
            ("Krippendorff's alpha", one.alpha),
        )
    ]
    _print_table(console, [f"judge and people, n = {one.n:,}", "95 % interval"], rows)
    confusion = [
        [label, *(f"{count:,}" for count in counts), figure_words(rate)]
        for label, counts, rate in zip(one.labels, one.confusion, one.base_rates, strict=True)
    ]
    _print_table(console, ["people \\ judge", *one.labels, "base rate"], confusion)


def _print_slices(console: Console, one: StepCalibration, by: str | None) -> None:
    if not one.slices:
        return
    columns = {
        "verdicts": ["n", "accuracy", "kappa"],
        "claims": ["good"],
        "samples": ["n", "Spearman", "Kendall"],
    }[one.kind]
    rows = [["(none)" if a.value is None else a.value, *_slice_cells(a)] for a in one.slices]
    _print_table(console, [by or "", *columns], rows)


def _slice_cells(one: Slice) -> list[str]:
    if one.good:
        return [figure_words(one.good)]
    if one.agreement:
        told = one.agreement
        return [f"{told.n:,}", figure_words(told.accuracy), figure_words(told.kappa)]
    if one.ranks:
        ranks = one.ranks
        return [f"{ranks.n:,}", figure_words(ranks.spearman), figure_words(ranks.kendall)]
    return ["0", "-", "-"]


def _print_reliability(console: Console, one: StepCalibration) -> None:
    if one.reliability is None:
        return
    rows = [
        [f"{a.low:.1f} to {a.high:.1f}", f"{a.n:,}", number(a.mean), figure_words(a.entailed)]
        for a in one.reliability.bins
    ]
    _print_table(console, ["p entailed", "n", "mean", "entailed by people"], rows)
    off, brier = number(one.reliability.off), number(one.reliability.brier)
    console.print(f"  off by {off} on average, Brier score {brier}\n")


def _print_corrected(console: Console, one: StepCalibration) -> None:
    if not one.corrected:
        return
    rows = [
        [
            c.what + (" by sample" if c.by else ""),
            c.method,
            number(c.judged),
            figure_words(c.corrected),
        ]
        for c in one.corrected
    ]
    _print_table(console, ["mean of", "corrected by", "as judged", "corrected"], rows)
    if one.drawing is not None:
        draw, labelled, drawn = one.drawing
        words = f"prediction-powered by the draw {draw}: {labelled:,} of {drawn:,} labelled"
        if labelled < drawn:
            words += ", and the rest taken to be like them"
        console.print(shown(f"  {words}"), soft_wrap=True)


def _print_earlier(console: Console, one: EarlierCalibration) -> None:
    console.print(shown(f"  {earlier_words(one)}"), soft_wrap=True)


def _print_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(shown(name), justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(shown, row))
    console.print(table)
