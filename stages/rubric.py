"""Rubrics: criteria in words, judged sample by sample or claim by claim, and their scores."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

import polars as pl
from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from claimflow.stages.base import Stage
from claimflow.stages.judging.checks import (
    PASS_OR_FAIL,
    CheckVerdict,
    VotedCheck,
    answer_to_check,
    ask_checks,
)
from claimflow.stages.prompts import (
    PromptBlanks,
    blanks,
    fill_settings,
    tagged_text,
    unseen_digits,
)
from claimflow.stages.rows import RubricVerdict, SampleField
from claimflow.stages.scores.empty_cases import CASE_FIELD, EmptyCase, ScoreStage
from claimflow.stages.scores.finalize import finalize_scores
from claimflow.stages.scores.formulas import share
from claimflow.stages.tables import Claims, RubricVerdicts, Samples, Scores, schema
from claimflow.stages.tools import LLM, Form, Question

_GRADES: Final = 101
"""The most grades of a scale: 0 to 100."""

_TEXTS: Final = ("user_input", "response", "reference", "retrieved_contexts")


def _judgeable(reads: tuple[SampleField, ...]) -> tuple[SampleField, ...]:
    if not set(reads) - {"user_input"}:
        raise ValueError(
            "name response, reference or retrieved_contexts: there is nothing to judge"
        )
    return reads


Reads = Annotated[tuple[SampleField, ...], AfterValidator(_judgeable)]


CHECKS_TAGS: Final = ("checks by name", "field of checks")
"""The tags of the two forms of `checks`, which pydantic adds to the place of an error."""

Checks = Annotated[
    Annotated[dict[str, str], Field(min_length=1), Tag(CHECKS_TAGS[0])]
    | Annotated[str, Tag(CHECKS_TAGS[1])],
    Discriminator(lambda given: CHECKS_TAGS[isinstance(given, str)]),
]


def check_labels(scale: Mapping[int, str] | None) -> tuple[str, ...]:
    """The verdicts that a check may have, from the lowest to the highest."""
    if scale is None:
        return PASS_OR_FAIL
    return tuple(str(grade) for grade in range(min(scale), max(scale) + 1))


def check_score(verdict: str, labels: Sequence[str]) -> float:
    """A verdict from 0 for the lowest of `labels` to 1 for the highest."""
    return labels.index(verdict) / (len(labels) - 1)


class Check(NamedTuple):
    """One thing to judge: its name, and what must hold."""

    name: str
    criterion: str


class JudgeRubric(Stage):
    """Verdicts of a language model on the checks of a rubric, sample by sample or claim by claim.

    There is one check, `criterion`, or several `checks`: by name, or the name of the field that
    holds a list of texts for each sample. A check is passed or failed, or with a `scale` gets a
    grade, a whole number; the scale says what some of the grades stand for, the lowest and the
    highest among them. The judge reads the texts that `reads` names, and answers up to
    `checks_per_call` checks of a sample in one call. With `claims` every check is about each
    claim of the sample. With `votes` it is asked so many times independently, or several are, and
    the lower median of the votes counts: a check is passed if more than half say so.
    """

    use: ClassVar[str] = "rubric_verdicts"
    optional: ClassVar = frozenset({"claims"})
    columns: ClassVar = {"samples": ("sample_id", *_TEXTS, "metadata")}

    criterion: str | None = Field(
        default=None,
        min_length=1,
        description="What must hold, in words.",
        examples=["The response is polite and does not blame the user."],
    )
    checks: Checks | None = Field(
        default=None,
        description="What must hold, by name; or the field of the samples that lists it.",
        examples=[{"cites_source": "The response names where it knows this from."}, "expected"],
    )
    scale: dict[int, str] | None = Field(
        default=None,
        description="What the grades stand for; pass or fail when left out.",
        examples=[{1: "not at all", 3: "with effort", 5: "at once"}],
    )
    reads: Reads = ("user_input", "response")
    prompt: Annotated[str | None, PromptBlanks({"sample", "checks", "verdicts"})] = None
    checks_per_call: int = Field(default=8, ge=1, le=100)
    votes: int = Field(default=1, ge=1, le=99)

    @field_validator("scale")
    @classmethod
    def _has_ends(cls, scale: dict[int, str] | None) -> dict[int, str] | None:
        if scale is None:
            return scale
        if len(scale) < 2 or max(scale) - min(scale) >= _GRADES:
            right = f"the lowest and the highest, at most {_GRADES - 1} apart"
            raise ValueError(f"describe two grades or more: {right}")
        for grade, meaning in scale.items():
            if not meaning.strip() or blanks(meaning):
                raise ValueError(f"say in plain words what grade {grade} stands for")
        return dict(sorted(scale.items()))

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.criterion is None) == (self.checks is None):
            raise ValueError("write criterion, or checks for several of them")
        for name, text in (self._named or {}).items():
            if not text.strip():
                raise ValueError(f"say in words what must hold: {name} is blank")
        if self._named is None and not (self._field or "").strip():
            raise ValueError("checks is blank: name the field that lists them")
        if not self.prompt:
            raise ValueError(
                "only a language model judges a rubric: write a judge for the pipeline or the step"
            )
        return self

    @property
    def _named(self) -> dict[str, str] | None:
        """The checks that are the same for every sample."""
        if self.criterion is not None:
            return {"criterion": self.criterion}
        return self.checks if isinstance(self.checks, dict) else None

    @property
    def _field(self) -> str | None:
        """The field that lists the checks of each sample."""
        return self.checks if isinstance(self.checks, str) else None

    @property
    def labels(self) -> tuple[str, ...]:
        """The verdicts from the lowest to the highest."""
        return check_labels(self.scale)

    def required_fields(self) -> frozenset[SampleField]:
        """The texts that are judged; a sample without a question is judged without it."""
        return frozenset(self.reads) - {"user_input"}

    def required_metadata(self) -> frozenset[str]:
        """The field that lists the checks of each sample."""
        return frozenset({self._field} if self._field else ())

    def form(self) -> Form:
        """How a language model is asked."""
        prompt = fill_settings(self.prompt or "", {"verdicts": self._meanings()})
        answer = answer_to_check(self.labels)
        return Form(prompt, "checks", answer, self.checks_per_call, keep_part=True, about="sample")

    def _meanings(self) -> str:
        """What the verdicts stand for, for the prompt."""
        if self.scale is None:
            return '"pass" where the check holds, "fail" where it does not, in doubt "fail"'
        meanings = "; ".join(f"{grade}: {meaning}" for grade, meaning in self.scale.items())
        lowest, *_, highest = self.labels
        return f"a whole number from {lowest} to {highest}. {meanings}"

    def run(self, samples: Samples, claims: Claims | None = None, *, llm: LLM) -> RubricVerdicts:
        """One row per sample and check, with `claims` per claim and check, in their order.

        A sample that lacks a text that is judged has no row, nor has one whose list of checks, or
        of claims, is missing or empty. One whose field of checks holds no list of texts has one
        failed row. Every distinct question is asked once.
        """
        of_sample = _made_claims(claims) if claims is not None else None
        rows: list[dict[str, Any]] = []
        asked: list[Question | None] = []
        for sample in samples.iter_rows(named=True):
            if any(sample[field] is None for field in self.required_fields()):
                continue
            checks = self._checks_of(sample)
            if isinstance(checks, str):
                row = {"check_name": self._field, "criterion": None, "reason": checks}
                rows.append({"sample_id": sample["sample_id"], **row})
                asked.append(None)
                continue
            premise = sample_block(sample, self.reads)
            about = [(None, None)] if of_sample is None else of_sample.get(sample["sample_id"], [])
            for claim_id, claim in about:
                for check in checks:
                    row = {"claim_id": claim_id, **check._asdict()}
                    row["check_name"] = row.pop("name")
                    rows.append({"sample_id": sample["sample_id"], **row})
                    asked.append(Question(_check_text(check, claim), premise))
        questions = list(dict.fromkeys(question for question in asked if question))
        found = (
            ask_checks(questions, self.form(), llm, labels=self.labels, votes=self.votes)
            if questions
            else {}
        )
        verdicts = (self._columns(found[question]) if question else _FAILED for question in asked)
        made = [row | verdict for row, verdict in zip(rows, verdicts, strict=True)]
        return pl.DataFrame(made, schema=schema(RubricVerdict), orient="row")

    def _checks_of(self, sample: Mapping[str, Any]) -> Sequence[Check] | str:
        """The checks of a sample, or what is wrong with its list of them."""
        if self._named is not None:
            return [Check(*one) for one in self._named.items()]
        field = self._field or ""
        listed = json.loads(sample["metadata"]).get(field)
        if isinstance(listed, str):
            # A cell of a CSV file.
            try:
                listed = json.loads(listed) if listed.strip() else []
            except ValueError:
                return f"{field} is no list of texts"
        if listed is None:
            return []
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            return f"{field} is no list of texts"
        return [Check(f"{field}[{n}]", text) for n, text in enumerate(listed) if text.strip()]

    def _columns(self, found: VotedCheck) -> dict[str, Any]:
        votes = {"agreement": found.agreement, "ballot": found.ballot}
        match found.verdict:
            case CheckVerdict(verdict, reason, call_id):
                score = check_score(verdict, self.labels)
                judged = {"verdict": verdict, "score": score, "status": "judged"}
                return judged | {"reason": reason or None, "call_id": call_id} | votes
            case failure:
                why = {"failure": failure.kind, "reason": failure.message}
                return _FAILED | why | {"call_id": failure.call_id} | votes


_FAILED: Final = {"verdict": None, "score": None, "status": "failed"}


def _made_claims(claims: pl.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """(id, claim) of the claims of each sample, in their order."""
    made = claims.filter(pl.col("status") == "made", pl.col("claim").is_not_null())
    found: dict[str, list[tuple[str, str]]] = {}
    for sample_id, *claim in made.select("sample_id", "claim_id", "claim").iter_rows():
        found.setdefault(sample_id, []).append((claim[0], claim[1]))
    return found


def sample_block(sample: Mapping[str, Any], reads: Iterable[SampleField]) -> str:
    """The texts of a sample that a judge reads, each between tags that occur in none of them."""
    texts = list(_texts(sample, reads))
    digits = unseen_digits("\n\n".join(text for _, text in texts), [text for _, text in texts])
    return "\n\n".join(tagged_text(f"{name}-{digits}", text) for name, text in texts)


def _texts(sample: Mapping[str, Any], reads: Iterable[SampleField]) -> Iterator[tuple[str, str]]:
    for field in reads:
        text = sample[field]
        if isinstance(text, str):
            yield field, text
        elif text is not None:
            yield from (("retrieved_context", one or "") for one in text or [""])


def _check_text(check: Check, claim: str | None) -> str:
    if claim is None:
        return check.criterion
    # As JSON, so that a claim over several lines does not pass for a criterion.
    return f"{check.criterion}\nJudge this claim: {json.dumps(claim, ensure_ascii=False)}"


class Rubric(ScoreStage):
    """Share of the checks of a rubric that a sample passes, or its mean grade, in [0, 1].

    With a scale a grade counts from 0 for the lowest to 1 for the highest. The score is named
    `metric`: like the step where the pipeline file does not say.
    """

    use = "rubric"
    verdicts_by: ClassVar = JudgeRubric
    metrics = ("rubric",)
    metric_range = (0.0, 1.0)
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "reference", "contexts")
    optional: ClassVar = frozenset({"claims"})
    columns: ClassVar = {"samples": ("sample_id", *_TEXTS)}

    metric: str = Field(default="rubric", pattern=r"^[a-z][a-z0-9_]*$")
    reads: Reads = ("user_input", "response")

    @model_validator(mode="after")
    def _only_cases_that_are_read(self) -> Self:
        for case in self.cases:
            if getattr(self.empty, case) != "formula" and case not in self._cases:
                raise ValueError(f"empty.{case} has no effect: reads lacks {CASE_FIELD[case]}")
        return self

    @property
    def _cases(self) -> tuple[EmptyCase, ...]:
        return tuple(case for case in self.cases if CASE_FIELD[case] in self.reads)

    def required_fields(self) -> frozenset[SampleField]:
        """The texts that are judged."""
        return frozenset(CASE_FIELD[case] for case in self._cases)

    def run(
        self, samples: Samples, verdicts: RubricVerdicts, claims: Claims | None = None
    ) -> Scores:
        """One score per sample."""
        counts = samples.select("sample_id").join(
            _count_checks(verdicts), on="sample_id", how="left", maintain_order="left"
        )
        if claims is not None:
            undecomposed = claims.filter(pl.col("status") == "failed").select(
                "sample_id", undecomposed=pl.lit("the claims could not be made")
            )
            counts = counts.join(
                undecomposed.unique(), on="sample_id", how="left", maintain_order="left"
            ).with_columns(failure=pl.coalesce("undecomposed", "failure"))
        passed, checks = pl.col("passed"), pl.col("checks")
        value = pl.coalesce(share(passed, checks), "mean_score")
        empty = self.empty_cases_among(samples, [self._cases])[self._cases]
        return finalize_scores(
            pl.concat([empty, counts.drop("sample_id")], how="horizontal"),
            metric=self.metric,
            value=pl.when(pl.col("failure").is_null()).then(value),
            undefined=pl.lit("no checks" if claims is None else "no claims to check"),
            details={name: pl.col(name) for name in ("checks", "passed", "not_passed", "grade")},
            part=passed,
            whole=pl.when(passed.is_not_null()).then(checks),
        )


def _count_checks(verdicts: pl.DataFrame) -> pl.DataFrame:
    """One row per sample with a verdict.

    `checks`, the number of its rows; `passed`, and the names of the checks that are `not_passed`,
    NULL with a scale; with one the mean `grade`, and the `mean_score`; `failure`.
    """
    verdict, judged = pl.col("verdict"), pl.col("status") == "judged"
    graded = (~verdict.is_in(PASS_OR_FAIL)).any()
    failed = (~judged).sum()
    kinds = pl.col("failure").drop_nulls().unique().sort().str.join(", ")
    return verdicts.group_by("sample_id", maintain_order=True).agg(
        checks=pl.len().cast(pl.Int64),
        passed=pl.when(~graded).then((verdict == "pass").sum().cast(pl.Int64)),
        not_passed=pl.when(~graded).then(
            pl.col("check_name").filter(verdict == "fail").unique(maintain_order=True).implode()
        ),
        grade=pl.when(graded).then(verdict.cast(pl.Float64, strict=False).sort().mean()),
        mean_score=pl.col("score").sort().mean(),
        failure=pl.when(failed > 0).then(
            pl.format(
                "{} of {} checks have no verdict{}",
                failed,
                pl.len(),
                pl.when(kinds != "").then(pl.format(" ({})", kinds)).otherwise(pl.lit("")),
            )
        ),
    )
