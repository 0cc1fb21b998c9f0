"""The English Web Treebank (`tests/data/treebank`): sentences with a tree of words."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tokenizers import Tokenizer

TRAIN: Final = Path(__file__).parents[2] / "data" / "treebank" / "en_ewt-train.conllu.gz"

KEPT: Final = frozenset(
    "acl:relcl nsubj:pass nsubj:outer csubj:pass aux:pass obl:agent nmod:poss compound:prt "
    "obl:tmod obl:unmarked cc:preconj det:predet nmod:unmarked nmod:tmod".split()
)
"""Relations with a subtype that is kept; of others the part before the colon is."""

_CLS, _SEP, _UNKNOWN = 101, 102, 100


class TreebankWord(NamedTuple):
    """A word; `head` is the number of the word that it depends on, from 1, and 0 for the root.

    `spaced` says whether white space follows.
    """

    text: str
    tag: str
    head: int
    relation: str
    spaced: bool


class TreebankSentence(NamedTuple):
    """A sentence, and the line that names its document."""

    document: str
    words: tuple[TreebankWord, ...]

    @property
    def text(self) -> str:
        """The sentence as it was written."""
        parts = (word.text + " " * word.spaced for word in self.words)
        return "".join(parts).rstrip()


def read_treebank(path: Path = TRAIN) -> list[TreebankSentence]:
    """The sentences of a gzip-compressed CoNLL-U file, in their order."""
    found: list[TreebankSentence] = []
    document, words = "", list[TreebankWord]()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in (one.removesuffix("\n") for one in lines):
            if line.startswith("# newdoc"):
                document = line
            elif not line and words:
                found.append(TreebankSentence(document, tuple(words)))
                words = []
            elif line and line[0] != "#":
                words += _word(line.split("\t"))
    return found


def _word(fields: Sequence[str]) -> list[TreebankWord]:
    """The word of a line; nothing for the line of a contraction or of an omitted word."""
    if not fields[0].isdigit():
        return []
    relation = fields[7] if fields[7] in KEPT else fields[7].split(":")[0]
    spaced = "SpaceAfter=No" not in fields[9]
    return [TreebankWord(fields[1], fields[4], int(fields[6]), relation, spaced)]


def names(sentences: Sequence[TreebankSentence]) -> tuple[list[str], list[str]]:
    """The relations and the tags of all words, sorted."""
    words = [word for sentence in sentences for word in sentence.words]
    return sorted({word.relation for word in words}), sorted({word.tag for word in words})


def held_out(sentences: Sequence[TreebankSentence]) -> frozenset[str]:
    """The twentieth of the documents on which nothing is trained."""
    documents = sorted({sentence.document for sentence in sentences})
    Random(5).shuffle(documents)
    return frozenset(documents[: len(documents) // 20])


def encode(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """The ids of a sentence's word pieces, and the places of [CLS] and of each word's first piece.

    `tokenizer` must neither pad nor truncate.
    """
    ids, first = [_CLS], [0]
    for word in words:
        first.append(len(ids))
        ids += tokenizer.encode(word, add_special_tokens=False).ids or [_UNKNOWN]
    return [*ids, _SEP], first
