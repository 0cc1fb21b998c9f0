"""Faults of the reply: mistakes of models in the JSON that was requested."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from tests.endpoint.asked import Answer
from tests.endpoint.fault import Fault

Entry = dict[str, Any]

_NEXT: Final = {
    "entailed": "contradicted",
    "contradicted": "neutral",
    "neutral": "entailed",
}


def content(change: Callable[[str], str], name: str = "content") -> Fault:
    """The text of the reply, changed."""
    return Fault(name, answer=lambda answer: answer._replace(text=change(answer.text)))


def entries(change: Callable[[list[Entry]], list[Entry]], name: str = "entries") -> Fault:
    """The list of the reply, changed. A reply that holds no such list stays as it is."""
    return content(lambda text: _changed(text, change), name)


def malformed() -> Fault:
    """JSON that lacks a colon."""
    return content(lambda text: text.replace(": ", " ", 1), "malformed")


def prose() -> Fault:
    """Prose instead of JSON."""
    words = "All in all the claims are well supported by what the premise says."
    return content(lambda text: words, "prose")


def empty() -> Fault:
    """No text at all."""
    return content(lambda text: "", "empty")


def fenced() -> Fault:
    """The JSON in a fence of Markdown."""
    return content(lambda text: f"```json\n{text}\n```", "fenced")


def surrounded() -> Fault:
    """The JSON within prose that contains brackets, too."""
    before, after = "Here is {what} I found [see 1]:\n\n", "\n\nAsk {me} if [anything] is unclear."
    return content(lambda text: before + text + after, "surrounded")


def drafted() -> Fault:
    """A draft with other answers, then the final answers."""
    return content(lambda text: f"A first draft:\n{draft(text)}\n\nRevised:\n{text}", "drafted")


def swayed() -> Fault:
    """A different answer for every entry."""
    return content(draft, "swayed")


def thinking() -> Fault:
    """Other answers within <think>, then the final answers."""
    words = "<think>\nMaybe {0}? No, wait.\n</think>\n{1}"
    return content(lambda text: words.format(draft(text), text), "thinking")


def bare_list() -> Fault:
    """The list without the object around it."""
    return content(lambda text: _listed(text, lambda _, found: found), "bare list")


def other_order() -> Fault:
    """Keys and entries in reverse."""
    return entries(
        lambda found: [dict(reversed(e.items())) for e in reversed(found)], "other order"
    )


def duplicated() -> Fault:
    """The first entry twice, word for word."""
    return entries(lambda found: [*found, *found[:1]], "duplicated")


def missing(id: int | None = None) -> Fault:
    """No entry for `id`, or for the last one."""
    return entries(lambda found: [e for e in found if e["id"] != _one(found, id)], "missing")


def unknown_id(id: int = 999) -> Fault:
    """One more entry, for an id that was not asked about."""
    return entries(lambda found: [*found, {**found[0], "id": id}], "unknown id")


def outside_label(label: str = "mostly true", id: int | None = None) -> Fault:
    """An invalid verdict for `id`, or for the last entry."""
    return entries(lambda found: _each(found, id, lambda e: {**e, "verdict": label}), "label")


def lacking(name: str, id: int | None = None) -> Fault:
    """The entry of `id`, or the last one, without the field `name`."""
    return entries(
        lambda found: _each(found, id, lambda e: {k: v for k, v in e.items() if k != name}),
        "lacking",
    )


def conflicting(id: int | None = None) -> Fault:
    """Two different entries for `id`, or for the last one."""
    return entries(
        lambda found: [*found, *(_other(e) for e in found if e["id"] == _one(found, id))],
        "conflicting",
    )


def wrong_schema() -> Fault:
    """JSON of another shape: an object by id under another name."""
    return content(
        lambda text: _listed(text, lambda _, found: {"answers": {str(e["id"]): e for e in found}}),
        "wrong schema",
    )


def nan() -> Fault:
    """NaN, which is not JSON, as a further field of every entry."""
    return entries(lambda found: [{**e, "confidence": float("nan")} for e in found], "nan")


def cut_off(share: float = 0.5) -> Fault:
    """The first `share` of the text, and the finish reason `length`."""

    def cut(answer: Answer) -> Answer:
        kept = answer.text[: int(len(answer.text) * share)]
        return answer._replace(text=kept, finish="length")

    return Fault("cut off", answer=cut)


def refused(words: str = "I'm sorry, but I cannot assist with that.") -> Fault:
    """The refusal in its field, and no text."""
    return Fault("refused", answer=lambda answer: answer._replace(text="", refusal=words))


def filtered() -> Fault:
    """No text, and the finish reason `content_filter`."""
    return Fault(
        "filtered", answer=lambda answer: answer._replace(text="", finish="content_filter")
    )


def no_choices() -> Fault:
    """A reply with an empty list of choices."""
    return Fault("no choices", answer=lambda answer: answer._replace(choices=False))


def no_usage() -> Fault:
    """A reply that does not say how many tokens it took."""
    return Fault("no usage", answer=lambda answer: answer._replace(usage=False))


def usage(number: str) -> Fault:
    """A reply that reports `number`, any JSON, as every number of tokens."""
    counts = rb'("(?:\w+_tokens|(?:prompt_)?eval_count)": )\d+'
    return Fault("usage", body=lambda body: re.sub(counts, rb"\g<1>" + number.encode(), body))


def draft(text: str) -> str:
    """The reply with every answer replaced by a different one."""
    return _changed(text, lambda found: [_other(entry) for entry in found])


def _other(entry: Entry) -> Entry:
    if "verdict" in entry:
        return {**entry, "verdict": _NEXT.get(entry["verdict"], "neutral")}
    return {**entry, "claims": ["This is another claim."]}


def _one(found: list[Entry], id: int | None) -> Any:
    return found[-1]["id"] if id is None else id


def _each(found: list[Entry], id: int | None, change: Callable[[Entry], Entry]) -> list[Entry]:
    return [change(entry) if entry["id"] == _one(found, id) else entry for entry in found]


def _changed(text: str, change: Callable[[list[Entry]], list[Entry]]) -> str:
    return _listed(text, lambda name, found: {name: change(found)})


def _listed(text: str, make: Callable[[str, list[Entry]], Any]) -> str:
    try:
        ((name, found),) = json.loads(text).items()
    except (ValueError, AttributeError):
        return text
    if not (isinstance(found, list) and found and isinstance(found[0], dict) and "id" in found[0]):
        return text
    return json.dumps(make(name, found), ensure_ascii=False)
