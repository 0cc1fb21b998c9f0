"""Which samples a pipeline evaluates: since a time, where, distinct, a share, at most so many.

Two passes over the samples, of which memory holds only keys: the first one makes a row of keys for
each, the second one copies those that are chosen. What is drawn is drawn by hashes of the contents,
so that neither the order of files nor that of rows decides.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.pipeline.sample_choice import LAST_RUN, Selection
from claimflow.flows.samples.condition import Condition
from claimflow.flows.samples.reader import SampleSource
from claimflow.stages.rows import canonical, content_key

_PART: Final = 2_000
"""Samples that are looked at together."""

_RANGE: Final = 2**63
_PLACE: Final = "place"

_CONTENT: Final = ("user_input", "response", "retrieved_contexts")

_KEYS: Final = pl.Schema(
    [
        ("key", pl.String),
        ("content", pl.String),
        ("drawn", pl.UInt64),
        ("rest", pl.UInt64),
        ("stratum", pl.UInt64),
        ("moment", pl.Datetime("us", "UTC")),
        ("where", pl.Boolean),
    ]
)
"""`key` is of the sample, `content` of its texts alone, `drawn` a hash of these and `rest` one of
the sample's id, both with the seed; `stratum` is a hash of the field that `by` names."""


class Chosen(NamedTuple):
    """The chosen samples, and how many each setting left out.

    `keys` are those of all samples, chosen or not: what a later run need not read again.
    """

    samples: SampleSource
    left_out: Mapping[str, int]
    keys: pl.Series

    def text(self) -> str:
        """`200 of 3,412 samples; left out: since 3,000, at_most 212`."""
        count, available = self.samples.count, self.samples.available
        left_out = ", ".join(f"{name} {number:,}" for name, number in self.left_out.items())
        told = f"{count:,} of {available:,} samples"
        return f"{told}; left out: {left_out}" if left_out else told


def choose_samples(
    samples: SampleSource,
    wanted: Selection,
    *,
    place: Callable[[str], str],
    seen: Collection[str] = (),
    again: Collection[str] | None = None,
) -> Chosen:
    """The samples that `wanted` names; `place` says where a setting stands.

    With `since: last_run` those whose keys are in `seen` are left out, or, for a run that repeats
    an earlier one, those whose keys are not in `again`. Raises `InputError`.
    """
    earliest = wanted.earliest(datetime.now(UTC))
    fields = {"by": wanted.by, "time_field": wanted.time_field if earliest else None}
    for setting, field in fields.items():
        if field is not None and field not in samples.metadata and samples.count:
            what, hint = f"no sample has {field!r}", one_of(field, samples.metadata)
            raise InputError([Fault(place(setting), what, hint)])
    parts = list(_keyed(samples, wanted, place("where")))
    everything = pl.concat([pl.DataFrame(schema=_KEYS), *parts]).with_row_index(_PLACE)
    left, left_out = everything, dict[str, int]()
    for setting, kept in _narrowed(everything, wanted, earliest, seen, again):
        if kept.height < left.height:
            left_out[setting] = left.height - kept.height
        left = kept
    if left.height < everything.height:
        samples = samples.where(everything[_PLACE].is_in(left[_PLACE].implode()))
    return Chosen(samples, left_out, everything["key"])


def _narrowed(
    keys: pl.DataFrame,
    wanted: Selection,
    earliest: datetime | None,
    seen: Collection[str],
    again: Collection[str] | None,
) -> Iterator[tuple[str, pl.DataFrame]]:
    """(setting, the keys that are left after it), from setting to setting."""
    if wanted.since == LAST_RUN:
        known = pl.Series(seen if again is None else again, dtype=pl.String).implode()
        is_known = pl.col("key").is_in(known)
        keys = keys.filter(~is_known if again is None else is_known)
        yield "since", keys
    elif earliest is not None:
        keys = keys.drop_nulls("moment")
        yield f"without {wanted.time_field}", keys
        keys = keys.filter(pl.col("moment") >= earliest)
        yield "since", keys
    keys = keys.filter("where")
    yield "where", keys
    # A total order in which that of the samples has no part.
    keys = keys.sort("drawn", "content", "rest", "key")
    if wanted.distinct:
        keys = keys.unique("content", keep="first", maintain_order=True)
        yield "distinct", keys
    if wanted.share is not None:
        keys = keys.filter(pl.col("drawn") < int(wanted.share * _RANGE))
        yield "share", keys
    if wanted.by is not None:
        # The first of each value, then the second of each: as even as they allow.
        turn = pl.int_range(pl.len()).over("stratum")
        keys = keys.sort(turn, "stratum", maintain_order=True)
    if wanted.at_most is not None:
        yield "at_most", keys.head(wanted.at_most)


def _keyed(samples: SampleSource, wanted: Selection, where: str) -> Iterator[pl.DataFrame]:
    """The keys of the samples, part by part; `where` is the place of the condition."""
    if wanted.where is None:
        for part in samples.shards(_PART):
            yield _keys(part, wanted)
        return
    with closing(Condition(wanted.where, where, samples.metadata)) as condition:
        if condition.needs_types:
            for part in samples.shards(_PART):
                condition.learn(part)
        for part in samples.shards(_PART):
            yield _keys(part, wanted).with_columns(where=condition.holds(part))


def _keys(samples: pl.DataFrame, wanted: Selection) -> pl.DataFrame:
    rows = []
    for row in samples.iter_rows(named=True):
        metadata = json.loads(row["metadata"])
        # Earlier turns of a conversation are part of the question.
        texts = [*(row[name] for name in _CONTENT), metadata.get("history")]
        content = content_key("content", *texts)
        key = content_key("seen", row["sample_id"], content, row["reference"])
        of_stratum = metadata.get(wanted.by) if wanted.by else None
        rows.append(
            (
                key,
                content,
                _hash(wanted.seed, content),
                _hash(wanted.seed, row["sample_id"]),
                _hash(wanted.seed, of_stratum),
                _moment(metadata.get(wanted.time_field)),
                True,
            )
        )
    return pl.DataFrame(rows, _KEYS, orient="row")


def _hash(seed: int, value: Any) -> int:
    """A number from 0 below `_RANGE`; the same one in every version."""
    digest = hashlib.blake2b(canonical([seed, value]), digest_size=8).digest()
    return int.from_bytes(digest) % _RANGE


def _moment(value: Any) -> datetime | None:
    """The time that a field of metadata holds: ISO 8601, or seconds since 1970."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None
