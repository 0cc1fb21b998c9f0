"""ROUGE-L: the longest run of words, gaps allowed, that two texts share in order.

Lin, "ROUGE: a package for automatic evaluation of summaries", 2004, sections 3.1 and 3.2.
"""

from collections.abc import Sequence

from claimflow.stages.text.agreement import Agreement, agreement
from claimflow.stages.text.comparison import Comparison, lengths
from claimflow.stages.text.lcs import lcs_length


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
