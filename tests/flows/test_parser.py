"""The parser that claimflow carries: its words, its trees, its network and how good it is."""

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimflow.flows.errors import InputError
from claimflow.flows.models.parser import (
    PARSER_FOLDER,
    WINDOW,
    EmbeddedParser,
    best_heads,
    cut_words,
)
from claimflow.stages.tools import Word
from tests.benchmarks.parsing import held_out_sentences, scores

SHARED = EmbeddedParser(threads=1)
SENTENCES = [
    "The Eiffel Tower, which stands in Paris, was opened in 1889.",
    "Marie Curie won two Nobel Prizes and died in France.",
    "It didn't rain.",
    "Yes",
    "He was born in Ulm, and she was born in Paris, France.",
    "The cat sat on the mat because it was tired.",
]


def parsed(sentence: str) -> list[tuple[str, str, str, str]]:
    """Of each word its text, tag, relation, and the text of its head."""
    tree = SHARED.parse([sentence])[sentence]
    texts = [sentence[word.start : word.end] for word in tree]
    return [
        (text, word.tag, word.relation, texts[word.head] if word.head >= 0 else "")
        for text, word in zip(texts, tree, strict=True)
    ]


def check_tree(sentence: str, tree: Sequence[Word]) -> None:
    """Words are in order and within the text; from each, heads lead to the only root."""
    end = 0
    for word in tree:
        assert end <= word.start < word.end <= len(sentence)
        assert not any(map(str.isspace, sentence[word.start : word.end]))
        end = word.end
        assert (word.head == -1) == (word.relation == "root")
    assert sum(word.head == -1 for word in tree) == (1 if tree else 0)
    for place in range(len(tree)):
        above, steps = place, 0
        while above >= 0:
            above, steps = tree[above].head, steps + 1
            assert steps <= len(tree)


# Words and trees.


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_every_text_has_a_tree(texts: list[str]) -> None:
    trees = SHARED.parse(texts)
    assert list(trees) == list(dict.fromkeys(texts))
    for text, tree in trees.items():
        check_tree(text, tree)
        assert bool(tree) == bool(text.strip())


@given(st.lists(st.sampled_from("it's the U.S. e-mail (of 9/11) don't ... !? a,b 's".split())))
def test_words_that_are_hard_to_cut_make_trees(words: list[str]) -> None:
    for text in (" ".join(words), "".join(words)):
        check_tree(text, SHARED.parse([text])[text])


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("He can't, won't and doesn't.", "He ca n't , wo n't and does n't ."),
        ("The dogs' owner's well-known U.S. firm", "The dogs ' owner 's well - known U.S. firm"),
        ("Mr. Smith paid $1,234.56 on 9/11.", "Mr. Smith paid $ 1,234.56 on 9/11 ."),
        ("Write to a.b@c.org or www.d.com/e!", "Write to a.b@c.org or www.d.com/e !"),
        ("UN-backed ex-wives cannot e-mail :-)", "UN - backed ex-wives can not e-mail :-)"),
        ("AT&T's 1980s (new) C. Brown...", "AT&T 's 1980s ( new ) C. Brown ..."),
        (" ", ""),
    ],
)  # fmt: skip
def test_words_are_cut_as_in_the_treebank(sentence: str, words: str) -> None:
    assert [sentence[start:end] for start, end in cut_words(sentence, 99)] == words.split()


def test_a_sentence_of_many_clauses() -> None:
    assert parsed(SENTENCES[0]) == [
        ("The", "DT", "det", "Tower"),
        ("Eiffel", "NNP", "compound", "Tower"),
        ("Tower", "NNP", "nsubj:pass", "opened"),
        (",", ",", "punct", "stands"),
        ("which", "WDT", "nsubj", "stands"),
        ("stands", "VBZ", "acl:relcl", "Tower"),
        ("in", "IN", "case", "Paris"),
        ("Paris", "NNP", "obl", "stands"),
        (",", ",", "punct", "Tower"),
        ("was", "VBD", "aux:pass", "opened"),
        ("opened", "VBN", "root", ""),
        ("in", "IN", "case", "1889"),
        ("1889", "CD", "obl", "opened"),
        (".", ".", "punct", "opened"),
    ]


def test_coordinated_predicates_and_a_contraction() -> None:
    relations = {text: (relation, head) for text, _, relation, head in parsed(SENTENCES[1])}
    assert relations["Curie"][0] == "flat"
    assert relations["Marie"] == ("nsubj", "won")
    assert relations["Prizes"] == ("obj", "won")
    assert relations["died"] == ("conj", "won")
    assert relations["and"] == ("cc", "died")
    assert [one[:3] for one in parsed(SENTENCES[2])] == [
        ("It", "PRP", "nsubj"),
        ("did", "VBD", "aux"),
        ("n't", "RB", "advmod"),
        ("rain", "VB", "root"),
        (".", ".", "punct"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Der Turm steht in Paris und wurde 1889 gebaut.",
        "埃菲尔铁塔位于法国首都巴黎。",
        "برج إيفل",
        "😀 \x00 é́",
    ],
)
def test_other_languages_and_marks_have_trees(text: str) -> None:
    tree = SHARED.parse([text])[text]
    check_tree(text, tree)
    assert tree


# The window.


def test_a_sentence_longer_than_the_window_has_no_tree() -> None:
    fits, longer = "a " * (WINDOW - 2), "a " * (WINDOW - 1)
    trees = SHARED.parse([fits, longer, "word " * 10_000, ""])
    assert [len(tree) for tree in trees.values()] == [WINDOW - 2, 0, 0, 0]
    check_tree(fits, trees[fits])


def test_word_pieces_count_not_words() -> None:
    """A rare word is several pieces; a word of more than a hundred letters is one."""
    rare = "Zwyczajowość " * 60
    assert SHARED.parse([rare])[rare] == ()
    long = "a" * 100_000 + " b"
    assert len(SHARED.parse([long])[long]) == 2


def test_long_texts_take_no_time() -> None:
    texts = [
        "a-" * 100_000,
        "1/" * 100_000,
        "a." * 100_000,
        " " * 300_000,
        "(" * 200_000,
        "x@" * 90_000,
    ]
    started = time.process_time()
    SHARED.parse(texts)
    assert time.process_time() - started < 10


# The network: one tree per distinct sentence, whatever else is parsed.


def test_a_tree_does_not_depend_on_the_other_sentences() -> None:
    together = SHARED.parse(SENTENCES)
    assert list(together) == SENTENCES
    again = SHARED.parse(
        [*reversed(SENTENCES), *SENTENCES, "Other words of other lengths stand here."]
    )
    alone = {sentence: SHARED.parse([sentence])[sentence] for sentence in SENTENCES}
    assert together == alone == {sentence: again[sentence] for sentence in SENTENCES}


def test_scores_are_the_same_bytes_in_every_batch() -> None:
    """Sentences of one length, so that they are one batch."""
    network = SHARED._network
    ids = np.array([[101, *range(2000 + row, 2024 + row), 102] for row in range(0, 900, 100)])
    together = network._session.run(None, {"input_ids": ids})
    for row in range(len(ids)):
        alone = network._session.run(None, {"input_ids": ids[row : row + 1]})
        assert [part[row].tobytes() for part in together] == [part[0].tobytes() for part in alone]


def test_several_threads_may_use_a_parser_that_is_not_loaded() -> None:
    fresh = EmbeddedParser(threads=1)
    assert "_network" not in vars(fresh)
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(fresh.parse, [SENTENCES] * 4))
    assert trees == [SHARED.parse(SENTENCES)] * 4


def test_more_threads_make_the_same_trees() -> None:
    assert EmbeddedParser(threads=2).parse(SENTENCES) == SHARED.parse(SENTENCES)


def test_nothing_to_parse_loads_nothing() -> None:
    fresh = EmbeddedParser()
    assert fresh.parse([]) == {}
    assert fresh.parse(["", " \n"]) == {"": (), " \n": ()}
    assert "_network" not in vars(fresh)


def test_accuracy_on_sentences_that_it_was_not_trained_on() -> None:
    """`python -m tests.benchmarks.parsing` measures all of them."""
    some = held_out_sentences()[::5]
    trees = SHARED.parse([sentence.text for sentence in some])
    figures = scores(some, trees)
    assert len(some) > 100
    assert figures["UAS"] > 0.88
    assert figures["LAS"] > 0.84
    assert figures["tags"] > 0.92


# Its files.


def test_other_files_have_another_identity(tmp_path: Path) -> None:
    folder = tmp_path / "parser"
    shutil.copytree(PARSER_FOLDER, folder)
    assert EmbeddedParser(folder).identity == SHARED.identity
    for name in ("model.onnx", "tokenizer.json", "names.json"):
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        changed = EmbeddedParser(folder).identity
        assert {key for key in changed if changed[key] != SHARED.identity[key]} == {name}
        shutil.copy(PARSER_FOLDER / name, folder)


def test_the_files_are_small() -> None:
    assert (PARSER_FOLDER / "model.onnx").stat().st_size < 25_000_000


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(InputError, match=r"tokenizer\.json: cannot be loaded"):
        EmbeddedParser(tmp_path).parse(["It is."])


# Trees of the highest score.


def brute_force(scores: np.ndarray) -> float:
    """The highest sum of scores of a tree with one root, by trying all choices of heads."""
    size, best = len(scores), -np.inf
    for heads in product(range(size), repeat=size - 1):
        above = (0, *heads)
        if heads.count(0) == 1 and all(_leads_to_root(above, word) for word in range(1, size)):
            best = max(best, sum(scores[word, above[word]] for word in range(1, size)))
    return float(best)


def _leads_to_root(heads: Sequence[int], word: int) -> bool:
    for _ in heads:
        word = heads[word]
    return word == 0


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([1.0, 50.0, 0.0]))
def test_no_tree_with_one_root_has_a_higher_score(seed: int, words: int, root: float) -> None:
    """Also where every word would be a root, or none."""
    random = np.random.default_rng(seed)
    matrix = random.integers(-4, 5, (words + 1, words + 1)).astype(np.float64)
    matrix[:, 0] += root * random.integers(-1, 2)
    before = matrix.copy()
    heads = best_heads(matrix)
    assert (matrix == before).all()
    total = sum(matrix[word, heads[word]] for word in range(1, words + 1))
    assert np.count_nonzero(heads[1:] == 0) == 1
    assert all(_leads_to_root(heads.tolist(), word) for word in range(1, words + 1))
    assert total == brute_force(matrix)


def test_many_nested_cycles_take_no_time() -> None:
    """Each word prefers its neighbour, and pairs of words prefer each other, on every level."""
    size = WINDOW - 1
    places = np.arange(size)
    matrix = -np.log2(1.0 + (places[:, None] ^ places[None, :]))
    matrix[:, 0] = -1_000.0
    started = time.process_time()
    heads = best_heads(matrix)
    assert time.process_time() - started < 5
    assert np.count_nonzero(heads[1:] == 0) == 1
    assert all(_leads_to_root(heads.tolist(), word) for word in range(1, size))
