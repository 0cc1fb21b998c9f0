"""Words that two texts share: token overlap in any order, ROUGE-L in the same order."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from rapidfuzz.distance import LCSseq

from claimflow.stages.text.comparison import Agreement, Comparison, Letters, agreement, lengths
from claimflow.stages.text.ngrams import shared_units


class Overlap(NamedTuple):
    """Tokens in common over the tokens of each side with repeats.

    `distinct` counts a common token once, so that a text that repeats itself scores below 1
    against itself; `clipped` counts it as often as it stands in both.
    """

    distinct: Agreement
    clipped: Agreement


def token_overlap(tokens: Sequence[str], source: Sequence[str]) -> Overlap:
    """Overlap of `tokens` with the tokens of a source."""
    letters = Letters()
    both = token_overlaps([Comparison([letters.spell(tokens)], letters.spell(source))])
    distinct, clipped = (Agreement(*(part[0] for part in parts)) for parts in both)
    return Overlap(distinct, clipped)


def token_overlaps(comparisons: Sequence[Comparison]) -> Overlap:
    """Overlap of every text of every comparison, in order; a letter is a token."""
    distinct, clipped = shared_units(comparisons)
    sizes = lengths(comparisons)
    return Overlap(agreement(distinct, *sizes), agreement(clipped, *sizes))


def rouge_l(text: str, source: str) -> Agreement:
    """ROUGE-L of `text` against `source`: common words over the words of each side.

    The common words are the longest sequence, gaps allowed, that both texts hold in order: Lin,
    "ROUGE: a package for automatic evaluation of summaries", 2004, sections 3.1 and 3.2.
    """
    words, source_words = rouge_words(text), rouge_words(source)
    return agreement(lcs_length(words, source_words), len(words), len(source_words))


def rouge_ls(comparisons: Sequence[Comparison]) -> Agreement:
    """ROUGE-L of every text of every comparison, in order; a letter is a word."""
    common = [lcs_length(text, source) for texts, source in comparisons for text in texts]
    return agreement(common, *lengths(comparisons))


def rouge_words(text: str) -> list[str]:
    """Words between white space and full stops; case and other punctuation are kept."""
    return text.replace(".", " ").split()


def lcs_length(words: Sequence[Hashable], source: Sequence[Hashable]) -> int:
    """Length of the longest sequence of words that both hold in this order, gaps allowed.

    Time is words times words / 64 of the source (Hyyrö, "Bit-parallel LCS-length
    computation revisited", 2004). Strings are compared by character, faster than lists.
    """
    return LCSseq.similarity(words, source)
