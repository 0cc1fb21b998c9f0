"""A model and a tokenizer of the user's own: what they give, or why they cannot be used.

Imports onnxruntime and tokenizers, so whoever may not need them imports it late.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.onnx_session import open_session

Numbers = NDArray[np.floating[Any]]

INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
"""What a model may ask for, each of batch and tokens; it need not take all."""


class Gives(NamedTuple):
    """What a model must first give: its `shape`, None where any size will do, and in words."""

    shape: tuple[int | None, ...]
    right: str

    def holds(self, found: Sequence[Any]) -> bool:
        """Whether `found`, sizes or the names of unknown ones, may be this shape."""
        return len(found) == len(self.shape) and all(
            None in (one, other) or isinstance(other, str) or one == other
            for one, other in zip(self.shape, found, strict=True)
        )


class OnnxModel:
    """The model in a file, loaded; `threads` None takes every core.

    Raises `InputError` where it cannot be loaded, takes anything but `INPUTS`, or gives
    something else than `gives`.
    """

    def __init__(self, path: Path, gives: Gives, *, threads: int | None) -> None:
        self._path = path
        self._gives = gives
        try:
            self._session = open_session(path, threads=threads)
        except Exception as error:
            raise _unusable(path, error, "an ONNX model") from error
        self._takes = [given.name for given in self._session.get_inputs()]
        strange = sorted(set(self._takes) - set(INPUTS))
        if strange:
            self._refuse(f"takes {', '.join(strange)}", "it must take token ids alone")
        self._check(self._session.get_outputs()[0].shape)

    def run(self, given: Mapping[str, NDArray[np.int64]]) -> Numbers:
        """What it first gives for a batch; `given` has all of `INPUTS`.

        Raises `InputError` where it fails, or gives what it should not.
        """
        try:
            found: Numbers = self._session.run(None, {name: given[name] for name in self._takes})[0]
        except Exception as error:
            right = "it must take any batch of what its tokenizer makes, up to its window"
            self._refuse(f"fails ({_one_line(error)})", right)
        self._check(found.shape)
        if not np.isfinite(found).all():
            self._refuse("gives numbers that are none", "use another export of the model")
        return found

    def _check(self, shape: Sequence[Any]) -> None:
        if not self._gives.holds(shape):
            self._refuse(f"first gives {list(shape)}", self._gives.right)

    def _refuse(self, what: str, right: str) -> NoReturn:
        raise InputError([Fault(str(self._path), what, right)])


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a file. Raises `InputError` where it is none."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise _unusable(path, error, "a tokenizers file") from error


def _unusable(path: Path, error: Exception, kind: str) -> InputError:
    what = f"cannot be loaded ({_one_line(error)})"
    return InputError([Fault(str(path), what, f"it must be {kind}")])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
