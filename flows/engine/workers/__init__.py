"""Workers: processes on this machine, or on a cluster, that do what can be done apart."""

from claimflow.flows.engine.workers.protocol import Workers
from claimflow.flows.engine.workers.setting import WorkersSetting

__all__ = ["Workers", "WorkersSetting"]
