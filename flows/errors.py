"""Errors: what is wrong with the input, where, and what would be right."""

import difflib
from collections.abc import Iterable
from typing import Final, NamedTuple

_TOLD: Final = 50


class Fault(NamedTuple):
    """One mistake in the input.

    `place` is where it stands (`answers.jsonl:12`, `nightly.yaml:7 steps.verify.against`),
    `what` is what was found there, `hint` is what would be right.
    """

    place: str
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.hint}"


class InputError(Exception):
    """The input cannot be used.

    `faults` holds every mistake that was found; the message tells the first fifty, one on
    a line, and counts the rest.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults[:_TOLD]]
        if len(self.faults) > _TOLD:
            lines.append(f"... and {len(self.faults) - _TOLD:,} more")
        return "\n".join(lines)


class JudgeError(Exception):
    """A model behind an endpoint cannot be used as it is set up; what was done is kept."""


class WorkersError(Exception):
    """The workers of a pipeline cannot go on; what was done is kept."""


class StoreError(Exception):
    """The store cannot be read or written now; what is on file is kept."""


class StoreBusyError(StoreError):
    """Another process kept the store's file locked for longer than we wait."""


class StoreFullError(StoreError):
    """There is no room for what is to be written."""


class StoppedError(Exception):
    """The run was asked to stop; what was done is kept."""


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` that `word` was probably meant to be, in whatever case; or None."""
    spelt = {known.casefold(): known for known in sorted(words, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), spelt, n=1, cutoff=0.6)
    return spelt[close[0]] if close else None


def one_of(word: str, words: Iterable[str]) -> str:
    """What would be right instead of `word`: the nearest of `words`, or else all of them."""
    known = sorted(words)
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(known) or 'none'}"
