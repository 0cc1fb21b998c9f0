"""The judge: verdicts and claims by simple rules, so that tests can predict its replies."""

import hashlib
import json
import random
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from tests.endpoint.asked import Asked
from tests.endpoint.blocks import Block, open_blocks, read_blocks

_MARKS: Final = str.maketrans(dict.fromkeys(";:!?()[]{}<>\"'`*#%$€£“”‘’«»…—–-/\r", " "))


_SCALE: Final = re.compile(r"a whole number from (-?\d+) to (-?\d+)\.")

STRICT: Final = "In doubt, call it neutral."
"""With this sentence in the prompt, a single sentence of the premise must entail the claim."""


def reply_text(asked: Asked) -> str:
    """The text of the reply: JSON for a judge's task, else a plain chat answer."""
    blocks = open_blocks(asked.messages)
    if not blocks:
        return _chat(asked)
    task = _task(asked, blocks)
    if task == "checks":
        return json.dumps({task: [_checked(asked, block) for block in blocks]})
    strict = any(STRICT in message.text for message in asked.messages)
    entries = _entries(task, blocks, strict=strict)
    return json.dumps(entries, ensure_ascii=False)


def verdict(premise: str, claim: str) -> str:
    """Entailed, contradicted or neutral, by words of four letters or more and by numbers.

    Entailed: the premise has them all. Contradicted: it lacks a number, but has more than
    half of the other words. Neutral: anything else.
    """
    return _judged(premise, claim)["verdict"]


def claims(text: str) -> list[str]:
    """The sentences of a text, which end at a full stop and a space."""
    return [part.strip() for part in re.split(r"(?<=\.) ", text) if part.strip()]


def _task(asked: Asked, blocks: Sequence[Block]) -> str:
    """The name of the list in the reply: by the system message, else by the tags of the texts."""
    system = " ".join(message.text for message in asked.messages if message.role == "system")
    if '"checks"' in system:
        return "checks"
    if '"verdict"' in system:
        return "claims"
    if '"texts"' in system:
        return "texts"
    return f"{blocks[0].name}s"


def found_share(text: str, check: str) -> float:
    """The share of the terms of a check, words of four letters or more and numbers, in a text."""
    known, terms = _Premise.of(text), _terms(check)
    return sum(term in known.words for term in terms) / len(terms) if terms else 1.0


def _checked(asked: Asked, block: Block) -> dict[str, Any]:
    """The verdict on a check: it passes if the response has all its terms, a claim if any text has.

    With a scale the grade grows with the share of the terms.
    """
    criterion, _, claim = block.text.partition("\nJudge this claim: ")
    texts = [one.text for one in read_blocks(block.premise) if claim or one.name == "response"]
    share = found_share("\n".join(texts), json.loads(claim) if claim else criterion)
    scale = _SCALE.search(asked.messages[0].text)
    if scale is None:
        verdict: Any = "pass" if share == 1 else "fail"
    else:
        low, high = map(int, scale.groups())
        verdict = low + round(share * (high - low))
    return {"id": block.id, "reason": f"{share:.0%} of its terms are there.", "verdict": verdict}


def _entries(task: str, blocks: Sequence[Block], *, strict: bool) -> dict[str, Any]:
    if task == "texts":
        return {task: [{"id": block.id, "claims": claims(block.text)} for block in blocks]}
    judged = [{"id": block.id, **_judged(block.premise, block.text, strict)} for block in blocks]
    return {task: judged}


def _judged(premise: str, claim: str, strict: bool = False) -> dict[str, str]:
    known = _Premise.of(premise)
    terms = _terms(claim)
    if strict:
        known = _Premise.of(known.nearest(terms))
    lacking = [word for word in terms if word not in known.words]
    plain = [word for word in terms if not word[0].isdigit()]
    found = [word for word in plain if word in known.words]
    if terms and not lacking:
        label, reason = "entailed", "The premise says all of it."
    elif any(word[0].isdigit() for word in lacking) and 2 * len(found) > len(plain):
        label, reason = "contradicted", "The premise has another number."
    else:
        label, reason = "neutral", "The premise does not say: " + ", ".join(lacking)
    return {"reason": reason, "evidence": known.nearest(terms), "verdict": label}


def _plain(text: str) -> str:
    """The words in lower case between spaces; a point or comma within a number stays.

    Without regular expressions, which would take most of the time of a request.
    """
    bare = text.casefold().translate(_MARKS).replace("\n", " \n ")
    return f" {bare} ".replace(". ", " ").replace(", ", " ")


def _terms(claim: str) -> list[str]:
    """The terms that decide a verdict: words of four letters or more, and numbers."""
    words = dict.fromkeys(_plain(claim).split())
    return [word for word in words if len(word) >= 4 or word[:1].isdigit()]


def _sentences(text: str) -> list[str]:
    for end in (". ", "! ", "? "):
        text = text.replace(end, end[0] + "\n")
    return [line.strip() for line in text.split("\n")]


class _Premise:
    """The sentences of a premise, and the words of each and of all."""

    def __init__(self, text: str) -> None:
        self._sentences = _sentences(text)
        plain = _plain("\n".join(self._sentences))
        self._sets = [frozenset(line.split()) for line in plain.split("\n")]
        self.words = frozenset(plain.split())

    @staticmethod
    @lru_cache(maxsize=256)
    def of(text: str) -> "_Premise":
        return _Premise(text)

    def nearest(self, words: Iterable[str]) -> str:
        """The sentence with most of `words`; the first one of several."""
        wanted = self.words.intersection(words)
        shared = list(map(len, map(wanted.intersection, self._sets)))
        return self._sentences[shared.index(max(shared))]


def _chat(asked: Asked) -> str:
    """A short answer: a function of messages and seed where there is a seed, else random."""
    if asked.seed is None:
        number = random.getrandbits(32)
    else:
        drawn = repr((asked.messages, asked.seed)).encode()
        number = int.from_bytes(hashlib.blake2b(drawn, digest_size=4).digest(), "big")
    schema = asked.schema or _stated_schema(asked.prompt)
    if schema is not None:
        return json.dumps(_instance(schema, number))
    if asked.way != "text":
        return json.dumps({"answer": number})
    return f"My answer is {number}."


_STATED: Final = re.compile(r"JSON Schema:\s*(?=\{)")


def _stated_schema(prompt: str) -> dict[str, Any] | None:
    """The JSON schema that a prompt states in words, as those of ragas do."""
    found = _STATED.search(prompt)
    if found is None:
        return None
    schema: dict[str, Any] = json.JSONDecoder().raw_decode(prompt, found.end())[0]
    return schema


def _instance(schema: dict[str, Any], number: int, within: dict[str, Any] | None = None) -> Any:
    """A value that fits a simple JSON schema, with references to definitions of `within`."""
    within = within or schema
    if "$ref" in schema:
        schema = within["$defs"][schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return schema["enum"][number % len(schema["enum"])]
    match schema.get("type"):
        case "object":
            parts = schema.get("properties", {})
            return {name: _instance(part, number, within) for name, part in parts.items()}
        case "array":
            return [_instance(schema["items"], number, within)] if "items" in schema else []
        case "integer" | "number":
            return number
        case "boolean":
            return number % 2 == 0
        case "null":
            return None
        case _:
            return f"word {number}"
