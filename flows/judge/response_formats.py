"""Response formats, from the strictest JSON schema down to plain instructions."""

import json
from functools import cache
from typing import Any, Final, Literal

from pydantic import BaseModel

from claimflow.stages.tools import Form

ResponseFormat = Literal["schema", "tool", "object", "text"]

RESPONSE_FORMATS: Final[tuple[ResponseFormat, ...]] = ("schema", "tool", "object", "text")
"""From strict to loose: a JSON schema, a tool call with that schema, any JSON object, plain text
after the instructions of the prompt. Endpoints differ in what they support."""

TOOL: Final = "reply"
"""The name of the schema and of the tool."""

_NOTES: Final = frozenset({"title", "description", "default", "examples", "format"})
_BOUNDS: Final = frozenset(
    {"minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
"""Keywords that some providers reject; the reply is checked against the model anyway."""


def format_parameters(response_format: ResponseFormat, form: Form) -> dict[str, Any]:
    """What to add to the parameters of a request so that the reply has the form's shape.

    The shape is `{"<blank>": [{"id": 1, <fields of answer>}]}`, every field required and no
    other allowed. Raises `ValueError` for an answer that nests itself, which strict schemas
    cannot express.
    """
    if response_format == "text":
        return {}
    if response_format == "object":
        return {"response_format": {"type": "json_object"}}
    # Made anew each time: litellm rewrites schemas in place for some providers.
    schema = json.loads(_schema(form.answer, form.blank))
    if response_format == "schema":
        named = {"name": TOOL, "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    function = {"name": TOOL, "strict": True, "parameters": schema}
    choice = {"type": "function", "function": {"name": TOOL}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}


def shape_in_words(response_format: ResponseFormat, form: Form) -> str:
    """What to add to the instructions where the API does not enforce the shape of the reply."""
    if response_format in ("schema", "tool"):
        return ""
    shape = json.dumps(_example(json.loads(_schema(form.answer, form.blank))), ensure_ascii=False)
    return (
        "# Reply\n\nReply with one JSON object and nothing else: no word before or after it, no "
        f"code fence. It has this shape:\n\n{shape}\n\nOne entry for each id, in the order of "
        "the ids: leave none out and add none. Inside a string, write a quotation mark as "
        '\\" and a line break as \\n.\n'
    )


def _example(schema: dict[str, Any]) -> Any:
    """A value of a schema that shows its shape."""
    if "enum" in schema or "const" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if "anyOf" in schema:
        return _example(schema["anyOf"][0])
    match schema.get("type"):
        case "object":
            return {name: _example(of) for name, of in schema["properties"].items()}
        case "array":
            return [_example(schema.get("items", {}))]
        case "integer" | "number":
            return 1
        case "boolean":
            return True
    return "..."


@cache
def _schema(answer: type[BaseModel], blank: str) -> str:
    """The schema of a whole reply, as JSON."""
    schema = answer.model_json_schema()
    entry = _inlined(schema, schema.get("$defs", {}), ())
    fields = {"id": {"type": "integer"}, **entry["properties"]}
    return json.dumps(_closed({blank: {"type": "array", "items": _closed(fields)}}))


def _closed(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _inlined(schema: Any, definitions: dict[str, Any], within: tuple[str, ...]) -> Any:
    """A schema without references, notes and bounds; `within` are the definitions around it."""
    if isinstance(schema, list):
        return [_inlined(part, definitions, within) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in within:
            raise ValueError(f"the answer {name} holds itself; a strict schema cannot say that")
        return _inlined(definitions[name], definitions, (*within, name))
    if "properties" in schema:
        # Names of fields are not keywords of the schema: a field may be called title.
        fields = schema["properties"].items()
        return _closed({name: _inlined(of, definitions, within) for name, of in fields})
    kept = schema.keys() - _NOTES - _BOUNDS - {"$defs"}
    return {word: _inlined(schema[word], definitions, within) for word in schema if word in kept}
