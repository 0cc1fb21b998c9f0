"""The stages that a pipeline file can use, built in and of other packages, with their settings."""

from pathlib import Path
from typing import Any, NamedTuple

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.pipeline.schema import step_model
from claimflow.stages.base import Stage
from claimflow.stages.plugins import PluginError
from claimflow.stages.registry import STAGES, find_stage, stage_names


class Setting(NamedTuple):
    """A key of a step. `default` is None for a required one too."""

    name: str
    type: str
    required: bool
    default: Any
    description: str | None


class ListedStage(NamedTuple):
    """A stage by the name that `use` has; with an `error`, that of a package that is broken."""

    use: str
    module: str | None
    makes: str | None
    metrics: list[str]
    description: str | None
    settings: list[Setting]
    error: str | None


def listed_stages(use: str | None = None) -> list[ListedStage]:
    """All stages, built-in ones first, or the one that `use` names.

    `module:Name` may lie in the working folder. Raises `InputError` for a name that is unknown or
    cannot be loaded.
    """
    if use is None:
        others = [name for name in stage_names() if name not in STAGES]
        return [_listed(name) for name in (*STAGES, *others)]
    try:
        stage = find_stage(use, Path.cwd())
    except PluginError as error:
        raise InputError([Fault(use, error.what, error.hint)]) from None
    if stage is None:
        raise InputError([Fault(use, "there is no such stage", one_of(use, stage_names()))])
    return [_describe(use, stage)]


def _listed(use: str) -> ListedStage:
    try:
        stage = find_stage(use)
        if stage is None:
            raise PluginError("there is no such stage", "install its package")
        return _describe(use, stage)
    except PluginError as error:
        return ListedStage(use, None, None, [], None, [], str(error))


def _describe(use: str, stage: type[Stage]) -> ListedStage:
    paragraph = (stage.__doc__ or "").strip().partition("\n\n")[0]
    what = " ".join(paragraph.split()) or None
    makes, metrics = stage.makes.table, list(stage.metrics)
    return ListedStage(use, stage.__module__, makes, metrics, what, _settings(stage, use), None)


def _settings(stage: type[Stage], use: str) -> list[Setting]:
    schema = step_model(stage, use).model_json_schema()
    required = schema.get("required", ())
    return [
        Setting(name, _type(one), name in required, one.get("default"), one.get("description"))
        for name, one in schema["properties"].items()
        if name != "use"
    ]


def _type(schema: dict[str, Any]) -> str:
    """What a value must be, in a few words, from its JSON Schema."""
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "$ref" in schema:
        return "mapping"
    kind = {"null": "none", "object": "mapping"}.get(schema.get("type", "any"))
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {_type(items)}" if items else "list"
    return kind or str(schema.get("type", "any"))
