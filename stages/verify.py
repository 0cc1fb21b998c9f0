"""Claim verification by natural language inference: entailed, contradicted or neutral."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import polars as pl
from pydantic import Field, ValidationInfo, field_validator

from claimflow.stages.base import Stage
from claimflow.stages.claim_rules.contexts import ContextSetting, completed_texts
from claimflow.stages.claim_rules.decompose import Completed
from claimflow.stages.judging.cascade import (
    Cascade,
    CascadeVerdict,
    LlmAnswer,
    ask_cascade,
)
from claimflow.stages.judging.verdicts import LlmVerdict, Opinion, ask_verdicts
from claimflow.stages.judging.votes import VotedVerdict, ask_votes
from claimflow.stages.prompts import PromptBlanks, blanks
from claimflow.stages.rows import Label, SampleField, Verdict
from claimflow.stages.sample_texts import Premise, Premises, premises_of
from claimflow.stages.tables import Citations, Claims, Samples, Verdicts, schema
from claimflow.stages.tools import LLM, EntailmentModel, Failure, Form, Judgement, Pair

_SEVERAL: Final = "premises"
"""The blank of a prompt for several premises, each with its claims."""

NO_PREMISE: Final = "the premise is empty"
NO_REPLY: Final = "the model gave no judgement"

_NO_PLACE: Final = {"evidence_start": None, "evidence_end": None}
"""The place of evidence in a statement that is not in the text."""

_NEUTRAL: Final = Judgement(0.0, 0.0, 1.0, 0, 0)

Answer = Judgement | CascadeVerdict | LlmAnswer


def _usual_claims_per_call(settings: Mapping[str, Any]) -> int:
    """16, but 8 as in earlier releases where the prompt takes one premise, or there is none."""
    prompt = settings.get("prompt", f"{{{{{_SEVERAL}}}}}")
    return 16 if prompt is not None and _SEVERAL in blanks(prompt) else 8


class VerifyClaims(Stage):
    """A verdict on every claim, by natural language inference against a field of its sample.

    Retrieved contexts are one premise, `joined` by line breaks, or a premise `each`. With
    `cited` the premise of a claim is the contexts that it cites, joined (`passage` NULL), and for
    three or more also those without each (`passage` is the one left out, and no part of the
    premise); a claim without citations has no verdict. A response or reference that is a short
    answer is read as the statement that it makes, where `context` (question, or conversation with
    the messages before) tells it: "Yes" as "Tin is a metal."
    Without a `prompt` an entailment model judges: a claim is entailed when that probability
    reaches `threshold`; if not, it is contradicted when that is the most probable of the
    three and reaches `contradiction_threshold`; else it is neutral. With a `prompt` a
    language model judges up to `claims_per_call` claims in a call (1: each on its own), on one
    premise or, where the prompt has the blank `{{premises}}`, on up to `premises_per_call` short
    ones; the thresholds have no meaning then. With `votes` it is asked so many times
    independently, or several are, and the verdict is that of more than half. With a
    `cascade` the entailment model judges first and the language model what it leaves open.
    """

    use: ClassVar[str] = "verify_claims"
    version: ClassVar[int] = 6
    canary_settings: ClassVar = {"against": "reference", "premises": "joined", "context": "none"}
    expects: ClassVar = {"citations": {"response_claims": "claims"}}

    against: Literal["reference", "response", "retrieved_contexts"]
    premises: Premises = "joined"
    threshold: float = Field(default=0.5, ge=0, le=1)
    contradiction_threshold: float = Field(default=0.4, ge=0, le=1)
    prompt: Annotated[str | None, PromptBlanks({"premise", "claims", _SEVERAL})] = None
    claims_per_call: int = Field(
        default_factory=_usual_claims_per_call, ge=1, le=100, json_schema_extra={"default": 16}
    )
    premises_per_call: int = Field(default=2, ge=1, le=100)
    votes: int = Field(default=1, ge=1, le=99)
    cascade: Cascade | None = None
    context: ContextSetting = "question"

    @field_validator("premises")
    @classmethod
    def _contexts_are_cited(cls, premises: Premises, info: ValidationInfo) -> Premises:
        if premises == "cited" and info.data.get("against", "") not in ("retrieved_contexts", ""):
            right = "write against: retrieved_contexts, or premises: joined"
            raise ValueError(f"only retrieved contexts are cited: {right}")
        return premises

    @field_validator("votes")
    @classmethod
    def _votes_need_a_language_model(cls, votes: int, info: ValidationInfo) -> int:
        if votes > 1 and info.data.get("prompt", "") is None:
            right = "write a judge for the pipeline or the step, or remove votes"
            raise ValueError(f"only a language model votes: {right}")
        return votes

    @field_validator("cascade")
    @classmethod
    def _cascade_fits(cls, cascade: Cascade | None, info: ValidationInfo) -> Cascade | None:
        if cascade is None:
            return cascade
        if info.data.get("prompt", "") is None:
            right = "write a judge in it or for the pipeline, or remove cascade"
            raise ValueError(f"it ends with a language model: {right}")
        low, high = cascade.between
        if not low <= info.data.get("threshold", low) <= high:
            raise ValueError(f"between must hold threshold, which is {info.data['threshold']:g}")
        return cascade

    @property
    def premise(self) -> SampleField | None:
        """The field that claims are verified against.

        None where the premise depends on the citations in the response as well, so that a
        correction by hand could outlive it.
        """
        return None if self.premises == "cited" else self.against

    def required_fields(self) -> frozenset[SampleField]:
        """The field that is the premise."""
        return frozenset({self.against})

    def ignores(self) -> frozenset[str]:
        """The one of the two models that does not judge (a cascade needs both), and citations."""
        models = () if self.cascade else ("model" if self.prompt else "llm",)
        return frozenset(models if self.premises == "cited" else (*models, "citations"))

    def without_cascade(self) -> Self | None:
        """The same verification by a language model alone; None without a cascade."""
        return self.model_copy(update={"cascade": None}) if self.cascade else None

    def form(self) -> Form:
        """How a language model is asked."""
        prompt, per_call = self.prompt or "", self.claims_per_call
        premises = self.premises_per_call if _SEVERAL in blanks(prompt) else 1
        return Form(prompt, "claims", Opinion, per_call, keep_part=True, premises=premises)

    def fingerprint_settings(self) -> dict[str, Any]:
        """As `Stage.fingerprint_settings`; premises per call count where a call takes several."""
        settings = super().fingerprint_settings()
        if _SEVERAL not in blanks(self.prompt or ""):
            del settings["premises_per_call"]
        return settings

    def run(
        self,
        samples: Samples,
        claims: Claims,
        citations: Citations | None = None,
        *,
        model: EntailmentModel | None = None,
        llm: LLM | None = None,
    ) -> Verdicts:
        """One row per claim and premise, in the order of the claims.

        A claim whose sample lacks the field has no row; nor has the row of a
        failed decomposition, nor a claim without citations if the cited contexts are the premise.
        An empty premise entails nothing, and no model is asked; so do citations that point to
        no context. Every distinct pair is asked once; a pair without a reply gives a failed row.
        """
        fields = dict(samples.select("sample_id", self.against).iter_rows())
        completed = self._completed(samples)
        phrases = self._phrases(samples, claims, completed) if llm is None else {}
        cited = self._cited(claims, citations)

        @cache
        def premises(sample_id: str, passages: tuple[int, ...], raw: bool) -> list[Premise]:
            text = fields.get(sample_id)
            if not raw:
                text = completed[sample_id].text if sample_id in completed else text
            return premises_of(text, self.premises, passages)

        made = claims.filter(pl.col("status") == "made", pl.col("claim").is_not_null())
        asked: list[tuple[str, Pair, Premise, bool]] = []
        for claim_id, sample_id, claim in made.select("claim_id", "sample_id", "claim").iter_rows():
            statement, phrase = phrases.get(sample_id, (None, ""))
            raw = claim == statement
            for premise in premises(sample_id, cited[claim_id], raw) if claim_id in cited else ():
                pair = Pair(premise.text, phrase if raw else claim)
                asked.append((claim_id, pair, premise, sample_id in completed and not raw))
        answers = self._ask((pair for _, pair, *_ in asked if pair.premise.strip()), model, llm)
        rows = [
            {
                "claim_id": claim_id,
                "against": self.against,
                "passage": premise.passage,
                **self._verdict(premise, answers.get(pair)),
                **(_NO_PLACE if is_completed else {}),
            }
            for claim_id, pair, premise, is_completed in asked
        ]
        return pl.DataFrame(rows, schema=schema(Verdict), orient="row")

    def _completed(self, samples: Samples) -> dict[str, Completed]:
        """The premises that are, or begin with, a short answer, by sample id."""
        if self.against == "retrieved_contexts":
            return {}
        return completed_texts(samples, self.against, self.context)

    def _phrases(
        self, samples: Samples, claims: Claims, premises: Mapping[str, Completed]
    ) -> dict[str, tuple[str, str]]:
        """Where both texts only name an answer: the statement of it and the answer, by sample id.

        The embedded model compares "Oslo" with "Bergen": in two statements that share the words of
        the question it would follow those. Measured on answers to open questions, accuracy is 74 %
        with phrases and 64 % with statements.
        """
        sides = set(claims["of"])
        if not premises or len(sides) != 1:
            return {}
        (side,) = sides
        texts = dict(samples.select("sample_id", side).iter_rows())
        return {
            sample_id: (one.text, texts[sample_id].strip())
            for sample_id, one in completed_texts(samples, side, self.context).items()
            if one.phrase and sample_id in premises and premises[sample_id].phrase
        }

    def _cited(
        self, claims: pl.DataFrame, citations: pl.DataFrame | None
    ) -> Mapping[str, tuple[int, ...]]:
        """The contexts that each claim cites; without `premises: cited` none for any claim."""
        if self.premises != "cited":
            return dict.fromkeys(claims["claim_id"], ())
        if citations is None:
            raise ValueError(f"{self.use} with premises: cited needs citations")
        passages = pl.col("passage").drop_nulls().unique().sort()
        by_claim = citations.group_by("claim_id").agg(passages).iter_rows()
        return {claim_id: tuple(cited) for claim_id, cited in by_claim}

    def _ask(
        self, pairs: Iterable[Pair], model: EntailmentModel | None, llm: LLM | None
    ) -> Mapping[Pair, Answer]:
        distinct = list(dict.fromkeys(pairs))
        if not distinct:
            return {}
        if llm is not None and model is not None and self.cascade:
            return ask_cascade(distinct, self.cascade, model, partial(self._ask_llm, llm))
        if llm is not None:
            return self._ask_llm(llm, distinct)
        return model.judge(distinct) if model is not None else {}

    def _ask_llm(self, llm: LLM, pairs: Sequence[Pair]) -> Mapping[Pair, LlmAnswer]:
        if self.votes > 1:
            return ask_votes(pairs, self.form(), llm, votes=self.votes)
        return ask_verdicts(pairs, self.form(), llm)

    def _verdict(self, premise: Premise, answer: Answer | None) -> dict[str, Any]:
        """The columns of a row that say what `answer` does; None is a pair without an answer."""
        match answer:
            case CascadeVerdict(judgement, judged_by, llm_answer):
                verdict = self._verdict(premise, llm_answer or judgement)
                cascade = {"judged_by": judged_by, "model_verdict": self.verdict_of(judgement)}
                return {**verdict, **_probabilities(judgement), **cascade}
            case VotedVerdict(verdict, agreement, support, ballot):
                votes = {"support": support, "agreement": agreement, "ballot": ballot}
                return {**self._verdict(premise, verdict), **votes}
            case Judgement():
                return self._by_model(premise, answer)
            case LlmVerdict():
                return self._by_llm(premise, answer)
            case Failure(kind, message, call_id):
                reason = {"reason": message, "failure": kind, "call_id": call_id}
                return {"verdict": None, "status": "failed", **reason}
            case None if not premise.text.strip():
                return {**self._by_model(premise, _NEUTRAL), "reason": NO_PREMISE}
        return {"verdict": None, "status": "failed", "reason": NO_REPLY}

    def _by_model(self, premise: Premise, judgement: Judgement) -> dict[str, Any]:
        return {
            "verdict": self.verdict_of(judgement),
            "status": "judged",
            "support": judgement.entailed,
            **_probabilities(judgement),
            **self._evidence(premise, judgement.start, judgement.end),
        }

    def _by_llm(self, premise: Premise, verdict: LlmVerdict) -> dict[str, Any]:
        return {
            "verdict": verdict.verdict,
            "status": "judged",
            "evidence": verdict.evidence,
            "reason": verdict.reason or None,
            "call_id": verdict.call_id,
            **self._evidence(premise, verdict.start, verdict.end),
        }

    def verdict_of(self, judgement: Judgement) -> Label:
        """The verdict by the probabilities of an entailment model.

        A claim that is more probably entailed than contradicted is never contradicted, however
        high `threshold` is.
        """
        entailed, contradicted, neutral = judgement[:3]
        if entailed >= self.threshold:
            return "entailed"
        if contradicted > max(entailed, neutral) and contradicted >= self.contradiction_threshold:
            return "contradicted"
        return "neutral"

    def _evidence(self, premise: Premise, start: int, end: int) -> dict[str, Any]:
        """The columns of the evidence `start:end` in the premise; none for an empty span."""
        if end <= start:
            return {}
        number, start, end = premise.locate(start, end)
        of_contexts = self.against == "retrieved_contexts"
        return {
            "evidence": premise.texts[number][start:end],
            "evidence_passage": premise.context(number) if of_contexts else None,
            "evidence_start": start,
            "evidence_end": end,
        }


def _probabilities(judgement: Judgement) -> dict[str, float]:
    return {
        "p_entailed": judgement.entailed,
        "p_contradicted": judgement.contradicted,
        "p_neutral": judgement.neutral,
    }
