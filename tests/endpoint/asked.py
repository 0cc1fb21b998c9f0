"""Requests and answers in one form for all dialects."""

from typing import Any, Literal, NamedTuple

Way = Literal["text", "json_object", "json_schema", "tools"]
"""The format of the reply: text, any JSON, JSON by a schema, a tool call."""

Finish = Literal["stop", "length", "content_filter"]


class Message(NamedTuple):
    """One turn of the conversation; the parts of its content are joined."""

    role: str
    text: str


class Asked(NamedTuple):
    """A request for a chat completion."""

    model: str
    messages: tuple[Message, ...]
    way: Way = "text"
    schema: dict[str, Any] | None = None
    tool: str = ""
    max_tokens: int | None = None
    seed: int | None = None

    @property
    def prompt(self) -> str:
        """The texts of all messages, in order."""
        return "\n".join(message.text for message in self.messages)


class Answer(NamedTuple):
    """A completion. `choices` and `usage` say whether the reply has these parts at all."""

    text: str
    finish: Finish = "stop"
    refusal: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    choices: bool = True
    usage: bool = True

    @property
    def completion_tokens(self) -> int:
        """The tokens of the text."""
        return tokens(self.text)


def tokens(text: str) -> int:
    """The length of a text in tokens of four characters."""
    return -(-len(text) // 4)
