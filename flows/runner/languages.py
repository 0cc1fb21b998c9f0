"""Which texts of a run are in a language that its embedded models and rules were not taught."""

import threading
from collections.abc import Iterable, Iterator
from itertools import chain

import polars as pl

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.languages import (
    RULES,
    TEXT_FIELDS,
    Reader,
    UntaughtTexts,
    count_untaught,
    detected_languages,
    record_languages,
    samples_without_languages,
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


def detect_languages(store: Store, samples: Artifact, stop: threading.Event) -> None:
    """Record the languages of the samples of a table for which the store does not have them."""

    def detected() -> Iterator[pl.DataFrame]:
        for part in samples_without_languages(store, samples):
            if stop.is_set():
                raise StoppedError
            yield detected_languages(part, TEXT_FIELDS, key="segment")

    record_languages(store, detected())


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
    fields = {field for one in readers for field in one.fields}
    stored = [stored_languages(store, samples)] if samples else []
    parts = samples_without_languages(store, samples) if samples else prepared.samples.shards(SHARD)
    found = chain(stored, (detected_languages(part, fields) for part in parts))
    return count_untaught(found, readers, prepared.samples.count)
