"""Pydantic errors as faults: the line in the YAML, what is wrong, what would be right."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from claimflow.flows.errors import Fault, one_of
from claimflow.flows.pipeline.model_settings import SECRET_NAME, EmbeddingEndpoint, OnnxEncoder
from claimflow.flows.pipeline.schema import asks_llm, named_inputs, pipeline_model, step_model
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.registry import STAGES


def yaml_faults(
    source: YamlSource, error: ValidationError, *, at: tuple[str, ...] = ()
) -> list[Fault]:
    """One fault for each finding; `at` leads to the part of the file that was validated."""
    faults = []
    for finding in error.errors(include_url=False):
        path = (*at, *_path(finding, source.value if not at else None))
        what, hint = _words(source, finding, path)
        faults.append(Fault(source.place(*path), what, hint))
    return faults


def _path(finding: ErrorDetails, root: Any) -> tuple[str, ...]:
    """The keys that lead to a finding, without the tags that pydantic puts in for unions."""
    path: list[str] = []
    for key in finding["loc"]:
        tag = (len(path) == 2 and path[0] == "steps" and key in STAGES) or (
            path == ["embedder"] and key in ("onnx", "litellm")
        )
        if not (root is not None and tag) and key != "[key]":
            path.append(str(key))
    if finding["type"] == "union_tag_invalid":
        path.append("provider" if path == ["embedder"] else "use")
    return tuple(path)


def _words(source: YamlSource, finding: ErrorDetails, path: tuple[str, ...]) -> tuple[str, str]:
    """(what is wrong, what would be right) of a finding."""
    context = finding.get("ctx", {})
    given = finding["input"]
    match finding["type"]:
        case "missing":
            return f"lacks {path[-1]!r}", f"write {path[-1]}: {_example(source, path)}"
        case "extra_forbidden":
            return f"unknown key {path[-1]!r}", _right_key(source, path)
        case "model_type" | "model_attributes_type" | "dict_type":
            found = "is empty" if given is None else "is no mapping"
            return found, _right_part(source, path, given)
        case "union_tag_not_found" | "union_tag_invalid":
            return _kind(context, path)
        case "too_short":
            return "is empty", "write at least one"
        case "literal_error":
            return f"{given!r} is not allowed", f"write {context['expected']}"
        case "value_error":
            # What was given may be a secret that has no place here.
            return "is not right", str(context["error"])
        case "string_pattern_mismatch":
            small = "small letters, digits and _, a letter first"
            letters = "letters, digits, - and _" if path[-1] == "shared_limit" else small
            return f"{given!r} is no name", f"use {letters}"
        case _:
            return f"{given!r} is not right here", finding["msg"][0].lower() + finding["msg"][1:]


def _right_key(source: YamlSource, path: tuple[str, ...]) -> str:
    if SECRET_NAME.search(path[-1]):
        return "keys belong in the environment"
    return one_of(path[-1], _keys(source, path[:-1]))


def _right_part(source: YamlSource, path: tuple[str, ...], given: Any) -> str:
    if path[:1] == ("steps",) and len(path) == 2:
        return _use(given)
    return f"write {', '.join(sorted(_keys(source, path))) or 'name'}: ..."


def _kind(context: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, str]:
    """The words on a part of the file that does not say rightly of which kind it is."""
    tag = context.get("tag")
    if path[0] == "embedder":
        return f"unknown provider {tag!r}", "write onnx or litellm"
    if tag is None:
        return "does not say which stage to use", _use(None)
    return f"unknown stage {tag!r}", one_of(str(tag), STAGES)


def _keys(source: YamlSource, path: tuple[str, ...]) -> set[str]:
    """The keys that may stand at `path`."""
    if path[:1] == ("steps",) and len(path) == 2:
        stage = STAGES[source.value["steps"][path[1]]["use"]]
        return {
            "use",
            *stage.model_fields,
            *named_inputs(stage),
            *(("judge",) if asks_llm(stage) else ()),
        }
    model: Any = pipeline_model()
    if path[:1] == ("steps",) and len(path) > 2:
        model, path = step_model(STAGES[source.value["steps"][path[1]]["use"]]), path[2:]
    for key in path:
        fields = getattr(model, "model_fields", {})
        model = _model(fields[key].annotation if key in fields else model, source, path)
    return set(getattr(model, "model_fields", {}))


def _model(annotation: Any, source: YamlSource, path: tuple[str, ...]) -> Any:
    """The model behind an annotation: that of an optional part, of a part by name, of a kind."""
    if path[0] == "embedder":
        kind = source.section("embedder").get("provider")
        return EmbeddingEndpoint if kind == "litellm" else OnnxEncoder
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return parts[-1] if parts else annotation


def _example(source: YamlSource, path: tuple[str, ...]) -> str:
    """What may be written for a missing setting: its words, where it has a closed set."""
    if path[:1] == ("steps",) and len(path) == 3:
        field = STAGES[source.value["steps"][path[1]]["use"]].model_fields.get(path[2])
        if field is not None and get_origin(field.annotation) is Literal:
            return " or ".join(map(str, get_args(field.annotation)))
    return "..."


def _use(given: Any) -> str:
    """What may be written for a step that names no stage; `given` may be the bare name of one."""
    if isinstance(given, str) and given in STAGES:
        return f"write {{use: {given}}}"
    return f"write use: and one of {', '.join(sorted(STAGES))}"
