"""Rounding of a linear layer to 8-bit integers on both sides of the product.

A layer computes W x + b. Here x becomes integers from 0 to 255, W integers from -127 to
127, and the sums of their products are exact, so the result depends neither on the other
rows of a batch nor on the order of summing. The scales of x are constants, calibrated on texts.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Wide = NDArray[np.float64]

MARGIN: Final = 1.1
"""Factor by which inputs may exceed those of calibration before they are clipped."""

SHARE: Final = 0.75
"""The share of the differences between inputs that is moved into the weights (SmoothQuant)."""

PAIR: Final = 128
"""Largest sum of two neighbouring weights of one sign: 255 times it fits 16 bits, in which
processors without 8-bit dot products add two products up."""

DAMPING: Final = 0.1
BLOCK: Final = 128


class Rounded(NamedTuple):
    """x becomes q = round(x * `shrink`) + `zero`; the layer is `scale` (W (q - `zero`)) + `bias`.

    `weight` holds W, outputs by inputs.
    """

    shrink: Matrix
    zero: np.uint8
    weight: NDArray[np.int8]
    scale: Matrix
    bias: Matrix


def rounded(weight: Matrix, bias: Matrix, x: Matrix) -> Rounded:
    """The layer with `weight` (outputs by inputs) and `bias`, fitted to the inputs `x` (rows)."""
    low, high = (np.minimum(x.min(0), 0) * MARGIN, np.maximum(x.max(0), 0) * MARGIN)
    reach = np.maximum(np.maximum(-low, high), 1e-3)
    unit = reach**SHARE / (np.abs(weight).max(0) + 1e-9) ** (1 - SHARE)
    lowest = (low / unit).min()
    step = ((high / unit).max() - lowest) / 255
    zero = np.rint(-lowest / step)
    unit = unit * step
    q = np.clip(np.rint(x / unit) + zero, 0, 255) - zero
    wide = (weight * unit).astype(np.float64)
    # The last half per cent leaves room for what compensating adds.
    scale = np.maximum(np.abs(wide).max(1) / 127, _pairs(wide) / PAIR) * 1.005
    small = _compensated(wide / scale[:, None], q)
    while (over := _pairs(small) > PAIR).any():
        small[over] = np.trunc(small[over] * 0.99)
    missed = x @ weight.T - (q @ small.T) * scale
    return Rounded(
        (1 / unit).astype(np.float32),
        np.uint8(zero),
        small.astype(np.int8),
        scale.astype(np.float32),
        (bias + missed.mean(0)).astype(np.float32),
    )


def _pairs(weight: Wide) -> Wide:
    """Per row, the largest sum of two neighbours, of their positive or of their negative parts."""
    parts = [np.maximum(sign * weight, 0) for sign in (1, -1)]
    sums: list[Wide] = [(part[:, 0::2] + part[:, 1::2]).max(1) for part in parts]
    return np.maximum(*sums)


def _compensated(weight: Wide, x: Matrix) -> Wide:
    """`weight` in whole numbers: what rounding an input's weights loses, later ones make up for.

    Frantar et al. 2022, GPTQ: inputs in the order of their size, by the inverse of the
    inputs' second moments, of which the Cholesky factor holds all that is needed.
    """
    moments = (x.T.astype(np.float32) @ x.astype(np.float32)).astype(np.float64) / len(x)
    order = np.argsort(-np.diag(moments), kind="stable")
    moments = moments[np.ix_(order, order)]
    moments += np.eye(len(order)) * DAMPING * np.diag(moments).mean()
    factor = np.linalg.cholesky(np.linalg.inv(moments)).T
    left, whole = weight[:, order].copy(), np.zeros_like(weight)
    for start in range(0, len(order), BLOCK):
        end = min(start + BLOCK, len(order))
        lost = np.zeros((len(left), end - start))
        for j in range(start, end):
            whole[:, order[j]] = np.clip(np.rint(left[:, j]), -127, 127)
            lost[:, j - start] = (left[:, j] - whole[:, order[j]]) / factor[j, j]
            left[:, j:end] -= np.outer(lost[:, j - start], factor[j, j:end])
        left[:, end:] -= lost @ factor[start:end, end:]
    return whole


def copies(weight: Matrix, x: Matrix, extra: int) -> NDArray[np.int64]:
    """How often each input should stand, `extra` times more than once in all.

    An input that stands n times with an n-th of its weights changes nothing, but leaves the
    other weights of a row a finer scale (Zhao et al. 2019, outlier channel splitting).
    """
    size = np.abs(weight).max(0) * np.abs(x).max(0)
    count = np.ones(len(size), np.int64)
    for _ in range(extra):
        count[np.argmax(size / count)] += 1
    return count
