"""What is replaced in the texts of samples before they are stored, logged or sent to a judge."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import regex

from claimflow.flows.errors import Fault, InputError, is_unicode
from claimflow.flows.pipeline.sample_choice import RedactedPattern
from claimflow.flows.samples.conversations import TurnSample
from claimflow.flows.samples.records import RecordError, SlowPatternError
from claimflow.stages.plugins import PluginError, load_object
from claimflow.stages.rows import canonical

_SECONDS: Final = 1.0
"""How long a pattern may search one text: a hostile text must not hold up a run."""

_IDS: Final = ("conversation_id", "session", "trace_id", "span_id")
"""Fields of the metadata that are ids: other rows and systems are found by them."""

_CLAIMS: Final = ("response_claims", "reference_claims")
_TEXTS: Final = (
    *("user_input", "response", "reference", "other_references", "retrieved_contexts"),
    *_CLAIMS,
)


class Redactor:
    """Replaces what patterns match and what functions change in all texts of samples, not in ids.

    `replaced` counts the matches, and the texts that functions changed; `samples` those with any.
    `too_slow` counts samples that must be left out, since a pattern took too long; `failures` says
    how functions failed.
    """

    def __init__(self, rules: Sequence[RedactedPattern | str], folder: Path, place: str) -> None:
        """The rules in their order; functions may lie in `folder`, `place` is where they are named.

        Raises `InputError` for a function that cannot be used.
        """
        self.replaced = self.samples = self.too_slow = 0
        self.failures: set[str] = set()
        self._rules: list[Callable[[str], tuple[str, int]]] = []
        self._place = place
        for rule in rules:
            if isinstance(rule, str):
                self._rules.append(self._by_function(rule, folder))
            else:
                self._rules.append(_by_pattern(rule))

    def redacted(self, turn: TurnSample) -> TurnSample:
        """The same sample with its texts redacted.

        Raises `RecordError` without any text of the sample: where a function cannot be used, and
        a `SlowPatternError` where a pattern takes too long.
        """
        before = self.replaced
        fields = dict(turn.fields)
        for name in _TEXTS:
            fields[name] = self._any(fields[name])
        for name in _CLAIMS:
            if fields[name] is not None:
                # A claim is not blank.
                fields[name] = [claim for claim in fields[name] if claim.strip()]
        if fields["metadata"] != "{}":
            metadata = json.loads(fields["metadata"])
            kept = {
                name: value if name in _IDS else self._metadata(name, value)
                for name, value in metadata.items()
            }
            fields["metadata"] = canonical(kept).decode()
        self.samples += self.replaced > before
        counted = self.replaced
        history = self._metadata("history", [dict(one) for one in turn.history])
        # The same messages are in the metadata.
        self.replaced = counted
        return turn._replace(fields=fields, history=history)

    def message(self, text: str) -> str:
        """A message about a record that may quote its texts, with these redacted."""
        before = self.replaced
        try:
            return str(self._any(text))
        except RecordError:
            return "cannot be used"
        finally:
            self.replaced = before

    def told(self, place: str) -> Iterator[Fault]:
        """What was replaced and left out, for the user."""
        if self.replaced:
            what = f"redacted: replacements {self.replaced:,}, samples {self.samples:,}"
            yield Fault(place, what, "the texts before are not stored")
        if self.too_slow:
            what = f"left out: samples for which a pattern takes too long {self.too_slow:,}"
            yield Fault(place, what, "write a pattern that does not try so many ways")

    def _metadata(self, name: str, value: Any) -> Any:
        if name == "history" and isinstance(value, list):
            # The roles of messages are not texts.
            return [
                one | {"content": self._any(one.get("content"))} if isinstance(one, dict) else one
                for one in value
            ]
        return self._any(value)

    def _any(self, value: Any) -> Any:
        """A value of JSON with each text in it redacted; names of members stay."""
        if isinstance(value, str):
            for rule in self._rules:
                value, count = rule(value)
                self.replaced += count
            return value
        if isinstance(value, list):
            return [self._any(member) for member in value]
        if isinstance(value, Mapping):
            return {name: self._any(member) for name, member in value.items()}
        return value

    def _by_function(self, reference: str, folder: Path) -> Callable[[str], tuple[str, int]]:
        try:
            function = load_object(reference, folder)
        except PluginError as error:
            raise InputError([Fault(self._place, error.what, error.hint)]) from error
        if not callable(function):
            what = f"{reference} is no function"
            raise InputError([Fault(self._place, what, "name one from text to text")])

        def apply(text: str) -> tuple[str, int]:
            try:
                found = function(text)
            except (Exception, SystemExit, GeneratorExit) as error:
                # A function must not end the run in its own way. The message of an exception may
                # hold the text, and so may what it came from.
                what = f"{reference}, which redacts, raised {type(error).__name__}"
                raise RecordError(what, "mend it: its text is not shown") from None
            if not isinstance(found, str) or not is_unicode(found):
                kind = type(found).__name__
                what = (
                    f"{reference}, which redacts, returned {kind if kind != 'str' else 'no text'}"
                )
                raise RecordError(what, "return a text that UTF-8 holds")
            return found, int(found != text)

        return apply


def _by_pattern(rule: RedactedPattern) -> Callable[[str], tuple[str, int]]:
    pattern = regex.compile(rule.pattern)

    def apply(text: str) -> tuple[str, int]:
        try:
            return pattern.subn(lambda _: rule.replacement, text, timeout=_SECONDS)
        except TimeoutError:
            what = f"the pattern {rule.pattern!r} takes more than {_SECONDS:g} s for a text"
            raise SlowPatternError(what, "write one that does not try so many ways") from None

    return apply
