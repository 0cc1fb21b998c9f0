"""`claimflow prompt check`: what a language model would read, and what is wrong with it."""

import re
from argparse import Namespace
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args, get_origin

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.judge.call_statistics import CHARACTERS_PER_TOKEN
from claimflow.flows.judge.conversation import render
from claimflow.flows.pipeline.prompts import PromptError, read_prompt
from claimflow.stages.base import Stage
from claimflow.stages.prompts import Fills, blanks, cut, fill
from claimflow.stages.registry import STAGES
from claimflow.stages.tools import Form

_PREMISE: Final = "The Eiffel Tower is located in Paris. It has a height of 1000ft."
_TEXTS: Final = {
    "texts": {1: _PREMISE},
    "claims": {1: "The Eiffel Tower is in France.", 2: "The Eiffel Tower was built by Romans."},
}
_STAGES: Final[dict[str, type[Stage]]] = {
    "texts": STAGES["decompose_claims"],
    "claims": STAGES["verify_claims"],
}
"""The stages that ask a language model, by the blank that is in their prompts alone."""

_LABEL: Final = 100
"""Characters of text between the texts that no cache would gain by: `Premise:` and the like."""


def main(options: Namespace) -> int:
    """Print the messages that `options.file` makes of an example, and warnings.

    Raises `InputError` for a file that no step could use.
    """
    place = str(options.file)
    text = _read(options.file)
    kind = _stage(place, text)
    # Not validated: the settings without a default do not change how a model is asked.
    settings: dict[str, Any] = {"prompt": text}
    form = cast(Form, kind.model_construct(**settings).form())
    console = standard_output()
    console.print(shown(f"{place}: a prompt for {kind.use}", style="bold"))
    for message in render(form, _PREMISE, _TEXTS[form.blank]):
        console.print(shown(f"\n{_heading(message)}\n", style="bold"))
        console.print(shown(message["content"].rstrip("\n")), soft_wrap=True)
    for warning in (*_unsaid(place, text, form, kind), *_uncached(place, form)):
        console.print(shown(f"\nwarning: {warning}", style="yellow"), soft_wrap=True)
    return 0


def _heading(message: dict[str, str]) -> str:
    says = {
        "system": "system message, the same in every call",
        "user": "user message, with an example",
    }
    return f"--- {says[message['role']]}: about {_tokens(message['content']):,} tokens ---"


def _tokens(text: str) -> int:
    """About as many tokens as a model would count."""
    return ceil(len(text) / CHARACTERS_PER_TOKEN)


def _read(path: Path) -> str:
    try:
        return read_prompt(path)
    except PromptError as error:
        raise InputError([Fault(str(path), error.wrong, error.hint)]) from error


def _stage(place: str, text: str) -> type[Stage]:
    """The stage that a prompt is for, known by the blanks of the prompt."""
    found = blanks(text)
    named = [blank for blank in _STAGES if blank in found]
    known = frozenset().union(*(_fills(_STAGES[blank]) for blank in named or _STAGES))
    faults = [
        Fault(f"{place}:{line}", f"nothing fills the blank {{{{{blank}}}}}", one_of(blank, known))
        for blank, line in found.items()
        if blank not in known
    ]
    if len(named) != 1:
        which = "both {{texts}} and {{claims}}" if named else "neither {{texts}} nor {{claims}}"
        hint = "a prompt that decomposes has {{texts}}, one that verifies has {{claims}}"
        faults.append(Fault(place, f"has {which}", hint))
    elif named == ["claims"] and "premise" not in found:
        what, hint = "has no blank {{premise}}", "put one above {{claims}}"
        faults.append(Fault(place, what, hint))
    if faults:
        raise InputError(faults)
    return _STAGES[named[0]]


def _fills(stage: type[Stage]) -> Fills:
    marks = stage.model_fields["prompt"].metadata
    return next(mark for mark in marks if isinstance(mark, Fills))


def _unsaid(place: str, text: str, form: Form, kind: type[Stage]) -> Iterator[Fault]:
    """What the prompt does not say of the reply, and settings that it does not pass on."""
    said = fill(text, dict.fromkeys(blanks(text), " "))
    if "json" not in said.casefold():
        hint = "some providers refuse to be asked for JSON without it"
        yield Fault(place, "lacks the word JSON", hint)
    for word in _reply_words(form):
        if not re.search(rf"\b{word}\b", said):
            yield Fault(place, f"does not name {word!r}", "the reply is read by that name")
    for setting in sorted(_fills(kind) - {"premise", form.blank} - set(blanks(text))):
        hint = f"put {{{{{setting}}}}} where it is to stand, or the setting changes nothing"
        yield Fault(place, f"has no blank {{{{{setting}}}}}", hint)


def _reply_words(form: Form) -> Iterator[str]:
    """The names in a reply, and the words of its closed sets."""
    yield from (form.blank, "id")
    for name, field in form.answer.model_fields.items():
        yield name
        if get_origin(field.annotation) is Literal:
            yield from get_args(field.annotation)


def _uncached(place: str, form: Form) -> Iterator[Fault]:
    """What keeps providers from reusing the part of a prompt that calls have in common."""
    found = blanks(form.prompt)
    order = list(found)
    if order[-1] == "premise":
        hint = "put {{premise}} first: calls on one premise then begin alike and cost less"
        yield Fault(f"{place}:{found['premise']}", "{{premise}} stands below {{claims}}", hint)
    varying = cut(form.prompt, found).varying
    below = fill(varying, dict.fromkeys(found, "")).strip()
    if len(below) > _LABEL:
        what = f"about {_tokens(below):,} tokens that never change stand beside or below the texts"
        hint = "put them above: providers reuse only what comes before the first text"
        yield Fault(f"{place}:{found[order[0]]}", what, hint)
