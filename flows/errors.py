"""Errors that are shown to users, and hints at the nearest known name."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

_SHOWN: Final = 50


class Fault(NamedTuple):
    """One mistake in the input.

    `place` is its location (`answers.jsonl:12`, `nightly.yaml:7 steps.verify.against`), `what`
    is what was found there, `hint` is what would be right.
    """

    place: str
    what: str
    hint: str

    def __str__(self) -> str:
        # A file may have any name.
        return f"{on_one_line(self.place)}: {self.what}; {self.hint}"


class InputError(Exception):
    """The input cannot be used.

    `faults` holds every mistake that was found; the message lists the first fifty, one on a
    line, and counts the rest.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults[:_SHOWN]]
        if len(self.faults) > _SHOWN:
            lines.append(f"... and {len(self.faults) - _SHOWN:,} more")
        return "\n".join(lines)


ArgumentKind = tuple[Any, str]
"""The types that an argument may have, as for `isinstance`, and what they are, for a hint."""


def kind_faults(given: Mapping[str, Any], kinds: Mapping[str, ArgumentKind]) -> list[Fault]:
    """A fault for each argument of Python that is not of its kind, or no text that UTF-8 holds."""
    faults = []
    for name, value in given.items():
        types, known = kinds[name]
        if not isinstance(value, types):
            faults.append(Fault(name, f"is of type {type(value).__name__}", f"give {known}"))
        elif isinstance(value, str) and not is_unicode(value):
            faults.append(Fault(name, *NO_UNICODE))
    return faults


NO_UNICODE: Final = ("holds half a character (a lone surrogate)", "remove it")
"""What is wrong with a text that is not `is_unicode`, and what to do."""


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold a text: there are no lone surrogates in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class JudgeError(Exception):
    """A model behind an endpoint cannot be used as configured; finished work is kept."""


class WorkersError(Exception):
    """The workers of a pipeline cannot continue; finished work is kept."""


class StoreError(Exception):
    """The store cannot be read or written now; stored rows are kept."""


class StoreBusyError(StoreError):
    """Another process kept the file of the store locked for too long."""


class StoreFullError(StoreError):
    """The disk is full, or a file cannot be written."""


class RunTimeoutError(Exception):
    """A run took longer than its timeout; finished work is kept."""


class PendingError(Exception):
    """A run has waited long enough for a provider's batch; the next run collects its replies."""


class StoppedError(Exception):
    """The run was asked to stop; finished work is kept."""


CONTROLS: Final = (
    {code: chr(0x2400 + code) for code in range(32)}
    | {127: "\u2421"}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
)
"""Replacements of control characters, of the separators of lines and paragraphs of Unicode, and
of those that change the direction of text."""


def on_one_line(text: object) -> str:
    """The text with control characters replaced, ends of lines too: it cannot forge a log line."""
    return str(text).translate(CONTROLS)


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The name of `known` most similar to `word`, ignoring case; None where none is similar.

    `cutoff` is the least similarity: twice the characters in common, over the characters of both.
    """
    names = {name.casefold(): name for name in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), names, n=1, cutoff=cutoff)
    return names[close[0]] if close else None


_BEGINNING: Final = 3
"""Letters of a name by which it is meant."""


def one_of(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown `word`: the nearest name of `known`, or all of them."""
    names = sorted(known)
    # The beginning of a long name has few of its letters.
    begun = (name for name in names if name.casefold().startswith(word.casefold()))
    near = nearest(word, names) or (next(begun, None) if len(word) >= _BEGINNING else None)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(names) or 'none'}"
