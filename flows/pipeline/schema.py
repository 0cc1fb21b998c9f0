"""The schema of a pipeline file: pydantic models, built from the registry of stages."""

from functools import cache, partial, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo

from claimflow.flows.object_storage import valid_location, valid_path
from claimflow.flows.pipeline.gates import CanarySource, FailWhen, Gate, OptionalFailWhen
from claimflow.flows.pipeline.model_settings import (
    EmbeddingEndpoint,
    Judge,
    OnnxCrossEncoder,
    OnnxEncoder,
    YamlModel,
    check_url,
)
from claimflow.flows.pipeline.sample_choice import Redactions, Selection
from claimflow.stages.base import Stage
from claimflow.stages.judging.cascade import Cascade
from claimflow.stages.plugins import PluginError
from claimflow.stages.registry import STAGES, find_stage, stage_names
from claimflow.stages.tools import LLM


def _check_engine(engine: Any) -> Any:
    if engine == "ray":
        raise ValueError("Ray is not supported; write dask, and start a Dask cluster")
    return engine


class WorkersSetting(YamlModel):
    """Where steps without a language model run: on this machine, or on a Dask cluster."""

    engine: Annotated[Literal["local", "dask"], BeforeValidator(_check_engine)] = "local"
    """Processes on this machine, or the workers of a Dask scheduler."""
    count: int | None = Field(default=None, ge=1, le=512)
    """Processes of engine local; 1 for none. One per core, at most 8, when left out."""
    address: str | None = Field(default=None, min_length=1)
    """The scheduler of engine dask, for example tcp://10.0.0.5:8786."""
    shards: int = Field(default=1, ge=1)
    """Least number of chunks of a step; no chunk has more than 2,000 samples."""
    folder: Annotated[str, AfterValidator(valid_location)] | None = None
    """Where workers read samples and write rows: a shared folder, or s3://bucket/prefix."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.engine == "dask" and self.address is None:
            raise ValueError("engine dask needs the address of its scheduler")
        if self.engine == "local" and self.address is not None:
            raise ValueError("address belongs to engine dask")
        if self.engine == "dask" and self.count is not None:
            raise ValueError("count belongs to engine local; a cluster has the workers it has")
        return self


STEP_NAME: Final = r"^[a-z][a-z0-9_]*$"

_NO_SOURCE: Final = {"use_attribute_docstrings": False}
"""For generated models: pydantic would search every module for their source."""


EarlierTurns = Literal["history", "contexts"]
"""What the earlier turns of a conversation are to a turn: known, or premises too."""


TraceFormat = Literal["auto", "otlp", "openinference", "langfuse", "langsmith", "mlflow", "chat"]
"""The formats of traces, and auto to find it in each file."""


class SamplesSource(YamlModel):
    """The samples to evaluate."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["path"]}, {"required": ["traces"]}]}
    )

    path: Annotated[str, AfterValidator(valid_location)] | None = None
    """A JSON Lines, JSON, CSV or Parquet file or a glob of them, relative to this file or s3://."""
    traces: Annotated[str, AfterValidator(valid_location)] | None = None
    """Files of traces instead, named likewise: each trace is a sample (flows/guides/traces.md)."""
    format: TraceFormat = "auto"
    """The format of the traces; found in each file when left out."""
    tools: bool = False
    """Whether the results of tools in a trace are retrieved contexts too."""
    rename: dict[
        str,
        Literal[
            "sample_id",
            "user_input",
            "response",
            "reference",
            "retrieved_contexts",
            "response_claims",
            "reference_claims",
        ],
    ] = Field(default={})
    """Column of the input -> field of a sample, where the names are not recognised."""
    contexts_separator: str | None = Field(default=None, min_length=1)
    """Where contexts are one text: the text between two of them, such as "\\n\\n"."""
    earlier_turns: EarlierTurns = "history"
    """What the earlier turns of a conversation are to each: history, to understand the question,
    or contexts, which can support the claims of the response too."""

    select: Selection | None = None
    """Which of the samples are evaluated; all when left out."""
    redact: Redactions | None = None
    """What is replaced in all texts of the samples before they are stored or judged: patterns, and
    functions as module:function."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.traces is None):
            raise ValueError("write either path or traces")
        if self.traces is None and (self.tools or self.format != "auto"):
            raise ValueError("format and tools belong to traces")
        if self.traces is not None and self.contexts_separator is not None:
            raise ValueError("contexts_separator belongs to path")
        return self


def _kind(embedder: Any) -> str:
    """Where an embedder runs: the tag of its model, for a mapping or a model."""
    if isinstance(embedder, dict):
        provider = embedder.get("provider", "onnx")
    else:
        provider = getattr(embedder, "provider", "onnx")
    return "onnx" if provider == "onnx" else "endpoint"


_Embedder = Annotated[
    Annotated[OnnxEncoder, Tag("onnx")] | Annotated[EmbeddingEndpoint, Tag("endpoint")],
    Discriminator(_kind),
]


_Several = Annotated[
    list[str],
    Field(min_length=1),
    BeforeValidator(
        lambda given: [given] if isinstance(given, str) else given,
        json_schema_input_type=str | list[str],
    ),
]
"""One name, or a list of them."""


@cache
def pipeline_model(others: tuple[tuple[str, type[Stage] | None], ...] = ()) -> type[BaseModel]:
    """The model of a pipeline file; its steps are a union discriminated by `use`.

    `others` are the stages of other packages by their `use`; with None the step may have any
    setting.
    """
    models: list[Any] = [step_model(stage) for stage in STAGES.values()]
    models += [step_model(stage, use) if stage else _open_step(use) for use, stage in others]
    step: Any = Annotated[reduce(or_, models), Field(discriminator="use")]
    name: Any = Annotated[str, Field(pattern=STEP_NAME)]
    fields: dict[str, Any] = {
        "name": (str, Field(min_length=1, description="Shown with every run.")),
        "samples": (SamplesSource, ...),
        "store": (
            Annotated[str, AfterValidator(valid_path)],
            Field(description="The DuckDB file, relative to this file."),
        ),
        "read_copy": (
            bool,
            Field(True, description="Write a copy of the store for queries after each run."),
        ),
        "ledger": (
            Annotated[str, AfterValidator(partial(check_url, example="http://127.0.0.1:8767"))]
            | None,
            Field(None, description="The address of `claimflow ledger`, for several machines."),
        ),
        "judge": (
            Judge | None,
            Field(
                None,
                description="The language model that judges; the embedded judge when left out.",
            ),
        ),
        "judges": (
            dict[name, Judge],
            Field({}, description="More judges by name, for steps that name one."),
        ),
        "embedder": (
            _Embedder | None,
            Field(None, description="The sentence encoder; the embedded one when left out."),
        ),
        "entailment": (
            OnnxCrossEncoder | None,
            Field(None, description="The entailment model; the embedded one when left out."),
        ),
        "workers": (
            WorkersSetting,
            Field(WorkersSetting(), description="Where steps without a language model run."),
        ),
        "canaries": (
            CanarySource | None,
            Field(None, description="Labelled pairs that the judges of each run are checked with."),
        ),
        "fail_when": (
            OptionalFailWhen,
            Field(FailWhen(), description="When a run fails for its failed rows; or never."),
        ),
        "gates": (
            dict[str, Gate],
            Field({}, description="Metric, or step.metric -> limits on its mean."),
        ),
        "steps": (
            dict[name, step],
            Field(
                min_length=1,
                description="Name of a step and its table -> its stage and settings.",
                json_schema_extra={"additionalProperties": False},
            ),
        ),
    }
    return _model("Pipeline", YamlModel, None, fields)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a pipeline file, for editors.

    It has the stages of installed packages too; those that cannot be imported, and stages named by
    `module:Name`, may have any setting.
    """
    schema = pipeline_model(installed_stages()).model_json_schema()
    [steps] = schema["properties"]["steps"]["patternProperties"].values()
    steps["oneOf"].append({"$ref": "#/$defs/module:Name"})
    schema["$defs"]["module:Name"] = {
        "description": "A stage or a metric function of your own.",
        "type": "object",
        "properties": {"use": {"type": "string", "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"}},
        "required": ["use"],
    }
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "claimflow pipeline",
    }


def installed_stages() -> tuple[tuple[str, type[Stage] | None], ...]:
    """The stages of other packages by the name of their entry point; None for a broken one."""

    def stage(name: str) -> type[Stage] | None:
        try:
            return find_stage(name)
        except PluginError:
            return None

    return tuple((name, stage(name)) for name in stage_names() if name not in STAGES)


def named_inputs(stage: type[Stage]) -> dict[str, Any]:
    """The inputs of a stage for which a step may name other steps: all but `samples`.

    The verdicts that are made for the stage by another one are not named.
    """
    unnamed = ("samples", "verdicts") if stage.verdicts_by else ("samples",)
    return {name: table for name, table in stage.inputs.items() if name not in unnamed}


def written_settings(stage: type[Stage]) -> dict[str, FieldInfo]:
    """The settings of a step that uses a stage, with those of the stage that judges for it."""
    return (stage.verdicts_by.model_fields if stage.verdicts_by else {}) | stage.model_fields


def asks_llm(stage: type[Stage]) -> bool:
    """Whether a stage can use a language model."""
    return LLM in stage.tools.values()


def can_vote(stage: type[Stage]) -> bool:
    """Whether a stage can ask for several votes."""
    return "votes" in stage.model_fields


def can_cascade(stage: type[Stage]) -> bool:
    """Whether a stage can pass what the embedded model is unsure of to a language model."""
    return "cascade" in stage.model_fields


def _cascade_model() -> type[BaseModel]:
    """The model of a cascade: its settings and its judges."""
    what = "The judge to ask: one of judges, or several that vote; the pipeline's when left out."
    judge: Any = (_Several | None, Field(None, description=what))
    return _model("Cascade", Cascade, Cascade.__doc__, {"judge": judge})


def _open_step(use: str) -> type[BaseModel]:
    """The model of a step with a stage that cannot be loaded: any setting will do."""
    fields: dict[str, Any] = {"use": (Literal[use], ...)}
    return create_model(use, __config__=ConfigDict(extra="allow"), **fields)


@cache
def step_model(stage: type[Stage], use: str | None = None) -> type[BaseModel]:
    """The model of a step that uses a stage by the name `use`, by default its own."""
    use = use or stage.use
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in written_settings(stage).items()
    }
    for name, table in named_inputs(stage).items():
        kind = list[str] if table.every else str
        what = f"{'Steps' if table.every else 'The step'} that makes the {table.row.table} to read."
        fields[name] = (kind | None, Field(None, description=what))
    judging = stage.verdicts_by or stage
    if asks_llm(judging):
        what = "The judge to ask: one of judges, or embedded for the one that needs no model."
        more = " Several vote." if can_vote(judging) else ""
        judge = _Several if can_vote(judging) else str
        fields["judge"] = (judge | None, Field(None, description=f"{what}{more}"))
    if can_cascade(stage):
        what = "The embedded model judges what it is sure of, the judge the rest."
        fields["cascade"] = (_cascade_model() | None, Field(None, description=what))
    fields["use"] = (Literal[use], ...)
    return _model(use, YamlModel, stage.__doc__, fields)


def _model(
    name: str, base: type[BaseModel], what: str | None, fields: dict[str, Any]
) -> type[BaseModel]:
    return create_model(name, __base__=base, __doc__=what, __cls_kwargs__=_NO_SOURCE, **fields)
