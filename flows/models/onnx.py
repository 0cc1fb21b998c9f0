"""ONNX models and tokenizers: loaded, checked and run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

# An ONNX model, opened to run on the processor.


def open_session(model: Path, *, threads: int | None) -> "InferenceSession":
    """The model in a file; `threads` None takes every core.

    Raises whatever onnxruntime does where the file is no ONNX model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or os.cpu_count() or 1
    # What it raises says the same as what it would print.
    options.log_severity_level = 4
    # Waiting threads sleep: they would burn a core that other stages could use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


# A model and a tokenizer of the user's own: what they give, or why they cannot be used.


Numbers = NDArray[np.floating[Any]]

INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
"""What a model may ask for, each of batch and tokens; it need not take all."""


class Gives(NamedTuple):
    """What a model must first give: its `shape`, None where any size will do, and in words."""

    shape: tuple[int | None, ...]
    hint: str

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
            hint = "it must take any batch of what its tokenizer makes, up to its window"
            self._refuse(f"fails ({_one_line(error)})", hint)
        self._check(found.shape)
        if not np.isfinite(found).all():
            self._refuse("gives numbers that are none", "use another export of the model")
        return found

    def _check(self, shape: Sequence[Any]) -> None:
        if not self._gives.holds(shape):
            self._refuse(f"first gives {list(shape)}", self._gives.hint)

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise InputError([Fault(str(self._path), what, hint)])


def load_tokenizer(path: Path) -> "Tokenizer":
    """The tokenizer in a file. Raises `InputError` where it is none."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise _unusable(path, error, "a tokenizers file") from error


def _unusable(path: Path, error: Exception, kind: str) -> InputError:
    what = f"cannot be loaded ({_one_line(error)})"
    return InputError([Fault(str(path), what, f"it must be {kind}")])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
