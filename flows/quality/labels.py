"""Labels: what can be labelled, and what people said."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, get_args

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.claim_changes import Making, makings
from claimflow.flows.store.store import Store, insert, read_table
from claimflow.stages.rows import Label, content_key
from claimflow.stages.verify import premises_of

# What of a run can be labelled: its verdicts, claims or samples, and the texts of each.


Kind = Literal["verdicts", "claims", "samples"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

VALUES: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": get_args(Label),
    "claims": ("good", "bad"),
}
"""The labels of each kind; a sample gets a number from 0 to 1."""

TABLES: Final[Mapping[Kind, str]] = {
    "verdicts": "verdicts",
    "claims": "claims",
    "samples": "scores",
}
"""The kind of table that a step makes whose rows can be labelled."""

_NONE: Final = ", ".join(
    f"NULL::DOUBLE AS {name}" for name in ("p_entailed", "p_contradicted", "p_neutral")
)

# What a person corrected is not what the judge said.
_QUERIES: Final[Mapping[Kind, str]] = {
    "verdicts": """
        SELECT about.sample_id, claim_id::VARCHAR AS claim_id, about.claim, against, passage,
               NULL::VARCHAR AS metric,
               CASE WHEN starts_with(coalesce(reason, ''), 'edited by ') THEN NULL
                    ELSE verdict END AS said,
               NULL::DOUBLE AS score, p_entailed, p_contradicted, p_neutral, agreement
        FROM (SELECT * FROM verdicts WHERE run_id = $run AND step = $step)
        JOIN (SELECT claim_id, any_value(sample_id) AS sample_id, any_value(claim) AS claim
              FROM claims WHERE run_id = $run GROUP BY claim_id) about USING (claim_id)
        WHERE $metric::VARCHAR IS NULL ORDER BY ALL
    """,
    "claims": f"""
        SELECT sample_id, claim_id::VARCHAR AS claim_id, claim, "of" AS against,
               NULL::BIGINT AS passage, NULL::VARCHAR AS metric, NULL::VARCHAR AS said,
               NULL::DOUBLE AS score, {_NONE}, NULL::DOUBLE AS agreement
        FROM claims WHERE run_id = $run AND step = $step AND claim IS NOT NULL
                          AND $metric::VARCHAR IS NULL ORDER BY ALL
    """,
    "samples": f"""
        SELECT sample_id, NULL::VARCHAR AS claim_id, NULL::VARCHAR AS claim,
               NULL::VARCHAR AS against, NULL::BIGINT AS passage, metric,
               NULL::VARCHAR AS said, score, {_NONE}, NULL::DOUBLE AS agreement
        FROM scores WHERE run_id = $run AND step = $step AND metric = $metric ORDER BY ALL
    """,
}

_SAMPLES: Final = """
SELECT sample_id, user_input, response, reference, retrieved_contexts FROM samples
WHERE run_id = $run AND list_contains($ids, sample_id)
"""


class Part(NamedTuple):
    """What can be labelled of one step of a run: its rows of one kind, of samples one metric."""

    kind: Kind
    run_id: str
    step: str
    metric: str | None
    making: Making


def parts(connection: duckdb.DuckDBPyConnection, run_id: str, kind: Kind) -> list[Part]:
    """What of a run can be labelled, in the order of its steps."""
    found: list[Part] = []
    for step, making in makings(connection, run_id).items():
        if making.kind != TABLES[kind]:
            continue
        metrics: Sequence[str | None] = [None]
        if kind == "samples":
            rows = connection.execute(
                "SELECT DISTINCT metric FROM scores "
                "WHERE run_id = $run AND step = $step ORDER BY metric",
                {"run": run_id, "step": step},
            ).fetchall()
            metrics = [metric for (metric,) in rows]
        found += [Part(kind, run_id, step, metric, making) for metric in metrics]
    return found


def chosen_part(
    parts: Sequence[Part], run_id: str, kind: Kind, *, step: str | None, metric: str | None
) -> Part:
    """The one of `parts` that the options mean. Raises `InputError` where that is not one."""
    if not parts:
        what, hint = f"no step of run {run_id} makes {TABLES[kind]}", "choose a run that has some"
        raise InputError([Fault("--of", what, hint)])
    faults = []
    if metric is not None and kind != "samples":
        what = f"means samples, and these are {kind}"
        raise InputError([Fault("--metric", what, "leave it out, or write --of samples")])
    for option, asked, known in (
        ("step", step, [part.step for part in parts]),
        ("metric", metric, [part.metric or "" for part in parts]),
    ):
        if asked is not None and asked not in known:
            what = f"run {run_id} has no {option} {asked!r} of {TABLES[kind]}"
            faults.append(Fault(f"--{option}", what, one_of(asked, dict.fromkeys(known))))
    if faults:
        raise InputError(faults)
    left = [p for p in parts if step in (None, p.step) and metric in (None, p.metric)]
    if len(left) == 1:
        return left[0]
    option = "metric" if kind == "samples" and len({p.metric for p in left}) > 1 else "step"
    names = ", ".join(dict.fromkeys(str(getattr(part, option)) for part in left))
    if not left:
        what = f"step {step!r} of run {run_id} has no metric {metric!r}"
        known = [part.metric or "" for part in parts if part.step == step]
        raise InputError([Fault("--metric", what, one_of(metric or "", known))])
    what = f"run {run_id} has several"
    raise InputError([Fault(f"--{option}", what, f"choose one of {names}")])


def units(connection: duckdb.DuckDBPyConnection, part: Part) -> pl.DataFrame:
    """The rows of a part, in one order: what each is of, and what its judge said of it.

    Columns: sample_id, claim_id, claim, against, passage, metric; said (a label), score, the
    three probabilities and agreement, NULL where there is none.
    """
    values = {"run": part.run_id, "step": part.step, "metric": part.metric}
    return read_table(connection, _QUERIES[part.kind], **values)


def frame_key(connection: duckdb.DuckDBPyConnection, part: Part) -> str:
    """Key of all that can be drawn from: equal ones are the same claims, premises or samples."""
    making = part.making
    sources = {"own": making.artifact_id} if part.kind == "claims" else making.inputs
    named = {
        (name, step): artifact
        for name, wire in sources.items()
        for step, artifact in (wire.items() if isinstance(wire, dict) else [("", wire)])
        if part.kind != "samples" or name == "samples"
    }
    digests = dict(
        connection.execute(
            "SELECT artifact_id::VARCHAR, digest::VARCHAR FROM audit.artifacts "
            "WHERE list_contains($ids, artifact_id::VARCHAR)",
            {"ids": list(named.values())},
        ).fetchall()
    )
    contents = sorted([*place, digests.get(artifact, "")] for place, artifact in named.items())
    how = {name: making.settings.get(name) for name in ("against", "premises")}
    return content_key("frame", part.kind, contents, how, part.metric)


def with_texts(
    connection: duckdb.DuckDBPyConnection, part: Part, rows: pl.DataFrame
) -> list[dict[str, Any]]:
    """`rows` of a part with what an annotator reads, and `subject`, the key of that.

    Of verdicts `premise`, of claims `text`, of samples the four fields.
    """
    ids = rows["sample_id"].unique().to_list()
    samples = read_table(connection, _SAMPLES, run=part.run_id, ids=ids)
    fields = {row.pop("sample_id"): row for row in samples.iter_rows(named=True)}
    return [_read(part, row, fields[row["sample_id"]]) for row in rows.iter_rows(named=True)]


def _read(part: Part, row: dict[str, Any], sample: dict[str, Any]) -> dict[str, Any]:
    if part.kind == "samples":
        subject = content_key("labelled", part.kind, row["metric"], *sample.values())
        contexts = sample["retrieved_contexts"]
        shown = sample | {"retrieved_contexts": "\n\n".join(contexts) if contexts else None}
        return row | shown | {"subject": subject}
    field = sample[row["against"]]
    if part.kind == "claims":
        return row | {
            "text": field,
            "subject": content_key("labelled", part.kind, row["claim"], field),
        }
    how = part.making.settings.get("premises", "joined")
    premises = {premise.passage: premise.text for premise in premises_of(field, how)}
    premise = premises.get(row["passage"])
    return row | {
        "premise": premise,
        "subject": content_key("labelled", part.kind, row["claim"], premise),
    }


# Labels on record, and which of them count.


class Labelled(NamedTuple):
    """What one person said of one thing, as `audit.labels` has it."""

    import_id: str
    kind: Kind
    subject: str
    run_id: str
    step: str
    sample_id: str
    claim_id: str | None
    claim: str | None
    against: str | None
    passage: int | None
    metric: str | None
    label: str | None
    rating: float | None
    annotator: str
    file: str
    draw: str
    frame: str
    probability: float
    labelled_at: datetime

    @property
    def said(self) -> tuple[object, ...]:
        """Who said what of what: an equal one is on record already."""
        drawn = (self.frame, self.draw)
        return (self.kind, self.subject, self.annotator, self.label, self.rating, *drawn)


_TYPES: Final = {
    **dict.fromkeys(("claim_id", "claim", "against", "metric", "label"), pl.String),
    "passage": pl.Int64,
    "rating": pl.Float64,
}

# Of one person's labels of one thing the newest counts.
_IN_FORCE: Final = """
SELECT subject::VARCHAR AS subject, claim, metric, annotator, label, rating, draw
FROM audit.labels WHERE kind = $kind
QUALIFY row_number() OVER (
    PARTITION BY subject, annotator ORDER BY labelled_at DESC, labels.rowid DESC
) = 1
ORDER BY subject, annotator
"""

_DRAWS: Final = """
SELECT DISTINCT draw, subject::VARCHAR AS subject, sample_id, claim_id::VARCHAR AS claim_id,
       passage, probability
FROM audit.labels WHERE kind = $kind AND frame = $frame::UUID ORDER BY ALL
"""

_SAID: Final = """
SELECT kind, subject::VARCHAR, annotator, label, rating, frame::VARCHAR, draw FROM audit.labels
WHERE kind = $kind AND annotator = $who
QUALIFY row_number() OVER (
    PARTITION BY subject, frame, draw ORDER BY labelled_at DESC, labels.rowid DESC
) = 1
"""


def record(store: Store, labels: Sequence[Labelled]) -> list[Labelled]:
    """Put labels on record, all in one transaction; returns those that were not yet."""
    if not labels:
        return []
    with store.writing() as connection:
        values = {"kind": labels[0].kind, "who": labels[0].annotator}
        known = set(connection.execute(_SAID, values).fetchall())
        new = [one for one in labels if one.said not in known]
        if new:
            rows = [one._asdict() for one in new]
            frame = pl.DataFrame(rows, schema_overrides=_TYPES, infer_schema_length=None)
            insert(connection, "audit.labels", frame)
    return new


def in_force(connection: duckdb.DuckDBPyConnection, kind: Kind) -> pl.DataFrame:
    """The labels that count: subject, claim, metric, annotator, label, rating, draw."""
    return read_table(connection, _IN_FORCE, kind=kind)


def draws(connection: duckdb.DuckDBPyConnection, kind: Kind, frame: str) -> pl.DataFrame:
    """What was drawn from a frame and labelled: draw, subject, what it is of, probability."""
    return read_table(connection, _DRAWS, kind=kind, frame=frame)
