"""Labels given in the viewer: what can be labelled, the sheet, its labels, what they say."""

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlencode

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, StoreError, one_of
from claimflow.flows.quality.label_sampling import DrawMethod, parse_draw
from claimflow.flows.quality.label_sheets import (
    TEXT_COLUMNS,
    UNSURE,
    DrawnRows,
    draw_from_target,
    label_problem,
    new_import,
    row_key,
)
from claimflow.flows.quality.labels import (
    GIVEN,
    KINDS,
    Kind,
    LabelTarget,
    current_labels,
    label_targets,
    record,
)
from claimflow.flows.quality.step_calibration import (
    PREDICTION_POWERED,
    CorrectedRate,
    PairedLabels,
    corrected_rates,
    paired_target,
)
from claimflow.flows.report.label_form import label_page
from claimflow.flows.report.templates import address
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import all_runs, chosen_run
from claimflow.flows.store.runs import account
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.responses import (
    REPORT_POLICY,
    Request,
    Response,
    error_response,
    json_response,
    page,
    run_link,
)

STORE_SECONDS: Final = 3.0
"""How long a request waits for another process that has the store."""

LABEL_PATHS: Final = tuple(
    f"/label{path}" for path in ("", "/sheet", "/judge", "/results", "/save")
)

_MOST: Final = 1_000
"""Rows of a sheet in a page."""

_MOST_TEXT: Final = 10_000
"""Characters of a comment."""

_RUNS: Final = 50
"""Runs to choose from, the newest."""

_LISTED: Final = 200
"""Texts on which people differ that a page lists."""


class _Sheet(NamedTuple):
    """What the address of a sheet says: which rows are drawn, and who labels them."""

    run_id: str
    kind: Kind
    step: str
    metric: str
    size: int
    by: DrawMethod
    seed: int
    who: str

    @property
    def parameters(self) -> dict[str, str | int]:
        """The parameters of the address."""
        names = {"run": self.run_id, "of": self.kind, "step": self.step, "metric": self.metric}
        drawn = {"sample": self.size, "by": self.by, "seed": self.seed, "who": self.who}
        return {name: value for name, value in (names | drawn).items() if value != ""}

    @property
    def address(self) -> str:
        """The parameters as they are in the address."""
        return urlencode(self.parameters)


@lru_cache(maxsize=8)
def live_store(store: Store) -> Store:
    """The store itself, for what is written: all requests share it, and wait for each other."""
    return store if store.read_path == store.path else Store(store.path, wait=STORE_SECONDS)


def handle_label_request(store: Store, request: Request, token: str) -> Response:
    """The pages and requests of `/label`; the labels are written to the store itself.

    Raises `InputError` and `StoreError`, which become pages.
    """
    live = live_store(store)
    what = (request.method, request.path.removeprefix("/label"))
    if what == ("GET", ""):
        return _choice(live, request.query)
    if what == ("GET", "/sheet"):
        return _sheet_page(live, request.query, token)
    if what == ("GET", "/judge"):
        return json_response(_judge_lines(live, request.query))
    if what == ("GET", "/results"):
        return _results(live, request.query)
    if what == ("POST", "/save"):
        try:
            return _save(live, request.query, request.form)
        except InputError as error:
            return _refused(HTTPStatus.BAD_REQUEST, "; ".join(map(str, error.faults)))
        except StoreError as error:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return error_response(HTTPStatus.NOT_FOUND, "there is no such page")


def _refused(status: HTTPStatus, message: str) -> Response:
    return json_response({"message": message})._replace(status=status)


# What can be labelled, and how far it is.


def _choice(store: Store, query: Mapping[str, str]) -> Response:
    run_id = chosen_run(store, query.get("run"))
    with store.reading() as connection:
        targets = [one for kind in KINDS for one in label_targets(connection, run_id, kind)]
        progress = read_table(connection, _PROGRESS, run=run_id)
    runs = all_runs(store).head(_RUNS).select("run_id", "pipeline").rows()
    named = {(one.kind, one.step, one.metric or "") for one in targets}
    body = page(
        "label",
        run_id=run_id,
        runs=runs,
        what=[
            (
                json.dumps([one.kind, one.step, one.metric or ""]),
                _target_text(one.kind, one.step, one.metric),
            )
            for one in targets
        ],
        chosen=json.dumps([query.get(name, "") for name in ("of", "step", "metric")]),
        who=query.get("who") or account() or "",
        size=query.get("sample", "50"),
        by=query.get("by", "random"),
        seed=query.get("seed", "0"),
        most=_MOST,
        sheets=[
            _started(run_id, row)
            for row in progress.iter_rows(named=True)
            if (row["kind"], row["step"], row["metric"] or "") in named
        ],
    )
    return Response(HTTPStatus.OK, body)


def _target_text(kind: str, step: str, metric: str | None) -> str:
    return f"{kind} of {step}" + (f": {metric}" if metric else "")


def _started(run_id: str, row: dict[str, Any]) -> dict[str, Any]:
    """A draw with labels of one annotator, and the address of its sheet."""
    draw = parse_draw(row["draw"])
    address = None
    if draw is not None and draw.size <= _MOST:
        of = (run_id, row["kind"], row["step"], row["metric"] or "")
        address = _Sheet(*of, draw.size, draw.by, draw.seed, row["annotator"]).address
    return row | {
        "address": address,
        "what": _target_text(row["kind"], row["step"], row["metric"]),
    }


_PROGRESS: Final = """
WITH newest AS (
  FROM audit.labels WHERE run_id = $run AND adjudicates IS NOT true
  QUALIFY row_number() OVER (
      PARTITION BY kind, subject, metric, annotator, draw
      ORDER BY labelled_at DESC, labels.rowid DESC
  ) = 1
)
SELECT kind, step, metric, draw, annotator, max(labelled_at) AS labelled_at,
       count(*) FILTER (label IS NOT NULL OR rating IS NOT NULL) AS labelled,
       count(*) FILTER (unsure) AS unsure
FROM newest GROUP BY ALL ORDER BY labelled_at DESC, annotator, kind, step
"""


# A sheet.


def _sheet_page(store: Store, query: Mapping[str, str], token: str) -> Response:
    sheet = _sheet_of(store, query)
    drawn = _drawn(store, sheet)
    adjudicates = bool(query.get("adjudicate"))
    with store.reading() as connection:
        labels = _labels_of(connection, drawn)
    by_row = _first_rows(drawn)
    said: dict[int, list[str]] = {}
    rows = list(by_row.values())
    if adjudicates:
        said = {by_row[one.subject]: one.lines for one in _differing(labels, list(by_row))}
        rows = list(said)
        if not rows:
            return error_response(HTTPStatus.NOT_FOUND, "no two people differ on these rows")
    own = labels.filter(
        pl.col("adjudicates") if adjudicates else pl.col("annotator") == sheet.who,
        pl.col("adjudicates") == adjudicates,
    )
    server = {
        "who": sheet.who,
        "address": sheet.address,
        "token": token,
        "adjudicates": adjudicates,
        "rows": rows,
        "said": said,
        "given": [
            (by_row[one["subject"]], {"label": _text_of(one), "comment": one["comment"] or ""})
            for one in own.iter_rows(named=True)
        ],
    }
    return Response(HTTPStatus.OK, label_page(drawn, server), REPORT_POLICY)


def _sheet_of(store: Store, query: Mapping[str, str]) -> _Sheet:
    """The sheet that an address names. Raises `InputError` with all that is wrong with it."""
    faults: list[Fault] = []
    # The form has one field for kind, step and metric.
    what = query.get("what", "")
    if what:
        try:
            kind, step, metric = map(str, json.loads(what))
        except (ValueError, TypeError, RecursionError):
            raise InputError([Fault("what", "is not what the form offers", "choose one")]) from None
    else:
        kind, step, metric = (query.get(name, "") for name in ("of", "step", "metric"))
    if kind not in KINDS:
        faults.append(Fault("of", f"{kind!r} cannot be labelled", one_of(kind, KINDS)))
    size = _whole_number("sample", query.get("sample", "50"), 1, _MOST, faults)
    seed = _whole_number("seed", query.get("seed", "0"), 0, 999_999_999, faults)
    by = query.get("by", "random")
    if by not in ("random", "uncertainty"):
        faults.append(Fault("by", f"{by!r} is no way to draw", "write random or uncertainty"))
    who = query.get("who", "").strip()
    try:
        check_name(who)
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError(faults)
    run_id = chosen_run(store, query.get("run"))
    drawn = (size, cast("DrawMethod", by), seed)
    return _Sheet(run_id, cast("Kind", kind), step, metric, *drawn, who)


def check_name(who: str) -> None:
    """Raise `InputError` for a text that is no name of a person."""
    if not who or len(who) > 100 or not who.isprintable():
        what = "is not a name"
        raise InputError([Fault("who", what, "write your name, in at most 100 characters")])


def _whole_number(name: str, text: str, lowest: int, highest: int, faults: list[Fault]) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and lowest <= int(text) <= highest:
        return int(text)
    hint = f"write a whole number from {lowest:,} to {highest:,}"
    faults.append(Fault(name, f"{text!r} is no such number", hint))
    return lowest


def _drawn(store: Store, sheet: _Sheet) -> DrawnRows:
    return _remembered_draw(store, *sheet[:-1])


@lru_cache(maxsize=8)
def _remembered_draw(
    store: Store,
    run_id: str,
    kind: Kind,
    step: str,
    metric: str,
    size: int,
    by: DrawMethod,
    seed: int,
) -> DrawnRows:
    """The rows of a draw: each label needs them, and the rows of a run do not change."""
    with store.reading() as connection:
        targets = label_targets(connection, run_id, kind)
    for target in targets:
        if (target.step, target.metric or "") == (step, metric):
            return draw_from_target(store, target, size=size, by=by, seed=seed)
    and_metric = f" and metric {metric!r}" if metric else ""
    what = f"run {run_id} has no {kind} of step {step!r}{and_metric}"
    known = [f"{one.step} {one.metric or ''}".strip() for one in targets]
    raise InputError([Fault("step", what, one_of(step, known))])


def _first_rows(drawn: DrawnRows) -> dict[str, int]:
    """The number of the first row with each text, by the key of the texts."""
    found: dict[str, int] = {}
    for number, (row, _) in enumerate(drawn.rows):
        found.setdefault(row["subject"], number)
    return found


def _labels_of(connection: duckdb.DuckDBPyConnection, drawn: DrawnRows) -> pl.DataFrame:
    """The newest labels on the texts of a draw, also of those who were unsure."""
    labels = current_labels(connection, drawn.target.kind, undecided=True)
    return labels.filter(
        pl.col("subject").is_in([row["subject"] for row, _ in drawn.rows]),
        pl.col("metric").eq_missing(pl.lit(drawn.target.metric, pl.String)),
    )


def _text_of(label: Mapping[str, Any]) -> str:
    """A label as the page has it."""
    if label["unsure"]:
        return UNSURE
    return f"{label['rating']:g}" if label["rating"] is not None else label["label"] or ""


def _save(store: Store, query: Mapping[str, str], form: Mapping[str, str]) -> Response:
    """Record one label of a sheet, for each of its rows with the same texts."""
    sheet = _sheet_of(store, query)
    drawn = _drawn(store, sheet)
    label, comment = form.get("label", ""), form.get("comment", "").strip()
    faults: list[Fault] = []
    number = _whole_number("row", form.get("row", ""), 0, len(drawn.rows) - 1, faults)
    wrong = label_problem(label, drawn.target.values)
    if wrong:
        faults.append(Fault("label", *wrong))
    if len(comment) > _MOST_TEXT:
        faults.append(Fault("comment", "is too long", f"write at most {_MOST_TEXT:,} characters"))
    if faults:
        raise InputError(faults)
    subject = drawn.rows[number][0]["subject"]
    keys = {row_key(row) for row, _ in drawn.rows if row["subject"] == subject}
    shared = {
        **new_import(sheet.who, "claimflow view"),
        "comment": comment or None,
        "seen": bool(form.get("seen")),
        "adjudicates": bool(form.get("adjudicate")),
    }
    return json_response({"stored": len(record(store, drawn.labels(keys, label, shared)))})


def _judge_lines(store: Store, query: Mapping[str, str]) -> list[tuple[str, str]]:
    """What the judge says of a row: names and texts."""
    drawn = _drawn(store, _sheet_of(store, query))
    faults: list[Fault] = []
    number = _whole_number("row", query.get("row", ""), 0, len(drawn.rows) - 1, faults)
    if faults:
        raise InputError(faults)
    row, target = drawn.rows[number][0], drawn.target
    if target.kind == "claims":
        return [("The judge", "says nothing about claims")]
    values = {name: row[name] for name in _JUDGED_BY[target.kind]}
    with store.reading() as connection:
        of = {"run": target.run_id, "step": target.step, **values}
        (found,) = read_table(connection, _JUDGED[target.kind], **of).to_dicts()
    return [(name, str(value)) for name, value in found.items() if value is not None]


_JUDGED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "verdicts": ("claim_id", "passage"),
    "checks": ("sample_id", "claim_id", "against"),
    "samples": ("sample_id", "metric"),
}

_JUDGED: Final[Mapping[str, str]] = {
    "verdicts": """
        SELECT coalesce(verdict, status) AS verdict, reason, evidence FROM verdicts
        WHERE run_id = $run AND step = $step AND claim_id::VARCHAR = $claim_id
              AND passage IS NOT DISTINCT FROM $passage::BIGINT LIMIT 1
    """,
    "checks": """
        SELECT coalesce(verdict, status) AS verdict, reason FROM rubric_verdicts
        WHERE run_id = $run AND step = $step AND sample_id = $sample_id AND check_name = $against
              AND claim_id::VARCHAR IS NOT DISTINCT FROM $claim_id::VARCHAR LIMIT 1
    """,
    "samples": """
        SELECT coalesce(round(score, 4)::VARCHAR, status) AS score, reason FROM scores
        WHERE run_id = $run AND step = $step AND sample_id = $sample_id AND metric = $metric LIMIT 1
    """,
}


# What the labels say.


class _Differing(NamedTuple):
    """A text with several labels, or without one because an annotator was unsure."""

    subject: str
    lines: list[str]
    decided: str | None
    decided_by: str | None


def _differing(labels: pl.DataFrame, subjects: Collection[str]) -> list[_Differing]:
    found = []
    by_subject = labels.partition_by("subject", as_dict=True)
    for subject in subjects:
        of = by_subject.get((subject,), labels.clear())
        given = [one for one in of.iter_rows(named=True) if not one["adjudicates"]]
        answers = {_text_of(one) for one in given} - {""}
        if len(answers) > 1 or UNSURE in answers:
            decided = of.filter("adjudicates").to_dicts()
            lines = [
                f"{one['annotator']}: {_text_of(one) or 'no label'}"
                + (f" ({one['comment']})" if one["comment"] else "")
                for one in given
            ]
            answer, who = (_text_of(decided[0]), decided[0]["annotator"]) if decided else ("", "")
            found.append(_Differing(subject, lines, answer or None, who or None))
    return found


def _results(store: Store, query: Mapping[str, str]) -> Response:
    """How far people agree, and what they would say of all rows."""
    sheet = _sheet_of(store, query)
    drawn = _drawn(store, sheet)
    by_row = _first_rows(drawn)
    with store.reading() as connection:
        labels = _labels_of(connection, drawn)
        paired = paired_target(connection, drawn.target)
    differing = _differing(labels, list(by_row))
    texts = {subject: drawn.rows[number][0] for subject, number in by_row.items()}
    people = labels.filter(~pl.col("adjudicates"))
    body = page(
        "label_results",
        what=_target_text(sheet.kind, sheet.step, sheet.metric),
        run_id=sheet.run_id,
        draw=str(drawn.draw),
        texts=len(by_row),
        people=[
            {
                "who": who,
                "labelled": rows.filter(GIVEN).height,
                "unsure": rows["unsure"].sum(),
                "seen": rows.filter(GIVEN, pl.col("seen")).height,
                "address": sheet._replace(who=who).address,
            }
            for (who,), rows in sorted(people.partition_by("annotator", as_dict=True).items())
        ],
        pairs=list(_agreeing_pairs(people)),
        sentences=[_sentence(one) for one in _of_all(paired)] if paired else [],
        draws=paired.drawing if paired else None,
        judged=_judge_agreement(paired) if paired else None,
        differing=[
            _named_row(texts[one.subject], drawn.target) | one._asdict()
            for one in differing[:_LISTED]
        ],
        misjudged=_misjudged(paired, texts) if paired else [],
        more=max(len(differing) - _LISTED, 0),
        open=sum(one.decided is None for one in differing),
        address=sheet.address,
        fields=[*sheet._replace(who="").parameters.items()],
    )
    return Response(HTTPStatus.OK, body)


def _of_all(pairs: PairedLabels) -> list[CorrectedRate]:
    """The figures that people would give of all rows."""
    return [
        one
        for one in corrected_rates(pairs)
        if one.method == PREDICTION_POWERED and one.by is None and one.corrected.value is not None
    ]


def _sentence(rate: CorrectedRate) -> str:
    """What people would say of all rows, beside what the judge says."""
    value, low, high = rate.corrected
    people, judge = f"{rate.what}: people would say {_figure(value)}", _figure(rate.judged)
    if low is None or high is None:
        return f"{people}; the judge says {judge}"
    people += f", between {_figure(low)} and {_figure(high)}"
    if low <= rate.judged <= high:
        return f"{people}; the judge's {judge} is within that"
    return f"{people}, not {judge} as the judge does"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _judge_agreement(pairs: PairedLabels) -> tuple[int, int] | None:
    """On how many of how many rows the judge says what people say; None for ratings."""
    if pairs.target.kind in ("samples", "claims"):
        return None
    both = [(pairs.consensus[row], pairs.judge_result(row)) for row in pairs.usable]
    known = [one for one in both if None not in one]
    return sum(truth == judged for truth, judged in known), len(known)


def _agreeing_pairs(people: pl.DataFrame) -> list[dict[str, Any]]:
    """For each two people, on how many of the texts that both labelled they agree."""
    given = people.filter(GIVEN).select("subject", "annotator", "label", "rating")
    both = given.join(given, on="subject", suffix="_b").filter(
        pl.col("annotator") < pl.col("annotator_b")
    )
    same = pl.all_horizontal(
        pl.col(name).eq_missing(pl.col(f"{name}_b")) for name in ("label", "rating")
    )
    return (
        both.group_by("annotator", "annotator_b")
        .agg(same=same.sum(), of=pl.len())
        .sort("annotator", "annotator_b")
        .to_dicts()
    )


def _misjudged(pairs: PairedLabels, texts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The labelled texts of a sheet of which the judge says what people do not."""
    found = []
    for row in pairs.usable:
        subject = pairs.subjects[row]
        people, judge = pairs.consensus[row], pairs.judge_result(row)
        if subject in texts and judge is not None and pairs.target.values and people != judge:
            named = _named_row(texts[subject], pairs.target)
            found.append({**named, "people": people, "judge": judge})
    return found[:_LISTED]


def _named_row(row: Mapping[str, Any], target: LabelTarget) -> dict[str, str]:
    """A drawn row as a link to its sample: its claim, else the last text that was read."""
    texts = (row[name] for name in ("claim", *reversed(TEXT_COLUMNS[target.kind])))
    sample = address({"sample": row["sample_id"]})
    return {
        "text": next(str(text) for text in texts if text),
        "link": f"{run_link(target.run_id)}{sample}",
    }
