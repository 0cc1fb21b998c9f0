"""Accuracy and speed of the parser on the held-out documents of the English Web Treebank.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.parsing [FOLDER]

FOLDER holds another export of the network (`tests/benchmarks/training/parser_files.py`). UAS is the
share of the words whose head is right, LAS that of the words whose head and relation are right,
both without punctuation, and the third figure the share of all words whose tag is right. With gold
words the parser is given the words of the treebank; with its own, a word that is cut otherwise
than in the treebank counts as wrong. F1 of words is that of the words themselves, F1 of a relation
that of words with their heads and this relation, both with the parser's own words.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from claimflow.flows.models.parser import PARSER_FOLDER, EmbeddedParser, Network, cut_words
from claimflow.stages.text.sentences import Span
from claimflow.stages.tools import Word
from tests.benchmarks.measuring import fastest_of_three
from tests.benchmarks.training.treebank import TreebankSentence, held_out, read_treebank

Trees = Mapping[str, tuple[Word, ...]]

OFTEN: Final = 40
"""Relations that are rarer are not printed."""


def held_out_sentences() -> list[TreebankSentence]:
    """The sentences on which the network was not trained."""
    sentences = read_treebank()
    held = held_out(sentences)
    return [sentence for sentence in sentences if sentence.document in held]


def gold_words(sentence: TreebankSentence) -> list[Span]:
    """The characters of each word of a sentence."""
    spans, start = list[Span](), 0
    for word in sentence.words:
        spans.append(Span(start, start + len(word.text)))
        start += len(word.text) + word.spaced
    return spans


def scores(sentences: Sequence[TreebankSentence], trees: Trees) -> dict[str, float]:
    """UAS, LAS and accuracy of tags, from 0 to 1."""
    right, words, every = Counter[str](), 0, 0
    for sentence in sentences:
        spans = gold_words(sentence)
        tree = trees.get(sentence.text, ())
        by_span = {Span(word.start, word.end): word for word in tree}
        for gold, span in zip(sentence.words, spans, strict=True):
            word = by_span.get(span)
            every += 1
            words += gold.relation != "punct"
            if word is None:
                continue
            right["tags"] += word.tag == gold.tag
            if gold.relation == "punct":
                continue
            if _head(tree, word) == (spans[gold.head - 1] if gold.head else None):
                right["UAS"] += 1
                right["LAS"] += word.relation == gold.relation
    return {
        "UAS": right["UAS"] / words,
        "LAS": right["LAS"] / words,
        "tags": right["tags"] / every,
    }


def relations_f1(
    sentences: Sequence[TreebankSentence], trees: Trees
) -> dict[str, tuple[int, float]]:
    """Of each relation how often it is in the treebank, and its F1, the most frequent first."""
    gold, ours, same = Counter[str](), Counter[str](), Counter[str]()
    for sentence in sentences:
        spans, tree = gold_words(sentence), trees[sentence.text]
        arcs = {
            (span, word.relation, spans[word.head - 1] if word.head else None)
            for span, word in zip(spans, sentence.words, strict=True)
        }
        found = {(Span(*word[:2]), word.relation, _head(tree, word)) for word in tree}
        gold.update(relation for _, relation, _ in arcs)
        ours.update(relation for _, relation, _ in found)
        same.update(relation for _, relation, _ in arcs & found)
    return {
        relation: (count, 2 * same[relation] / (count + ours[relation]))
        for relation, count in gold.most_common()
    }


def _head(tree: Sequence[Word], word: Word) -> Span | None:
    return Span(*tree[word.head][:2]) if word.head >= 0 else None


def words_f1(sentences: Sequence[TreebankSentence]) -> float:
    """F1 of our own words by the treebank's, from 0 to 1."""
    same = ours = theirs = 0
    for sentence in sentences:
        found, gold = cut_words(sentence.text, len(sentence.text)), gold_words(sentence)
        same += len({*found} & {*gold})
        ours, theirs = ours + len(found), theirs + len(gold)
    return 2 * same / (ours + theirs)


def main() -> None:
    """Print the figures of the model card."""
    options = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    options.add_argument("folder", type=Path, nargs="?", default=PARSER_FOLDER)
    folder = options.parse_args().folder
    sentences = held_out_sentences()
    texts = [sentence.text for sentence in sentences]
    gold = {sentence.text: gold_words(sentence) for sentence in sentences}
    parser = EmbeddedParser(folder, threads=1)
    own = parser.parse(texts)
    seconds = fastest_of_three(lambda: parser.parse(texts))
    count = sum(len(tree) for tree in own.values())
    for name, trees in (("gold", Network(folder, threads=1).trees(gold)), ("own", own)):
        figures = scores(sentences, trees)
        print(f"{name} words: " + ", ".join(f"{key} {of:.4f}" for key, of in figures.items()))
    print(f"F1 of words: {words_f1(sentences):.4f}, of {len(sentences):,} sentences")
    for relation, (often, f1) in relations_f1(sentences, own).items():
        if often >= OFTEN:
            print(f"{relation} ({often:,}): F1 {f1:.3f}")
    pace = f"{len(own) / seconds:,.0f} sentences, {count / seconds:,.0f} words"
    print(f"a second of CPU: {pace}")


if __name__ == "__main__":
    main()
