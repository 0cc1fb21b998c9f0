"""Which texts of a run are in a language that its embedded models and rules were not taught."""

import threading
from collections.abc import Iterable, Iterator

import polars as pl

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.languages import (
    RULES,
    TEXT_FIELDS,
    Reader,
    UntaughtTexts,
    count_untaught,
    detected_languages,
    has_languages,
    record_languages,
    stored_languages,
)
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store


def readers_of(steps: Iterable[Step], toolbox: Toolbox) -> list[Reader]:
    """What reads texts in each step without having been taught every language.

    A step reads the fields that its stage requires, and those that the claims it takes are of.
    """
    made_of = {step.name: step.stage.claims_of for step in steps}
    found = []
    for step in steps:
        languages = toolbox.languages(step)
        rules = step.stage.languages()
        if rules is not None:
            languages[RULES] = rules
            # A stage that says what it can read leaves other texts alone.
            languages.pop("parser", None)
        named = {*step.stage.required_fields(), *(made_of.get(need) for need in step.needs)}
        fields = tuple(field for field in TEXT_FIELDS if field in named)
        found += [Reader(step.name, reader, fields, known) for reader, known in languages.items()]
    return found


def detect_languages(
    store: Store, table: Artifact, samples: SampleSource, stop: threading.Event
) -> None:
    """Record the languages of a table of samples, unless the store has them."""
    if not has_languages(store, table):
        record_languages(store, table, _detected(samples, stop))


def _detected(samples: SampleSource, stop: threading.Event) -> Iterator[pl.DataFrame]:
    for shard in samples.shards(SHARD):
        if stop.is_set():
            raise StoppedError
        yield detected_languages(shard, TEXT_FIELDS)


def planned_untaught(
    prepared: Prepared, store: Store, choice: StepSelection, samples: Artifact | None
) -> UntaughtTexts | None:
    """The texts that a run of the selected steps would read without having been taught.

    `samples` is the table of the samples where it is in the store; then languages that an earlier
    run detected are not detected again.
    """
    session = Session(Ledger(store), run_id="", stop=threading.Event())
    readers = readers_of(choice.steps, Toolbox(prepared.pipeline, session))
    if all(one.reader == RULES for one in readers):
        return None
    stored = stored_languages(store, samples) if samples else None
    fields = {field for one in readers for field in one.fields}
    shards = prepared.samples.shards(SHARD)
    found = (detected_languages(shard, fields) for shard in shards) if stored is None else [stored]
    return count_untaught(found, readers, prepared.samples.count)
