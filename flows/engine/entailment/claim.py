"""A claim prepared for judging: its sentences, and what each must find in a premise."""

from typing import Final

from claimflow.flows.engine.entailment.tokens import Kind, Token, is_content, tokenize
from claimflow.stages.text.sentences import split_sentences

WEIGHTS: Final[dict[Kind, float]] = {
    "stop": 0.3, "unit": 0.7, "word": 1.0, "calendar": 1.2, "name": 1.0, "number": 1.5,
}  # fmt: skip
"""What a token of each kind counts for in coverage."""


_PARTS: Final = 32
"""Parts of a claim that evidence is looked for separately; a longer text has longer parts."""


class Part:
    """One sentence of a claim, or several in a row where a claim has very many.

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
    """The parts of a claim that hold at least one token, and all their tokens."""

    def __init__(self, text: str) -> None:
        self.parts: list[Part] = []
        sentences = split_sentences(text)
        step = -(-len(sentences) // _PARTS) or 1
        for first in range(0, len(sentences), step):
            start, end = sentences[first].start, sentences[first : first + step][-1].end
            tokens = tokenize(text, start, end)
            if tokens:
                self.parts.append(Part(text[start:end], tokens))
        self.tokens = [token for part in self.parts for token in part.tokens]
