"""A run as one HTML page that needs no network."""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from claimflow.flows import __version__
from claimflow.flows.quality.calibration import CorrectedStep, corrected_steps
from claimflow.flows.quality.claim_audit import ClaimAudit
from claimflow.flows.quality.comparison import Comparison, compare
from claimflow.flows.quality.metric_differences import RunPair
from claimflow.flows.report import comparison_text, run_text
from claimflow.flows.report.formatting import escape_controls, format_count
from claimflow.flows.report.markdown import COMPARED_UP_TO, calls_text, metric_name
from claimflow.flows.report.overview import SAMPLES, Overview, StepMetric, overview, scored_values
from claimflow.flows.report.plots import (
    comparison_svg,
    distribution_svg,
    reliability_svgs,
    trend_svg,
)
from claimflow.flows.report.run_text import (
    GATE_COLUMNS,
    JudgeLine,
    cascade_lines,
    gate_cells,
    judge_lines,
    run_counts_text,
    vote_text,
)
from claimflow.flows.report.samples import (
    SampleTrace,
    changed_samples,
    ranked_samples,
    traced_samples,
)
from claimflow.flows.report.templates import asset, content_policy, csp_hash, render_template
from claimflow.flows.store.results import run_steps, sample_count
from claimflow.flows.store.runs import PREVIOUS, find_run
from claimflow.flows.store.store import Store
from claimflow.stages.registry import LOWER_IS_BETTER

# The samples of a run as the page's script reads them, with what changed since another run.


def sample_entries(
    store: Store,
    run_id: str,
    means: Sequence[tuple[str, float | None]],
    comparison: Comparison | None = None,
) -> Iterator[dict[str, Any]]:
    """Each sample with its mean, texts, claims, scores, sentences and calls.

    With a comparison those that changed have `changes`: the claims and scores that did, and
    under `before` what the first run had otherwise. Thousands of calls begin with one long system
    message: each is told once, and later by its number among them, from 0.
    """
    systems: dict[str, int] = {}
    changes = _changes(comparison) if comparison else {}
    earlier = (
        traced_samples(store, comparison.a.run_id, [name for name, _ in means if name in changes])
        if comparison
        else iter(())
    )
    before = next(earlier, None)
    of_run = traced_samples(store, run_id, [name for name, _ in means])
    for (_, mean), one in zip(means, of_run, strict=True):
        name = one.sample["sample_id"]
        entry = _entry(one) | {"mean": mean}
        if name in changes:
            entry["changes"] = changes[name]
            # The first run may lack the sample.
            if before is not None and before.sample["sample_id"] == name:
                entry["before"] = _otherwise(_entry(before), entry)
                before = next(earlier, None)
        _shorten(entry, systems)
        yield entry


def _entry(one: SampleTrace) -> dict[str, Any]:
    return {
        **one.sample,
        "claims": one.claims,
        "scores": one.scores,
        "sentences": one.sentences,
        "calls": one.calls,
    }


def _otherwise(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What of an entry is not the same now; calls that both name are in one of them."""
    known = {call["call_id"] for call in now["calls"]}
    calls = [call for call in before["calls"] if call["call_id"] not in known]
    return {key: value for key, value in before.items() if value != now[key]} | {"calls": calls}


def _shorten(entry: dict[str, Any], systems: dict[str, int]) -> None:
    """Put numbers in place of system messages that were told before."""
    for call in [*entry["calls"], *entry.get("before", {"calls": []})["calls"]]:
        text = call["system"]
        if text in systems:
            call["system"] = systems[text]
        elif text is not None:
            systems[text] = len(systems)


def _changes(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """By sample: what became of it, of its claims and of its scores."""
    found: dict[str, dict[str, Any]] = {}

    def of(name: str) -> dict[str, Any]:
        return found.setdefault(name, {"state": "same", "fields": [], "claims": [], "scores": []})

    for row in comparison.samples.iter_rows(named=True):
        of(row["sample_id"]).update(state=row["state"], fields=row["fields"])
    for kind, table in (("claims", comparison.claims), ("scores", comparison.scores)):
        for row in table.iter_rows(named=True):
            of(row.pop("sample_id"))[kind].append(row)
    return found


# Samples as the page carries them: JSON, compressed, in letters that mean nothing to HTML.


_GZIP: Final = 16 + zlib.MAX_WBITS
"""What tells zlib to write gzip's header, which browsers undo without a library."""

_DIGITS: Final = 6


class Payload(NamedTuple):
    """`text` is base64 of gzip of a JSON list of the first `held` entries."""

    text: str
    held: int


def pack_entries(entries: Iterable[dict[str, Any]], *, most: int) -> Payload:
    """As many of the entries, in their order, as `most` letters hold; the first always fits.

    One entry is in memory at a time. Numbers have six digits behind the point. Characters that
    would steer whatever shows them are replaced one for one, so that positions stay.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    parts = [packer.compress(b"[")]
    size = count = 0
    for entry in entries:
        before = packer.copy()
        text = json.dumps(_shown_payload(entry), ensure_ascii=False, separators=(",", ":"))
        part = packer.compress(f"{',' if count else ''}{text}".encode())
        # Nothing may be held back, or the size would not be known: five bytes an entry.
        part += packer.flush(zlib.Z_SYNC_FLUSH)
        # Four letters stand for three bytes.
        if count and (size + len(part)) * 4 > most * 3:
            packer = before
            break
        parts.append(part)
        size += len(part)
        count += 1
    parts.append(packer.compress(b"]") + packer.flush())
    return Payload(base64.b64encode(b"".join(parts)).decode("ascii"), count)


def _shown_payload(value: Any) -> Any:
    if isinstance(value, str):
        return escape_controls(value)
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {escape_controls(key): _shown_payload(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown_payload(one) for one in value]
    return value


# The page of a run: what was found, plots, and every sample that there is room for.


_SCRIPTS: Final = ("texts.js", "sample.js", "list.js")

_MOST: Final = 4_000_000
"""Letters for the samples; with the rest of the page below 5 MB."""


def html_report(
    store: Store, run_id: str, *, against: str | None = None, samples: int = SAMPLES
) -> str:
    """The report of a run on record as one HTML page, which opens from a file or a server.

    `against` is the run before, to show what changed since; both are ids. At most `samples`
    samples are shown, and less where they would take more than 4 MB: those that changed
    first, then those with the lowest scores.
    """
    found = overview(store, run_id)
    comparison = compare(store, RunPair(against, run_id)) if against else None
    first = changed_samples(comparison) if comparison else []
    ranked = ranked_samples(store, run_id, samples, before=first)
    labelled = corrected_steps(store, run_id)
    payload = pack_entries(sample_entries(store, run_id, ranked.rows(), comparison), most=_MOST)
    return _rendered(
        head=found.head,
        version=__version__,
        counts=run_counts_text(found.steps),
        metrics=list(_metrics(store, found)),
        slices=_slices(found),
        gates=[(one.outcome, gate_cells(one)) for one in found.gates],
        judges=list(_judges(store, found, labelled)),
        reliability=[_svg(one) for one in reliability_svgs(labelled)],
        steps=found.steps.rows(named=True),
        failures=found.failures.rows(named=True),
        audit=_audit(found.claims),
        calls=[calls_text(row) for row in found.calls.iter_rows(named=True)],
        payload=payload,
        shown=_shown(payload, sample_count(found.steps), compared=comparison is not None),
        comparison=_compared(comparison) if comparison else None,
    )


def _shown(payload: Payload, every: int, *, compared: bool) -> str:
    """How many samples are in the page, and how to have others."""
    if payload.held == every:
        first = "those that changed" if compared else "those with the lowest scores"
        return f"All {format_count(every, 'sample')}, {first} first."
    which = "those that changed, then those" if compared else "those"
    return (
        f"{payload.held:,} of {format_count(every, 'sample')}: {which} with the lowest scores. "
        f"{every - payload.held:,} are left out; the figures above are over all. "
        "--samples N says how many to show, within 4 MB."
    )


def _metrics(store: Store, found: Overview) -> Iterator[dict[str, Any]]:
    """Every mean over all samples with its plots."""
    whole = [row for row in found.summaries.rows(named=True) if row["slice_field"] is None]
    for row in whole:
        metric = row["metric"]
        of = StepMetric(row["scores"], metric)
        values = scored_values(store, found.head.run_id, of)
        yield row | {
            "name": metric_name(row, found.summaries),
            "lower": metric in LOWER_IS_BETTER,
            "distribution": _svg(distribution_svg(values, metric)),
            "trend": _svg(trend_svg(found.past.get(of, []), metric)),
        }


def _slices(found: Overview) -> dict[str, list[dict[str, Any]]]:
    """By metadata field: a row for each value and metric."""
    by_field: dict[str, list[dict[str, Any]]] = {}
    for row in found.summaries.rows(named=True):
        if row["slice_field"] is not None:
            whole = row | {"slice_field": None}
            name = metric_name(whole, found.summaries)
            by_field.setdefault(row["slice_field"], []).append(row | {"name": name})
    return by_field


def _judges(store: Store, found: Overview, labelled: list[CorrectedStep]) -> Iterator[JudgeLine]:
    """What is known of the judges: cascades, votes, canaries, labels, calibrations."""
    for cascade in found.cascades:
        yield from map(JudgeLine, cascade_lines(cascade))
    votes = vote_text(*found.votes)
    if votes:
        yield JudgeLine(votes)
    yield from judge_lines(store, found.head.run_id, labelled)


def _audit(found: ClaimAudit) -> dict[str, Any]:
    return {
        "samples": run_text.audited_samples_text(found),
        "steps": [(run_text.audit_step_text(step), step.checks) for step in found.steps],
        "found": run_text.audit_finding_text,
        "example": run_text.audit_example_text,
    }


def _compared(found: Comparison) -> dict[str, Any]:
    return {
        "a": found.a,
        "a_words": comparison_text.run_facts_text(found.a),
        "b_words": comparison_text.run_facts_text(found.b),
        "samples": comparison_text.sample_counts_text(found),
        "steps": [
            comparison_text.step_change_text(s) for s in comparison_text.changed_steps(found)
        ],
        "only": list(comparison_text.one_sided_lines(found)),
        "columns": comparison_text.METRIC_COLUMNS,
        "metrics": [
            (one.finding, comparison_text.metric_cells(one, units=False)) for one in found.metrics
        ],
        "reading": comparison_text.METRIC_NOTE,
        "causes": found.causes.rows(),
        "plot": _svg(comparison_svg(found)),
    }


def _svg(drawn: str | None) -> Markup | None:
    """A plot as markup: the one thing in the page that was not escaped here, but by Vega."""
    return None if drawn is None else Markup(drawn)  # noqa: S704


def _rendered(**facts: Any) -> str:
    style = asset("claimflow.flows.report", "style.css")
    script = Markup("").join(asset("claimflow.flows.report", name) for name in _SCRIPTS)
    allowed = content_policy(
        f"script-src {csp_hash(script)}",
        f"style-src {csp_hash(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    facts |= {"style": style, "script": script, "policy": allowed, "gate_columns": GATE_COLUMNS}
    return render_template("claimflow.flows.report", "page.html.j2", facts)


# The reports of nights: a folder with a page for each run.


def write_report(store: Store, run_id: str, folder: Path) -> Path:
    """Write the report of a run as `folder`/RUN.html, whole or not at all; returns where.

    It is held against the run before of its pipeline, where there is one. Raises `OSError`
    where the folder cannot be written.
    """
    before = find_run(store, PREVIOUS, before=run_id)
    if sample_count(run_steps(store, run_id)) > COMPARED_UP_TO:
        before = None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_id}.html"
    part = path.with_suffix(".part")
    part.write_text(html_report(store, run_id, against=before), "utf-8")
    part.replace(path)
    return path
