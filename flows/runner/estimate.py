"""Estimated calls, tokens and cost of a planned run: its stages, run with tools that only count."""

import json
from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from itertools import cycle
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.estimate import (
    NOT_ASKED,
    CascadeEstimate,
    CountingEmbedder,
    CountingJudge,
    Estimate,
    SharedCalls,
    combine,
)
from claimflow.flows.judge.panel import JudgePanel
from claimflow.flows.judge.shared_ledger import LedgerToRead, SharedLedger
from claimflow.flows.judge.sharing import steps_that_share
from claimflow.flows.models.loading import LocalEntailmentModel, load_entailment_model
from claimflow.flows.models.parser import EmbeddedParser
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Endpoint, Judge
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.corrections import apply_edits
from claimflow.flows.runner.incremental import SAMPLES
from claimflow.flows.runner.make import run_stage
from claimflow.flows.runner.plan import PlannedStep
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.slices import slice_size, slices
from claimflow.flows.runner.tools import entailment_keys
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.store.artifacts import read_artifact
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage
from claimflow.stages.rows import Claim, Side
from claimflow.stages.tables import schema
from claimflow.stages.text.sentences import split_sentences
from claimflow.stages.tools import EntailmentModel, Judgement, Pair, Parser, Word

_MOST: Final = 500
"""Pairs that are judged for one plan; takes a few seconds of CPU."""

_UNSURE: Final = Judgement(0.5, 0.25, 0.25, 0, 0)


class EntailmentEstimate:
    """An `EntailmentModel` for plans, which estimates judgements where computing them is slow.

    Judgements in the ledger are returned as they are. Of the other pairs `most` are judged;
    those beyond get the known judgements in turn, which sets `guessed`. A model that is not
    downloaded yet is taken to be unsure of every pair. Nothing is written.
    """

    def __init__(self, model: LocalEntailmentModel, ledger: Ledger, *, most: int = _MOST) -> None:
        self.guessed = False
        self._model = model
        self._ledger = ledger
        self._left = most
        self._judged: dict[Pair, Judgement] = {}
        self._alike: list[Judgement] = []

    def judge(self, pairs: Sequence[Pair]) -> dict[Pair, Judgement]:
        """As `EntailmentModel.judge`."""
        keys = entailment_keys(self._model.identity, pairs)
        on_file = self._ledger.recall(list(keys.values()))
        found = {
            pair: Judgement(*json.loads(on_file[key]))
            for pair, key in keys.items()
            if key in on_file
        }
        new = [pair for pair in keys if pair not in found and pair not in self._judged]
        judged = self._model.judge(new[: self._left])
        self._left -= len(judged)
        self._judged |= judged
        found |= {pair: self._judged[pair] for pair in keys if pair in self._judged}
        self._alike = list(found.values()) or self._alike or [_UNSURE]
        self.guessed |= len(found) < len(keys)
        likely = cycle(self._alike)
        return {pair: found[pair] if pair in found else next(likely) for pair in keys}


_PARSED: Final = 1_000
"""Sentences that are parsed for one plan; takes a few seconds of CPU."""


class ParserEstimate:
    """A `Parser` for plans: `most` sentences are parsed, those beyond have no tree.

    A sentence without a tree sets `guessed`.
    """

    def __init__(self, parser: Parser, *, most: int = _PARSED) -> None:
        self.guessed = False
        self._parser = parser
        self._left = most
        self._parsed: dict[str, tuple[Word, ...]] = {}

    def parse(self, sentences: Sequence[str]) -> dict[str, tuple[Word, ...]]:
        """As `Parser.parse`."""
        distinct = dict.fromkeys(sentences)
        new = [one for one in distinct if one not in self._parsed][: self._left]
        self._left -= len(new)
        self._parsed |= self._parser.parse(new)
        self.guessed |= not distinct.keys() <= self._parsed.keys()
        return {one: self._parsed.get(one, ()) for one in distinct}


class ModelEstimates(NamedTuple):
    """The models that run here, for the plan of one pipeline."""

    entailment: EntailmentEstimate
    parser: ParserEstimate

    @property
    def guessed(self) -> bool:
        """Whether an answer of a model was guessed."""
        return self.entailment.guessed or self.parser.guessed

    def lend(self, stage: Stage) -> dict[str, Any]:
        """The tools of a stage that calls no endpoint.

        Claims are counted, so their parser works; what the other models say is not needed.
        """
        needed = stage.needed_tools.items()
        return {name: self.parser if tool is Parser else None for name, tool in needed}


def estimate_models(pipeline: Pipeline, store: Store) -> ModelEstimates:
    """The models of a pipeline that run here, for its plan."""
    model = load_entailment_model(pipeline.entailment)
    model.check()
    entailment = EntailmentEstimate(model, Ledger(store))
    return ModelEstimates(entailment, ParserEstimate(EmbeddedParser()))


class StepCounter:
    """Counts the calls that the step `name` would make to its `endpoints`, given by name.

    `asked` holds the keys of questions that earlier steps ask already; it is shared by all steps.
    `models` decide for a cascade which questions reach its judge. With `fresh` replies in the
    ledger do not count, with `since` replies from before that time do not. `shared` counts calls
    for steps that ask together.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        ledger: Ledger,
        asked: set[str],
        models: ModelEstimates,
        *,
        name: str = "",
        fresh: bool = False,
        since: datetime | None = None,
        shared: SharedCalls | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._models = models
        self._name = name
        how: dict[str, Any] = {"fresh": fresh, "since": since, "shared": shared}
        self._judges = {
            who: CountingJudge(judge, ledger, asked, name=who, **how)
            for who, judge in endpoints.items()
            if isinstance(judge, Judge)
        }
        self._embedders = {
            name: CountingEmbedder(embedder, ledger, asked, fresh=fresh, since=since)
            for name, embedder in endpoints.items()
            if isinstance(embedder, EmbeddingEndpoint)
        }

    def lend(self, stage: Stage, *, repeat: int = 0) -> dict[str, Any]:
        """The tools of the step's stage, as `Toolbox.lend` gives them."""
        needed = sorted(stage.needed_tools.items())
        return {name: self._tool(tool, repeat) for name, tool in needed}

    def _tool(self, protocol: type, repeat: int) -> Any:
        if protocol is EntailmentModel:
            return self._models.entailment
        if protocol is Parser:
            return self._models.parser
        if self._judges:
            return JudgePanel(self._judges, step=self._name, repeat=repeat, threads=1)
        return next(iter(self._embedders.values()))

    def estimate(self, *, scale: float = 1.0, about: bool = False) -> Estimate:
        """The counts multiplied by `scale`; `about` marks the result as approximate."""
        parts = []
        for who, tool in (self._judges | self._embedders).items():
            price = price_of(self._endpoints[who]) if tool.tally.calls else None
            parts.append(tool.tally.estimate(who, price, scale=scale, about=about))
        return combine(parts)


class CascadeCounter:
    """Counts by whom the pairs of a step with a cascade would be judged.

    `alone` is its stage without the cascade; `alone_counter` counts what that would ask.
    """

    def __init__(self, alone: Stage, alone_counter: StepCounter) -> None:
        self._alone = alone
        self._alone_counter = alone_counter
        self._judged_by: Counts[str] = Counts()

    def add(self, inputs: Mapping[str, Any], verdicts: pl.DataFrame) -> None:
        """Count the verdicts that the step would make of `inputs`."""
        self._judged_by.update(verdicts["judged_by"].drop_nulls())
        self._alone.run(**inputs, **self._alone_counter.lend(self._alone))

    def estimate(self, calls: int, *, scale: float) -> CascadeEstimate:
        """The counts multiplied by `scale`, and what is saved beside the `calls` to be made."""
        settled, referred, audited = (
            round(self._judged_by[who] * scale) for who in ("embedded", "judge", "audit")
        )
        saved = self._alone_counter.estimate(scale=scale).calls - calls
        return CascadeEstimate(settled, referred, audited, max(saved, 0))


_BY_RULES: Final = 500
"""Texts that the rule-based decomposer splits, at about two milliseconds each."""


class ClaimEstimates:
    """Estimates claims that judges have yet to make, so that verifying them can be counted."""

    def __init__(self, models: ModelEstimates) -> None:
        self._models = models
        self._by_step: dict[str, ClaimEstimate] = {}

    @property
    def steps(self) -> Set[str]:
        """The steps whose claims are estimated."""
        return self._by_step.keys()

    def complete(self, step: Step, table: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
        """Add estimated claims to a table of claims, where its judge has yet to be asked.

        `samples` are the samples of the table. A table of other rows is returned unchanged.
        """
        stage = step.stage
        by_rules = stage.without_llm()
        if by_rules is None or stage.claims_of is None:
            return table
        unknown = pl.col("failure").eq_missing(pl.lit(NOT_ASKED.kind))
        texts = samples.join(table.filter(unknown), on="sample_id", how="semi")
        if texts.is_empty():
            return table
        if step.name not in self._by_step:
            tools = self._models.lend(by_rules)
            self._by_step[step.name] = ClaimEstimate(by_rules, tools, stage.claims_of)
        guess = self._by_step[step.name]
        return pl.concat([table.filter(~unknown), guess.claims(texts)])


class ClaimEstimate:
    """Estimates the claims that the judge of one step would make.

    The first texts are decomposed by rules. Of every other text the sentences are taken, repeated
    or left out so that there are as many claims per sentence as the rules made.
    """

    def __init__(self, by_rules: Stage, tools: Mapping[str, Any], of: Side) -> None:
        self._stage = by_rules
        self._tools = tools
        self._of = of
        self._left = _BY_RULES
        self._claims = self._sentences = 0
        self._due = 0.0

    def claims(self, samples: pl.DataFrame) -> pl.DataFrame:
        """A table of claims of `samples`, good for counting only."""
        first, rest = samples.head(self._left), samples.slice(self._left)
        self._left -= first.height
        by_rules = self._stage.run(samples=first, **self._tools)
        by_rules = by_rules.filter(pl.col("status") == "made")
        self._claims += by_rules.height
        self._sentences += sum(len(_sentences(text)) for text in first[self._of])
        by_sentence = pl.DataFrame(list(self._rows(rest)), schema=schema(Claim))
        return pl.concat([by_rules, by_sentence])

    def _rows(self, samples: pl.DataFrame) -> Iterator[dict[str, Any]]:
        claims_of_one = self._claims / self._sentences if self._sentences else 1.0
        for sample_id, text in samples.select("sample_id", self._of).iter_rows():
            sentences = _sentences(text)
            self._due += claims_of_one * len(sentences)
            # The rounding error is carried over to the next text, so that the sum is right.
            count = round(self._due)
            self._due -= count
            for number in range(count):
                again, which = divmod(number, len(sentences))
                claim = sentences[which] + " again" * again
                claim_id = f"{sample_id} {number}"
                row = {"claim_id": claim_id, "sample_id": sample_id, "of": self._of, "claim": claim}
                yield row | {"status": "made"}


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


_SHARDS: Final = 10
"""Parts of the samples that are counted; of more parts, this many, evenly spread."""


def estimate(
    prepared: Prepared,
    store: Store,
    planned: Sequence[PlannedStep],
    shared: SharedLedger | None = None,
) -> dict[str, Estimate]:
    """The calls that each step would make, for the steps that call an endpoint, by name.

    What is in `shared` costs no call. No call is made and nothing is written. Claims that a judge
    has yet to make are estimated.
    """
    pipeline, names = prepared.pipeline, {one.step for one in planned}
    steps = [step for step in pipeline.steps if step.name in names]
    endpoints = {step.name: of for step in steps if (of := pipeline.endpoints_of(step))}
    models = estimate_models(pipeline, store)
    walk = _Walk(pipeline, LedgerToRead(store, shared), planned, endpoints, models)
    seen = 0
    if walk.counters:
        for part, samples in _parts(prepared.samples):
            walk.count_part(part, _slices(prepared, samples))
            seen += samples.height
    scale = prepared.samples.count / seen if seen else 1.0
    estimates = {name: combine([Estimate(who) for who in of]) for name, of in endpoints.items()}
    for name, counter in walk.counters.items():
        cascade = walk.cascades.get(name)
        about = scale > 1 or name in walk.guessed or models.parser.guessed
        about |= bool(cascade and models.entailment.guessed)
        one = counter.estimate(scale=scale, about=about)
        cascade_estimate = cascade.estimate(one.calls, scale=scale) if cascade else None
        others = walk.shared_with(name)
        estimates[name] = one._replace(cascade=cascade_estimate, shared_with=others)
    return estimates


def _parts(samples: SampleSource) -> Iterator[tuple[int, pl.DataFrame]]:
    """The parts to count, with their number: of many the first, the last and some between."""
    last = -(-samples.count // SHARD) - 1
    some = {round(i * last / (_SHARDS - 1)) for i in range(_SHARDS)}
    for part, frame in enumerate(samples.shards(SHARD)):
        if last < _SHARDS or part in some:
            yield part, frame


def _slices(prepared: Prepared, samples: pl.DataFrame) -> list[pl.DataFrame]:
    """The slices of a part, which do not share calls."""
    size = slice_size(prepared.samples.count, SHARD)
    if size >= SHARD or any(judge.batch for judge in prepared.pipeline.judges.values()):
        return [samples]
    return slices(samples, size)


class _Walk:
    """Runs the stages that call an endpoint with counting tools, and the stages they depend on.

    `counters` and `cascades` hold the counts by step. `guessed` are the steps that read estimated
    claims.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        ledger: Ledger,
        planned: Sequence[PlannedStep],
        endpoints: Mapping[str, Mapping[str, Endpoint]],
        models: ModelEstimates,
    ) -> None:
        self._models = models
        self._store = ledger.store
        self._found = {
            one.step: found for one in planned if (found := one.artifact or one.below) is not None
        }
        self._edits = {one.step: one.edits for one in planned if one.edits}
        self._steps: list[Step] = []
        self._read: set[str] = set()
        self._claim_estimates = ClaimEstimates(models)
        self.guessed: set[str] = set()
        asked: set[str] = set()
        asked_alone: set[str] = set()
        fresh = {one.step: one.fresh_since for one in planned if one.fresh}

        def counter(name: str, known: set[str], shared: SharedCalls | None = None) -> StepCounter:
            since = fresh.get(name)
            anew = name in fresh and since is None
            how: dict[str, Any] = {"name": name, "fresh": anew, "since": since, "shared": shared}
            return StepCounter(endpoints[name], ledger, known, models, **how)

        names = {one.step for one in planned}
        self._shared: dict[str, SharedCalls] = {}
        for group in steps_that_share(step for step in pipeline.steps if step.name in names):
            self._shared |= dict.fromkeys(group, SharedCalls())
        self.counters = {
            name: counter(name, asked, self._shared.get(name))
            for name in endpoints
            if name not in self._found
        }
        self.cascades = {
            step.name: CascadeCounter(alone, counter(step.name, asked_alone))
            for step in pipeline.steps
            if step.name in self.counters and (alone := step.stage.without_cascade()) is not None
        }
        for step in reversed(pipeline.steps):
            if step.name in self.counters or step.name in self._read:
                self._steps.insert(0, step)
                self._read.update(() if step.name in self._found else step.needs)

    def count_part(self, part: int, of_slices: Sequence[pl.DataFrame]) -> None:
        """Count the calls for one part of the samples, which is given in its slices."""
        stored = self._stored(part)
        for samples in of_slices:
            self._count(samples, stored)

    def _count(self, samples: pl.DataFrame, stored: Mapping[str, pl.DataFrame]) -> None:
        """Count the calls for a slice of a part, of which these tables are stored."""
        tables = {SAMPLES: samples}
        for step in self._steps:
            if step.name in stored:
                table = stored[step.name]
                if "sample_id" in table.columns:
                    ids = samples.select("sample_id")
                    table = table.join(ids, on="sample_id", how="semi", maintain_order="left")
            else:
                table = self._made(step, tables)
            if step.name not in self._read:
                continue
            if step.name in self.counters:
                table = self._claim_estimates.complete(step, table, samples)
            edits = self._edits.get(step.name, ())
            row = step.stage.makes
            tables[step.name] = apply_edits(row, table, samples, edits) if edits else table
        for shared in self._shared.values():
            shared.count()

    def shared_with(self, name: str) -> tuple[str, ...]:
        """The steps in whose calls questions of the step `name` are counted."""
        shared = self._shared.get(name)
        return tuple(shared.shared_with.get(name, ())) if shared else ()

    def _stored(self, part: int) -> dict[str, pl.DataFrame]:
        """The tables of a part that are in the store, by step."""
        steps = [step for step in self._steps if step.name in self._found]
        if not steps:
            return {}
        with self._store.reading() as connection:

            def read(step: Step) -> pl.DataFrame:
                row, found = step.stage.makes, self._found[step.name]
                # Edits are applied to rows with all their columns.
                columns = tuple(row.model_fields) if step.name in self._edits else ()
                return read_artifact(connection, row, found, shard=part, columns=columns)

            return {step.name: read(step) for step in steps}

    def _made(self, step: Step, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
        """The table that the stage of a step makes with counting tools."""
        if not self._claim_estimates.steps.isdisjoint(step.needs):
            self.guessed.add(step.name)
        inputs = step.collect(lambda _, need: tables[need])
        if step.name not in self.counters:
            return run_stage(step.stage, inputs, self._models.lend(step.stage))
        table = run_stage(step.stage, inputs, self.counters[step.name].lend(step.stage))
        if step.name in self.cascades:
            self.cascades[step.name].add(inputs, table)
        return table
