"""Stage: the base class of every computation on tables, and what the engine knows of one."""

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import polars as pl
from pydantic import BaseModel, ConfigDict

from claimflow.stages.plugins import Source, source_of
from claimflow.stages.rows import ClaimsField, Row, SampleField, Side
from claimflow.stages.tables import TableError, conform
from claimflow.stages.tools import Form


class Input(NamedTuple):
    """A table that `run` takes: its kind of row.

    `every` marks a parameter that takes all tables of that kind, as a mapping from the name
    of the step that makes each to the table.
    """

    row: type[Row]
    every: bool = False


Expected = Mapping[str, str | tuple[str, ...]]
"""What the step that makes an input must be like: settings and inputs of it, with their values."""


class Stage(BaseModel):
    '''One computation: it takes tables and makes one table.

    A subclass declares its settings as pydantic fields, the name by which pipeline files ask
    for it as `use`, and its work as one method `run`:

        class ResponseLength(Stage):
            """Length of each response in characters, at most `limit`."""

            use: ClassVar[str] = "response_length"
            metrics: ClassVar[tuple[str, ...]] = ("response_length",)
            columns: ClassVar = {"samples": ("sample_id", "response")}

            limit: int = Field(default=1000, ge=1)

            def run(self, samples: Samples) -> Scores:
                length = pl.col("response").str.len_chars().clip(upper_bound=self.limit)
                missing = length.is_null()
                return samples.select(
                    "sample_id",
                    metric=pl.lit("response_length"),
                    score=length,
                    status=pl.when(missing).then(pl.lit("undefined")).otherwise(pl.lit("scored")),
                    reason=pl.when(missing).then(pl.lit("missing: response")),
                )

    **Wiring** is read from the signature of `run` when the class is defined; `TypeError` is
    raised where it cannot be read.

    - A parameter annotated with a table of `stages.tables` (`Claims`) is an input: the table of
      the step of that name, or of the step that the pipeline file names for it. `samples` are
      the samples themselves. `Mapping[str, Scores]` takes every table of scores, by step.
    - A parameter annotated with a protocol of `stages.tools` (`LLM`, `Parser`) is a tool that the
      engine provides.
    - An input or tool that only some settings need is annotated `Claims | None = None`, and
      `ignores` names it for the other settings.
    - The return annotation is the kind of table that is made. `make` casts its columns and adds
      defaults for missing ones; a table that is still wrong raises `TableError`.

    **Rules for `run`.** Stored tables are reused, so the same settings, inputs and replies of
    tools must give the same rows: no files, clock or random numbers. What fails for one sample
    becomes a row with status `failed` and a reason; only tables of the wrong kind raise.

    **Class attributes**, all with a default but `use` of a built-in stage:

    - `version`: raised when the same settings start to give other rows, so that stored tables
      are made again.
    - `per_sample`: the rows of a sample depend on that sample alone, so that the engine may run
      the stage on parts of the samples: in several threads, where it asks a tool at an endpoint.
      Without it `run` gets all samples at once.
    - `by_row`: the stage works through the samples one by one in Python, and its rows come in
      the order of the samples. The engine then divides the work between processes, and reuses
      the rows of unchanged samples, unless the stage asks another tool than the parser.
    - `columns`: for an input that is read in part, the columns that are read. No others are
      loaded, and a sample in which only others changed counts as unchanged.
    - `expects`: for an input, what the step that makes it must be like, so that a table of the
      wrong direction is refused before anything runs. `{"of": "response"}` is a setting and its
      value, or a tuple of the values that it may have; `{"claims": "response_claims"}` an input of
      that step that must come from the same step as the input `response_claims` of this stage.
    - `optional`: inputs that a step may do without: they are read where the step names one.
    - `verdicts_by`: for a stage with an input `verdicts`, the stage that asks a language model for
      them. A step of the pipeline file then is two: the step `NAME_verdicts` has those settings
      that are of `verdicts_by`, and the step itself reads its table.
    - `metrics`, `lower_is_better`: the metrics in the scores that are made, and those of them
      that are best at 0.
    - `metric_range`: the lowest and the highest value that each of these metrics can have, so
      that a gate outside of it is refused; None where it is not known.
    - `later_settings`: settings that a release added when tables of the stage were stored
      already. At its default such a setting is no part of the fingerprint, so that these are
      reused; its default must give the same rows as before.
    - `canary_settings`: settings with which a stage that takes `samples` and `claims` and makes
      verdicts verifies each claim against the whole `reference` of its sample. The engine uses
      them to put labelled pairs of premise and claim (canaries) to the judge of the stage; with
      None it does not.

    A class of another package needs no `use`: `module:Name` stands for it. Its `source` becomes
    part of the fingerprint, so that tables are made again after a change of its module.

    **Settings that the engine knows by name**: `metric: str`, the only metric of a stage, which is
    named like the step where the pipeline file does not name it. In a stage with a tool `llm`:

    - `prompt: Annotated[str | None, PromptBlanks({...})]`: a file in the pipeline, its text
      here; None where no language model is asked.
    - `votes: int`: how many independent replies decide; allows several judges.
    - `cascade: Cascade | None`: an entailment model decides what it is sure of.

    In any stage, the engine warns of members of `slices: tuple[str, ...]` that no sample has as a
    field of its metadata.

    Sheets for labels and corrections read stored settings of stages: `of` as what `claims_of`
    returns, `against` as what `premise` returns, `premises` (joined, each or cited), and `context`
    (none, question or conversation), what is read beside a response or reference; of a stage that
    makes rubric verdicts `reads`, the fields that are judged, and `scale`, its grades.
    '''

    model_config = ConfigDict(frozen=True, extra="forbid")

    use: ClassVar[str]
    version: ClassVar[int] = 1
    per_sample: ClassVar[bool] = True
    by_row: ClassVar[bool] = False
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    expects: ClassVar[Mapping[str, Expected]] = {}
    optional: ClassVar[frozenset[str]] = frozenset()
    verdicts_by: ClassVar["type[Stage] | None"] = None
    metrics: ClassVar[tuple[str, ...]] = ()
    lower_is_better: ClassVar[frozenset[str]] = frozenset()
    metric_range: ClassVar[tuple[float, float] | None] = None
    later_settings: ClassVar[frozenset[str]] = frozenset()
    canary_settings: ClassVar[Mapping[str, Any] | None] = None

    source: ClassVar[Source | None] = None
    """The source of a stage of another package, which has an empty digest where it cannot be
    read; None for built-in stages."""

    inputs: ClassVar[Mapping[str, Input]]
    tools: ClassVar[Mapping[str, type]]
    makes: ClassVar[type[Row]]

    run: ClassVar[Callable[..., pl.DataFrame]]

    def required_fields(self) -> frozenset[SampleField | ClaimsField]:
        """The sample fields without which no sample could give a row or a score."""
        return frozenset()

    def required_metadata(self) -> frozenset[str]:
        """Columns beyond the fields of a sample, of which every sample may lack its value."""
        return frozenset()

    def ignores(self) -> frozenset[str]:
        """The inputs and tools that are not needed with these settings; `run` gets none of them."""
        return frozenset()

    def columns_of(self, name: str) -> tuple[str, ...]:
        """The columns of an input that are read with these settings; empty for all of them.

        `columns`, unless a class says otherwise.
        """
        return self.columns.get(name, ())

    def expected_inputs(self) -> Mapping[str, Expected]:
        """`expects`, and what these settings add to it."""
        return self.expects

    @property
    def needed_tools(self) -> dict[str, type]:
        """The tools that `run` needs with these settings, by the name of the parameter."""
        ignored = self.ignores()
        return {name: tool for name, tool in self.tools.items() if name not in ignored}

    @property
    def claims_of(self) -> Side | None:
        """The text of a sample that the claims made here are statements of.

        None for a stage that makes no claims, or claims that cannot be corrected by hand.
        """
        return None

    @property
    def premise(self) -> SampleField | None:
        """The field of a sample against which claims are verified here.

        None for a stage that makes no verdicts, or verdicts that cannot be corrected by hand.
        """
        return None

    def form(self) -> Form | None:
        """How a language model is asked; None for a stage that asks none.

        It may use `prompt` and settings with a default only: prompts are checked without others.
        """
        return None

    def languages(self) -> frozenset[str] | None:
        """The languages that the rules of this stage are for, as `language_of` names them.

        None for any language. Texts in others are in the view `untaught_texts`.
        """
        return None

    def without_llm(self) -> "Stage | None":
        """The same stage with rules in place of a language model; None where it has none.

        The engine estimates with it how many claims a language model would name.
        """
        return None

    def without_cascade(self) -> "Stage | None":
        """The same stage with a language model alone; None where there is no cascade.

        The engine estimates with it how many calls the cascade saves.
        """
        return None

    def fingerprint_settings(self) -> dict[str, Any]:
        """The settings, as JSON, that decide whether a stored table can be reused."""
        settings = self.model_dump(mode="json")
        fields = type(self).model_fields
        for name in self.later_settings:
            if getattr(self, name) == fields[name].get_default():
                del settings[name]
        return settings

    def make(self, tables: Mapping[str, Any], tools: Mapping[str, Any]) -> pl.DataFrame:
        """Run on `tables` and `tools` and return a checked table of `makes`.

        Raises `TableError` when `run` returns anything else.
        """
        made: object = self.run(**tables, **tools)
        if not isinstance(made, pl.DataFrame):
            raise TableError(f"run returned {type(made).__name__}, not a table")
        return conform(self.makes, made)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not cls.__module__.startswith(f"{_OWN}."):
            if "use" not in vars(cls):
                cls.use = f"{cls.__module__}:{cls.__qualname__}"
            cls.source = current_source(cls)
        if "run" in vars(cls):
            cls.inputs, cls.tools, cls.makes = _wiring(cls)
            if cls.per_sample and "samples" not in cls.inputs:
                raise TypeError(f"{cls.__name__}.run must take samples, or say per_sample = False")


_OWN: Final = "claimflow"


def _is_foreign(kind: type) -> bool:
    """Whether a class is neither ours nor of Python or pydantic."""
    package = kind.__module__.partition(".")[0]
    return package not in {_OWN, "pydantic", *sys.stdlib_module_names}


def foreign_modules(stage: type[Stage]) -> list[str]:
    """The modules of other packages that define a stage and its bases, the bases first."""
    found = [kind.__module__ for kind in reversed(stage.__mro__) if _is_foreign(kind)]
    return list(dict.fromkeys(found))


def current_source(stage: type[Stage]) -> Source:
    """The source of a stage of another package, as the files of its modules are now."""
    members = (member for kind in stage.__mro__ if _is_foreign(kind) for member in _members(kind))
    functions = [member for member in members if inspect.isfunction(member)]
    return source_of(foreign_modules(stage), functions) or Source("", False)


def _members(kind: type) -> list[Any]:
    """What a class defines; of static and class methods and properties the function in it."""
    values = vars(kind).values()
    return [getattr(value, "__func__", getattr(value, "fget", value)) for value in values]


def _wiring(stage: type[Stage]) -> tuple[dict[str, Input], dict[str, type], type[Row]]:
    """The inputs, the tools and the kind of table of a stage, from the signature of its `run`."""
    run = vars(stage)["run"]
    hints = get_type_hints(run, include_extras=True)
    makes = _row_of(hints.get("return"))
    if makes is None:
        raise TypeError(f"{stage.__name__}.run must be annotated with the table it returns")
    inputs: dict[str, Input] = {}
    tools: dict[str, type] = {}
    parameters = list(inspect.signature(run).parameters.items())[1:]
    for name in (name for name, one in parameters if one.kind is not one.VAR_KEYWORD):
        annotation = _without_none(hints.get(name))
        every = get_origin(annotation) is Mapping
        row = _row_of(get_args(annotation)[1] if every else annotation)
        if row is not None:
            inputs[name] = Input(row, every)
        elif isinstance(annotation, type) and getattr(annotation, "_is_protocol", False):
            tools[name] = annotation
        else:
            raise TypeError(
                f"{stage.__name__}.run: parameter {name!r} is neither a table nor a tool protocol"
            )
        if name in stage.model_fields:
            raise TypeError(f"{stage.__name__}: {name!r} is both a setting and a parameter of run")
    return inputs, tools, makes


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        return parts[0] if len(parts) == 1 else annotation
    return annotation


def _row_of(annotation: Any) -> type[Row] | None:
    """The kind of row of an annotated table; None for any other annotation."""
    if get_origin(annotation) is Annotated:
        for mark in get_args(annotation)[1:]:
            if isinstance(mark, type) and issubclass(mark, Row):
                return mark
    return None
