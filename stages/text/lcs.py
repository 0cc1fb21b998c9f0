"""Length of the longest common subsequence of two sequences."""

from collections.abc import Hashable, Sequence

from rapidfuzz.distance import LCSseq


def lcs_length(words: Sequence[Hashable], source: Sequence[Hashable]) -> int:
    """Length of the longest sequence of words that both hold in this order, gaps allowed.

    Time is words times words / 64 of the source (Hyyrö, "Bit-parallel LCS-length
    computation revisited", 2004). Strings are compared by character, faster than lists.
    """
    return LCSseq.similarity(words, source)
