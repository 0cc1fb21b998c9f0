"""Token overlap: how many distinct tokens two texts share."""

from collections.abc import Callable, Sequence

from stages.text.agreement import Agreement, agreement


def token_overlap(tokens: Sequence[str], source: Sequence[str]) -> Agreement:
    """Overlap of `tokens` with the tokens of a source.

    Distinct tokens in common, over the tokens of each side with repeats. So a text that
    repeats itself scores below 1 against itself.
    """
    return token_overlap_with(source)(tokens)


def token_overlap_with(source: Sequence[str]) -> Callable[[Sequence[str]], Agreement]:
    """`token_overlap` with one source, prepared once for many texts."""
    in_source = frozenset(source)

    def overlap(tokens: Sequence[str]) -> Agreement:
        hits = len(in_source.intersection(tokens))
        return agreement(hits, of_text=len(tokens), of_source=len(source))

    return overlap
