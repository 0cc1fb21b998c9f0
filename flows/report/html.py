"""A run as one HTML page that needs no network."""

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from claimflow.flows import __version__
from claimflow.flows.files import refuse_special
from claimflow.flows.quality.claim_audit import ClaimAudit
from claimflow.flows.quality.claim_changes import step_provenance
from claimflow.flows.quality.comparison import Comparison, compare
from claimflow.flows.quality.metric_differences import MetricDifference
from claimflow.flows.report import comparison_text, run_text
from claimflow.flows.report.answers import changed_answers
from claimflow.flows.report.formatting import escape_controls, format_count
from claimflow.flows.report.page_charts import (
    differences_chart,
    paired_charts,
    reliability_charts,
    slice_reliability_charts,
    small_distribution,
    small_trend,
)
from claimflow.flows.report.plots import distribution_chart
from claimflow.flows.report.run_document import (
    MAX_COMPARED,
    MAX_SAMPLES,
    RunDocument,
    StepMetric,
    scored_values,
)
from claimflow.flows.report.run_text import GATE_COLUMNS, JudgeLine, gate_cells
from claimflow.flows.report.samples import (
    changed_samples,
    listed_samples,
    matching_sample,
    ranked_samples,
    traced_samples,
)
from claimflow.flows.report.slice_tables import NOTE as SLICE_NOTE
from claimflow.flows.report.slice_tables import SIGNS as SLICE_SIGNS
from claimflow.flows.report.slice_tables import slice_tables
from claimflow.flows.report.templates import address, render_page
from claimflow.flows.store.results import metric_kinds
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Verdict

_MAX_PAYLOAD: Final = 4_000_000
"""Characters for the samples; the rest of the page is about 1 MB, most of it Vega-Lite."""

MAX_LISTED: Final = 20_000
"""Samples in the list of a report in `claimflow view`."""

_MAX_LIST: Final = 16_000_000
"""Characters for that list."""

_SCRIPTS: Final = (
    "texts", "csv", "markdown", "differences", "tables", "sample", "rows", "filters", "list",
    "address", "explorer",
)  # fmt: skip

_GZIP: Final = 16 + zlib.MAX_WBITS
"""Makes zlib write the header of gzip, which browsers can decompress without a library."""

_DIGITS: Final = 6


def html_report(
    run: RunDocument,
    *,
    against: str | Comparison | None = None,
    samples: int = MAX_SAMPLES,
    viewer: bool = False,
) -> str:
    """The report of a run as one HTML page, which opens from a file or a server.

    `against` is the id of an earlier run, or the comparison with one, to show what changed since.
    At most `samples` samples are included, and fewer where they would take more than 4 MB: those
    that changed first, then those with the lowest scores.

    With `viewer` it is a page of `claimflow view`: it has links to the others, lists up to 20,000
    samples, and asks the server for the one that is opened.
    """
    comparison = compare(run.store, against, run.run_id) if isinstance(against, str) else against
    first = changed_samples(comparison) if comparison else []
    most = MAX_LISTED if viewer else samples
    ranked = ranked_samples(run.store, run.run_id, most, before=first).rows()
    payload = (
        pack_entries(_listed(run, ranked, comparison), most=_MAX_LIST)
        if viewer
        else pack_entries(
            sample_entries(run.store, run.run_id, ranked, comparison), most=_MAX_PAYLOAD
        )
    )
    with run.store.reading() as connection:
        lower = metric_kinds(connection, run.run_id).lower
    metrics = list(_metrics(run, lower))
    earlier = RunDocument(run.store, comparison.a.run_id).slices if comparison else ()
    # The worst samples of a metric come first.
    sorts = defaultdict(
        lambda: "score", {one["name"]: "-score" if one["lower"] else "score" for one in metrics}
    )
    sliced = list(dict.fromkeys(row["slice_field"] for row in run.slices))
    facts = {
        "head": run.head,
        "viewer": viewer,
        "version": __version__,
        "counts": run.counts,
        "partial": run.partial_line,
        "no_means": run.no_means,
        "metrics": metrics,
        "sorts": sorts,
        "slice_hint": None if run.slices else _slice_hint(run),
        "slices": list(slice_tables(run.slices, run.means, frozenset(lower), earlier)),
        "slice_reliability": {
            field: slice_reliability_charts(run.corrected, field) for field in sliced
        },
        "sliced": sliced,
        "slice_note": SLICE_NOTE,
        "slice_signs": SLICE_SIGNS,
        "untaught": run.untaught_line,
        "gate_columns": GATE_COLUMNS,
        "gates": [(one.metric, one.outcome, gate_cells(one)) for one in run.gates],
        "judges": list(_judge_lines(run)),
        "reliability": reliability_charts(run.corrected),
        "steps": run.steps.rows(named=True),
        "failures": run.failures,
        "audit": _audit(run.claim_audit),
        "calls": run.call_lines,
        "payload": payload,
        "verdict_steps": _verdict_steps(run),
        "every": payload.held == run.samples,
        "shown": _sample_note(payload, run.samples, compared=comparison is not None, viewer=viewer),
        "comparison": _comparison(run.store, comparison, first) if comparison else None,
        # Its script fills in the scores of the samples that match.
        "spread": distribution_chart([], width=400, height=90),
    }
    scripts = [f"{name}.js" for name in _SCRIPTS]
    directives = ["img-src data:", *(["connect-src 'self'"] if viewer else [])]
    scored = any(mean is not None for _, mean in ranked)
    drawn = [one[kind] for one in metrics for kind in ("distribution", "trend")]
    return render_page(
        "page.html.j2",
        facts,
        *directives,
        style="style.css",
        scripts=scripts,
        charts=scored or any(drawn),
        tables=True,
    )


def write_report(run: RunDocument, folder: Path) -> Path:
    """Write the report of a run as `folder`/RUN.html, whole or not at all; returns its path.

    It shows what changed since the run before of its pipeline, if there is one. Raises `OSError`
    where the folder cannot be written.
    """
    before = run.run_before if run.samples <= MAX_COMPARED else None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run.run_id}.html"
    refuse_special(path)
    part = path.with_suffix(".part")
    part.write_text(html_report(run, against=before), "utf-8")
    part.replace(path)
    return path


def remove_report(run_id: str, folder: Path) -> bool:
    """Remove the report of a run from a folder, if claimflow wrote it; returns whether it did."""
    path = folder / f"{run_id}.html"
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as page:
        if f"{run_id}</title>".encode() not in page.read(_HEAD):
            return False
    path.unlink()
    return True


_HEAD: Final = 4096
"""Bytes of a page in which its title is."""


def _sample_note(payload: "Payload", every: int, *, compared: bool, viewer: bool) -> str:
    """How many samples are in the page, and how to include others."""
    if payload.held == every:
        first = "those that changed" if compared else "those with the lowest scores"
        return f"All {format_count(every, 'sample')}, {first} first."
    which = "those that changed, then those" if compared else "those"
    return (
        f"{payload.held:,} of {format_count(every, 'sample')}: {which} with the lowest scores. "
        f"{every - payload.held:,} are left out; the figures above are over all. "
        + ("SQL finds them." if viewer else "--samples N says how many to show, within 4 MB.")
    )


def _metrics(run: RunDocument, lower: Collection[str]) -> Iterator[dict[str, Any]]:
    """Every mean over all samples, with its plots."""
    for row in run.means:
        metric = StepMetric(row["scores"], row["metric"])
        values = scored_values(run.store, run.run_id, metric)
        yield row | {
            "lower": metric.metric in lower,
            "distribution": small_distribution(
                values, metric.metric, partial(_scores_between, row["name"])
            ),
            "trend": small_trend(run.past.get(metric, []), metric.metric),
        }


def _scores_between(metric: str, low: float, high: float) -> str:
    """The address of the samples with a score from `low` to `high`, as rounded in the page."""
    bounds = {"from": str(round(low, _DIGITS)), "to": str(round(high, _DIGITS))}
    return address({"metric": metric, **bounds, "sort": "score"})


def _judge_lines(run: RunDocument) -> Iterator[JudgeLine]:
    """Cascades, votes, canaries, corrected figures and calibrations."""
    yield from (JudgeLine(line) for lines in run.cascade_lines for line in lines)
    if run.vote_line:
        yield JudgeLine(run.vote_line)
    if run.ambiguity_line:
        yield JudgeLine(run.ambiguity_line)
    yield from run.judge_lines


def _slice_hint(run: RunDocument) -> str | None:
    """How to get means by metadata, where samples have fields with few values."""
    with run.store.reading() as connection:
        rows = connection.execute(
            "SELECT metadata::VARCHAR FROM samples WHERE run_id = $run LIMIT 1000",
            {"run": run.run_id},
        ).fetchall()
    values: dict[str, list[str]] = defaultdict(list)
    for (text,) in rows:
        for field, value in json.loads(text).items():
            if isinstance(value, str | int | bool):
                values[field].append(str(value))
    # An id, which no two samples share, is no field to slice by.
    fields = [
        field
        for field, found in values.items()
        if 1 < len(set(found)) <= _MAX_SLICES and len(set(found)) < len(found)
    ]
    if not fields:
        return None
    named = ", ".join(fields[:5])
    return (
        "There are no means by metadata: the step that uses summarize_scores names the fields, as "
        f"in slices: [{fields[0]}]. Fields with few values: {named}."
    )


_MAX_SLICES: Final = 30


def _verdict_steps(run: RunDocument) -> dict[str, list[str]]:
    """The steps whose verdicts the scores of each metric are made of, by the name of the metric."""
    with run.store.reading() as connection:
        steps = step_provenance(connection, run.run_id)
    by_artifact = {one.artifact_id: step for step, one in steps.items()}

    def behind(step: str) -> Iterator[str]:
        for wire in steps[step].inputs.values():
            for artifact in wire.values() if isinstance(wire, dict) else [wire]:
                made = by_artifact.get(artifact)
                if made is not None:
                    yield made
                    yield from behind(made)

    return {
        row["name"]: [
            one for one in dict.fromkeys(behind(row["scores"])) if steps[one].kind == Verdict.table
        ]
        for row in run.means
        if row["scores"] in steps
    }


def _audit(audit: ClaimAudit) -> dict[str, Any]:
    return {
        "samples": run_text.audited_samples_text(audit),
        "steps": [(run_text.audit_step_text(step), step.checks) for step in audit.steps],
        "found": run_text.audit_finding_text,
        "example": run_text.audit_example_text,
    }


def _comparison(store: Store, comparison: Comparison, ranked: Sequence[str]) -> dict[str, Any]:
    """What changed; `ranked` are the samples of run b that changed, in the order of the list."""
    rows = comparison_text.metric_rows(comparison)
    links = {one.metric: _difference_state(one) for one in comparison.metrics}
    return {
        "a": comparison.a,
        "a_facts": comparison_text.run_facts_text(comparison.a),
        "b_facts": comparison_text.run_facts_text(comparison.b),
        "samples": comparison_text.sample_counts_text(comparison),
        "steps": comparison_text.step_change_lines(comparison),
        "only": list(comparison_text.one_sided_lines(comparison)),
        "columns": comparison_text.METRIC_COLUMNS,
        "metrics": [
            (links[one.metric], one.finding, row)
            for one, row in zip(comparison.metrics, rows, strict=True)
        ],
        "note": comparison_text.METRIC_NOTE,
        "causes": comparison_text.cause_rows(comparison),
        "plot": differences_chart(comparison, lambda one: address(links[one.metric])),
        "paired": paired_charts(
            comparison, lambda metric, sample: address(links[metric] | {"sample": sample})
        ),
        "answers": changed_answers(store, comparison, ranked),
    }


def _difference_state(metric: MetricDifference) -> dict[str, str]:
    """The state of the list that shows the samples of a metric, those that became worst first."""
    sort = "-difference" if metric.lower_is_better else "difference"
    return {"metric": metric.metric, "sort": sort}


# The samples, as the script of the page reads them.


def sample_entry(
    store: Store, run_id: str, sample_id: str, comparison: Comparison | None
) -> dict[str, Any] | None:
    """One sample as the script of the page reads it; None for an unknown id.

    `sample_id` may have its control characters replaced, as in the page.
    """
    named = matching_sample(store, run_id, sample_id)
    if named is None:
        return None
    (entry,) = sample_entries(store, run_id, [(named, None)], comparison)
    found: dict[str, Any] = _escaped(entry)
    return found


def sample_entries(
    store: Store,
    run_id: str,
    means: Sequence[tuple[str, float | None]],
    comparison: Comparison | None = None,
) -> Iterator[dict[str, Any]]:
    """Each sample with its mean, texts, claims, scores, sentences and calls.

    With a comparison, a changed sample has `changes` with its changed claims and scores, and
    `before` with what was different in the first run. Thousands of calls share one long system
    message: it is written once, and after that as its number among them, from 0.
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
    for (name, mean), sample in zip(means, of_run, strict=True):
        entry = sample | {"mean": mean}
        if name in changes:
            entry["changes"] = changes[name]
            # The first run may lack the sample.
            if before is not None and before["sample_id"] == name:
                entry["before"] = _differing_parts(before, entry)
                before = next(earlier, None)
        _number_system_messages(entry, systems)
        yield entry


def _listed(
    run: RunDocument,
    ranked: Sequence[tuple[str, float | None]],
    comparison: Comparison | None,
) -> Iterator[dict[str, Any]]:
    """The rows of the list, each of a changed sample with what changed."""
    changes = _changes(comparison) if comparison else {}
    for row in listed_samples(run.store, run.run_id, ranked):
        changed = changes.get(row["id"])
        if changed is not None:
            row["changes"] = {
                "state": changed["state"],
                "claims": [
                    {"change": one["change"], "cause": one["cause"]} for one in changed["claims"]
                ],
                "scores": [
                    {"name": one["name"], "difference": one["difference"]}
                    for one in changed["scores"]
                ],
            }
        yield row


def _differing_parts(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The parts of an entry that have changed; a call of both entries is only in the new one."""
    known = {call["call_id"] for call in now["calls"]}
    calls = [call for call in before["calls"] if call["call_id"] not in known]
    return {key: value for key, value in before.items() if value != now[key]} | {"calls": calls}


def _number_system_messages(entry: dict[str, Any], systems: dict[str, int]) -> None:
    """Replace system messages that were written before by their numbers."""
    for call in [*entry["calls"], *entry.get("before", {"calls": []})["calls"]]:
        text = call["system"]
        if text in systems:
            call["system"] = systems[text]
        elif text is not None:
            systems[text] = len(systems)


def _changes(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """By sample: its state, and the changes of its claims and scores."""
    found: dict[str, dict[str, Any]] = {}

    def of(name: str) -> dict[str, Any]:
        return found.setdefault(name, {"state": "same", "fields": [], "claims": [], "scores": []})

    for row in comparison.samples.iter_rows(named=True):
        of(row["sample_id"]).update(state=row["state"], fields=row["fields"])
    for kind, table in (("claims", comparison.claims), ("scores", comparison.scores)):
        for row in table.iter_rows(named=True):
            of(row.pop("sample_id"))[kind].append(row)
    return found


class Payload(NamedTuple):
    """`text` is base64 of gzip of a JSON list of the first `held` entries."""

    text: str
    held: int


def pack_entries(entries: Iterable[dict[str, Any]], *, most: int) -> Payload:
    """As many of the entries, in their order, as fit in `most` characters, but at least one.

    One entry is in memory at a time. Numbers have six decimals. Control characters are replaced
    one for one, so that positions in texts stay valid.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    parts = [packer.compress(b"[")]
    size = count = 0
    for entry in entries:
        before = packer.copy()
        text = json.dumps(_escaped(entry), ensure_ascii=False, separators=(",", ":"))
        part = packer.compress(f"{',' if count else ''}{text}".encode())
        # Flushed after each entry, at five bytes an entry, because the size must be known.
        part += packer.flush(zlib.Z_SYNC_FLUSH)
        # Base64: four characters hold three bytes.
        if count and (size + len(part)) * 4 > most * 3:
            packer = before
            break
        parts.append(part)
        size += len(part)
        count += 1
    parts.append(packer.compress(b"]") + packer.flush())
    return Payload(base64.b64encode(b"".join(parts)).decode("ascii"), count)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape_controls(value)
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {escape_controls(key): _escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    return value
