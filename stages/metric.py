"""Metrics written as functions on one sample: `@metric` makes a stage of each."""

import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import polars as pl
from pydantic import TypeAdapter, ValidationError, create_model

from claimflow.stages.base import Expected, Input, Stage, current_source
from claimflow.stages.plugins import describe
from claimflow.stages.rows import (
    Claim,
    Row,
    Sample,
    SampleField,
    Score,
    SentenceMatch,
    Similarity,
    Verdict,
    canonical,
)
from claimflow.stages.tables import Samples, Scores, build

P = ParamSpec("P")
R = TypeVar("R")

_SIDES: Final = ("response", "reference")
_ROWS: Final = (Claim, Verdict, Similarity, SentenceMatch, Score)
_PLAIN: Final = (str, int, float, bool)
_TAKEN: Final = frozenset({"use", "judge", "samples"})


class MetricResult(NamedTuple):
    """What a metric function may return in place of a number.

    `score` is None where the metric is undefined for the sample, and `reason` says why.
    `details` are values behind the score: anything that JSON can hold.
    """

    score: float | None
    reason: str | None = None
    details: Mapping[str, Any] = types.MappingProxyType({})


class Metric(Generic[P, R]):
    """A metric function; calling it calls the function. `stage` is the stage made of it."""

    def __init__(self, function: Callable[P, R], stage: "type[FunctionMetric]") -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.stage = stage

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of the function."""
        return self.function(*args, **kwargs)


@overload
def metric(function: Callable[P, R], /) -> Metric[P, R]: ...
@overload
def metric(
    *,
    name: str | None = None,
    version: int = 1,
    lower_is_better: bool = False,
    metric_range: tuple[float, float] | None = None,
    required_fields: Collection[SampleField] = (),
) -> Callable[[Callable[P, R]], Metric[P, R]]: ...
def metric(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    lower_is_better: bool = False,
    metric_range: tuple[float, float] | None = None,
    required_fields: Collection[SampleField] = (),
) -> Any:
    """Make a metric of a function that scores one sample.

        @claimflow.metric
        def claim_density(sample: Sample, response_claims: list[Claim]) -> float | None:
            words = (sample.response or "").split()
            return len(response_claims) / len(words) if words else None

    **Parameters** are read from the annotations. `Sample` is the sample. A list of rows
    (`list[Claim]`, `list[Verdict]`, `list[Similarity]`, `list[SentenceMatch]`, `list[Score]`) holds
    the sample's rows of the step named like the parameter, or of the step that the pipeline names
    for it. Claims of a side are named `response_claims` or `reference_claims`; verdicts are on the
    claims of the side that their name begins with. A keyword with a default of a plain type (str,
    int, float, bool, a `Literal`) is a setting of the stage.

    **The result** is the score: a number, a bool (1 or 0), None where the metric is undefined, or
    a `MetricResult` with a reason and details. NaN, an infinity, a number outside of
    `metric_range`, any other object and an exception make a row with status failed. A sample with
    failed rows of an input is failed too, and the function is not called: no row that it gets has
    failed. A field that a sample lacks is None; for a sample without one of `required_fields` the
    metric is undefined.

    `name` is that of the metric, by default the function's. `version` is raised when the same
    source starts to mean other scores, for example because another module changed.

    Raises `TypeError` for a function that cannot be read in this way.
    """

    def decorate(plain: Callable[..., Any]) -> Metric[..., Any]:
        if not inspect.isfunction(plain):
            raise TypeError(f"{plain!r:.80} is no function: decorate one that is made by def")
        if not isinstance(name, str | None) or isinstance(required_fields, str):
            raise TypeError("name must be a text, and required_fields a list of names of fields")
        stage = _stage(plain, name or plain.__name__, required_fields)
        stage.version = version
        stage.metric_range = metric_range
        stage.lower_is_better = frozenset(stage.metrics if lower_is_better else ())
        return Metric(plain, stage)

    return decorate if function is None else decorate(function)


class FunctionMetric(Stage):
    """A stage that calls a function for each sample; `metric` makes subclasses of it."""

    by_row = True
    use = "metric"
    function: ClassVar[Callable[..., Any]]
    sample_parameter: ClassVar[str | None]
    row_parameters: ClassVar[tuple[str, ...]]
    needed_fields: ClassVar[frozenset[SampleField]]

    def required_fields(self) -> frozenset[SampleField]:
        """The fields that `metric` was given."""
        return self.needed_fields

    def run(self, samples: Samples, **tables: pl.DataFrame) -> Scores:
        """One score per sample, in the order of the samples."""
        rows_of = {name: self._rows(name, tables) for name in self.row_parameters}
        settings = {name: getattr(self, name) for name in type(self).model_fields}
        scores = []
        for sample in _as_rows(Sample, samples):
            given: dict[str, Any] = {
                name: rows.get(sample.sample_id, []) for name, rows in rows_of.items()
            }
            score = self._unscored(sample, given)
            if score is None:
                if self.sample_parameter is not None:
                    given[self.sample_parameter] = sample
                score = self._score(given | settings)
            scores.append({"sample_id": sample.sample_id, "metric": self.metrics[0], **score})
        return build(Score, scores)

    def _rows(self, name: str, tables: Mapping[str, pl.DataFrame]) -> dict[str, list[Any]]:
        """The rows of an input by sample."""
        row, table = self.inputs[name].row, tables[name]
        if row is Verdict:
            claims = pl.concat(
                tables[other].select("claim_id", "sample_id")
                for other in self.inputs
                if self.inputs[other].row is Claim
            ).unique()
            table = table.join(claims, on="claim_id", how="left", maintain_order="left")
            if table["sample_id"].null_count():
                raise ValueError(f"{name} has verdicts on claims that are in no input")
        if row is Claim and "status" in table.columns:
            table = table.filter(pl.col("status") != "not_a_claim")
        found: dict[str, list[Any]] = {}
        samples = table["sample_id"].to_list()
        for sample_id, one in zip(samples, _as_rows(row, table), strict=True):
            found.setdefault(sample_id, []).append(one)
        return found

    def _unscored(self, sample: Sample, given: Mapping[str, list[Any]]) -> dict[str, Any] | None:
        """Why the function is not called for a sample; None where it is."""
        missing = [name for name in sorted(self.needed_fields) if getattr(sample, name) is None]
        if missing:
            reason = f"missing: {', '.join(missing)}"
            return {"score": None, "status": "undefined", "reason": reason}
        for name, rows in given.items():
            failed = [row for row in rows if getattr(row, "status", None) == "failed"]
            if failed:
                why = getattr(failed[0], "reason", None) or getattr(failed[0], "failure", None)
                what = f"{len(failed)} of {len(rows)} rows of {name} failed"
                return _failed(f"{what}: {why}" if why else what)
        return None

    def _score(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._read(type(self).function(**arguments))
        except KeyboardInterrupt:
            raise
        # What the function raises, or what reading its result does, concerns this sample alone.
        except BaseException as error:
            return _failed(describe(error, module=type(self).function.__module__))

    def _read(self, result: Any) -> dict[str, Any]:
        """The row of what the function returned."""
        reason, details = None, "{}"
        if isinstance(result, MetricResult):
            result, reason, given = result
            if not isinstance(reason, str | None):
                return _failed(f"its reason is {type(reason).__name__}, not text")
            reason = reason and reason.encode("utf-8", "replace").decode()
            if problem := _details_problem(given):
                return _failed(f"its details {problem}")
            details = canonical(dict(given)).decode()
        if getattr(result, "ndim", None) == 0:
            result = result.item()  # A scalar of NumPy, such as its bool, which is no number.
        if result is None:
            reason = reason or "the metric returned None"
            return {"score": None, "status": "undefined", "reason": reason, "details": details}
        if not isinstance(result, numbers.Real):
            return _failed(f"returned {type(result).__name__} {result!r:.80}, not a number")
        try:
            score = float(result)
        except OverflowError:
            return _failed("returned a number that is too large")
        if not math.isfinite(score):
            return _failed(f"returned {score}, which is no finite number")
        low, high = self.metric_range or (-math.inf, math.inf)
        if not low <= score <= high:
            return _failed(f"returned {score:g}, which is outside of {low:g} to {high:g}")
        return {"score": score, "status": "scored", "reason": reason, "details": details}


def _details_problem(given: Any) -> str | None:
    """What is wrong with details that a metric returned; None where they can be stored as JSON."""
    if not isinstance(given, Mapping):
        return f"are {type(given).__name__}, not a dict"
    if other := [key for key in given if not isinstance(key, str)]:
        return f"have a key that is no text: {other[0]!r:.80}"
    try:
        canonical(dict(given))
    except (TypeError, ValueError, RecursionError) as error:
        return f"are no JSON object: {error}"
    return None


def _failed(reason: str) -> dict[str, Any]:
    return {"score": None, "status": "failed", "reason": reason}


def _as_rows(row: type[Row], table: pl.DataFrame) -> Iterator[Any]:
    """The rows of a table as models; a column that was not read has its default."""
    names = [name for name in row.model_fields if name in table.columns]
    return (row.model_validate(values) for values in table.select(names).iter_rows(named=True))


def _stage(
    function: Callable[..., Any], name: str, needed: Collection[SampleField]
) -> type[FunctionMetric]:
    """The stage of a metric function; raises `TypeError` for one that cannot be read."""
    what = f"the metric {function.__qualname__}"
    unknown = sorted(set(needed) - Sample.model_fields.keys())
    if unknown:
        raise TypeError(f"{what}: a sample has no field {unknown[0]!r}")
    sample, rows, settings = _parameters(function, what)
    stage = create_model(
        function.__name__,
        __base__=FunctionMetric,
        __module__=function.__module__,
        __doc__=inspect.getdoc(function),
        **settings,
    )
    # Pickled by this name, under which `Metric` has it.
    stage.__qualname__ = f"{function.__qualname__}.stage"
    stage.use = f"{function.__module__}:{function.__qualname__}"
    stage.metrics = (name,)
    stage.function = staticmethod(function)
    stage.sample_parameter, stage.row_parameters = sample, tuple(rows)
    stage.needed_fields = frozenset(needed)
    stage.inputs, stage.expects = _inputs(what, rows)
    stage.source = current_source(stage)
    return stage


def _parameters(
    function: Callable[..., Any], what: str
) -> tuple[str | None, dict[str, type[Row]], dict[str, Any]]:
    """(the parameter of the sample, those of rows with their kind, settings)."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{what} is a coroutine or a generator: write a plain function")
    try:
        hints = get_type_hints(function)
    except Exception as error:
        why = f"an annotation cannot be read: {describe(error)}"
        raise TypeError(f"{what}: {why}; import what it names where the module runs") from None
    sample: str | None = None
    rows: dict[str, type[Row]] = {}
    settings: dict[str, Any] = {}
    for key, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        hint: Any = hints.get(key)
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{what}: name every parameter, without * and /")
        if key in _TAKEN or hasattr(FunctionMetric, key):
            raise TypeError(f"{what}: the name {key!r} is taken, rename the parameter")
        if hint is Sample and sample is None:
            sample = key
        elif get_origin(hint) is list and get_args(hint)[0] in _ROWS:
            rows[key] = get_args(hint)[0]
        elif default is not parameter.empty and _is_plain(hint):
            try:
                TypeAdapter(hint).validate_python(default, strict=True)
            except ValidationError:
                what = f"{what}: the default of {key!r} is {default!r:.80}"
                raise TypeError(f"{what}, which is not what its annotation says") from None
            settings[key] = (hint, default)
        else:
            raise TypeError(
                f"{what}: the parameter {key!r} is neither a Sample, nor a list of rows such as "
                "list[Claim], nor a setting: a text, number or bool with a default"
            )
    return sample, rows, settings


def _is_plain(hint: Any) -> bool:
    """Whether an annotation is of a setting: a plain type, a `Literal`, or one of them or None."""
    if get_origin(hint) in (Union, types.UnionType):
        return all(part is type(None) or _is_plain(part) for part in get_args(hint))
    return hint in _PLAIN or get_origin(hint) is Literal


def _inputs(
    what: str, rows: Mapping[str, type[Row]]
) -> tuple[dict[str, Input], dict[str, Expected]]:
    """The inputs of a stage, and what the steps that make them must be like.

    Verdicts name claims and no sample, so the claims that they are on are an input as well.
    """
    inputs = {"samples": Input(Sample)} | {key: Input(row) for key, row in rows.items()}
    expects: dict[str, Expected] = {}
    for key, row in rows.items():
        side = key.partition("_")[0]
        claims = f"{side}_claims" if side in _SIDES else None
        if row is Claim and key == claims:
            expects[key] = {"of": side}
        if row is Verdict and claims is not None:
            inputs[claims] = Input(Claim)
            expects[key] = {"claims": claims}
        if row is Verdict and all(one.row is not Claim for one in inputs.values()):
            raise TypeError(
                f"{what}: begin the name of {key!r} with response_ or reference_, "
                "or add a parameter with the claims: list[Claim]"
            )
    return inputs, expects
