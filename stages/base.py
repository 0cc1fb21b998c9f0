"""Stage: settings as fields, one method `run`, wiring read from its signature."""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Union, get_args, get_origin, get_type_hints

import polars as pl
from pydantic import BaseModel, ConfigDict

from claimflow.stages.rows import ClaimsField, Row, SampleField
from claimflow.stages.tables import conform


class Input(NamedTuple):
    """A table that `run` takes: its kind of row.

    `every` marks a parameter that takes all tables of that kind, by the name of the
    step that makes each.
    """

    row: type[Row]
    every: bool = False


class Stage(BaseModel):
    """One computation on tables.

    A subclass declares its settings as fields and one method
    `run(self, <tables>, *, <tools>) -> <table>`. Parameters annotated with a table are
    its inputs: `Claims`, or `Mapping[str, Scores]` for every table of that kind. Parameters
    annotated with a protocol are the tools it asks for. What some settings make needless
    (`ignores` says which) is annotated `Claims | None` or `LLM | None`. A subclass whose
    `run` cannot be read that way raises `TypeError` when it is defined.

    `version` is raised when the same settings start to mean other rows. `per_sample`
    says that the rows of a sample depend on that sample alone, so that the engine may
    run the stage on any part of the samples at a time, and `by_row` that it works through
    them one by one in Python, so that parts are worth handing to other processes: its rows
    come sample by sample, and those of samples that did not change are not made again. `columns`
    names, for an input that is read only in part, the columns it is read for. `expects`
    says for an input what its maker must be like, so that a table of the wrong direction
    is refused before anything runs: a setting and its value, or an input of the maker and
    the input of this stage that must come from the same step.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    use: ClassVar[str]
    version: ClassVar[int] = 1
    per_sample: ClassVar[bool] = True
    by_row: ClassVar[bool] = False
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    expects: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    inputs: ClassVar[Mapping[str, Input]]
    tools: ClassVar[Mapping[str, type]]
    makes: ClassVar[type[Row]]

    run: ClassVar[Callable[..., pl.DataFrame]]

    def reads(self) -> frozenset[SampleField | ClaimsField]:
        """The sample fields without which no sample could give a row."""
        return frozenset()

    def expecting(self) -> Mapping[str, Mapping[str, str]]:
        """`expects`, with what these settings add to it."""
        return self.expects

    def ignores(self) -> frozenset[str]:
        """The inputs and tools that these settings make needless; they are not given."""
        return frozenset()

    def make(self, tables: Mapping[str, Any], tools: Mapping[str, Any]) -> pl.DataFrame:
        """Run on `tables` and `tools` and return a checked table of `makes`.

        Raises `TableError` when the stage returned anything else.
        """
        return conform(self.makes, self.run(**tables, **tools))

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "run" in vars(cls):
            cls.inputs, cls.tools, cls.makes = _wiring(cls)
            if cls.per_sample and "samples" not in cls.inputs:
                raise TypeError(f"{cls.__name__}.run must take samples, or say per_sample = False")


def _wiring(stage: type[Stage]) -> tuple[dict[str, Input], dict[str, type], type[Row]]:
    run = vars(stage)["run"]
    hints = get_type_hints(run, include_extras=True)
    makes = _row(hints.get("return"))
    if makes is None:
        raise TypeError(f"{stage.__name__}.run must be annotated with the table it returns")
    inputs: dict[str, Input] = {}
    tools: dict[str, type] = {}
    for name in list(inspect.signature(run).parameters)[1:]:
        annotation = _present(hints.get(name))
        table = _input(annotation)
        if table is not None:
            inputs[name] = table
        elif isinstance(annotation, type) and getattr(annotation, "_is_protocol", False):
            tools[name] = annotation
        else:
            raise TypeError(
                f"{stage.__name__}.run: parameter {name!r} is neither a table nor a tool protocol"
            )
        if name in stage.model_fields:
            raise TypeError(f"{stage.__name__}: {name!r} is both a setting and a parameter of run")
    return inputs, tools, makes


def _present(annotation: Any) -> Any:
    """The annotation without `| None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        return parts[0] if len(parts) == 1 else annotation
    return annotation


def _input(annotation: Any) -> Input | None:
    if get_origin(annotation) is Mapping:
        row = _row(get_args(annotation)[1])
        return Input(row, every=True) if row is not None else None
    row = _row(annotation)
    return Input(row) if row is not None else None


def _row(annotation: Any) -> type[Row] | None:
    if get_origin(annotation) is Annotated:
        for mark in get_args(annotation)[1:]:
            if isinstance(mark, type) and issubclass(mark, Row):
                return mark
    return None
