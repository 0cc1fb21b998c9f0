"""Targets: where scores can be sent. Those of claimflow, and entry points of other packages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.pipeline.schedules import TARGET_GROUP, target_names
from claimflow.flows.sending.evaluations import Evaluation
from claimflow.flows.store.store import Store
from claimflow.stages.plugins import PluginError, describe, load_entry_point


class Answer(NamedTuple):
    """What a server says of a batch: the places of those that it refused, with why.

    `lost` is how many it refused without naming them, and `message` what it says of these.
    """

    refused: Mapping[int, str] = MappingProxyType({})
    lost: int = 0
    message: str = ""


@runtime_checkable
class Target(Protocol):
    """Where evaluations are sent in batches. Made without arguments, from the environment."""

    largest: int
    """Evaluations in a batch."""

    def unfit(self, evaluation: Evaluation) -> str | None:
        """Why an evaluation cannot be sent here, the same words for all such; None where it can."""

    def lines(self, evaluations: Sequence[Evaluation]) -> Iterable[Any]:
        """What a file for this target has for the evaluations: a JSON value for each line."""

    def address(self) -> str:
        """The address without keys; raises `InputError` where the environment has none."""

    def send(self, evaluations: Sequence[Evaluation]) -> Answer:
        """Send a batch and return what the server says.

        Raises `InputError` where it takes none, and `endpoint.TooMuchError` where it takes no
        such batch but perhaps parts of it.
        """

    def close(self) -> None:
        """Give back connections; called once, at the end."""


@runtime_checkable
class RunTarget(Protocol):
    """Where whole runs are logged. Made without arguments, from the environment."""

    def address(self) -> str:
        """The address without keys; raises `InputError` where the environment has none."""

    def send_run(
        self, store: Store, run_id: str, metrics: Sequence[str], *, again: bool = False
    ) -> bool:
        """Log a run; false where it was there already. Raises `InputError` where it cannot be."""


def target_of(name: str) -> Target | RunTarget:
    """The target of a name; raises `InputError` where there is none or it cannot be made."""
    if name not in target_names():
        what = f"{name!r} is no target"
        hint = f"{one_of(name, target_names())}; a package adds one to the group {TARGET_GROUP}"
        raise InputError([Fault("--to", what, hint)])
    try:
        make = _BUILT_IN.get(name) or load_entry_point(TARGET_GROUP, name)
        target: Target | RunTarget = make()
    except PluginError as error:
        raise InputError([Fault(f"--to {name}", error.what, error.hint)]) from None
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            [Fault(f"--to {name}", f"cannot be made: {describe(error)}", "mend it")]
        ) from error
    if not isinstance(target, Target | RunTarget):
        what = f"{type(target).__name__} lacks methods of a target"
        raise InputError([Fault(f"--to {name}", what, "see claimflow.flows.sending.targets")])
    return target


def _otlp() -> Target:
    from claimflow.flows.sending.otlp import Otlp

    return Otlp()


def _langfuse() -> Target:
    from claimflow.flows.sending.langfuse import Langfuse

    return Langfuse()


def _phoenix() -> Target:
    from claimflow.flows.sending.phoenix import Phoenix

    return Phoenix()


def _mlflow() -> RunTarget:
    from claimflow.flows.sending.mlflow import Mlflow

    return Mlflow()


_BUILT_IN: Final[dict[str, Callable[[], Target | RunTarget]]] = {
    "otlp": _otlp,
    "langfuse": _langfuse,
    "phoenix": _phoenix,
    "mlflow": _mlflow,
}
