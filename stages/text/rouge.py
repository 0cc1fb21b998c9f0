"""ROUGE-L: the longest sequence of words, gaps allowed, that two texts share in order.

Lin, "ROUGE: a package for automatic evaluation of summaries", 2004, sections 3.1 and 3.2.
"""

from collections.abc import Hashable, Sequence

from rapidfuzz.distance import LCSseq

from claimflow.stages.text.comparison import Agreement, Comparison, agreement, lengths


def rouge_l(text: str, source: str) -> Agreement:
    """ROUGE-L of `text` against `source`: common words over the words of each side."""
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
