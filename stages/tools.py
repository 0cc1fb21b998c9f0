"""The tools that a stage can ask for: protocols to annotate parameters of `run` with."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import polars as pl
from pydantic import BaseModel

from claimflow.stages.rows import FailureKind

Result = TypeVar("Result")


class Pair(NamedTuple):
    """A premise and a claim, about which an entailment model is asked."""

    premise: str
    claim: str


class Judgement(NamedTuple):
    """An entailment model's answer on one pair.

    Three probabilities that sum to 1, and the span `start:end` in characters of the premise
    that decided, 0:0 when none did.
    """

    entailed: float
    contradicted: float
    neutral: float
    start: int
    end: int


class Word(NamedTuple):
    """A word of a parsed sentence: the characters `start:end` of it.

    `tag` is its part of speech in the Penn Treebank's tags (`NN`). `relation` is its relation in
    Universal Dependencies (`nsubj`, `acl:relcl`) to the word with the index `head` among the words
    of the sentence; the root has the relation `root` and the head -1.
    """

    start: int
    end: int
    tag: str
    relation: str
    head: int


class Parser(Protocol):
    """Parses sentences into trees of words."""

    def parse(self, sentences: Sequence[str]) -> Mapping[str, tuple[Word, ...]]:
        """The words of each distinct sentence, in their order; one of them is the root.

        None for a sentence without words, and for one that is longer than the parser reads.
        """
        ...


class Embedder(Protocol):
    """Embeds texts as unit vectors, whose dot product is their cosine."""

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """One row per distinct text: `text` (String), `embedding` (Array of Float32)."""
        ...


class EntailmentModel(Protocol):
    """A model of natural language inference, for premises of any length."""

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair."""
        ...


class Question(NamedTuple):
    """One text that a language model is asked about, with what it is about where there is such.

    `premise` is what a claim is verified against, the sample of a check, or the context of a text.
    """

    text: str
    premise: str = ""


class Reply(NamedTuple):
    """A language model's answer to one question, of the type `Form.answer`, and its call."""

    answer: BaseModel
    call_id: str


class Failure(NamedTuple):
    """Why a question has no reply; `call_id` is the last call made for it, None without a call."""

    kind: FailureKind
    message: str
    call_id: str | None = None


class Form(NamedTuple):
    """How questions are put to a language model, and the shape of an answer.

    A call asks up to `per_call` questions. `prompt` has the blank named `about`, where questions
    have a premise, and the blank named `blank`, which is filled with the texts of questions with
    the same premise. A prompt with the plural of `about` (`{{premises}}`) in place of both takes
    questions with up to `premises` different premises: it is filled with each premise, followed by
    its texts.

    `answer` is the model of the answer to each. With `keep_part` the complete answers in a reply
    that was cut off are used; without it the whole reply is discarded. `draw` numbers
    independent answers to the same question, from 0.
    """

    prompt: str
    blank: str
    answer: type[BaseModel]
    per_call: int
    keep_part: bool
    draw: int = 0
    about: str = "premise"
    premises: int = 1


class Respondent(Protocol):
    """Answers questions, with each reply matched to its question."""

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Reply | Failure]:
        """One entry per distinct question."""
        ...


class LLM(Respondent, Protocol):
    """A language model that answers questions once, or in several independent votes."""

    def vote(self, votes: int, ask: Callable[[Respondent], Result]) -> Sequence[tuple[str, Result]]:
        """What `ask` returns for each vote, after the name of the language model that gave it.

        `ask` is called with one respondent for each vote, whose answers are independent of the
        others, in threads at the same time. It raises what the first call that fails raises.
        """
        ...


def embedding_table(
    texts: Sequence[str], embeddings: Sequence[bytes], *, dimension: int
) -> pl.DataFrame:
    """The table that `Embedder.embed` returns, from embeddings as little-endian Float32 bytes."""
    vectors = pl.Series("embedding", embeddings, pl.Binary)
    kind = pl.Array(pl.Float32, dimension)
    return pl.DataFrame(
        [
            pl.Series("text", texts, pl.String),
            vectors.bin.reinterpret(dtype=kind, endianness="little"),
        ]
    )
