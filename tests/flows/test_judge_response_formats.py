"""The ways to ask for JSON, and the schema that two of them carry."""

import json
from enum import StrEnum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from claimflow.flows.judge.response_formats import RESPONSE_FORMATS, format_parameters
from claimflow.stages.tools import Form


class Place(BaseModel):
    title: str
    start: int | None = None


class Tone(StrEnum):
    PLAIN = "plain"
    LOUD = "loud"


class Answer(BaseModel):
    """What is said of a claim."""

    title: Annotated[str, Field(min_length=1, description="Its name")]
    format: str = "none"
    verdict: Literal["entailed", "neutral"]
    score: float = Field(ge=0, le=1)
    tone: Tone
    place: Place
    places: list[Place] = Field(default=[], max_length=3)


class Nested(BaseModel):
    inner: list["Nested"]


def form(answer: type[BaseModel], blank: str = "claims") -> Form:
    return Form("{{claims}}", blank, answer, 10, keep_part=True)


def schema(answer: type[BaseModel], blank: str = "claims") -> dict[str, Any]:
    message = format_parameters("schema", form(answer, blank))["response_format"]["json_schema"][
        "schema"
    ]
    assert isinstance(message, dict)
    return message


PLACE = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "start": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["title", "start"],
    "additionalProperties": False,
}


def test_the_schema_is_whole_closed_and_plain() -> None:
    assert schema(Answer, "texts") == {
        "type": "object",
        "properties": {
            "texts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "integer"},
                        "title": {"type": "string"},
                        "format": {"type": "string"},
                        "verdict": {"type": "string", "enum": ["entailed", "neutral"]},
                        "score": {"type": "number"},
                        "tone": {"type": "string", "enum": ["plain", "loud"]},
                        "place": PLACE,
                        "places": {"type": "array", "items": PLACE},
                    },
                    "required": [
                        "id",
                        "title",
                        "format",
                        "verdict",
                        "score",
                        "tone",
                        "place",
                        "places",
                    ],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["texts"],
        "additionalProperties": False,
    }


def test_the_id_comes_first_and_fields_keep_their_order() -> None:
    # Models write fields in the order of the schema: reasons before verdicts.
    entry = schema(Answer)["properties"]["claims"]["items"]
    assert list(entry["properties"]) == ["id", *Answer.model_fields]
    assert entry["required"] == list(entry["properties"])


@given(st.lists(st.builds(Answer, title=st.text(min_size=1), score=st.floats(0, 1))))
def test_every_answer_fits_the_schema(answers: list[Answer]) -> None:
    entries = [
        {"id": number, **answer.model_dump(mode="json")}
        for number, answer in enumerate(answers, start=1)
    ]
    jsonschema.validate({"claims": entries}, schema(Answer))
    if entries:
        del entries[0]["verdict"]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"claims": entries}, schema(Answer))


def test_each_response_format_asks_in_its_own_way() -> None:
    assert RESPONSE_FORMATS == ("schema", "tool", "object", "text")
    by_format = {name: format_parameters(name, form(Answer)) for name in RESPONSE_FORMATS}
    assert by_format["schema"]["response_format"]["type"] == "json_schema"
    assert by_format["schema"]["response_format"]["json_schema"]["strict"] is True
    (tool,) = by_format["tool"]["tools"]
    assert tool["function"]["parameters"] == schema(Answer)
    assert tool["function"]["name"] == "reply"
    assert by_format["tool"]["tool_choice"] == {"type": "function", "function": {"name": "reply"}}
    assert by_format["object"] == {"response_format": {"type": "json_object"}}
    assert by_format["text"] == {}


def test_forms_do_not_share_what_others_may_change() -> None:
    before = json.dumps(schema(Answer))
    schema(Answer)["properties"].clear()
    assert json.dumps(schema(Answer)) == before
    assert "texts" in schema(Answer, "texts")["properties"]


def test_an_answer_that_holds_itself_is_no_schema() -> None:
    with pytest.raises(ValueError, match="the answer Nested holds itself"):
        schema(Nested)
