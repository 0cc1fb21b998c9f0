"""The metrics of a run: by the names that people give them, and their scores."""

from collections.abc import Iterable
from typing import NamedTuple

from claimflow.flows.engine.config.rules import misnamed
from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.storage.store import Store, read_table


class StepMetric(NamedTuple):
    """A metric and the step whose scores are meant."""

    step: str
    metric: str


def named_metrics(
    store: Store, run_id: str, names: Iterable[str], *, place: str
) -> list[StepMetric]:
    """The metrics that `names` mean, each `metric`, or `step.metric` where several steps make it.

    Raises `InputError`, whose faults are at `place`, for names of which the run has no scores.
    """
    makers: dict[str, list[str]] = {}
    with store.reading() as connection:
        query = "SELECT DISTINCT metric, step FROM scores WHERE run_id = $run ORDER BY ALL"
        for metric, step in read_table(connection, query, run=run_id).iter_rows():
            makers.setdefault(metric, []).append(step)
    wanted = list(names)
    faults = [Fault(place, what, right) for _, what, right in misnamed(wanted, makers)]
    if faults:
        raise InputError(faults)
    led = (name.rpartition(".") for name in wanted)
    return [StepMetric(step or makers[metric][0], metric) for step, _, metric in led]


def scored_values(store: Store, run_id: str, of: StepMetric) -> list[float]:
    """The scores of a metric in a run, the lowest first."""
    with store.reading() as connection:
        table = read_table(
            connection,
            "SELECT score FROM scores WHERE run_id = $run AND step = $step AND metric = $metric "
            "AND status = 'scored' ORDER BY score",
            run=run_id,
            step=of.step,
            metric=of.metric,
        )
    return table["score"].to_list()
