"""Pydantic's findings as faults: the line in the YAML, what is wrong, what would be right."""

from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from flows.engine.errors import Fault, one_of
from flows.engine.pipeline_schema import pipeline_model, wired
from flows.engine.yaml_source import YamlSource
from stages import REGISTER


def yaml_faults(
    source: YamlSource, error: ValidationError, *, at: tuple[str, ...] = ()
) -> list[Fault]:
    """One fault for each finding; `at` leads to the part of the file that was validated."""
    faults = []
    for finding in error.errors(include_url=False):
        path = (*at, *_path(finding, source.value if not at else None))
        what, right = _words(source, finding, path)
        faults.append(Fault(source.place(*path), what, right))
    return faults


def _path(finding: ErrorDetails, root: Any) -> tuple[str, ...]:
    """The keys that lead to a finding, without the tags that pydantic puts in for unions."""
    path: list[str] = []
    for key in finding["loc"]:
        tag = len(path) == 2 and path[0] == "steps" and key in REGISTER
        if not (root is not None and tag) and key != "[key]":
            path.append(str(key))
    if finding["type"] == "union_tag_invalid":
        path.append("use")
    return tuple(path)


def _words(source: YamlSource, finding: ErrorDetails, path: tuple[str, ...]) -> tuple[str, str]:
    """(what is wrong, what would be right) of a finding."""
    context = finding.get("ctx", {})
    given = finding["input"]
    match finding["type"]:
        case "extra_forbidden":
            return f"unknown key {path[-1]!r}", one_of(path[-1], _keys(source, path[:-1]))
        case "missing":
            return f"lacks {path[-1]!r}", f"write {path[-1]}: {_example(source, path)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            found = "is empty" if given is None else "is no mapping"
            return found, f"write {', '.join(sorted(_keys(source, path))) or 'name'}: ..."
        case "too_short":
            return "is empty", "write at least one"
        case "union_tag_not_found":
            return "does not say which stage to use", f"write use: and {_list(REGISTER)}"
        case "union_tag_invalid":
            return f"unknown stage {context['tag']!r}", one_of(str(context["tag"]), REGISTER)
        case "literal_error":
            return f"{given!r} is not allowed", f"write {context['expected']}"
        case "string_pattern_mismatch":
            return f"{given!r} is no name", "use small letters, digits and _, a letter first"
        case _:
            return f"{given!r} is not right here", finding["msg"][0].lower() + finding["msg"][1:]


def _keys(source: YamlSource, path: tuple[str, ...]) -> set[str]:
    """The keys that may stand at `path`."""
    if path[:1] == ("steps",) and len(path) == 2:
        stage = REGISTER[source.value["steps"][path[1]]["use"]]
        return {"use", *stage.model_fields, *wired(stage)}
    model: Any = pipeline_model()
    for key in path:
        model = model.model_fields[key].annotation
    return set(getattr(model, "model_fields", {}))


def _example(source: YamlSource, path: tuple[str, ...]) -> str:
    """What may be written for a missing setting: its words, where it has a closed set."""
    if path[:1] == ("steps",) and len(path) == 3:
        field = REGISTER[source.value["steps"][path[1]]["use"]].model_fields.get(path[2])
        if field is not None and get_origin(field.annotation) is Literal:
            return " or ".join(map(str, get_args(field.annotation)))
    return "..."


def _list(words: Any) -> str:
    return f"one of {', '.join(sorted(words))}"
