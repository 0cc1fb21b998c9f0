"""An SQL condition over the fields and the metadata of samples, such as `model = 'x'`."""

from collections.abc import Collection, Iterator
from typing import Any, Final

import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.samples import compiled_condition
from claimflow.flows.store.limited_process import LimitedProcess
from claimflow.stages.rows import Sample
from claimflow.stages.tables import schema

_SECONDS: Final = 60.0
"""How long a condition may take for all samples."""

_SENT_BYTES: Final = 32 << 20
"""Bytes of samples that are asked about at once, where one is not larger."""


class Condition:
    """A condition of DuckDB that is true or not for a sample, whatever the other samples are.

    Fields of the metadata are numbers where all their values are, else texts; a field of a sample
    comes before one of the metadata with its name. `metadata` is a JSON object. It is compiled for
    the fields that some samples have, and asked in a process with limits; use it in `closing`.

    Where it `needs_types`, it must `learn` from all samples before it can be asked.
    """

    needs_types: bool

    def __init__(self, text: str, place: str, metadata: Collection[str]) -> None:
        """Compile `text`, which stands at `place`; raises `InputError`."""
        self._place = place
        self._process = LimitedProcess(compiled_condition.__name__, "answer")
        fields = {
            name: "VARCHAR[]" if kind == pl.List(pl.String) else "VARCHAR"
            for name, kind in schema(Sample).items()
        }
        try:
            self._columns, self.needs_types = self._ask(
                (text, place, fields, tuple(metadata), _SECONDS)
            )
        except BaseException:
            self._process.close()
            raise

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def learn(self, samples: pl.DataFrame) -> None:
        """Look at the values of metadata in a part of the samples, to know their types."""
        for part in _divided(samples.select("metadata")):
            self._ask(("learn", part.to_dict(as_series=False)))

    def holds(self, samples: pl.DataFrame) -> pl.Series:
        """For each sample in a part whether the condition is true. Raises `InputError`."""
        true: list[bool] = []
        for part in _divided(samples.select(self._columns)):
            rows = self._ask(("holds", part.to_dict(as_series=False)))
            true += [row in rows for row in range(part.height)]
        return pl.Series(true, dtype=pl.Boolean)

    def _ask(self, question: Any) -> Any:
        try:
            self._process.send(question)
            return self._process.receive()
        except (EOFError, OSError):
            how = self._process.how_it_ended()
        if how is None:
            what = f"takes more than {_SECONDS:g} s"
        else:
            what = f"was ended {how}, which may be for its memory"
        raise InputError([Fault(self._place, what, compiled_condition.SIMPLER)])


def _divided(samples: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The samples in parts of a bounded size, in their order."""
    if samples.height < 2 or samples.estimated_size() <= _SENT_BYTES:
        yield samples
        return
    half = samples.height // 2
    yield from _divided(samples.head(half))
    yield from _divided(samples.slice(half))
