"""The workers that a pipeline asks for, ready to work."""

import importlib
import threading
from collections.abc import Callable

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.workers.local import LocalWorkers
from claimflow.flows.engine.workers.protocol import Workers
from claimflow.flows.engine.workers.setting import WorkersSetting


def open_workers(
    setting: WorkersSetting, stop: threading.Event, place: Callable[[str], str]
) -> Workers:
    """The workers of `setting`, which see to it that a run ends when `stop` is set.

    Raises `InputError` where a cluster cannot be used; `place` says where a key of the
    setting stands.
    """
    if setting.engine == "local" or setting.address is None:
        return LocalWorkers(stop, setting.count, setting.shards)
    try:
        cluster = importlib.import_module("claimflow.flows.engine.workers.cluster")
    except ModuleNotFoundError as error:
        if error.name not in ("distributed", "dask"):
            raise
        what, right = "Dask is not installed", "run: pip install 'claimflow[dask]'"
        raise InputError([Fault(place("engine"), what, right)]) from None
    try:
        workers: Workers = cluster.DaskWorkers(setting.address, stop, setting.shards)
    except ValueError as error:
        right = "start its scheduler and workers, all with this version of claimflow"
        raise InputError([Fault(place("address"), str(error), right)]) from None
    return workers
