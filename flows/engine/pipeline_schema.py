"""What a pipeline's YAML may say, built from the register of stages."""

from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from stages import REGISTER
from stages.base import Stage

STEP_NAME: Final = r"^[a-z][a-z0-9_]*$"


class _Source(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class SamplesSource(_Source):
    """The samples to evaluate."""

    path: str
    """A JSON Lines, JSON, CSV or Parquet file, or a glob of them; relative to this file."""
    rename: dict[
        str,
        Literal["sample_id", "user_input", "response", "reference", "retrieved_contexts"],
    ] = {}
    """Column of the input -> field of a sample, where the names are not recognised."""


class EmbedderSource(_Source):
    """The sentence encoder."""

    model: str
    """A folder that holds an ONNX sentence encoder; relative to this file."""


@cache
def pipeline_model() -> type[BaseModel]:
    """The model of a whole pipeline file, its steps a union discriminated by `use`."""
    models: list[Any] = [_step_model(stage) for stage in REGISTER.values()]
    step: Any = Annotated[reduce(or_, models), Field(discriminator="use")]
    name: Any = Annotated[str, Field(pattern=STEP_NAME)]
    fields: dict[str, Any] = {
        "name": (str, Field(min_length=1, description="Shown with every run.")),
        "samples": (SamplesSource, ...),
        "store": (str, Field(description="The DuckDB file, relative to this file.")),
        "embedder": (EmbedderSource | None, None),
        "steps": (
            dict[name, step],
            Field(
                min_length=1,
                description="Name of the table it makes -> how it is made.",
                json_schema_extra={"additionalProperties": False},
            ),
        ),
    }
    return create_model("Pipeline", __base__=_Source, **fields)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a pipeline file, for editors."""
    return pipeline_model().model_json_schema() | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "claimflow pipeline",
    }


def wired(stage: type[Stage]) -> dict[str, Any]:
    """The inputs of a stage that a step may wire by name: all but `samples`."""
    return {name: table for name, table in stage.inputs.items() if name != "samples"}


def _step_model(stage: type[Stage]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in stage.model_fields.items()
    }
    for name, table in wired(stage).items():
        kind = list[str] if table.every else str
        what = f"{'Steps' if table.every else 'The step'} that makes the {table.row.table} to read."
        fields[name] = (kind | None, Field(None, description=what))
    fields["use"] = (Literal[stage.use], ...)
    return create_model(stage.use, __base__=_Source, __doc__=stage.__doc__, **fields)
