"""Check a prompt file: the messages that a model would read, and what is wrong with it."""

import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast, get_args, get_origin

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.judge.call_statistics import CHARACTERS_PER_TOKEN
from claimflow.flows.judge.conversation import batch_questions, render_messages
from claimflow.flows.pipeline.prompts import SEVERAL, PromptError, read_prompt
from claimflow.stages.base import Stage
from claimflow.stages.prompts import PromptBlanks, blanks, fill, split_prompt
from claimflow.stages.registry import STAGES
from claimflow.stages.tools import Form, Question

_PREMISE: Final = "The Eiffel Tower is located in Paris. It has a height of 1000ft."
_CONTEXT: Final = "user: Where is the Eiffel Tower, and how high is it?"
_QUESTIONS: Final = {
    "texts": [Question(_PREMISE, _CONTEXT), Question("It is 330 m high.", "user: How high is it?")],
    "claims": [
        Question("The Eiffel Tower is in France.", _PREMISE),
        Question("The Eiffel Tower was built by Romans.", _PREMISE),
        Question("The tower is closed.", "The tower is open every day."),
    ],
    "checks": [
        Question("It names a height.", _PREMISE),
        Question("It says who built the tower.", _PREMISE),
    ],
}
_STAGES: Final[dict[str, type[Stage]]] = {
    blank: STAGES[use].verdicts_by or STAGES[use]
    for blank, use in (
        ("texts", "decompose_claims"),
        ("claims", "verify_claims"),
        ("checks", "rubric"),
    )
}
"""Stages that ask a language model, by the blank that only their prompts have."""

_ABOUT: Final = {"claims": "premise", "checks": "sample"}
"""The blank for what the texts of another blank are about."""

_MAX_LABEL: Final = 100
"""Characters between the texts that are too few to be worth caching, such as `Premise:`."""


class Message(NamedTuple):
    """A message that a prompt makes of an example, with about as many tokens as a model counts."""

    role: str
    content: str
    tokens: int


class CheckedPrompt(NamedTuple):
    """A prompt that a step can use: the name of its stage, its messages, and warnings."""

    use: str
    messages: list[Message]
    warnings: list[Fault]


def check_prompt(path: Path) -> CheckedPrompt:
    """The messages that a prompt file makes of an example, and warnings.

    Raises `InputError` for a file that no step could use.
    """
    place = str(path)
    try:
        text = read_prompt(path)
    except PromptError as error:
        raise InputError([Fault(place, error.wrong, error.hint)]) from error
    stage = _stage(place, text)
    # Not validated: the settings without a default do not change how a model is asked.
    settings: dict[str, Any] = {"prompt": text}
    form = cast(Form, stage.model_construct(**settings).form())
    call = next(batch_questions(_QUESTIONS[form.blank], form))
    messages = [
        Message(message["role"], message["content"], _tokens(message["content"]))
        for message in render_messages(form, dict(enumerate(call, 1)))
    ]
    warnings = [*_missing_names(place, text, form, stage), *_cache_warnings(place, form)]
    return CheckedPrompt(stage.use, messages, warnings)


def _tokens(text: str) -> int:
    return ceil(len(text) / CHARACTERS_PER_TOKEN)


def _stage(place: str, text: str) -> type[Stage]:
    """The stage that a prompt is for, known by the blanks of the prompt."""
    found = blanks(text)
    held = [blank for several in SEVERAL.keys() & found.keys() for blank in SEVERAL[several]]
    named = [blank for blank in _STAGES if blank in {*found, *held}]
    known = frozenset().union(*(_fills(_STAGES[blank]) for blank in named or _STAGES))
    faults = [
        Fault(f"{place}:{line}", f"unknown blank {{{{{blank}}}}}", one_of(blank, known))
        for blank, line in found.items()
        if blank not in known
    ]
    if len(named) != 1:
        several = " and ".join(f"{{{{{blank}}}}}" for blank in named)
        which = several if named else "no blank for the texts"
        hint = (
            "a prompt that decomposes has {{contexts}} or {{texts}}, one that verifies has "
            "{{premises}} or {{premise}} and {{claims}}, one of a rubric has {{sample}} and "
            "{{checks}}"
        )
        faults.append(Fault(place, f"has {which}", hint))
    elif (about := _ABOUT.get(named[0])) and about not in {*found, *held}:
        what, hint = f"has no blank {{{{{about}}}}}", f"put one above {{{{{named[0]}}}}}"
        faults.append(Fault(place, what, hint))
    if faults:
        raise InputError(faults)
    return _STAGES[named[0]]


def _fills(stage: type[Stage]) -> PromptBlanks:
    marks = stage.model_fields["prompt"].metadata
    return next(mark for mark in marks if isinstance(mark, PromptBlanks))


def _missing_names(place: str, text: str, form: Form, stage: type[Stage]) -> Iterator[Fault]:
    """Names of the reply that the prompt lacks, and settings that it does not pass on."""
    literal = fill(text, dict.fromkeys(blanks(text), " "))
    for name in _reply_names(form):
        if not re.search(rf"\b{name}\b", literal):
            yield Fault(place, f"does not name {name!r}", "say what it means: the reply has it")
    found = {*blanks(text), form.blank, *SEVERAL}
    for blank in SEVERAL.keys() & blanks(text).keys():
        found.update(SEVERAL[blank])
    for setting in sorted(_fills(stage) - found):
        hint = f"put {{{{{setting}}}}} where it should be, or the setting changes nothing"
        yield Fault(place, f"has no blank {{{{{setting}}}}}", hint)


def _reply_names(form: Form) -> Iterator[str]:
    """The fields of an answer, and the values of its closed sets."""
    for name, field in form.answer.model_fields.items():
        yield name
        if get_origin(field.annotation) is Literal:
            yield from get_args(field.annotation)


def _cache_warnings(place: str, form: Form) -> Iterator[Fault]:
    """What keeps providers from caching the part of a prompt that all calls share."""
    found = blanks(form.prompt)
    order = list(found)
    if order[-1] == form.about:
        about, blank = (f"{{{{{name}}}}}" for name in (form.about, form.blank))
        hint = f"put {about} first: calls on one {form.about} then begin alike and cost less"
        yield Fault(f"{place}:{found[form.about]}", f"{about} stands below {blank}", hint)
    varying = split_prompt(form.prompt, found).varying
    below = fill(varying, dict.fromkeys(found, "")).strip()
    if len(below) > _MAX_LABEL:
        what = f"about {_tokens(below):,} tokens that never change stand beside or below the texts"
        hint = "put them above: providers reuse only what comes before the first text"
        yield Fault(f"{place}:{found[order[0]]}", what, hint)
