"""Validate parts of a YAML file, and turn pydantic errors into faults with lines and hints."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from claimflow.flows.errors import Fault, nearest, one_of
from claimflow.flows.pipeline.model_settings import (
    PROVIDER_GROUP,
    SECRET_NAME,
    EmbeddingEndpoint,
    OnnxEncoder,
    provider_names,
)
from claimflow.flows.pipeline.sample_choice import REDACTION_TAGS, RedactedPattern
from claimflow.flows.pipeline.schema import (
    asks_llm,
    named_inputs,
    pipeline_model,
    step_model,
    written_settings,
)
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.base import Stage
from claimflow.stages.registry import find_stage, stage_names
from claimflow.stages.rubric import CHECKS_TAGS

M = TypeVar("M", bound=BaseModel)

_MISSING: Final = "is missing"

_EXAMPLES: Final = {
    "name": "NAME",
    "samples": "{path: FILE.jsonl}",
    "path": "FILE.jsonl",
    "store": "FILE.duckdb",
    "steps": "{NAME: {use: STAGE}}",
    "model": "MODEL",
    "input": "US dollars per million tokens",
    "output": "US dollars per million tokens",
    "pipeline": "FILE.yaml",
    "rpm": "requests a minute",
}
"""What may be written for a missing key."""

_TYPES: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
}
"""The type that was expected, by pydantic's type of the error."""

_BOUNDS: Final = {
    "greater_than_equal": "{ge:g} or more",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "{le:g} or less",
    "less_than": "less than {lt:g}",
}
"""The values that are allowed, by pydantic's type of the error."""

_KINDS: Final = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    list: "a list",
    dict: "a mapping",
}

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_LONGEST_VALUE: Final = 80

_REDACT: Final = ("samples", "redact")
_REDACTION: Final = "{pattern: ..., with: ...}, module:function, or a list of these"


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
        if found["type"] == "default_factory_not_called":
            continue  # A default that depends on another setting, which is at fault itself.
        path = (*at, *_path(source, found, whole_file=not at))
        what, hint = _message(source, found, path)
        faults.append(Fault(source.place(*path), what, hint))
    return faults


def _path(source: YamlSource, error: ErrorDetails, *, whole_file: bool) -> tuple[str, ...]:
    """The path of an error in the file, without the tags that pydantic adds for unions."""
    path: list[str] = []
    for key in error["loc"]:
        tag = (_is_step(tuple(path)) and key == _use(source, path[1])) or (
            path == ["embedder"] and key in ("onnx", "endpoint")
        )
        if not (whole_file and tag) and key not in ("[key]", *CHECKS_TAGS, *REDACTION_TAGS):
            path.append(str(key))
    if error["type"] == "union_tag_invalid":
        path.append("use")
    return tuple(path)


def _message(source: YamlSource, error: ErrorDetails, path: tuple[str, ...]) -> tuple[str, str]:
    """What is wrong in a pipeline file, and what would be right."""
    match error["type"]:
        case "missing":
            return _MISSING, f"write {path[-1]}: {_example(source, path)}"
        case "unknown_provider":
            return _provider_message(str(error["input"]), embedder=path[0] == "embedder")
        case "extra_forbidden" if SECRET_NAME.search(path[-1]):
            return f"unknown key {path[-1]!r}", "keys belong in the environment"
        case "union_tag_not_found" | "union_tag_invalid":
            return _tag_message(error.get("ctx", {}))
        case "model_type" | "model_attributes_type" if path[:2] == _REDACT:
            return _type_message(error["input"], _REDACTION)
        case "model_type" | "model_attributes_type" | "dict_type" if _is_step(path):
            return _not_a_mapping(error["input"]), _use_hint(error["input"])
    return error_message(error, path, lambda at: _keys(source, at))


def _use(source: YamlSource, step: str) -> Any:
    """What a step names as its stage."""
    values = source.value["steps"][step]
    return values.get("use") if isinstance(values, dict) else None


def _stage(source: YamlSource, step: str) -> type[Stage]:
    """The stage of a step, one that was found before."""
    found = find_stage(_use(source, step), source.folder)
    if found is None:
        raise KeyError(step)
    return found


def _is_step(path: tuple[str, ...]) -> bool:
    return path[:1] == ("steps",) and len(path) == 2


def error_message(
    error: ErrorDetails, path: tuple[str, ...], keys: Callable[[tuple[str, ...]], Iterable[str]]
) -> tuple[str, str]:
    """What is wrong at `path`, and what would be right, for an error of pydantic.

    `keys` returns the keys that the mapping at a path may have; none for names of one's own.
    """
    given = error["input"]
    match error["type"]:
        case "missing":
            return _MISSING, f"write {path[-1]}: {_EXAMPLES.get(path[-1], '...')}"
        case "extra_forbidden":
            return f"unknown key {path[-1]!r}", one_of(path[-1], keys(path[:-1]))
        case "model_type" | "model_attributes_type" | "dict_type":
            known = ", ".join(sorted(keys(path)))
            return _not_a_mapping(given), f"its keys are {known}" if known else "write NAME: ..."
        case "string_pattern_mismatch":
            small = "lower-case letters, digits and _, starting with a letter"
            is_shared = path[-1] == "shared_limit" or path[0] in ("deployments", "limits")
            hint = f"use {'letters, digits, - and _' if is_shared else small}"
            return f"{given!r} is not a valid name", hint
        case kind if kind in _TYPES:
            return _type_message(given, _TYPES[kind])
    return _value_message(error)


def _value_message(error: ErrorDetails) -> tuple[str, str]:
    """What is wrong with a value of the right type, and what would be right."""
    context, shown = error.get("ctx", {}), _shown(error["input"])
    match error["type"]:
        case "too_short":
            return "is empty", "write at least one"
        case "string_too_short":
            return "is empty", "write text"
        case "literal_error":
            return f"{shown} is not allowed", f"write {context['expected']}"
        case "value_error":
            # The value is not shown: it may be a secret.
            return "is not valid", str(context["error"])
        case "finite_number":
            return f"{shown} is not finite", "write a finite number"
        case kind if kind in _BOUNDS:
            return f"{shown} is out of range", "write " + _BOUNDS[kind].format(**context)
        case _:
            return f"{shown} is not valid", error["msg"][0].lower() + error["msg"][1:]


def _type_message(given: Any, wanted: str) -> tuple[str, str]:
    if given is None:
        return "is empty", f"write {wanted}"
    quoted = isinstance(given, str) and "number" in wanted and _NUMBER.fullmatch(given)
    hint = "write it without quotes" if quoted else f"write {wanted}"
    return f"{_shown(given)} is {_KINDS.get(type(given), 'not valid')}", hint


def _shown(given: Any) -> str:
    """A value for a message: as in YAML if it is a boolean, and not all of a long one."""
    text = str(given).lower() if isinstance(given, bool) else repr(given)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _not_a_mapping(given: Any) -> str:
    return "is empty" if given is None else "is not a mapping"


def _provider_message(provider: str, *, embedder: bool) -> tuple[str, str]:
    """What is wrong with a provider that is not registered, and what would be right."""
    known = provider_names() | ({"onnx"} if embedder else set())
    near = nearest(provider, known)
    hint = f"did you mean {near!r}? " if near else ""
    listed = ", ".join(sorted(known))
    register = f"a package registers its own as an entry point of the group {PROVIDER_GROUP}"
    return f"{provider!r} is not a registered provider", f"{hint}registered: {listed}; {register}"


def _tag_message(context: Mapping[str, Any]) -> tuple[str, str]:
    """What is wrong with a step's `use`, and what would be right."""
    tag = context.get("tag")
    if tag is None:
        return "does not say which stage to use", _use_hint(None)
    return f"unknown stage {tag!r}", one_of(str(tag), stage_names())


def _keys(source: YamlSource, path: tuple[str, ...]) -> set[str]:
    """The keys of the mapping at `path`; none where they are names of one's own."""
    if _is_step(path):
        stage = _stage(source, path[1])
        return {
            "use",
            *written_settings(stage),
            *named_inputs(stage),
            *(("judge",) if asks_llm(stage.verdicts_by or stage) else ()),
        }
    if path[:2] == _REDACT:
        # One of several forms, of which the others have no keys.
        return {field.alias or name for name, field in RedactedPattern.model_fields.items()}
    model: Any = pipeline_model()
    if path[:1] == ("steps",) and len(path) > 2:
        model, path = step_model(_stage(source, path[1])), path[2:]
    annotation: Any = model
    for key in path:
        fields = getattr(model, "model_fields", {})
        annotation = fields[key].annotation if key in fields else model
        model = _model(annotation, source, path)
    if get_origin(annotation) is dict:
        return set()
    return set(getattr(model, "model_fields", {}))


def _model(annotation: Any, source: YamlSource, path: tuple[str, ...]) -> Any:
    """The model in the annotation `Model | None`, `dict[str, Model]` or a union by provider."""
    if path[0] == "embedder":
        kind = source.section("embedder").get("provider")
        return OnnxEncoder if kind in (None, "onnx") else EmbeddingEndpoint
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return parts[-1] if parts else annotation


def _example(source: YamlSource, path: tuple[str, ...]) -> str:
    """What may be written for a missing setting: its values, where they are a closed set."""
    if path[:1] == ("steps",) and len(path) == 3:
        field = written_settings(_stage(source, path[1])).get(path[2])
        if field is not None and get_origin(field.annotation) is Literal:
            return " or ".join(map(str, get_args(field.annotation)))
    return _EXAMPLES.get(path[-1], "...")


def _use_hint(given: Any) -> str:
    """The hint for a step without `use`; `given` may be the bare name of a stage."""
    if isinstance(given, str) and given in stage_names():
        return f"write {{use: {given}}}"
    return f"write use: and one of {', '.join(stage_names())}"
