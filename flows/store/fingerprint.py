"""Fingerprints and digests: how a table was made, and what is in it."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import polars as pl

from claimflow.stages.base import Stage
from claimflow.stages.rows import Row, content_key
from claimflow.stages.tables import content_columns


def samples_fingerprint(digest: str) -> str:
    """Key of the table of the samples with that digest."""
    return content_key("samples", digest)


def step_fingerprint(
    stage: Stage,
    inputs: Mapping[str, str | tuple[str, ...]],
    digests: Mapping[str, str],
    tools: Mapping[str, Any],
) -> str:
    """Key of the table that a stage makes.

    `inputs` names the step that each input comes from, `digests` the digest of each step's
    table, `tools` the identity of each tool. Names of steps count only where a stage takes
    many tables by name: two steps that compute the same share one artifact.
    """
    contents = {
        name: digests[wire] if isinstance(wire, str) else {step: digests[step] for step in wire}
        for name, wire in inputs.items()
    }
    settings = stage.fingerprint_settings()
    return content_key("step", stage.use, stage.version, settings, contents, tools, *_source(stage))


def step_recipe(stage: Stage, tools: Mapping[str, Any]) -> str:
    """Key of how a stage makes its table, independent of its inputs."""
    settings = stage.fingerprint_settings()
    return content_key("recipe", stage.use, stage.version, settings, dict(tools), *_source(stage))


def _source(stage: Stage) -> list[str]:
    """The source of a stage of another package. That of a built-in one does not count."""
    return [stage.source.digest] if stage.source else []


class Digest:
    """Digest of a table that arrives in parts; how it is split does not matter.

    It covers the rows in their order, and only the columns that stages may read: the same
    verdicts with other reasons leave all steps downstream as they are. `columns` are those that
    digests of an older schema version covered.
    """

    def __init__(self, row: type[Row], columns: Sequence[str] | None = None) -> None:
        self._columns = list(columns or content_columns(row))
        self._hash = hashlib.blake2b(repr((row.table, self._columns)).encode(), digest_size=16)

    def add(self, frame: pl.DataFrame) -> None:
        """Add the rows of `frame`."""
        rows = io.BytesIO()
        frame.select(self._columns).write_ndjson(rows)
        self._hash.update(rows.getbuffer())

    def value(self) -> str:
        """The digest so far, as a UUID string."""
        return str(UUID(bytes=self._hash.digest()))
