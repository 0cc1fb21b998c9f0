"""A claim prepared for judging: its sentences, and what each must find in a premise."""

from typing import Final

from flows.engine.entailment.tokens import Kind, Token, is_content, tokenize
from stages.text.sentences import split_sentences

WEIGHTS: Final[dict[Kind, float]] = {
    "stop": 0.3, "unit": 0.7, "word": 1.0, "calendar": 1.2, "name": 1.0, "number": 1.5,
}  # fmt: skip
"""What a token of each kind counts for in coverage."""


class Part:
    """One sentence of a claim.

    `wanted` maps the keys of its content to what they count for; a sentence of stop words
    alone wants those.
    """

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        content = [token for token in tokens if is_content(token)] or tokens
        self.wanted = {token.key: WEIGHTS[token.kind] for token in content}
        self.total = sum(self.wanted.values())


class Claim:
    """The sentences of a claim that hold at least one token, and all their tokens."""

    def __init__(self, text: str) -> None:
        self.parts: list[Part] = []
        for start, end in split_sentences(text):
            tokens = tokenize(text, start, end)
            if tokens:
                self.parts.append(Part(text[start:end], tokens))
        self.tokens = [token for part in self.parts for token in part.tokens]
