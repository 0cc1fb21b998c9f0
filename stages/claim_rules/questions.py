"""Answers as statements: a short answer becomes the claim that it makes as an answer."""

from typing import Final, NamedTuple


class Context(NamedTuple):
    """What a reader of a text knows: the question that it answers, and the conversation before.

    `history` has the role (user or assistant) and the text of each earlier message, oldest first.
    """

    question: str = ""
    history: tuple[tuple[str, str], ...] = ()


NO_CONTEXT: Final = Context()
