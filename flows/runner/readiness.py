"""Checks before a run: its endpoints can be asked, and the disk has room for its tables."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from claimflow.flows.errors import Fault, InputError, StoreFullError
from claimflow.flows.files import path_exists
from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.provider import open_provider
from claimflow.flows.judge.provider_errors import batch_fault, missing_of
from claimflow.flows.pipeline.model_settings import DEFAULT_PROVIDER, Endpoint, Judge
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.runner.canaries import canary_estimates
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.store.schema import SCHEMA_VERSION
from claimflow.flows.store.store import Store, store_version


def check_ready(prepared: Prepared, store: Store, choice: StepSelection) -> None:
    """Check the disk, and the endpoints of due canaries and of steps that may have to be made.

    Raises as `check_endpoints` and `check_disk_space` do.
    """
    if prepared.pipeline.endpoints:
        planned = plan(prepared, store, choice=choice)
        tried = canary_estimates(prepared, store, choice.wanted)
        asked = {steps[0] for steps, one in tried.items() if one.calls}
        made = {step.step for step in planned if step.action != "reuse"}
        check_endpoints(prepared.pipeline, made | asked)
    check_disk_space(prepared, store, wanted=choice.wanted)


def check_endpoints(pipeline: Pipeline, steps: Collection[str] | None = None) -> None:
    """Check every endpoint that `steps` call; all steps if None.

    Raises `InputError` where one lacks a key, a price that its budget needs, or batches.
    """
    asked: dict[str, Endpoint] = {}
    for step in pipeline.steps:
        if steps is None or step.name in steps:
            asked |= pipeline.endpoints_of(step)
    faults = [
        Fault(pipeline.endpoint_place(name), *wrong)
        for name, endpoint in asked.items()
        if (wrong := _endpoint_fault(endpoint))
    ]
    if faults:
        raise InputError(faults)


def _endpoint_fault(endpoint: Endpoint) -> tuple[str, str] | None:
    """What is wrong with an endpoint, and a hint; None where it can be asked."""
    provider = open_provider(endpoint.provider)
    wrong = missing_of(endpoint, provider)
    if wrong:
        return f"{endpoint.model} cannot be asked", wrong
    if isinstance(endpoint, Judge) and endpoint.batch:
        fault = batch_fault(endpoint, provider)
        if fault:
            return fault
    # Only a budget needs the price before the run. Other providers' lists are read here as well, to
    # find what is wrong with them early; importing litellm for its list would take seconds.
    needs_price = endpoint.budget_usd is not None
    looks_up = needs_price or endpoint.provider != DEFAULT_PROVIDER
    if looks_up and price_of(endpoint) is None and needs_price:
        what = f"the price of {endpoint.model} is unknown, so budget_usd cannot be kept"
        return what, "write price: {input: ..., output: ...} in US dollars per million tokens"
    return None


SPARE: Final = 100_000_000
"""Bytes that must be free beyond the estimate, because other programs write to the disk too."""

_LAST: Final = """
SELECT sum(row_count) FILTER (step IN (SELECT unnest($wanted))),
       max(row_count) FILTER (step = 'samples')
FROM audit.run_steps JOIN (SELECT artifact_id, row_count FROM audit.artifacts) USING (artifact_id)
WHERE run_id = (SELECT run_id FROM audit.latest_runs WHERE pipeline = $pipeline)
"""


# Rows that several tables have are on file once.
_ON_FILE: Final = """
SELECT sum(estimated_size) FROM duckdb_tables()
WHERE schema_name = 'stored' AND database_name = current_database()
"""


class SpaceNeeded(NamedTuple):
    """Bytes that a run may need for its tables, estimated from `source`, and for the read copy."""

    tables: int
    copy: int
    source: str

    def __str__(self) -> str:
        copy = f", {_size(self.copy)} for the read copy" if self.copy else ""
        tables = f"{_size(self.tables)} for its tables by {self.source}"
        return f"{_size(self.tables + self.copy + SPARE)} ({tables}{copy}, {_size(SPARE)} to spare)"


def check_disk_space(
    prepared: Prepared, store: Store, *, wanted: Collection[str], free: int | None = None
) -> None:
    """Raise `StoreFullError` if the store's disk has less space than the run may need.

    `wanted` are the steps that the run may make; `free` is in bytes, read from the disk if None.
    """
    need = space_needed(prepared, store, wanted=wanted)
    left = shutil.disk_usage(_folder(store.path)).free if free is None else free
    if left < need.tables + need.copy + SPARE:
        hint = "make room"
        if path_exists(store.path):
            hint += " (claimflow prune removes old runs)"
        if need.copy and left >= need.tables + SPARE:
            hint += " or do without the copy (read_copy: false)"
        raise StoreFullError(
            f"{store.path}: its disk has {_size(left)} free, and the run may need {need}; {hint}"
        )


def space_needed(prepared: Prepared, store: Store, *, wanted: Collection[str]) -> SpaceNeeded:
    """The bytes needed if every wanted step is made anew.

    Estimated from the rows of the pipeline's newest whole run, at the size of the store per
    row. Without such a run only the size of the samples counts: runs wrote half to 18 times as
    much, and a guess is no reason to refuse a run.
    """
    size = store.path.stat().st_size if store.path.is_file() else 0
    known = size and store_version(store) == SCHEMA_VERSION  # An older one is yet to be migrated.
    added = _from_last_run(prepared, store, wanted, size) if known else None
    source = f"the last run of {prepared.pipeline.name}"
    if added is None:
        added, source = prepared.samples.size, "the size of the samples"
    # Older versions of DuckDB, which read it, compress texts to twice the size.
    copy = 2 * (size + added) if prepared.pipeline.read_copy else 0
    return SpaceNeeded(added, copy, source)


def _from_last_run(
    prepared: Prepared, store: Store, wanted: Collection[str], size: int
) -> int | None:
    with store.reading() as connection:
        asked = {"wanted": ["samples", *sorted(wanted)], "pipeline": prepared.pipeline.name}
        [(rows, samples)] = connection.execute(_LAST, asked).fetchall()
        [(on_file,)] = connection.execute(_ON_FILE).fetchall()
    if not rows or not samples or not on_file:
        return None
    return int(size / on_file * rows * prepared.samples.count / samples)


def _folder(path: Path) -> Path:
    """The nearest existing folder above a store."""
    return next(folder for folder in path.parents if folder.is_dir())


def _size(count: int) -> str:
    """Decimal units with at most three digits: 64 MB, 1.2 GB."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:,.{1 if count < 10 * scale else 0}f} {unit}"
    return f"{count / 1000:,.0f} kB"
