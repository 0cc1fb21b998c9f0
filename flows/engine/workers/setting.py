"""What a pipeline may say of its workers."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from claimflow.flows.engine.endpoints import Source


def _known(engine: Any) -> Any:
    if engine == "ray":
        raise ValueError("Ray is not supported; write dask, and start a Dask cluster")
    return engine


class WorkersSetting(Source):
    """Where work is done that needs no language model: on this machine, or on a Dask cluster."""

    engine: Annotated[Literal["local", "dask"], BeforeValidator(_known)] = "local"
    """Processes on this machine, or the workers of a Dask scheduler."""
    count: int | None = Field(default=None, ge=1, le=512)
    """Processes of engine local; one a core and at most 8 when left out, 1 for none."""
    address: str | None = Field(default=None, min_length=1)
    """The scheduler of engine dask, for example tcp://10.0.0.5:8786."""
    shards: int = Field(default=1, ge=1)
    """Chunks that a step is cut into, at least; none holds more than 2,000 samples."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.engine == "dask" and self.address is None:
            raise ValueError("engine dask needs the address of its scheduler")
        if self.engine == "local" and self.address is not None:
            raise ValueError("address belongs to engine dask")
        if self.engine == "dask" and self.count is not None:
            raise ValueError("count belongs to engine local; a cluster has the workers it has")
        return self
