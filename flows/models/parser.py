"""The dependency parser that claimflow carries: sentences to trees of words."""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.files import sha256_of
from claimflow.flows.models.onnx import equal_length_batches, load_tokenizer, open_session
from claimflow.stages.text.sentences import Span
from claimflow.stages.tools import Word

PARSER_FOLDER: Final = Path(__file__).parent / "weights" / "parser"

MODEL_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"
NAMES_FILE: Final = "names.json"

WINDOW: Final = 200
"""Word pieces of a sentence at most, with [CLS] and [SEP]."""

WORDS_VERSION: Final = 1
"""Raised when `cut_words` starts to cut the same sentence differently; part of the identity."""

ROOT: Final = "root"

_BATCH_TOKENS: Final = 256
"""Tokens in a batch; so few that the activations of a layer stay in the processor's cache."""

_CLS, _SEP, _UNKNOWN = 101, 102, 100

Scores = NDArray[np.float64]
Indices = NDArray[np.intp]


class EmbeddedParser:
    """Tags and dependency trees of English sentences, by a network.

    Sentences are cut into words as in the English Web Treebank of Universal Dependencies. Of all
    trees with one root the one with the highest sum of scores is chosen. A tree depends on its
    sentence alone.

    `folder` holds the network. `threads` bounds the threads of a call; None takes every core. Any
    thread may call any method; they take turns with the network, which is loaded when it is
    first needed.
    """

    languages: ClassVar = frozenset({"English"})
    """The languages that it was taught, as `language_of` names them."""

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        self._folder = folder or PARSER_FOLDER
        self._threads = threads
        self._lock = threading.Lock()

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a tree; known without loading the network."""
        names = (MODEL_FILE, TOKENIZER_FILE, NAMES_FILE)
        files = {name: sha256_of(self._folder / name) for name in names}
        return {"words": WORDS_VERSION, **files}

    def parse(self, sentences: Sequence[str]) -> Mapping[str, tuple[Word, ...]]:
        """The words of each distinct sentence, in their order; exactly one of them is the root.

        None for a sentence without words, and for one with more than `WINDOW` word pieces.
        """
        trees: dict[str, tuple[Word, ...]] = dict.fromkeys(sentences, ())
        words = {sentence: cut_words(sentence, WINDOW) for sentence in trees}
        some = {sentence: found for sentence, found in words.items() if 0 < len(found) <= WINDOW}
        if some:
            with self._lock:
                trees |= self._network.trees(some)
        return trees

    @cached_property
    def _network(self) -> "Network":
        return Network(self._folder, threads=self._threads)


class _Encoded(NamedTuple):
    """The word pieces of a sentence, and the places of [CLS] and of each word's first piece."""

    ids: tuple[int, ...]
    first: tuple[int, ...]


class Network:
    """The network in `folder`, loaded; `threads` None takes every core."""

    def __init__(self, folder: Path, *, threads: int | None) -> None:
        self._tokenizer = load_tokenizer(folder / TOKENIZER_FILE)
        self._session = open_session(folder / MODEL_FILE, threads=threads)
        names = json.loads((folder / NAMES_FILE).read_text("utf-8"))
        self._relations: list[str] = names["relations"]
        self._tags: list[str] = names["tags"]

    def trees(self, words: Mapping[str, Sequence[Span]]) -> dict[str, tuple[Word, ...]]:
        """The tree of each sentence with its words; a sentence that is too long has none."""
        encoded = self._encoded(words)
        found: dict[str, tuple[Word, ...]] = {}
        for batch in equal_length_batches(
            encoded, lambda one: len(encoded[one].ids), tokens=_BATCH_TOKENS
        ):
            ids = np.array([encoded[sentence].ids for sentence in batch], np.int64)
            arcs, relations, tags = self._session.run(None, {"input_ids": ids})
            for row, sentence in enumerate(batch):
                first = np.array(encoded[sentence].first)
                heads = best_heads(arcs[row][np.ix_(first, first)].astype(np.float64))
                named = relations[row][first, first[heads]].tolist()
                found[sentence] = tuple(
                    Word(*span, self._tags[tag], self._relations[name] if head else ROOT, head - 1)
                    for span, tag, name, head in zip(
                        words[sentence],
                        tags[row][first].tolist()[1:],
                        named[1:],
                        heads.tolist()[1:],
                        strict=True,
                    )
                )
        return found

    def _encoded(self, words: Mapping[str, Sequence[Span]]) -> dict[str, _Encoded]:
        """The sentences that fit into the window."""
        texts = {
            sentence: [sentence[start:end] for start, end in spans]
            for sentence, spans in words.items()
        }
        distinct = list(dict.fromkeys(text for found in texts.values() for text in found))
        # A half of a surrogate pair is no text to a tokenizer.
        readable = [text.encode(errors="replace").decode() for text in distinct]
        encodings = self._tokenizer.encode_batch(readable, add_special_tokens=False)
        pieces = {
            text: encoding.ids or [_UNKNOWN]
            for text, encoding in zip(distinct, encodings, strict=True)
        }
        found = {}
        for sentence, parts in texts.items():
            ids, first = [_CLS], [0]
            for part in parts:
                first.append(len(ids))
                ids += pieces[part]
            if len(ids) < WINDOW:
                found[sentence] = _Encoded((*ids, _SEP), tuple(first))
        return found


class _Contracted(NamedTuple):
    """A cycle of words that counts as one word, the first of it.

    `heads` are those of the words on the cycle. For each of the words `outside`, `entered` is the
    word on the cycle that would best depend on it, and `left` the best head for it there.
    """

    cycle: Indices
    heads: Indices
    outside: Indices
    entered: Indices
    left: Indices


def best_heads(scores: Scores) -> Indices:
    """The heads of the tree with the highest sum of scores (Chu and Liu 1965, Edmonds 1967).

    `scores` has a row for each word as a dependent and a column for each as a head. Index 0 is no
    word but the head of the root, of which there is one; its own head is 0. Time grows with the
    square of the words for each cycle among the best heads, and so at most with the cube.
    """
    scores, reach = scores.copy(), np.ptp(scores)
    np.fill_diagonal(scores, -np.inf)
    scores[0] = -np.inf
    heads: Indices = scores.argmax(1)
    if np.count_nonzero(heads == 0) == 2 and not len(_cycle(heads.tolist())):
        return heads
    # A second root costs more than any other choice gains.
    scores[1:, 0] -= len(scores) * (reach + 1)
    heads = scores.argmax(1)
    contracted: list[_Contracted] = []
    alive = np.ones(len(scores), np.bool_)
    while len(cycle := _cycle(heads.tolist())):
        name, rest = cycle[0], cycle[1:]
        alive[cycle] = False
        outside = np.flatnonzero(alive)
        gains = scores[np.ix_(cycle, outside)] - scores[cycle, heads[cycle]][:, None]
        leaving = scores[np.ix_(outside, cycle)]
        entered, left = cycle[gains.argmax(0)], cycle[leaving.argmax(1)]
        contracted.append(_Contracted(cycle, heads[cycle], outside, entered, left))
        alive[name] = True
        scores[name, outside], scores[outside, name] = gains.max(0), leaving.max(1)
        scores[rest], scores[:, rest] = -np.inf, -np.inf
        heads = scores.argmax(1)
    for cycle, inside, outside, entered, left in reversed(contracted):
        name, head = cycle[0], heads[cycle[0]]
        heads[outside] = np.where(heads[outside] == name, left, heads[outside])
        heads[cycle] = inside
        heads[entered[outside == head]] = head
    return heads


def _cycle(heads: Sequence[int]) -> Indices:
    """Words each of which is the head of the one before, and the first of the last; or none."""
    seen = [0] * len(heads)
    seen[0] = len(heads)
    for start in range(1, len(heads)):
        word = start
        while not seen[word]:
            seen[word] = start
            word = heads[word]
        if seen[word] == start:
            cycle = [word]
            while heads[cycle[-1]] != word:
                cycle.append(heads[cycle[-1]])
            return np.array(cycle)
    return np.array([], np.intp)


_ABBREVIATIONS: Final = "|".join(
    r"Mr Mrs Ms Dr Prof St Jr Sr Sen Rep Gov Gen Col Lt Sgt Capt Rev Hon Inc Ltd Co Corp Bros vs "
    r"etc No Mt Ft Ave Blvd Rd Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec approx ca esp al "
    r"e\.g i\.e a\.m p\.m Ph\.D".split()
)

# With a hyphen after it, a part of the word that follows; not as an abbreviation (`UN-backed`).
_PREFIXES: Final = "|".join(
    f"[{prefix[0].upper()}{prefix[0]}]{prefix[1:]}"
    for prefix in "anti co counter e ex inter mid multi non post pre pro re semi sub un".split()
)

_WORD: Final = re.compile(
    rf"""
    https?://\S*[\w/] | www\.\S*[\w/] | [\w.+-]+@[\w-]+\.[\w.]+
    | [:;]-?[()DPO](?!\w)
    | (?:[A-Za-z]\.){{2,}} | \b(?:{_ABBREVIATIONS})\.(?=\s|[,;)]) | \b[A-Z]\.(?=\s+[A-Z])
    | \d+(?:/\d+){{1,2}}\b | \d+(?:-\d+){{2,}}\b | \d{{3}}-\d{{4}}\b
    | \d+(?:[.,:]\d+)+ | \d+(?:st|nd|rd|th|s|['’]s)?\b | \d+
    | [^\W\d_]+(?=n['’]t\b) | n['’]t\b | ['’](?:s|re|ve|ll|d|m)\b | (?<=[sxz])['’](?=\s)
    | can(?=not\b)
    | (?-i:{_PREFIXES})-[^\W_]+
    | [^\W_]+(?:[.&][^\W_]+|['’](?!(?:s|re|ve|ll|d|m|t)\b)[^\W\d_]+)*
    | \.\? | [!?]{{2,}} | ‘’ | ([^\w\s()\[\]"“”])\1+ | _+ | [^\w\s]
    """,
    re.VERBOSE | re.IGNORECASE,
)


def cut_words(sentence: str, most: int) -> list[Span]:
    """The characters of each word, or of the first `most`, as the English Web Treebank cuts them.

    Words neither overlap nor hold white space. A mark of punctuation is a word, and so is each part
    of a contraction (`do|n't`) and of a hyphenated word.
    """
    return [Span(*found.span()) for found in islice(_WORD.finditer(sentence), most)]
