"""Corrections applied to a table of claims or verdicts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.store.artifacts import (
    Artifact,
    ArtifactWriter,
    Provenance,
    find_artifact,
    read_artifact,
)
from claimflow.flows.store.edits import Edit
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.store import Store
from claimflow.stages.decompose import supplied_claim_rows
from claimflow.stages.rows import AUDIT, Claim, Row, Verdict, content_key
from claimflow.stages.tables import build, conform

STAGE: Final = "edits"
VERSION: Final = 1

_KEY: Final = list(Verdict.key)

Parts = Callable[[], Iterable[pl.DataFrame]]
"""Gives the samples of a run in the parts that its tables are made in."""


class CorrectedTable(NamedTuple):
    """What is laid over the table `base` of rows `row`: `edits`, in their order, never none."""

    row: type[Row]
    base: Artifact
    edits: Sequence[Edit]

    @property
    def fingerprint(self) -> str:
        """Key of the table that comes of it."""
        return content_key(STAGE, VERSION, self.base.digest, self._which())

    def making(self, base: Provenance) -> Provenance:
        """How that table is made, `base` being how the one below it was."""
        which = self._which()
        return base._replace(
            fingerprint=self.fingerprint,
            recipe=content_key("recipe", STAGE, VERSION, base.recipe, which),
            inputs={"base": self.base.artifact_id},
            stage=STAGE,
            version=VERSION,
            settings={**base.settings, "edits": sorted({edit.edit_id for edit in self.edits})},
        )

    def _which(self) -> list[list[str]]:
        return [[edit.edit_id, edit.sample_id] for edit in self.edits]


def find_corrected(store: Store, overlay: CorrectedTable) -> Artifact | None:
    """The table that an earlier run made of the same, if there is one."""
    with store.reading() as connection:
        return find_artifact(connection, overlay.fingerprint)


def make_corrected(
    store: Store, overlay: CorrectedTable, making: Provenance, samples: Parts
) -> Artifact:
    """That table, made; `making` is how the table below it was."""
    base = overlay.base
    draft = ArtifactWriter(store, overlay.row, overlay.making(making), shards=base.shards)
    for shard, part in enumerate(_parts(store, overlay, samples)):
        draft.add(shard, part)
    return draft.artifact()


def corrected_digest(store: Store, overlay: CorrectedTable, samples: Parts) -> str:
    """What the digest of that table would be; nothing is written."""
    digest = Digest(overlay.row)
    for part in _parts(store, overlay, samples):
        digest.add(part)
    return digest.value()


def apply_edits(
    row: type[Row], table: pl.DataFrame, samples: pl.DataFrame, edits: Iterable[Edit]
) -> pl.DataFrame:
    """`table`, a whole one of claims or verdicts, as `edits` have it.

    `samples` are those that it is about. Edits of other samples do nothing; later ones go
    before earlier ones.
    """
    if row is Claim:
        return _with_claims(table, samples, {edit.sample_id: edit for edit in edits})
    return _with_verdicts(table, edits)


def _parts(store: Store, overlay: CorrectedTable, samples: Parts) -> Iterator[pl.DataFrame]:
    row = overlay.row
    for shard, part in enumerate(samples()):
        with store.reading() as connection:
            table = read_artifact(
                connection, row, overlay.base, shard=shard, columns=tuple(row.model_fields)
            )
        yield conform(row, apply_edits(row, table, part, overlay.edits))


def _with_claims(
    table: pl.DataFrame, samples: pl.DataFrame, by_sample: dict[str, Edit]
) -> pl.DataFrame:
    """The claims of an edited sample stand where that sample stands among the others."""
    touched = pl.col("sample_id").is_in(list(by_sample))
    before = {
        row["claim_id"]: row for row in table.filter(touched, status="made").iter_rows(named=True)
    }
    rows = [
        row
        for sample in samples.filter(touched).iter_rows(named=True)
        for row in _claims(before, sample, by_sample[sample["sample_id"]])
    ]
    place = samples.select("sample_id").with_row_index("place")
    return (
        pl.concat([table.filter(~touched), build(Claim, rows)])
        .join(place, on="sample_id", how="left", maintain_order="left")
        .sort("place", maintain_order=True)
        .drop("place")
    )


def _claims(
    before: Mapping[str, dict[str, Any]], sample: Mapping[str, Any], edit: Edit
) -> Iterator[dict[str, Any]]:
    """The claims that an edit leaves a sample: what was there before is taken as it was."""
    side: Any = edit.field
    words = [row["claim"] for row in edit.rows]
    for row in supplied_claim_rows(edit.sample_id, side, words, sample[edit.field]):
        yield before.get(row["claim_id"], row | {"reason": edit.reason})


def _with_verdicts(table: pl.DataFrame, edits: Iterable[Edit]) -> pl.DataFrame:
    """An edited verdict keeps nothing of what a judge said for another one."""
    rows = {
        tuple(row[name] for name in _KEY): (row["verdict"], edit.reason)
        for edit in edits
        for row in edit.rows
    }
    by_hand = pl.DataFrame(
        [(*key, *words) for key, words in rows.items()],
        schema={**table.select(_KEY).schema, "label": pl.String, "because": pl.String},
        orient="row",
    )
    joined = table.join(by_hand, on=_KEY, how="left", nulls_equal=True, maintain_order="left")
    changed = pl.col("label").is_not_null()
    audit = [name for name, field in Verdict.model_fields.items() if AUDIT in field.metadata]
    given = {
        "verdict": pl.col("label"),
        "status": pl.lit("judged"),
        "failure": pl.lit(None),
        **dict.fromkeys(audit, pl.lit(None)),
        "reason": pl.col("because"),
    }
    return joined.with_columns(
        pl.when(changed).then(value).otherwise(pl.col(name)).alias(name)
        for name, value in given.items()
    ).select(table.columns)
