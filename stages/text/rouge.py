"""ROUGE-L: the longest run of words, gaps allowed, that two texts share in order.

Lin, "ROUGE: a package for automatic evaluation of summaries", 2004, sections 3.1 and 3.2.
"""

from collections.abc import Callable

from stages.text.agreement import Agreement, agreement
from stages.text.lcs import blocks, lcs_length


def rouge_l(text: str, source: str) -> Agreement:
    """ROUGE-L of `text` against `source`: common words over the words of each side."""
    return rouge_l_with(source)(text)


def rouge_l_with(source: str) -> Callable[[str], Agreement]:
    """`rouge_l` with one source, prepared once for many texts."""
    source_words = rouge_words(source)
    source_blocks = blocks(source_words)

    def rouge(text: str) -> Agreement:
        words = rouge_words(text)
        common = lcs_length(words, source_blocks)
        return agreement(common, of_text=len(words), of_source=len(source_words))

    return rouge


def rouge_words(text: str) -> list[str]:
    """Words between white space and full stops; case and other punctuation are kept."""
    return text.replace(".", " ").split()
