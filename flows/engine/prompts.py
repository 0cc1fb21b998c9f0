"""Prompt files named in a pipeline: read, and their blanks checked."""

from collections.abc import Mapping
from typing import Any

from flows.engine.errors import Fault, one_of
from flows.engine.yaml_source import YamlSource
from stages.base import Stage
from stages.prompt import Fills, blanks


def prompt_texts(
    source: YamlSource,
    step: str,
    kind: type[Stage],
    settings: Mapping[str, Any],
    faults: list[Fault],
) -> dict[str, str]:
    """The text of each prompt file that a step's settings name, by setting.

    A file that cannot be read and a blank that the stage does not fill become faults, and
    so does any prompt, while the embedded models are the only judges.
    """
    texts = {}
    for name, field in kind.model_fields.items():
        fills = next((mark for mark in field.metadata if isinstance(mark, Fills)), None)
        path = settings.get(name)
        if fills is None or not isinstance(path, str):
            continue
        place = source.place("steps", step, name)
        text = _read(source, path, place, faults)
        for blank, line in blanks(text).items():
            if blank not in fills:
                what = f"{path}:{line} has the blank {{{{{blank}}}}}, which nothing fills"
                faults.append(Fault(place, what, one_of(blank, fills)))
        what = "a prompt is read by a language model, and this pipeline has none"
        faults.append(Fault(place, what, f"remove {name}; the embedded model needs none"))
        texts[name] = text
    return texts


def _read(source: YamlSource, path: str, place: str, faults: list[Fault]) -> str:
    try:
        return (source.folder / path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        right = "name a prompt file, relative to this file"
        faults.append(Fault(place, f"{path} cannot be read ({reason})", right))
        return ""
