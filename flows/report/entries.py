"""The samples of a run as the page's script reads them, with what changed since another run."""

from collections.abc import Iterator, Sequence
from typing import Any

from claimflow.flows.engine.compare.comparison import Comparison
from claimflow.flows.engine.report.samples import Followed, followed
from claimflow.flows.engine.storage.store import Store


def entries(
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
        followed(store, comparison.a.run_id, [name for name, _ in means if name in changes])
        if comparison
        else iter(())
    )
    before = next(earlier, None)
    of_run = followed(store, run_id, [name for name, _ in means])
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


def _entry(one: Followed) -> dict[str, Any]:
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
