"""The protocols of the tools a stage can ask for by naming one in the signature of `run`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import polars as pl
from pydantic import BaseModel

from claimflow.stages.rows import FailureKind


class Pair(NamedTuple):
    """What an entailment model is asked about: does the premise entail the claim?"""

    premise: str
    claim: str


class Judgement(NamedTuple):
    """An entailment model's answer.

    Three probabilities that sum to 1, and the characters `start:end` of the premise that
    decided (0:0 when none did).
    """

    entailed: float
    contradicted: float
    neutral: float
    start: int
    end: int


class Embedder(Protocol):
    """Turns texts into unit vectors whose dot product is their cosine."""

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """One row per distinct text: `text` (String), `embedding` (Array of Float32)."""
        ...


class EntailmentModel(Protocol):
    """Judges natural language inference, for premises of any length."""

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair."""
        ...


class Question(NamedTuple):
    """One text that a language model is asked about, held against a premise where it has one."""

    text: str
    premise: str = ""


class Reply(NamedTuple):
    """What a language model said of one question, and the call that brought it."""

    answer: BaseModel
    call_id: str


class Failure(NamedTuple):
    """Why a question has no reply; `call_id` is the last call that tried, if there was one."""

    kind: FailureKind
    message: str
    call_id: str | None = None


class Form(NamedTuple):
    """How questions are put to a language model, and what counts as an answer.

    `prompt` has the blanks `{{premise}}`, where questions have one, and the one named
    `blank`, which takes the texts of up to `per_call` questions that share a premise. `answer`
    is what the model is to say of each. With `keep_part` the whole answers in a reply
    that was cut off count; without it such a reply counts for nothing. `draw` tells
    independent answers to one question apart; 0 is the usual one.
    """

    prompt: str
    blank: str
    answer: type[BaseModel]
    per_call: int
    keep_part: bool
    draw: int = 0


class Respondent(Protocol):
    """Whoever answers questions, each reply matched to its question."""

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Reply | Failure]:
        """One entry per distinct question."""
        ...


class Voter(NamedTuple):
    """One of several that are asked the same; `judge` names the model behind it."""

    judge: str
    llm: Respondent


class LLM(Respondent, Protocol):
    """A language model that answers questions, once or in several independent votes."""

    def voters(self, votes: int) -> Sequence[Voter]:
        """As many as there are votes, whose answers do not depend on each other."""
        ...


def embedding_table(
    texts: Sequence[str], embeddings: Sequence[bytes], *, dimension: int
) -> pl.DataFrame:
    """`text` (String) and `embedding` (Array of Float32), each of them given as its bytes."""
    vectors = pl.Series("embedding", embeddings, pl.Binary)
    kind = pl.Array(pl.Float32, dimension)
    return pl.DataFrame(
        [
            pl.Series("text", texts, pl.String),
            vectors.bin.reinterpret(dtype=kind, endianness="little"),
        ]
    )
