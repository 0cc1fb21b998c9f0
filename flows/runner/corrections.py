"""Applies corrections that people made to a table of claims, verdicts or checks of rubrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.store.artifacts import (
    Artifact,
    ArtifactWriter,
    Provenance,
    read_artifact,
)
from claimflow.flows.store.edits import Edit
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.store import Store
from claimflow.stages.decompose import supplied_claim_rows
from claimflow.stages.rows import AUDIT, Claim, Row, RubricVerdict, Verdict, content_key
from claimflow.stages.tables import build, conform

STAGE: Final = "edits"
VERSION: Final = 1

_KEYS: Final[Mapping[type[Row], tuple[str, ...]]] = {
    Verdict: Verdict.key,
    # Another criterion of the same name is another check.
    RubricVerdict: (*RubricVerdict.key, "criterion"),
}

SampleParts = Callable[[], Iterable[pl.DataFrame]]
"""Reads the samples of a run in the parts that its tables are made in."""


class CorrectedTable(NamedTuple):
    """The table `base` of rows `row` with `edits` (at least one) applied in their order."""

    row: type[Row]
    base: Artifact
    edits: Sequence[Edit]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the corrected table."""
        return content_key(STAGE, VERSION, self.base.digest, self._edit_keys())

    def provenance(self, base: Provenance) -> Provenance:
        """The provenance of the corrected table, given that of its base."""
        edit_keys = self._edit_keys()
        return base._replace(
            fingerprint=self.fingerprint,
            recipe=content_key("recipe", STAGE, VERSION, base.recipe, edit_keys),
            inputs={"base": self.base.artifact_id},
            stage=STAGE,
            version=VERSION,
            settings={**base.settings, "edits": sorted({edit.edit_id for edit in self.edits})},
        )

    def _edit_keys(self) -> list[list[str]]:
        return [[edit.edit_id, edit.sample_id] for edit in self.edits]


def make_corrected(
    store: Store, corrected: CorrectedTable, base_provenance: Provenance, samples: SampleParts
) -> Artifact:
    """Make the corrected table; `base_provenance` is how its base was made."""
    base = corrected.base
    writer = ArtifactWriter(
        store, corrected.row, corrected.provenance(base_provenance), shards=base.shards
    )
    for shard, part in enumerate(_parts(store, corrected, samples)):
        writer.add(shard, part)
    return writer.artifact()


def corrected_digest(store: Store, corrected: CorrectedTable, samples: SampleParts) -> str:
    """The digest that the corrected table would have; nothing is written."""
    digest = Digest(corrected.row)
    for part in _parts(store, corrected, samples):
        digest.add(part)
    return digest.value()


def apply_edits(
    row: type[Row], table: pl.DataFrame, samples: pl.DataFrame, edits: Iterable[Edit]
) -> pl.DataFrame:
    """A table of claims, verdicts or checks, with all its columns, after `edits`.

    `samples` are the samples of the table. Edits of other samples are ignored; a later edit
    overrides an earlier one.
    """
    if row is Claim:
        return _with_claims(table, samples, {edit.sample_id: edit for edit in edits})
    return _with_verdicts(row, table, edits)


def _parts(store: Store, corrected: CorrectedTable, samples: SampleParts) -> Iterator[pl.DataFrame]:
    row = corrected.row
    for shard, part in enumerate(samples()):
        with store.reading() as connection:
            table = read_artifact(
                connection, row, corrected.base, shard=shard, columns=tuple(row.model_fields)
            )
        yield conform(row, apply_edits(row, table, part, corrected.edits))


def _with_claims(
    table: pl.DataFrame, samples: pl.DataFrame, by_sample: dict[str, Edit]
) -> pl.DataFrame:
    """The claims of an edited sample take the place of that sample among the others."""
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
    # What claims nothing is no subject of a correction.
    others = table.filter(touched, status="not_a_claim")
    return (
        pl.concat([table.filter(~touched), build(Claim, rows), others])
        .join(place, on="sample_id", how="left", maintain_order="left")
        .sort("place", maintain_order=True)
        .drop("place")
    )


def _claims(
    before: Mapping[str, dict[str, Any]], sample: Mapping[str, Any], edit: Edit
) -> Iterator[dict[str, Any]]:
    """The claims of an edited sample; a claim that was there before keeps its row."""
    side: Any = edit.subject
    claims = [row["claim"] for row in edit.rows]
    for row in supplied_claim_rows(edit.sample_id, side, claims, sample[side]):
        yield before.get(row["claim_id"], row | {"reason": edit.reason})


def _with_verdicts(row: type[Row], table: pl.DataFrame, edits: Iterable[Edit]) -> pl.DataFrame:
    """Replace edited verdicts; the evidence and calls of the earlier verdict are cleared."""
    key = list(_KEYS[row])
    rows = {
        tuple({"sample_id": edit.sample_id, **one}[name] for name in key): (
            one["verdict"],
            one.get("score"),
            edit.reason,
        )
        for edit in edits
        for one in edit.rows
    }
    by_hand = pl.DataFrame(
        [(*key, *values) for key, values in rows.items()],
        schema={
            **table.select(key).schema,
            "label": pl.String,
            "points": pl.Float64,
            "because": pl.String,
        },
        orient="row",
    )
    joined = table.join(by_hand, on=key, how="left", nulls_equal=True, maintain_order="left")
    changed = pl.col("label").is_not_null()
    audit = [name for name, field in row.model_fields.items() if AUDIT in field.metadata]
    # The support of a claim was that of the earlier verdict; without it the corrected one decides.
    own = {"score": pl.col("points")} if row is RubricVerdict else {"support": pl.lit(None)}
    given = {
        "verdict": pl.col("label"),
        **own,
        "status": pl.lit("judged"),
        "failure": pl.lit(None),
        **dict.fromkeys(audit, pl.lit(None)),
        "reason": pl.col("because"),
    }
    return joined.with_columns(
        pl.when(changed).then(value).otherwise(pl.col(name)).alias(name)
        for name, value in given.items()
    ).select(table.columns)
