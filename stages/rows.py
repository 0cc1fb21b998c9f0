"""Row models: every kind of row that stages exchange, their keys and closed sets of values.

A row model names its SQL table (`table`) and the fields that identify a row (`key`). Fields
marked `AUDIT` say how a row came about. They are stored and shown, but no stage reads them and
no table's digest counts them: two judges that give the same verdicts for different reasons
leave the scores unchanged.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

Side = Literal["response", "reference"]
SampleText = Literal["user_input", Side]
SampleField = Literal[SampleText, "retrieved_contexts"]
"""The texts of a sample: those that are decomposed into claims (`Side`), single texts, all."""

ClaimsField = Literal["response_claims", "reference_claims"]
CLAIMS_OF: Final[Mapping[Side, ClaimsField]] = {
    "response": "response_claims",
    "reference": "reference_claims",
}
"""The field for claims that come with a sample, by the text that they are of."""

Label = Literal["entailed", "contradicted", "neutral"]
"""The relation of a claim to a premise, by natural language inference."""

NonClaimKind = Literal[
    "greeting", "offer", "question", "instruction", "heading", "source", "markup", "code", "refusal"
]
"""What a sentence is that claims nothing: a greeting or other remark to the reader, an offer of
help, a question, an instruction, a heading or table header, a source line, markup without words,
a line of code, or a refusal to answer."""

JudgedBy = Literal["embedded", "judge", "audit"]
"""Whose verdict counts in a cascade: the embedded model's, which was sure; the judge's, because the
model was not sure; the judge's in an audit of a pair on which the model was sure."""

EndpointFailure = Literal["rate_limited", "server_error", "timeout", "bad_request", "too_long"]
ReplyFailure = Literal[
    "refused", "truncated", "empty", "unparseable", "invalid", "missing", "conflict"
]
FailureKind = Literal[EndpointFailure, ReplyFailure, "not_asked"]
"""Why a language model gave no answer. Of the endpoint: it limited the rate until the call's time
was over, failed or could not be reached, did not answer in time, rejected the request, or the text
is too long for its model. Of the reply: the model or its provider refused, the reply was cut off,
is empty, is no JSON, has another shape, lacks this question, or answers it in two different
ways. `not_asked`: the budget was spent."""

MatchCompat = Literal["continuous-eval-0.3"]
ClaimCompat = Literal["ragas-0.4", "ragas-0.4-legacy"]
PassageCompat = Literal["ragchecker-0.1"]
"""Libraries whose arithmetic a score can follow: on lexical matches, on claims, on claims by
passage. `ragas-0.4` are its collections, `ragas-0.4-legacy` its older metrics."""

_to_json: Final = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode


def content_key(kind: str, *parts: Any) -> str:
    """Key of a `kind` of thing made of JSON values: a 128-bit hash as a UUID string.

    Equal parts give equal keys on every machine and in every version. Parts that differ in
    type or are split differently give different keys, since they are hashed as one JSON array.
    """
    return str(UUID(bytes=hashlib.blake2b(canonical([kind, *parts]), digest_size=16).digest()))


def canonical(value: Any) -> bytes:
    """A JSON value as bytes in canonical form: sorted keys, no blanks, UTF-8.

    Raises `ValueError` for NaN and infinities.
    """
    return _to_json(value).encode("utf-8", "surrogatepass")


AUDIT: Final = "audit"
"""Mark of fields that say how a row came about: no stage reads them, no digest counts them."""

JSON: Final = "json"
Json = Annotated[str, JSON]  # a JSON object as text


class Row(BaseModel):
    """One row of a table. `None` is NULL in SQL; NaN and infinities are never stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]]


class Sample(Row):
    """One answer to evaluate, as it came in.

    `other_references` are further valid references: metrics that compare whole texts take the
    best of all, claim metrics use `reference` alone. `response_claims` and `reference_claims`
    are claims that came with the sample. `metadata` has every other field of the input.
    """

    table = "samples"
    key = ("sample_id",)
    sample_id: str
    user_input: str | None = None
    response: str | None = None
    reference: str | None = None
    retrieved_contexts: list[str] | None = None
    other_references: list[str] = Field(default=[])
    response_claims: list[str] | None = None
    reference_claims: list[str] | None = None
    metadata: Json = "{}"

    @property
    def metadata_fields(self) -> dict[str, Any]:
        """`metadata` as values."""
        fields: dict[str, Any] = json.loads(self.metadata)
        return fields


class Claim(Row):
    """One statement of a sample's response or reference that can be true or false.

    `start` and `end` are character offsets into its text, `call_id` is the call of the language
    model that gave it. `ambiguous` is what the claim leaves open, such as a pronoun that neither
    question nor text resolves; NULL where it is clear.
    A sentence that claims nothing has a row with `status` not_a_claim, its `kind` and no claim. A
    text whose decomposition failed has one row with `status` failed and no claim; where a
    language model was asked, `failure` says why.
    """

    table = "claims"
    key = ("claim_id",)
    claim_id: UUID
    sample_id: str
    of: Side
    claim: str | None
    start: Annotated[int | None, AUDIT] = None
    end: Annotated[int | None, AUDIT] = None
    status: Literal["made", "not_a_claim", "failed"] = "made"
    kind: Annotated[NonClaimKind | None, AUDIT] = None
    ambiguous: Annotated[str | None, AUDIT] = None
    failure: FailureKind | None = None
    reason: Annotated[str | None, AUDIT] = None
    call_id: Annotated[UUID | None, AUDIT] = None


class Citation(Row):
    """A retrieved context that the response cites for a claim.

    `passage` is the index of the context, from 0, and NULL for a marker that points to none. A
    claim has one row for each context that its sentence cites, and one for each marker that points
    to none. `marker` is the marker as it is written, or for one of several numbers the number
    in brackets: `[1]` and `[2]` of `[1, 2]`. `start` and `end` are character offsets of the whole
    marker in the response.
    """

    table = "citations"
    key = ("claim_id", "passage", "marker")
    claim_id: UUID
    sample_id: str
    marker: str
    passage: int | None
    start: Annotated[int, AUDIT]
    end: Annotated[int, AUDIT]


class Verdict(Row):
    """Whether a premise entails a claim.

    `passage` is the index of the retrieved context that was the premise, or NULL when the whole
    text (or all contexts joined) was. With `premises: cited` the premise is the contexts that the
    claim cites, joined: NULL when it was all of them, else the index of the one that was left out.
    `support` is how far the premise supports the claim, from 0 to 1: the probability of entailed by
    the embedded model, or of several votes without failure the share that say entailed; NULL where
    a single reply of a language model or a person decided. In a cascade it belongs to the verdict
    that counts. The probabilities sum to 1; a language model gives none, but a `reason`.
    `evidence` is the part of the premise that decided: `evidence_start` and `evidence_end` are
    character offsets into the text, or into the context numbered `evidence_passage`, NULL for a
    quote that is not in the premise. `call_id` is the call that gave the verdict, or failed last;
    `failure` says why a language model gave none. With several votes the verdict is that of more
    than half, `agreement` the share of the votes without failure that agree with it, and `ballot`
    has every vote; else both are NULL.
    In a cascade `judged_by` says whose verdict it is, and `model_verdict` is that of the
    embedded model, whose probabilities are on every row.
    """

    table = "verdicts"
    key = ("claim_id", "against", "passage")
    claim_id: UUID
    against: SampleField
    passage: int | None = None
    verdict: Label | None
    status: Literal["judged", "failed"] = "judged"
    failure: FailureKind | None = None
    support: float | None = None
    p_entailed: Annotated[float | None, AUDIT] = None
    p_contradicted: Annotated[float | None, AUDIT] = None
    p_neutral: Annotated[float | None, AUDIT] = None
    evidence: Annotated[str | None, AUDIT] = None
    evidence_passage: Annotated[int | None, AUDIT] = None
    evidence_start: Annotated[int | None, AUDIT] = None
    evidence_end: Annotated[int | None, AUDIT] = None
    reason: Annotated[str | None, AUDIT] = None
    call_id: Annotated[UUID | None, AUDIT] = None
    agreement: Annotated[float | None, AUDIT] = None
    ballot: Annotated[str | None, AUDIT, JSON] = None
    judged_by: Annotated[JudgedBy | None, AUDIT] = None
    model_verdict: Annotated[Label | None, AUDIT] = None


class RubricVerdict(Row):
    """What a language model says of one check of a rubric on a sample, or on one of its claims.

    `check_name` is the name of the check in the rubric, or its place in a list of the sample's own
    (`expected[0]`), and `criterion` the words of it. `claim_id` is NULL where the whole sample was
    judged. `verdict` is pass or fail, or a grade of the scale as text; `score` is the same as a
    number from 0 (fail, the lowest grade) to 1. `failure`, `reason` and `call_id` are as in
    `Verdict`. With several votes the verdict is their lower median, `agreement` the share of the
    votes without failure that say the same, and `ballot` has every vote; else both are NULL.
    """

    table = "rubric_verdicts"
    key = ("sample_id", "check_name", "claim_id")
    sample_id: str
    check_name: str
    claim_id: UUID | None = None
    criterion: str | None
    verdict: str | None
    score: float | None
    status: Literal["judged", "failed"] = "judged"
    failure: FailureKind | None = None
    reason: Annotated[str | None, AUDIT] = None
    call_id: Annotated[UUID | None, AUDIT] = None
    agreement: Annotated[float | None, AUDIT] = None
    ballot: Annotated[str | None, AUDIT, JSON] = None


class Similarity(Row):
    """Cosine of two texts' embeddings, in [-1, 1]; `similar` when it reaches a step's threshold."""

    table = "similarities"
    key = ("sample_id", "left", "right")
    sample_id: str
    left: SampleText
    right: SampleText
    cosine: float | None
    similar: bool | None = None
    status: Literal["measured", "undefined", "failed"] = "measured"
    reason: str | None = None


class SentenceMatch(Row):
    """Lexical agreement of one sentence of the response with a source text.

    `position` counts the sentences of the response from 0, NULL when all of it was compared.
    `source` counts the references from 0, NULL when the source was all retrieved contexts
    joined. Every measure lies in [0, 1]. `compat` names the library whose sentences, tokens
    and arithmetic were followed, NULL for our own; it has no clipped overlap and no chrF.
    chrF is measured on whole responses only.
    """

    table = "sentence_matches"
    key = ("sample_id", "against", "source", "position", "compat")
    sample_id: str
    against: Literal["reference", "retrieved_contexts"]
    source: int | None = None
    position: int | None = None
    sentence: Annotated[str, AUDIT]
    start: Annotated[int, AUDIT]
    end: Annotated[int, AUDIT]
    rouge_l_precision: float
    rouge_l_recall: float
    rouge_l_f1: float
    token_overlap_precision: float
    token_overlap_recall: float
    token_overlap_f1: float
    clipped_overlap_precision: float | None = None
    clipped_overlap_recall: float | None = None
    clipped_overlap_f1: float | None = None
    bleu: float
    chrf: float | None = None
    compat: MatchCompat | None = None


class Score(Row):
    """One metric of one sample, and in `details` the counts and values behind it.

    `score` is NULL when there was nothing to score (undefined) or an earlier step failed on the
    sample. A score that is a ratio of counts is `part` / `whole`, for means pooled over samples.
    """

    table = "scores"
    key = ("sample_id", "metric")
    sample_id: str
    metric: str
    score: float | None
    status: Literal["scored", "undefined", "failed"]
    reason: str | None = None
    part: float | None = None
    whole: float | None = None
    details: Json = "{}"


class Summary(Row):
    """One metric over many samples.

    `mean` is over the scored samples, each counting the same (macro); `low` and `high` bound its
    95 % interval, NULL below two. `micro_mean` is the sum of their parts over the sum of their
    wholes, NULL for metrics that are not a ratio of counts.
    `slice_field` and `slice_value` are a metadata field and its value, NULL for all samples.
    """

    table = "summaries"
    key = ("scores", "metric", "slice_field", "slice_value")
    scores: str
    metric: str
    slice_field: str | None = None
    slice_value: str | None = None
    n: int
    n_scored: int
    n_undefined: int
    n_failed: int
    mean: float | None
    low: float | None
    high: float | None
    micro_mean: float | None
    minimum: float | None
    median: float | None
    maximum: float | None


def row_kinds() -> tuple[type[Row], ...]:
    """Every kind of row, in the order of this module."""
    return tuple(Row.__subclasses__())
