"""Blind label sheets: drawn, written and read back."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID, uuid4

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.correction_csv import (
    SheetRow,
    as_csv,
    as_saved,
    check_header,
    read_rows,
)
from claimflow.flows.quality.labels import (
    KINDS,
    TABLES,
    VALUES,
    Kind,
    Labelled,
    Part,
    frame_key,
    parts,
    units,
    with_texts,
)
from claimflow.flows.store.store import Store, now
from claimflow.stages.rows import content_key

# Which rows are labelled: drawn at random, or more often where a judge is unsure.


By = Literal["random", "uncertainty"]

EVEN: Final = 0.2
"""Share of a draw by uncertainty that is spread evenly, so that no row is out of reach."""

_WORDS: Final = re.compile(r"(random|uncertainty) (\d{1,9}) of (\d{1,9}), seed (\d{1,9})")


class Draw(NamedTuple):
    """A draw that can be repeated: `size` of `of` rows, in the order that `seed` gives them."""

    by: By
    size: int
    of: int
    seed: int

    def __str__(self) -> str:
        return f"{self.by} {self.size} of {self.of}, seed {self.seed}"


def read_draw(words: str) -> Draw | None:
    """The draw that `str` made the words of; None where it did not."""
    found = _WORDS.fullmatch(words.strip())
    if not found:
        return None
    by: By = "random" if found[1] == "random" else "uncertainty"
    return Draw(by, *map(int, found.groups()[1:]))


def unsure(rows: pl.DataFrame) -> NDArray[np.float64] | None:
    """How unsure the judge was of each row, from 0; None where nothing says so.

    1 less the largest of its three probabilities, or the share of votes that disagreed; 1
    where it gave no verdict.
    """
    likeliest = pl.max_horizontal("p_entailed", "p_contradicted", "p_neutral")
    doubt = rows.select(1 - pl.coalesce(likeliest, "agreement"))[:, 0]
    if doubt.null_count() == rows.height:
        return None
    return doubt.fill_null(1.0).to_numpy().astype(np.float64)


def drawn(rows: pl.DataFrame, draw: Draw) -> dict[int, float]:
    """The places of the rows that are drawn, in a random order, with the probability of each.

    By uncertainty it is a systematic sample from that order with probabilities proportional
    to size (Madow 1949), so that each row is drawn exactly as often as its probability says.
    """
    keys = [
        content_key("draw", draw.seed, *row)
        for row in rows.select("sample_id", "claim_id", "passage").iter_rows()
    ]
    order = sorted(range(rows.height), key=keys.__getitem__)
    size = min(draw.size, rows.height)
    doubts = unsure(rows) if draw.by == "uncertainty" else None
    if doubts is None:
        return dict.fromkeys(order[:size], size / rows.height) if size else {}
    chances = probabilities(doubts, size)[order]
    start = UUID(content_key("start", draw.seed)).int / 2**128
    ends = np.floor(np.cumsum(chances) + start + 1e-9)
    chosen = np.flatnonzero(np.diff(ends, prepend=0.0) > 0)
    return {order[place]: float(chances[place]) for place in chosen}


def probabilities(doubts: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The probability to draw each row, `size` in sum: even in part, the rest by its doubt."""
    n = len(doubts)
    total = doubts.sum()
    shares = EVEN / n + (1 - EVEN) * (doubts / total if total > 0 else np.full(n, 1 / n))
    sure = np.zeros(n, dtype=bool)
    while True:
        left = size - int(sure.sum())
        chances = np.where(sure, 1.0, left * shares / max(shares[~sure].sum(), 1e-300))
        over = ~sure & (chances >= 1)
        if not over.any():
            return chances
        sure |= over


def places(rows: Sequence[dict[str, object]]) -> list[tuple[object, object, object]]:
    """What tells the rows of one part from each other."""
    return [(row["sample_id"], row["claim_id"], row["passage"]) for row in rows]


# A blind sheet: what an annotator reads and where the label goes, no word of the judge's.


READ: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": ("premise", "claim"),
    "claims": ("text", "claim"),
    "samples": ("user_input", "response", "reference", "retrieved_contexts"),
}
"""The texts that an annotator reads, by column."""

_PLACE: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": ("sample_id", "claim_id", "against", "passage"),
    "claims": ("sample_id", "claim_id"),
    "samples": ("sample_id", "metric"),
}

COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {
    kind: ("run", "step", "draw", *_PLACE[kind], *READ[kind], "label") for kind in KINDS
}


class Blind(NamedTuple):
    """A sheet of labels as it was read."""

    path: Path
    kind: Kind
    rows: list[SheetRow]

    def fault(self, row: SheetRow, what: str, hint: str) -> Fault:
        """What is wrong with a row."""
        return Fault(f"{self.path}:{row.line}", what, hint)


def blind_sheet(store: Store, part: Part, *, size: int, by: By, seed: int) -> pl.DataFrame:
    """The rows to be labelled of a part, in a random order, with an empty column `label`.

    Raises `InputError` where there is nothing to draw from, or nothing says how sure the judge
    was.
    """
    with store.reading() as connection:
        rows = units(connection, part)
        if rows.is_empty():
            what = f"step {part.step} of run {part.run_id} has no {part.kind}"
            raise InputError([Fault("--of", what, "choose another step or run")])
        if by == "uncertainty" and unsure(rows) is None:
            what = f"nothing says how sure step {part.step} was: no probabilities, no votes"
            raise InputError([Fault("--by uncertainty", what, "draw them by random")])
        draw = Draw(by, min(size, rows.height), rows.height, seed)
        chosen = with_texts(connection, part, rows[list(drawn(rows, draw))])
    known = {"run": part.run_id, "step": part.step, "draw": str(draw), "label": None}
    return pl.DataFrame(
        [{name: (known | row)[name] for name in COLUMNS[part.kind]} for row in chosen],
        infer_schema_length=None,
    )


def written(sheet: pl.DataFrame) -> bytes:
    """The sheet as CSV for spreadsheets."""
    return as_csv(sheet)


def read_blind(path: Path) -> Blind:
    """The sheet in a file, its kind known by its header. Raises `InputError` for any other."""
    header, rows = read_rows(path)
    kind: Kind = "verdicts" if "premise" in header else "claims" if "claim" in header else "samples"
    needed = [name for name in COLUMNS[kind] if name not in ("against", "user_input")]
    check_header(path, header, needed=needed, exported=COLUMNS[kind])
    return Blind(path, kind, rows)


# A labelled sheet taken in: checked whole against the run and the draw that it came from.


Source = tuple[str, str, str]
"""The step, the metric ("" for none) and the draw that a row of a sheet says it is of."""


Common = tuple[str, str, datetime]
"""What all labels of one import share: its id, who labelled, when."""


class Drawn(NamedTuple):
    """What a draw gave: each row by its place as a sheet has it, and its probability."""

    part: Part
    draw: Draw
    frame: str
    rows: Mapping[tuple[str, str, str], tuple[dict[str, Any], float]]


def taken_in(sheet: Blind, store: Store, run_id: str, *, who: str) -> list[Labelled]:
    """The labels of a sheet of that run; rows without one are left out.

    Nothing is written. Raises `InputError` with everything that is wrong with the sheet.
    """
    sources: dict[Source, list[SheetRow]] = defaultdict(list)
    for row in sheet.rows:
        metric = row.cell("metric").strip() if sheet.kind == "samples" else ""
        sources[row.cell("step").strip(), metric, row.cell("draw").strip()].append(row)
    faults: list[Fault] = []
    labels: list[Labelled] = []
    common = (str(uuid4()), who, now())
    for source, rows in sources.items():
        found = _drawn_again(sheet, store, run_id, source)
        if isinstance(found, Drawn):
            labels += _labels(sheet, rows, found, common, faults)
        else:
            faults += [sheet.fault(row, *found) for row in rows]
    if faults:
        raise InputError(sorted(faults, key=lambda fault: int(fault.place.rpartition(":")[2])))
    return labels


def _labels(
    sheet: Blind, rows: Sequence[SheetRow], source: Drawn, common: Common, faults: list[Fault]
) -> Iterator[Labelled]:
    """The labels of the rows of one draw; what is wrong goes to `faults`."""
    lines: dict[tuple[str, str, str], int] = {}
    said: dict[str, SheetRow] = {}
    for row in rows:
        place = _place(row)
        stood = source.rows.get(place)
        fault = _fault(sheet, row, stood, lines.get(place))
        lines.setdefault(place, row.line)
        if fault is None and stood is not None and row.cell("label").strip():
            first = said.setdefault(stood[0]["subject"], row)
            fault = _divided(row, first)
            yield _labelled(sheet, row, source, common)
        if fault:
            faults.append(sheet.fault(row, *fault))


def _drawn_again(
    sheet: Blind, store: Store, run_id: str, source: Source
) -> Drawn | tuple[str, str]:
    """What the draw gave that a sheet says it is of; (what is wrong, what would be right)."""
    step, metric, words = source
    with store.reading() as connection:
        known = parts(connection, run_id, sheet.kind)
        same = [part for part in known if (part.step, part.metric or "") == (step, metric)]
        if not same:
            names = list(dict.fromkeys(part.step for part in known))
            if step in names:
                what = f"step {step!r} of run {run_id} has no metric {metric!r}"
                return what, "keep it as it was exported"
            what = f"no step {step!r} of run {run_id} makes {TABLES[sheet.kind]}"
            return what, one_of(step, names)
        rows = units(connection, same[0])
        draw = read_draw(words)
        if draw is None or draw.of != rows.height:
            return f"{words!r} is no draw from run {run_id}", "keep draw as it was exported"
        chosen = drawn(rows, draw)
        texts = with_texts(connection, same[0], rows[list(chosen)])
        frame = frame_key(connection, same[0])
    found = {
        _words(place): (row, chance)
        for place, row, chance in zip(places(texts), texts, chosen.values(), strict=True)
    }
    return Drawn(same[0], draw, frame, found)


def _words(place: tuple[object, object, object]) -> tuple[str, str, str]:
    """A place as a sheet has it."""
    sample_id, claim_id, passage = ("" if part is None else str(part) for part in place)
    return sample_id, claim_id, passage


def _fault(
    sheet: Blind, row: SheetRow, found: tuple[dict[str, Any], float] | None, line: int | None
) -> tuple[str, str] | None:
    """(what is wrong with a row, what would be right)."""
    if found is None:
        return "was not drawn", "keep the columns before the texts as they were exported"
    if line is not None:
        return f"the same stands already on line {line}", "delete one of them"
    stood, _ = found
    for name in READ[sheet.kind]:
        if name != "user_input" and as_saved(row.cell(name)) != as_saved(stood[name] or ""):
            return f"its {name} is another one", "label what was exported"
    return _value_fault(row.cell("label").strip(), VALUES.get(sheet.kind))


def _value_fault(label: str, known: Sequence[str] | None) -> tuple[str, str] | None:
    if not label or (known and label in known):
        return None
    if known:
        return f"{label!r} is no label", one_of(label, known)
    hint = "write a number from 0 to 1, as 0.5"
    try:
        inside = 0 <= float(label) <= 1
    except ValueError:
        return f"{label!r} is no number", hint
    return None if inside else (f"{label} is not from 0 to 1", hint)


def _divided(row: SheetRow, first: SheetRow) -> tuple[str, str] | None:
    before = first.cell("label").strip()
    if before == row.cell("label").strip():
        return None
    what = f"the same texts are labelled {before!r} on line {first.line}"
    return what, "give both one label"


def _place(row: SheetRow) -> tuple[str, str, str]:
    return row.cell("sample_id"), row.cell("claim_id").strip(), row.cell("passage").strip()


def _labelled(sheet: Blind, row: SheetRow, source: Drawn, common: Common) -> Labelled:
    import_id, who, at = common
    stood, probability = source.rows[_place(row)]
    said = row.cell("label").strip()
    named = sheet.kind != "samples"
    return Labelled(
        import_id=import_id,
        kind=sheet.kind,
        subject=stood["subject"],
        run_id=source.part.run_id,
        step=source.part.step,
        **{name: stood[name] for name in ("sample_id", "claim_id", "claim", "against", "passage")},
        metric=source.part.metric,
        label=said if named else None,
        rating=None if named else float(said),
        annotator=who,
        file=sheet.path.name,
        draw=str(source.draw),
        frame=source.frame,
        probability=probability,
        labelled_at=at,
    )
