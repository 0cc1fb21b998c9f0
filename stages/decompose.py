"""Claims of samples: decomposed from a response or reference, or supplied with the sample."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import polars as pl
from pydantic import Field, ValidationInfo, field_validator

from claimflow.stages.base import Stage
from claimflow.stages.claim_rules.contexts import (
    ContextSetting,
    contexts_of,
    conversation_text,
)
from claimflow.stages.claim_rules.decompose import TextClaim, non_claims, take_apart_all
from claimflow.stages.claim_rules.questions import NO_CONTEXT, Context
from claimflow.stages.claim_rules.reading import NonClaim
from claimflow.stages.judging.claims import ContextDecomposition, Decomposition, ask_claims
from claimflow.stages.prompts import PromptBlanks, blanks, fill_settings
from claimflow.stages.rows import CLAIMS_OF, Claim, ClaimsField, SampleField, Side, content_key
from claimflow.stages.tables import Claims, Samples, build
from claimflow.stages.text.citations import find_marks
from claimflow.stages.text.locate import source_sentences
from claimflow.stages.tools import LLM, Failure, Form, Parser, Question

_CONTEXT: Final = "context"
"""The blank of a prompt for what a reader of the text knows."""

_CONTEXTS: Final = "contexts"
"""The blank of a prompt for several contexts, each with its texts."""

_BLANKS: Final = PromptBlanks({"texts", "atomicity", "coverage", _CONTEXT, _CONTEXTS})


def _usual_texts_per_call(settings: Mapping[str, Any]) -> int:
    """4, but 1 as in earlier releases where the prompt takes one context, or there is none."""
    prompt = settings.get("prompt", f"{{{{{_CONTEXTS}}}}}")
    return 4 if prompt is not None and _CONTEXTS in blanks(prompt) else 1


class DecomposeClaims(Stage):
    """Claims of one side of every sample, by rules or, with a `prompt`, by a language model.

    `atomicity` says how finely a sentence is split: low keeps it in one piece, high makes
    one claim of every statement in it. `coverage` says how much of it is kept: high keeps
    every detail, low the main point. The rules are of English; a sentence of another
    language is one claim. A claim made twice in one text counts once. A sentence that claims
    nothing (a greeting, a question, a heading) is a row of its own with its kind. A language model
    is asked about up to `texts_per_call` short texts at a time, with a prompt that has the blank
    `{{context}}` only about texts with the same context.

    `context` is what a reader of the text knows: the question (`user_input`), with conversation
    also the messages before it. A short answer then becomes the statement that it makes, and words
    such as "he" are resolved; a claim that stays unclear is marked as ambiguous. A prompt without
    the blank `{{contexts}}` or `{{context}}` leaves the language model without it.

    With `citation_markers` remove, claims are made of the text without `[1]` and other markers,
    footnotes and fenced code, since a number in a claim would be taken for a part of what it
    states. A sample that comes with claims of its own keeps them unchanged, unless `supplied` is
    ignore.
    """

    use: ClassVar[str] = "decompose_claims"
    version: ClassVar[int] = 10
    by_row: ClassVar[bool] = True
    columns: ClassVar = {"samples": ("sample_id", *CLAIMS_OF, *CLAIMS_OF.values())}
    later_settings: ClassVar = frozenset({"citation_markers"})

    of: Side
    atomicity: Literal["low", "high"] = "low"
    coverage: Literal["low", "high"] = "low"
    prompt: Annotated[str | None, _BLANKS] = None
    context: ContextSetting = "question"
    texts_per_call: int = Field(
        default_factory=_usual_texts_per_call, ge=1, le=50, json_schema_extra={"default": 4}
    )
    supplied: Literal["prefer", "ignore"] = "prefer"
    citation_markers: Literal["keep", "remove"] = "keep"

    @field_validator("context")
    @classmethod
    def _prompt_has_the_blank(cls, context: str, info: ValidationInfo) -> str:
        prompt = info.data.get("prompt")
        if context != "none" and prompt is not None and not _reads_context(prompt):
            right = "put {{contexts}} in place of {{texts}} in the prompt, or write context: none"
            raise ValueError(f"the prompt has no blank for it: {right}")
        return context

    @property
    def claims_of(self) -> Side:
        """The side that is decomposed."""
        return self.of

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Of the samples, question and metadata only where they are the context."""
        context = {"none": (), "question": ("user_input",)}
        return self.columns[name] + context.get(self.context, ("user_input", "metadata"))

    def required_fields(self) -> frozenset[SampleField]:
        """The side that is decomposed."""
        return frozenset({self.of})

    def ignores(self) -> frozenset[str]:
        """The language model without a prompt for it; the parser where no sentence is split."""
        if self.prompt:
            return frozenset({"parser"})
        return frozenset({"llm"} if self.atomicity == "high" else {"llm", "parser"})

    def languages(self) -> frozenset[str] | None:
        """English by rules, which keep a sentence of another language as one claim."""
        return None if self.prompt else frozenset({"English"})

    def without_llm(self) -> Self:
        """The same decomposition by rules."""
        return self.model_copy(update={"prompt": None})

    def form(self) -> Form:
        """How a language model is asked."""
        settings = {"atomicity": self.atomicity, "coverage": self.coverage}
        prompt = fill_settings(self.prompt or "", settings)
        answer = ContextDecomposition if _reads_context(prompt) else Decomposition
        several = self.texts_per_call if _CONTEXTS in blanks(prompt) else 1
        return Form(
            prompt,
            "texts",
            answer,
            self.texts_per_call,
            keep_part=False,
            about=_CONTEXT,
            premises=several,
        )

    def run(
        self, samples: Samples, *, llm: LLM | None = None, parser: Parser | None = None
    ) -> Claims:
        """One row per claim and per sentence that claims nothing, in the order of the samples.

        The rows of a sample are in the order of its text. A sample whose text is missing or empty
        has no row, nor has one that comes with an empty list of claims. One whose text the
        language model could not decompose has a row with `status` failed.
        """
        texts = dict(samples.select("sample_id", self.of).iter_rows())
        supplied = self._supplied(samples)
        unsupplied = {
            sample_id: text
            for sample_id, text in texts.items()
            if text and text.strip() and sample_id not in supplied
        }
        contexts = contexts_of(samples, self.context)
        if self.citation_markers == "remove":
            made = self._without_markers(unsupplied, contexts, llm, parser)
        else:
            made = self._made(unsupplied, contexts, llm, parser)
        if not supplied:
            return build(Claim, made)
        rows = list(made)
        for sample_id, claims in supplied.items():
            rows += supplied_claim_rows(sample_id, self.of, claims, texts[sample_id])
        position = {sample_id: number for number, sample_id in enumerate(texts)}
        rows.sort(key=lambda row: position[row["sample_id"]])
        return build(Claim, rows)

    def _supplied(self, samples: Samples) -> dict[str, list[str]]:
        """The claims that come with samples, by sample id."""
        field = CLAIMS_OF[self.of]
        if self.supplied == "ignore" or samples[field].null_count() == samples.height:
            return {}
        supplied = samples.filter(pl.col(field).is_not_null()).select("sample_id", field)
        return dict(supplied.iter_rows())

    def _made(
        self,
        texts: Mapping[str, str],
        contexts: Mapping[str, Context],
        llm: LLM | None,
        parser: Parser | None,
    ) -> Iterator[dict[str, Any]]:
        if llm is None:
            return self._by_rules(texts, contexts, parser)
        return self._by_llm(texts, contexts, llm)

    def _without_markers(
        self,
        texts: Mapping[str, str],
        contexts: Mapping[str, Context],
        llm: LLM | None,
        parser: Parser | None,
    ) -> Iterator[dict[str, Any]]:
        """Claims of the texts without markers, with their places in the texts as they are."""
        marked = {sample_id: find_marks(text, None) for sample_id, text in texts.items()}
        bare = {sample_id: one.text for sample_id, one in marked.items() if one.text.strip()}
        for row in self._made(bare, contexts, llm, parser):
            if row["start"] is not None:
                span = marked[row["sample_id"]].original(row["start"], row["end"])
                row |= {"start": span.start, "end": span.end}
            yield row

    def _by_rules(
        self, texts: Mapping[str, str], contexts: Mapping[str, Context], parser: Parser | None
    ) -> Iterator[dict[str, Any]]:
        found = take_apart_all(
            [(text, contexts.get(sample_id, NO_CONTEXT)) for sample_id, text in texts.items()],
            atomicity=self.atomicity,
            coverage=self.coverage,
            parser=parser,
        )
        for sample_id, units in zip(texts, found, strict=True):
            yield from (self._row(sample_id, unit) for unit in units)

    def _row(self, sample_id: str, found: TextClaim | NonClaim) -> dict[str, Any]:
        if isinstance(found, NonClaim):
            return _non_claim_row(sample_id, self.of, found)
        span = found.start, found.end
        return claim_row(sample_id, self.of, found.claim, span) | {"ambiguous": found.ambiguous}

    def _by_llm(
        self, texts: Mapping[str, str], contexts: Mapping[str, Context], llm: LLM
    ) -> Iterator[dict[str, Any]]:
        if not _reads_context(self.prompt or ""):
            contexts = {}  # The language model reads the texts alone.
        questions = {
            sample_id: Question(text, conversation_text(contexts.get(sample_id, NO_CONTEXT)))
            for sample_id, text in texts.items()
        }
        replies = ask_claims(questions.values(), self.form(), llm)
        for sample_id, text in texts.items():
            found = replies[questions[sample_id]]
            if isinstance(found, Failure):
                yield claim_row(sample_id, self.of, None) | {
                    "status": "failed",
                    "failure": found.kind,
                    "reason": found.message,
                    "call_id": found.call_id,
                }
                continue
            # Models do not say which sentence a claim is from: the likeliest is taken.
            spans = source_sentences([claim.claim for claim in found], text)
            rows = [
                claim_row(sample_id, self.of, claim, span)
                | {"call_id": call_id, "ambiguous": ambiguous}
                for (claim, call_id, ambiguous), span in zip(found, spans, strict=True)
            ]
            # Nor do they name what claims nothing: that is what the rules say of sentences
            # that no claim was made of.
            made_of = [span for span in spans if span]
            if _has_more(text, made_of):
                rows += (
                    _non_claim_row(sample_id, self.of, one)
                    for one in non_claims(text, contexts.get(sample_id, NO_CONTEXT))
                    if not any(start < one.end and one.start < end for start, end in made_of)
                )
            yield from rows


def _has_more(text: str, spans: Iterable[tuple[int, int]]) -> bool:
    """Whether there is anything in a text outside `spans`, which saves reading most texts."""
    place = 0
    for start, end in sorted(spans):
        if text[place:start].strip():
            return True
        place = max(place, end)
    return bool(text[place:].strip())


def _reads_context(prompt: str) -> bool:
    return not blanks(prompt).keys().isdisjoint((_CONTEXT, _CONTEXTS))


class SuppliedClaims(Stage):
    """The claims that come with the samples for one side, unchanged; no model is asked.

    A claim that occurs twice in a sample counts once.
    """

    use: ClassVar[str] = "supplied_claims"
    version: ClassVar[int] = 4
    by_row: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "samples": ("sample_id", *CLAIMS_OF, *CLAIMS_OF.values())
    }

    of: Side

    @property
    def claims_of(self) -> Side:
        """The side whose claims are taken."""
        return self.of

    def required_fields(self) -> frozenset[ClaimsField]:
        """The claims of that side."""
        return frozenset({CLAIMS_OF[self.of]})

    def run(self, samples: Samples) -> Claims:
        """One row per claim, in the order of the samples and of their claims.

        A sample without claims, or with an empty list of them, has no row.
        """
        supplied = samples.select("sample_id", CLAIMS_OF[self.of], self.of).iter_rows()
        return build(
            Claim,
            (
                row
                for sample_id, claims, text in supplied
                for row in supplied_claim_rows(sample_id, self.of, claims or (), text)
            ),
        )


def supplied_claim_rows(
    sample_id: str, of: Side, claims: Iterable[str], text: str | None
) -> list[dict[str, Any]]:
    """A row for each distinct claim that people wrote, unchanged and in order.

    `start` and `end` are those of the sentence of `text` that shares most words with the claim,
    NULL where no sentence does or there is no text.
    """
    distinct = list(dict.fromkeys(claims))
    spans = source_sentences(distinct, text or "")
    return [
        claim_row(sample_id, of, claim, span) for claim, span in zip(distinct, spans, strict=True)
    ]


def _non_claim_row(sample_id: str, of: Side, found: NonClaim) -> dict[str, Any]:
    """The row of a sentence that claims nothing, whose key is a hash of its place."""
    key = content_key("not a claim", sample_id, of, found.start, found.end)
    return claim_row(sample_id, of, None, (found.start, found.end)) | {
        "claim_id": key,
        "status": "not_a_claim",
        "kind": found.kind,
    }


def claim_row(
    sample_id: str, of: Side, claim: str | None, span: tuple[int, int] | None = None
) -> dict[str, Any]:
    """The row of a claim, whose key is a hash of its text, its sample and its side.

    `claim` is None in the row of a failed decomposition.
    """
    key = content_key("claim", sample_id, of, claim)
    start, end = span or (None, None)
    return {
        "claim_id": key,
        "sample_id": sample_id,
        "of": of,
        "claim": claim,
        "start": start,
        "end": end,
    }
