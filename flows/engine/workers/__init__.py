"""Workers: processes on this machine, or on a cluster, that do what can be done apart."""

from flows.engine.workers.protocol import Workers
from flows.engine.workers.setting import WorkersSetting

__all__ = ["Workers", "WorkersSetting"]
