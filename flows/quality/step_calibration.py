"""One step of a run compared with labels."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from claimflow.flows.quality.calibration import RunCalibration
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.flows.quality.agreement import (
    Agreement,
    Annotators,
    Figure,
    Ranks,
    agreement,
    annotators,
    ranks,
    share,
)
from claimflow.flows.quality.corrected_rates import (
    Reliability,
    effective_number,
    prediction_powered,
    reliability,
    rogan_gladen,
)
from claimflow.flows.quality.labels import VALUES
from claimflow.flows.quality.paired_labels import Drawing, Held, judged, slices

# A calibration as JSON: nothing left out, keys that stay.


def as_json(found: "RunCalibration") -> str:
    """All that was found of a run as one JSON object, described in `flows/README.md`."""
    return json.dumps(plain(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A named tuple as an object, whatever it holds likewise."""
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return f"{value.isoformat(timespec='seconds')}Z"
    return value


# One step of a run held against people: what `claimflow calibrate` says of it.


POWERED: Final = "prediction-powered"
ADJUSTED: Final = "Rogan-Gladen"


class Slice(NamedTuple):
    """The labelled rows of samples with one value of a metadata field."""

    value: str | None
    agreement: Agreement | None
    ranks: Ranks | None
    good: Figure | None


class Corrected(NamedTuple):
    """A share or mean as the judge has it, and with its errors taken into account.

    `what` is a label, whose share it is, or a metric, whose mean; over all rows (`by` None) or
    over the samples' shares (`by` sample).
    """

    what: str
    by: str | None
    method: str
    judged: float
    corrected: Figure


class Calibration(NamedTuple):
    """A part of a run beside people.

    Of its `rows` so many are `labelled`; of those `divided` have as many labels of one kind as
    of another, and on `failed` the judge said nothing. `at_random` says whether the rows that
    the agreement is measured on were drawn at random.
    """

    kind: str
    step: str
    metric: str | None
    rows: int
    labelled: int
    divided: int
    failed: int
    at_random: bool
    annotators: Annotators
    agreement: Agreement | None
    ranks: Ranks | None
    good: Figure | None
    reliability: Reliability | None
    slices: list[Slice]
    drawing: Drawing | None
    corrected: list[Corrected]


def calibration(held: Held, *, slice_of: Mapping[str, str | None] | None = None) -> Calibration:
    """Everything that labels say of one part of a run; `slice_of` has the slice by sample."""
    kind, usable = held.part.kind, held.usable
    divided = sum(word is None for word in held.words.values())
    answered = [row for row in usable if _said(held, row) is not None]
    parted = slices(held, slice_of) if slice_of is not None else {}
    return Calibration(
        kind=kind,
        step=held.part.step,
        metric=held.part.metric,
        rows=held.rows.height,
        labelled=len(held.words),
        divided=divided,
        failed=len(usable) - len(answered) if kind != "claims" else 0,
        at_random=bool(usable) and all(row in held.at_random for row in usable),
        annotators=annotators(held.labels, VALUES.get(kind)),
        agreement=_agreement(held, usable),
        ranks=_ranks(held, usable),
        good=_good(held, usable),
        reliability=step_reliability(held),
        slices=[
            Slice(value, _agreement(held, rows), _ranks(held, rows), _good(held, rows))
            for value, rows in parted.items()
        ],
        drawing=held.drawing,
        corrected=corrected(held),
    )


def _said(held: Held, row: int) -> str | float | None:
    found: str | float | None = held.rows["score" if held.part.kind == "samples" else "said"][row]
    return found


def _agreement(held: Held, rows: list[int]) -> Agreement | None:
    answered = [row for row in rows if _said(held, row) is not None]
    if held.part.kind != "verdicts" or not answered:
        return None
    truth = [str(held.words[row]) for row in answered]
    return agreement(truth, [str(_said(held, row)) for row in answered], VALUES["verdicts"])


def _ranks(held: Held, rows: list[int]) -> Ranks | None:
    if held.part.kind != "samples":
        return None
    pairs = [
        (float(word), float(score))
        for row in rows
        if (word := held.words[row]) is not None and (score := _said(held, row)) is not None
    ]
    return ranks([rating for rating, _ in pairs], [score for _, score in pairs]) if pairs else None


def _good(held: Held, rows: list[int]) -> Figure | None:
    if held.part.kind != "claims":
        return None
    return share(sum(held.words[row] == "good" for row in rows), len(rows))


def step_reliability(held: Held) -> Reliability | None:
    """Whether the probabilities of a step can be believed; None where it gave none."""
    if held.part.kind != "verdicts":
        return None
    probabilities = held.rows["p_entailed"]
    known = [row for row in held.usable if probabilities[row] is not None]
    return reliability(
        np.array([probabilities[row] for row in known], dtype=np.float64),
        np.array([held.words[row] == "entailed" for row in known], dtype=np.bool_),
    )


def corrected(held: Held) -> list[Corrected]:
    """The shares or the mean of a step with its errors taken into account."""
    if held.part.kind == "samples":
        return _corrected_mean(held)
    if held.part.kind == "claims":
        return []
    return [one for label in VALUES["verdicts"] for one in _corrected_share(held, label)]


def _corrected_mean(held: Held) -> list[Corrected]:
    scores = held.rows["score"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    values = {row: float(held.words[row] or 0.0) for row in held.chances}
    rows = judged(held, scores, values)
    if not rows.labelled.any():
        return []
    found = prediction_powered(rows)
    return [Corrected(held.part.metric or "", None, POWERED, float(rows.said.mean()), found)]


def _corrected_share(held: Held, label: str) -> list[Corrected]:
    """The share of a label, where the judge gave none counted as another."""
    if held.rows.is_empty():
        return []
    said = (held.rows["said"] == label).fill_null(False).to_numpy().astype(np.float64)
    found: list[Corrected] = []
    if held.chances:
        values = {row: float(held.words[row] == label) for row in held.chances}
        rows = judged(held, said, values)
        found += [
            Corrected(label, None, POWERED, float(said.mean()), prediction_powered(rows)),
            Corrected(
                label, "sample", POWERED, _mean_of_samples(said, rows.sample),
                prediction_powered(rows, by_sample=True),
            ),
        ]  # fmt: skip
    random = [r for r in held.at_random if held.words[r] is not None and _said(held, r) is not None]
    if not random:
        return found
    yes = [_said(held, row) == label for row in random if held.words[row] == label]
    no = [_said(held, row) != label for row in random if held.words[row] != label]
    number = effective_number(said, held.samples)
    rate = float(said.mean())
    adjusted = rogan_gladen(rate, number, (sum(yes), len(yes)), (sum(no), len(no)))
    return [*found, Corrected(label, None, ADJUSTED, rate, adjusted)]


def _mean_of_samples(said: NDArray[np.float64], sample: NDArray[np.intp]) -> float:
    number = np.unique(sample, return_inverse=True)[1]
    return float((np.bincount(number, said) / np.bincount(number)).mean())
