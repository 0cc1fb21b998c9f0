"""ONNX models of users that cannot be used: other shapes, vocabularies and numbers."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.models.onnx import INPUTS, OnnxModel, Shape, load_tokenizer

TINY = Path(__file__).parents[1] / "data" / "tiny_encoder" / "model.onnx"
"""Of eight words word i has the vector (i + 1, 0, 2)."""

THREE: Shape = (None, None, 3)


def inputs(*words: int) -> dict[str, Any]:
    ids = np.array([words], np.int64)
    return dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))


def model(path: Path = TINY, gives: Shape = THREE) -> OnnxModel:
    return OnnxModel(path, [gives], "it must give otherwise", threads=1)


def message(path: Path, *words: int, gives: Shape = THREE) -> str:
    with pytest.raises(InputError) as caught:
        model(path, gives).run(inputs(*words))
    return str(caught.value).replace(f"{path}: ", "")


def test_the_output_of_a_model() -> None:
    assert model().run(inputs(0, 6)).tolist() == [[[1, 0, 2], [7, 0, 2]]]


def test_an_id_outside_the_vocabulary_is_reported_in_one_line(capfd: Any) -> None:
    line = message(TINY, 8)
    assert line.startswith("fails ([ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status")
    hint = (
        "; it must take any batch of what its tokenizer makes, up to its window; it had texts of "
    )
    assert line.endswith(f"{hint}1 tokens")
    assert "\n" not in line
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("other", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, other: float) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(TINY.read_bytes().replace(struct.pack("<f", 8), struct.pack("<f", other)))
    assert model(path).run(inputs(6)).tolist() == [[[7, 0, 2]]]
    assert message(path, 7) == "gives numbers that are not finite; use another export of the model"


@pytest.mark.parametrize("shape", [(None, 3), (None, None, 4), (None, None, None, 3)])
def test_an_output_of_another_shape_is_refused(shape: Any) -> None:
    line = "has the output shape ['batch', 'sequence', 3]; it must give otherwise"
    assert message(TINY, 0, gives=shape) == line


def test_a_shape_that_is_known_only_from_the_output_is_checked_then() -> None:
    two = model(gives=(None, 2, 3))
    assert two.run(inputs(0, 1)).shape == (1, 2, 3)
    with pytest.raises(InputError, match=r"has the output shape \[1, 3, 3\]; it must give"):
        two.run(inputs(0, 1, 2))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("nine_rows", "[9, 2, 3] of float32"),
        ("no_tokens", "[1, 0, 3] of float32"),
        ("strings", "[1, 2, 3] of object"),
    ],
)
def test_an_output_that_answers_something_else_is_refused(name: str, shown: str) -> None:
    line = message(TINY.with_name(f"{name}.onnx"), 0, 1)
    assert line == f"gives an output of {shown} for 1 texts; it must give otherwise"


def test_a_file_that_is_no_tokenizer_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{\n"no": 1}', "utf-8")
    with pytest.raises(InputError) as caught:
        load_tokenizer(tmp_path / "tokenizer.json")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/tokenizer.json: cannot be loaded (")
    assert line.endswith("; it must be a tokenizers file")
