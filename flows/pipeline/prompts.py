"""Prompts of steps: read from their files, with their blanks checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from claimflow.flows.errors import Fault, one_of
from claimflow.flows.files import read_text, similar_file
from claimflow.flows.pipeline.limits import YAML_BYTES
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.base import Stage
from claimflow.stages.prompts import PromptBlanks, blanks

DEFAULT_PROMPTS: Final = Path(__file__).parents[2] / "configs" / "prompts"
"""The default prompts: a file for each stage."""

_TEXTS: Final = frozenset({"premise", "claims", "texts", "sample", "checks"})
"""Blanks for the texts under evaluation; a prompt must have those of its stage."""

SEVERAL: Final = {"contexts": ("context", "texts"), "premises": ("premise", "claims")}
"""Blanks that stand for several premises, each with its texts, and the blanks they stand for."""


def prompt_texts(
    source: YamlSource,
    step: str,
    kind: type[Stage],
    settings: Mapping[str, Any],
    faults: list[Fault],
    *,
    judged: bool,
) -> dict[str, str]:
    """The text of each prompt of a step, by setting; empty unless `judged` by a language model.

    A step that names no file gets the default prompt. Faults are: a file that cannot be read, a
    blank that the stage does not fill, a text without a blank, and a prompt in a step that
    asks no language model.
    """
    texts = {}
    for name, field in kind.model_fields.items():
        fills = next((mark for mark in field.metadata if isinstance(mark, PromptBlanks)), None)
        path = settings.get(name)
        if fills is None or not isinstance(path, str | None):
            continue
        place = source.place("steps", step, name)
        if judged:
            file = (
                source.folder / path
                if path
                else DEFAULT_PROMPTS / f"{kind.use.partition('_')[0]}.md"
            )
            texts[name] = text = _read(file, path or file.name, place, faults)
            faults += _blank_faults(text, path or file.name, place, fills)
        elif path:
            what = "the step asks no language model that could read a prompt"
            hint = f"write a judge for the pipeline or the step, or remove {name}"
            faults.append(Fault(place, what, hint))
    return texts


def _blank_faults(text: str, path: str, place: str, fills: PromptBlanks) -> list[Fault]:
    if not text:
        return []
    found = blanks(text)
    unknown = [
        Fault(
            place,
            f"{path}:{line} has an unknown blank {{{{{blank}}}}}",
            one_of(blank, fills),
        )
        for blank, line in found.items()
        if blank not in fills
    ]
    several = SEVERAL.keys() & fills & found.keys()
    needed = fills & _TEXTS - set(found)
    if several:
        needed = frozenset()
        unknown += [
            Fault(
                place,
                f"{path}:{found[blank]} has {{{{{blank}}}}} beside {{{{{plural}}}}}",
                f"remove {{{{{blank}}}}}: {{{{{plural}}}}} holds these texts too",
            )
            for plural in several
            for blank in SEVERAL[plural]
            if blank in found
        ]
    missing = [
        Fault(place, f"{path} has no blank {{{{{blank}}}}}", "put it where the text should be")
        for blank in sorted(needed)
    ]
    return unknown + missing


def _read(file: Path, path: str, place: str, faults: list[Fault]) -> str:
    try:
        return read_prompt(file)
    except PromptError as error:
        hint = f"{error.hint}, relative to this file"
        faults.append(Fault(place, f"{path} {error.wrong}", hint))
        return ""


class PromptError(ValueError):
    """A prompt file that cannot be used: what is wrong, and what would be right."""

    def __init__(self, wrong: str, hint: str) -> None:
        super().__init__(f"{wrong}; {hint}")
        self.wrong = wrong
        self.hint = hint


def read_prompt(file: Path) -> str:
    """The text of a prompt file. Raises `PromptError` where it is unreadable, empty or large."""
    try:
        text = read_text(file, YAML_BYTES)
    except (OSError, ValueError) as error:
        match error:
            case OSError():
                reason = error.strerror
            case UnicodeDecodeError():
                reason = "no UTF-8"
            case _:
                reason = str(error)
        hint = similar_file(file, "name a prompt file")
        raise PromptError(f"cannot be read ({reason})", hint) from error
    if text is None:
        raise PromptError(f"is larger than {YAML_BYTES >> 10} KiB", "write a shorter prompt")
    if not text.strip():
        raise PromptError("is empty", "write a prompt, or name another file")
    return text
