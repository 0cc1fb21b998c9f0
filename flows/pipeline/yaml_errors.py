"""Validate parts of a YAML file, and turn pydantic errors into faults with lines and hints."""

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from claimflow.flows.errors import Fault, one_of
from claimflow.flows.pipeline.model_settings import SECRET_NAME, EmbeddingEndpoint, OnnxEncoder
from claimflow.flows.pipeline.schema import asks_llm, named_inputs, pipeline_model, step_model
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.registry import STAGES

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], value: Any) -> M:
    """`value` as a `model`; raises `ValidationError`.

    By way of JSON: pydantic's strict mode then accepts a list for a tuple, but no text for a
    number.
    """
    return model.model_validate_json(json.dumps(value, default=str), strict=True)


def yaml_faults(
    source: YamlSource, error: ValidationError, *, at: tuple[str, ...] = ()
) -> list[Fault]:
    """One fault for each error; `at` is the path of the part of the file that was validated."""
    faults = []
    for found in error.errors(include_url=False):
        path = (*at, *_path(found, whole_file=not at))
        what, hint = _message(source, found, path)
        faults.append(Fault(source.place(*path), what, hint))
    return faults


def _path(error: ErrorDetails, *, whole_file: bool) -> tuple[str, ...]:
    """The path of an error in the file, without the tags that pydantic adds for unions."""
    path: list[str] = []
    for key in error["loc"]:
        tag = (len(path) == 2 and path[0] == "steps" and key in STAGES) or (
            path == ["embedder"] and key in ("onnx", "litellm")
        )
        if not (whole_file and tag) and key != "[key]":
            path.append(str(key))
    if error["type"] == "union_tag_invalid":
        path.append("provider" if path == ["embedder"] else "use")
    return tuple(path)


def _message(source: YamlSource, error: ErrorDetails, path: tuple[str, ...]) -> tuple[str, str]:
    """What is wrong, and what would be right."""
    context = error.get("ctx", {})
    given = error["input"]
    match error["type"]:
        case "missing":
            return f"lacks {path[-1]!r}", f"write {path[-1]}: {_example(source, path)}"
        case "extra_forbidden":
            return f"unknown key {path[-1]!r}", _key_hint(source, path)
        case "model_type" | "model_attributes_type" | "dict_type":
            found = "is empty" if given is None else "is no mapping"
            return found, _mapping_hint(source, path, given)
        case "union_tag_not_found" | "union_tag_invalid":
            return _tag_message(context, path)
        case "too_short":
            return "is empty", "write at least one"
        case "literal_error":
            return f"{given!r} is not allowed", f"write {context['expected']}"
        case "value_error":
            # The value is not shown: it may be a secret.
            return "is not right", str(context["error"])
        case "string_pattern_mismatch":
            small = "small letters, digits and _, a letter first"
            letters = "letters, digits, - and _" if path[-1] == "shared_limit" else small
            return f"{given!r} is no name", f"use {letters}"
        case _:
            return f"{given!r} is not right here", error["msg"][0].lower() + error["msg"][1:]


def _key_hint(source: YamlSource, path: tuple[str, ...]) -> str:
    if SECRET_NAME.search(path[-1]):
        return "keys belong in the environment"
    return one_of(path[-1], _keys(source, path[:-1]))


def _mapping_hint(source: YamlSource, path: tuple[str, ...], given: Any) -> str:
    if path[:1] == ("steps",) and len(path) == 2:
        return _use_hint(given)
    return f"write {', '.join(sorted(_keys(source, path))) or 'name'}: ..."


def _tag_message(context: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, str]:
    """What is wrong with a step's `use` or the embedder's `provider`, and what would be right."""
    tag = context.get("tag")
    if path[0] == "embedder":
        return f"unknown provider {tag!r}", "write onnx or litellm"
    if tag is None:
        return "does not say which stage to use", _use_hint(None)
    return f"unknown stage {tag!r}", one_of(str(tag), STAGES)


def _keys(source: YamlSource, path: tuple[str, ...]) -> set[str]:
    """The keys that are allowed at `path`."""
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
    """The model in the annotation `Model | None`, `dict[str, Model]` or a union by provider."""
    if path[0] == "embedder":
        kind = source.section("embedder").get("provider")
        return EmbeddingEndpoint if kind == "litellm" else OnnxEncoder
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return parts[-1] if parts else annotation


def _example(source: YamlSource, path: tuple[str, ...]) -> str:
    """What may be written for a missing setting: its values, where they are a closed set."""
    if path[:1] == ("steps",) and len(path) == 3:
        field = STAGES[source.value["steps"][path[1]]["use"]].model_fields.get(path[2])
        if field is not None and get_origin(field.annotation) is Literal:
            return " or ".join(map(str, get_args(field.annotation)))
    return "..."


def _use_hint(given: Any) -> str:
    """The hint for a step without `use`; `given` may be the bare name of a stage."""
    if isinstance(given, str) and given in STAGES:
        return f"write {{use: {given}}}"
    return f"write use: and one of {', '.join(sorted(STAGES))}"
