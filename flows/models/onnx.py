"""ONNX models and tokenizers: loaded, checked and run on the processor."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

Numbers = NDArray[np.floating[Any]]
Item = TypeVar("Item")

INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
"""The inputs a model may have, each of shape (batch, tokens); it need not have all."""


class Least(NamedTuple):
    """A size of a dimension that is large enough."""

    size: int


Shape = tuple[int | Least | None, ...]
"""The sizes of an array's dimensions; None is any size."""


_PLACES: Final = "position_ids"
"""An input that language models may have: 0, 1, 2 and so on."""


class OnnxModel:
    """A user's ONNX model, loaded and checked; `threads` None takes every core.

    Raises `InputError` where the file cannot be loaded, the model has other inputs than `inputs`,
    or its first output has another shape than each of `outputs`, which `hint` says in a message.
    """

    def __init__(
        self,
        path: Path,
        outputs: Sequence[Shape],
        hint: str,
        *,
        inputs: Sequence[str] = INPUTS,
        threads: int | None,
    ) -> None:
        self._path = path
        self._outputs = outputs
        self._hint = hint
        try:
            self._session = open_session(path, threads=threads)
        except Exception as error:
            raise _unusable(path, error, "an ONNX model") from error
        self._inputs = [found.name for found in self._session.get_inputs()]
        unknown = sorted(set(self._inputs) - {*inputs, _PLACES})
        if unknown:
            others = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            what = f"takes {', '.join(unknown[:3])}{others}"
            hint = f"it must take {', '.join(inputs)} alone"
            if any(name.startswith("past_key_values") for name in unknown):
                hint += "; export it without the cache (--task text-generation)"
            self._refuse(what, hint)
        self._check_shape(self._session.get_outputs()[0].shape)

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Numbers:
        """The first output for a batch; `inputs` has all that the model may take, batch first.

        Raises `InputError` where the model fails, or its output has another shape than it
        should or numbers that are not finite.
        """
        if _PLACES in self._inputs:
            rows, tokens = inputs[INPUTS[0]].shape
            inputs = {**inputs, _PLACES: np.tile(np.arange(tokens), (rows, 1))}
        first = self._session.get_outputs()[0].name
        try:
            outputs = self._session.run([first], {name: inputs[name] for name in self._inputs})
        except Exception as error:
            tokens = next(iter(inputs.values())).shape[1]
            hint = "it must take any batch of what its tokenizer makes, up to its window"
            hint += f"; it had texts of {tokens} tokens"
            self._refuse(f"fails ({one_line(error)})", hint)
        found: Numbers = outputs[0]
        self._check_shape(found.shape)
        rows = len(next(iter(inputs.values())))
        if found.dtype.kind not in "fiub" or len(found) != rows or 0 in found.shape:
            what = f"gives an output of {list(found.shape)} of {found.dtype} for {rows} texts"
            self._refuse(what, self._hint)
        if not np.isfinite(found).all():
            self._refuse("gives numbers that are not finite", "use another export of the model")
        return found

    def _check_shape(self, shape: Sequence[Any]) -> None:
        if not any(_fits(shape, output) for output in self._outputs):
            self._refuse(f"has the output shape {list(shape)}", self._hint)

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise InputError([Fault(str(self._path), what, hint)])


def _fits(shape: Sequence[Any], wanted: Shape) -> bool:
    # Names stand for sizes that are not known yet.
    return len(shape) == len(wanted) and all(
        None in (size, found)
        or isinstance(found, str)
        or (found >= size.size if isinstance(size, Least) else size == found)
        for size, found in zip(wanted, shape, strict=True)
    )


def open_session(model: Path, *, threads: int | None) -> "InferenceSession":
    """An ONNX Runtime session for the model in a file; `threads` None takes every core.

    Raises the exceptions of onnxruntime where the file is not an ONNX model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or os.cpu_count() or 1
    # Its exceptions say the same as its log.
    options.log_severity_level = 4
    # Waiting threads sleep: spinning would take a core that other stages could use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def load_tokenizer(path: Path) -> "Tokenizer":
    """The tokenizer in a file. Raises `InputError` where it cannot be loaded."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise _unusable(path, error, "a tokenizers file") from error


def equal_length_batches(
    items: Iterable[Item], length: Callable[[Item], int], *, tokens: int
) -> Iterator[list[Item]]:
    """Batches of items that all have the same `length`, together at most `tokens` if possible.

    So nothing is padded, and the result for an item does not depend on the others in its batch.
    """
    by_length: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        by_length[length(item)].append(item)
    for size, alike in by_length.items():
        step = max(1, tokens // max(size, 1))
        for start in range(0, len(alike), step):
            yield alike[start : start + step]


def _unusable(path: Path, error: Exception, kind: str) -> InputError:
    what = f"cannot be loaded ({one_line(error)})"
    return InputError([Fault(str(path), what, f"it must be {kind}")])


def one_line(error: Exception) -> str:
    """The message of an exception on one line."""
    return " ".join(str(error).split())
