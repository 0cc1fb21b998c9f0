"""Evaluate the answers of RAG and LLM systems claim by claim.

- `evaluate` evaluates answers and returns a `Result`: its tables, each `Mean`, a `SampleTrace`, a
  `Diff` to another run, a `Chart`. `connect` gives the `StoredRuns` of a file.
- `metric` makes a function on a `Sample` and rows (`Claim`, `Verdict`, `SentenceMatch`,
  `Similarity`, `Score`) a metric, which may return a `MetricResult`. A `Stage` makes any `Row`.
- `JudgeProvider` asks a model: a `Request` gives a `ChatReply` with its `Usage`, or a
  `ProviderError`.
- `prepare` reads and checks a pipeline file (`Prepared`), `run_pipeline` runs it (`RunResult`, a
  `StepResult` of each step), all of it or a part (`Rerun`), and tells a `RunObserver`. A `Store`
  gives DuckDB connections.
- `InputError`, `JudgeError`, `PendingError`, `StoreError`, `RunTimeoutError` and `StoppedError` are
  raised.

`claimflow.testing` is for test suites. Names are loaded when they are first used, so that
`import claimflow` is fast.
"""

# Nothing else is imported here, so that Ctrl-C has hardly any time before `__main__` handles it:
# type checkers take this name for that of `typing`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from claimflow.flows import __version__
    from claimflow.flows.api import RunResult, evaluate, run_pipeline
    from claimflow.flows.errors import (
        InputError,
        JudgeError,
        RunTimeoutError,
        StoppedError,
        StoreError,
    )
    from claimflow.flows.judge.provider import (
        ChatReply,
        JudgeProvider,
        ProviderError,
        Request,
        Usage,
    )
    from claimflow.flows.pipeline.rerun import Rerun
    from claimflow.flows.report.vega_lite import Chart
    from claimflow.flows.result import Diff, Mean, Result, SampleTrace, StoredRuns, connect
    from claimflow.flows.runner.observer import RunObserver, StepResult
    from claimflow.flows.runner.prepare import Prepared, prepare
    from claimflow.flows.store.store import Store
    from claimflow.stages.base import Stage
    from claimflow.stages.metric import MetricResult, metric
    from claimflow.stages.rows import (
        Claim,
        Row,
        Sample,
        Score,
        SentenceMatch,
        Similarity,
        Verdict,
    )

__all__ = [
    "Chart",
    "ChatReply",
    "Claim",
    "Diff",
    "InputError",
    "JudgeError",
    "JudgeProvider",
    "Mean",
    "MetricResult",
    "PendingError",
    "Prepared",
    "ProviderError",
    "Request",
    "Rerun",
    "Result",
    "Row",
    "RunObserver",
    "RunResult",
    "RunTimeoutError",
    "Sample",
    "SampleTrace",
    "Score",
    "SentenceMatch",
    "Similarity",
    "Stage",
    "StepResult",
    "StoppedError",
    "Store",
    "StoreError",
    "StoredRuns",
    "Usage",
    "Verdict",
    "__version__",
    "connect",
    "evaluate",
    "metric",
    "prepare",
    "run_pipeline",
]

_MODULES = {
    "claimflow.flows": ("__version__",),
    "claimflow.flows.api": ("RunResult", "evaluate", "run_pipeline"),
    "claimflow.flows.errors": (
        "InputError",
        "JudgeError",
        "PendingError",
        "RunTimeoutError",
        "StoppedError",
        "StoreError",
    ),
    "claimflow.flows.judge.provider": (
        "ChatReply",
        "JudgeProvider",
        "ProviderError",
        "Request",
        "Usage",
    ),
    "claimflow.flows.pipeline.rerun": ("Rerun",),
    "claimflow.flows.report.vega_lite": ("Chart",),
    "claimflow.flows.result": (
        "Diff",
        "Mean",
        "Result",
        "SampleTrace",
        "StoredRuns",
        "connect",
    ),
    "claimflow.flows.runner.observer": ("RunObserver", "StepResult"),
    "claimflow.flows.runner.prepare": ("Prepared", "prepare"),
    "claimflow.flows.store.store": ("Store",),
    "claimflow.stages.base": ("Stage",),
    "claimflow.stages.metric": ("MetricResult", "metric"),
    "claimflow.stages.rows": (
        "Claim",
        "Row",
        "Sample",
        "Score",
        "SentenceMatch",
        "Similarity",
        "Verdict",
    ),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
