"""Labels by people: what of a run can be labelled, and the labels recorded in the store."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.claim_changes import Provenance, step_provenance
from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.segments import rows_of
from claimflow.flows.store.store import Store
from claimflow.stages.claim_rules.contexts import (
    ContextSetting,
    completed_texts,
    contexts_of,
    conversation_text,
)
from claimflow.stages.rows import Citation, Label, Side, content_key
from claimflow.stages.rubric import check_labels
from claimflow.stages.sample_texts import premises_of

Kind = Literal["verdicts", "checks", "claims", "samples"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

TABLES: Final[Mapping[Kind, str]] = {
    "verdicts": "verdicts",
    "checks": "rubric_verdicts",
    "claims": "claims",
    "samples": "scores",
}
"""The kind of table whose rows are labelled."""


class LabelTarget(NamedTuple):
    """The rows of one step of a run that can be labelled; of samples, those of one metric."""

    kind: Kind
    run_id: str
    step: str
    metric: str | None
    provenance: Provenance

    @property
    def values(self) -> tuple[str, ...] | None:
        """The labels, of a check the lowest first; None where a number from 0 to 1 is given."""
        match self.kind:
            case "verdicts":
                return get_args(Label)
            case "checks":
                return check_labels(self.scale)
            case "claims":
                return ("good", "bad")
        return None

    @property
    def scale(self) -> dict[int, str] | None:
        """What the grades of a rubric stand for; None where its checks pass or fail."""
        scale = self.provenance.settings.get("scale")
        return {int(grade): text for grade, text in scale.items()} if scale else None


class LabelRecord(NamedTuple):
    """The label that one annotator gave to one row, as `audit.labels` has it.

    `subject` is the key of the texts that the annotator read, `frame` that of all that the row was
    drawn from, `probability` its inclusion probability in that `draw`. Of a check `against` is the
    name, and `passage` its number among the sample's checks in the order of their names.

    Without `label` and `rating` the annotator is `unsure`, or takes an earlier label back. `seen`
    says that the annotator had seen what the judge says, `adjudicates` that the label decides
    where several annotators disagree.
    """

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
    unsure: bool = False
    comment: str | None = None
    seen: bool = False
    adjudicates: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        """What an equal label that is recorded already has in common with this one."""
        drawn = (self.frame, self.draw, self.sample_id, self.claim_id, self.passage)
        said = (self.label, self.rating, self.unsure, self.comment, self.seen, self.adjudicates)
        return (self.kind, self.subject, self.annotator, *said, *drawn)


def label_targets(
    connection: duckdb.DuckDBPyConnection, run_id: str, kind: Kind
) -> list[LabelTarget]:
    """What of a run can be labelled, in the order of its steps."""
    found: list[LabelTarget] = []
    for step, provenance in step_provenance(connection, run_id).items():
        if provenance.kind != TABLES[kind]:
            continue
        metrics: Sequence[str | None] = [None]
        if kind == "samples":
            rows = connection.execute(
                "SELECT DISTINCT metric FROM scores "
                "WHERE run_id = $run AND step = $step ORDER BY metric",
                {"run": run_id, "step": step},
            ).fetchall()
            metrics = [metric for (metric,) in rows]
        found += [LabelTarget(kind, run_id, step, metric, provenance) for metric in metrics]
    return found


def choose_target(
    targets: Sequence[LabelTarget], run_id: str, kind: Kind, *, step: str | None, metric: str | None
) -> LabelTarget:
    """The one of `targets` that the options name. Raises `InputError` where that is not one."""
    if not targets:
        what, hint = f"no step of run {run_id} makes {TABLES[kind]}", "choose a run that has some"
        raise InputError([Fault("--of", what, hint)])
    if metric is not None and kind != "samples":
        what = f"applies to samples, and these are {kind}"
        raise InputError([Fault("--metric", what, "leave it out, or write --of samples")])
    faults = []
    for option, given, known in (
        ("step", step, [target.step for target in targets]),
        ("metric", metric, [target.metric or "" for target in targets]),
    ):
        if given is not None and given not in known:
            what = f"run {run_id} has no {option} {given!r} of {TABLES[kind]}"
            faults.append(Fault(f"--{option}", what, one_of(given, dict.fromkeys(known))))
    if faults:
        raise InputError(faults)
    left = [t for t in targets if step in (None, t.step) and metric in (None, t.metric)]
    if len(left) == 1:
        return left[0]
    if not left:
        what = f"step {step!r} of run {run_id} has no metric {metric!r}"
        known = [target.metric or "" for target in targets if target.step == step]
        raise InputError([Fault("--metric", what, one_of(metric or "", known))])
    option = "metric" if kind == "samples" and len({t.metric for t in left}) > 1 else "step"
    names = ", ".join(dict.fromkeys(str(getattr(target, option)) for target in left))
    what = f"run {run_id} has several"
    raise InputError([Fault(f"--{option}", what, f"choose one of {names}")])


_NO_PROBABILITIES: Final = ", ".join(
    f"NULL::DOUBLE AS {name}" for name in ("p_entailed", "p_contradicted", "p_neutral")
)

# A verdict that a person corrected is not the judge's.
_ROWS: Final[Mapping[Kind, str]] = {
    "verdicts": """
        SELECT about.sample_id, claim_id::VARCHAR AS claim_id, about.claim, against, passage,
               NULL::VARCHAR AS metric,
               CASE WHEN starts_with(coalesce(reason, ''), 'edited by ') THEN NULL
                    ELSE verdict END AS verdict,
               NULL::DOUBLE AS score, p_entailed, p_contradicted, p_neutral, agreement
        FROM (SELECT * FROM verdicts WHERE run_id = $run AND step = $step)
        JOIN (SELECT claim_id, any_value(sample_id) AS sample_id, any_value(claim) AS claim
              FROM claims WHERE run_id = $run GROUP BY claim_id) about USING (claim_id)
        WHERE $metric::VARCHAR IS NULL ORDER BY ALL
    """,
    "checks": f"""
        SELECT sample_id, claim_id::VARCHAR AS claim_id, about.claim, check_name AS against,
               row_number() OVER (PARTITION BY sample_id, claim_id ORDER BY check_name) - 1
                   AS passage,
               NULL::VARCHAR AS metric,
               CASE WHEN edited THEN NULL ELSE verdict END AS verdict,
               CASE WHEN edited THEN NULL ELSE score END AS score,
               {_NO_PROBABILITIES}, agreement, criterion
        FROM (SELECT *, starts_with(coalesce(reason, ''), 'edited by ') AS edited
              FROM rubric_verdicts WHERE run_id = $run AND step = $step)
        LEFT JOIN (SELECT claim_id, any_value(claim) AS claim
                   FROM claims WHERE run_id = $run GROUP BY claim_id) about USING (claim_id)
        WHERE criterion IS NOT NULL AND $metric::VARCHAR IS NULL ORDER BY ALL
    """,
    "claims": f"""
        SELECT sample_id, claim_id::VARCHAR AS claim_id, claim, "of" AS against,
               NULL::BIGINT AS passage, NULL::VARCHAR AS metric, NULL::VARCHAR AS verdict,
               NULL::DOUBLE AS score, {_NO_PROBABILITIES}, NULL::DOUBLE AS agreement
        FROM claims WHERE run_id = $run AND step = $step AND claim IS NOT NULL
                          AND $metric::VARCHAR IS NULL ORDER BY ALL
    """,
    "samples": f"""
        SELECT sample_id, NULL::VARCHAR AS claim_id, NULL::VARCHAR AS claim,
               NULL::VARCHAR AS against, NULL::BIGINT AS passage, metric,
               NULL::VARCHAR AS verdict, score, {_NO_PROBABILITIES}, NULL::DOUBLE AS agreement
        FROM scores WHERE run_id = $run AND step = $step AND metric = $metric ORDER BY ALL
    """,
}

_CITED: Final = f"""
SELECT claim_id::VARCHAR, coalesce(list(passage) FILTER (passage IS NOT NULL), [])
FROM {rows_of(Citation)} WHERE artifact_id = $citations GROUP BY claim_id
"""

_SAMPLES: Final = """
SELECT sample_id, user_input, response, reference, retrieved_contexts,
       metadata::VARCHAR AS metadata
FROM samples WHERE run_id = $run AND list_contains($ids, sample_id)
"""


def target_rows(connection: duckdb.DuckDBPyConnection, target: LabelTarget) -> pl.DataFrame:
    """The rows of a target, always in the same order, with the judge's result.

    Columns: sample_id, claim_id, claim, against, passage, metric; verdict, score, p_entailed,
    p_contradicted, p_neutral and agreement, NULL where there is none; of checks the criterion.
    """
    values = {"run": target.run_id, "step": target.step, "metric": target.metric}
    return read_table(connection, _ROWS[target.kind], **values)


def row_keys(rows: Sequence[Mapping[str, object]]) -> list[tuple[object, object, object]]:
    """(sample_id, claim_id, passage) of each row: unique within one target."""
    return [(row["sample_id"], row["claim_id"], row["passage"]) for row in rows]


def frame_key(connection: duckdb.DuckDBPyConnection, target: LabelTarget) -> str:
    """Key of the sampling frame: equal for the same claims, premises or samples."""
    provenance = target.provenance
    sources = {"own": provenance.artifact_id} if target.kind == "claims" else provenance.inputs
    artifacts = {
        (name, step): artifact
        for name, wire in sources.items()
        for step, artifact in (wire.items() if isinstance(wire, dict) else [("", wire)])
        if target.kind != "samples" or name == "samples"
    }
    digests = dict(
        connection.execute(
            "SELECT artifact_id::VARCHAR, digest::VARCHAR FROM audit.artifacts "
            "WHERE list_contains($ids, artifact_id::VARCHAR)",
            {"ids": list(artifacts.values())},
        ).fetchall()
    )
    contents = sorted([*place, digests.get(artifact, "")] for place, artifact in artifacts.items())
    names = ("criterion", "checks") if target.kind == "checks" else ("against", "premises")
    settings = {name: provenance.settings.get(name) for name in names}
    return content_key("frame", target.kind, contents, settings, target.metric)


def with_texts(
    connection: duckdb.DuckDBPyConnection, target: LabelTarget, rows: pl.DataFrame
) -> list[dict[str, Any]]:
    """`rows` with the texts that an annotator reads, and `subject`, the key of those texts.

    The texts of a verdict are `premise` and the claim, of a claim `text` and the claim, and of both
    `user_input` where the step read it beside the text; of a sample its four fields, of a check the
    fields that the judge reads, `criterion`, the claim and the `scale`.
    """
    ids = rows["sample_id"].unique().to_list()
    samples = read_table(connection, _SAMPLES, run=target.run_id, ids=ids)
    if target.kind in ("samples", "checks"):
        read = samples.drop("metadata").iter_rows(named=True)
        fields = {sample.pop("sample_id"): sample for sample in read}
        return [
            _with_fields(target, row, fields[row["sample_id"]])
            for row in rows.iter_rows(named=True)
        ]
    by_field = {
        field: _side_texts(target, samples, field) for field in rows["against"].unique().to_list()
    }
    cited = _cited_passages(connection, target)
    return [
        _with_text(
            target, row, by_field[row["against"]][row["sample_id"]], cited.get(row["claim_id"], [])
        )
        for row in rows.iter_rows(named=True)
    ]


class _SideText(NamedTuple):
    """A field of a sample, and `user_input` as a stage read it beside that field.

    `needs_question` says that the text is, or begins with, a short answer, so that what it says
    depends on `user_input`.
    """

    text: Any
    user_input: str | None = None
    needs_question: bool = False


def _side_texts(target: LabelTarget, samples: pl.DataFrame, field: str) -> dict[str, _SideText]:
    """A field of each sample as the step of the target read it, by sample id."""
    texts = dict(samples.select("sample_id", field).iter_rows())
    context = target.provenance.settings.get("context")
    if field not in get_args(Side) or context not in get_args(ContextSetting):
        return {sample_id: _SideText(text) for sample_id, text in texts.items()}
    contexts = contexts_of(samples, cast("ContextSetting", context))
    short = completed_texts(samples, cast("Side", field), cast("ContextSetting", context))
    beside = {
        sample_id: conversation_text(context) if context.history else context.question
        for sample_id, context in contexts.items()
    }
    return {
        sample_id: _SideText(text, beside.get(sample_id) or None, sample_id in short)
        for sample_id, text in texts.items()
    }


def _cited_passages(
    connection: duckdb.DuckDBPyConnection, target: LabelTarget
) -> dict[str, list[int]]:
    """The passages that each claim cites, in the table that the verdicts were made of."""
    citations = target.provenance.inputs.get("citations")
    found = read_table(connection, _CITED, citations=citations) if citations else pl.DataFrame()
    return dict(found.iter_rows())


def _with_fields(
    target: LabelTarget, row: dict[str, Any], sample: dict[str, Any]
) -> dict[str, Any]:
    about = [row["metric"]]
    if target.kind == "checks":
        read = target.provenance.settings["reads"]
        sample = {name: text if name in read else None for name, text in sample.items()}
        row = row | {"scale": _scale_text(target.scale)}
        about = [row["criterion"], row["claim"], row["scale"]]
    subject = content_key("labelled", target.kind, *about, *sample.values())
    contexts = sample["retrieved_contexts"]
    texts = sample | {"retrieved_contexts": "\n\n".join(contexts) if contexts else None}
    return row | texts | {"subject": subject}


def _with_text(
    target: LabelTarget, row: dict[str, Any], side: _SideText, cited: Sequence[int]
) -> dict[str, Any]:
    name, text = "text", side.text
    if target.kind == "verdicts":
        how = target.provenance.settings.get("premises", "joined")
        premises = {premise.passage: premise.text for premise in premises_of(text, how, cited)}
        name, text = "premise", premises.get(row["passage"])
    # Elsewhere the text says the same after any question: labels of it hold for all of them.
    question = [side.user_input] if side.needs_question else []
    subject = content_key("labelled", target.kind, row["claim"], text, *question)
    return row | {"user_input": side.user_input, name: text, "subject": subject}


def _scale_text(scale: Mapping[int, str] | None) -> str:
    if scale is None:
        return "pass or fail"
    return "; ".join(f"{grade}: {text}" for grade, text in sorted(scale.items()))


_COLUMN_TYPES: Final = {
    **dict.fromkeys(("claim_id", "claim", "against", "metric", "label", "comment"), pl.String),
    "passage": pl.Int64,
    "rating": pl.Float64,
}

# The newest label of each annotator for each subject counts; of those that adjudicate, the newest.
_CURRENT: Final = """
SELECT subject::VARCHAR AS subject, claim, metric, annotator, label, rating, draw,
       coalesce(unsure, false) AS unsure, comment, coalesce(seen, false) AS seen,
       coalesce(adjudicates, false) AS adjudicates
FROM audit.labels WHERE kind = $kind
QUALIFY row_number() OVER (
    PARTITION BY subject, metric, coalesce(adjudicates, false),
                 if(coalesce(adjudicates, false), '', annotator)
    ORDER BY labelled_at DESC, labels.rowid DESC
) = 1
ORDER BY subject, adjudicates, annotator
"""

_DRAWN: Final = """
SELECT DISTINCT draw, subject::VARCHAR AS subject, sample_id, claim_id::VARCHAR AS claim_id,
       passage, probability
FROM audit.labels WHERE kind = $kind AND frame = $frame::UUID ORDER BY ALL
"""

_IDENTITIES: Final = """
SELECT kind, subject::VARCHAR, annotator, label, rating, coalesce(unsure, false), comment,
       coalesce(seen, false), coalesce(adjudicates, false), frame::VARCHAR, draw, sample_id,
       claim_id::VARCHAR, passage
FROM audit.labels WHERE kind = $kind AND annotator = $who
QUALIFY row_number() OVER (
    PARTITION BY subject, frame, draw, sample_id, claim_id, passage, coalesce(adjudicates, false)
    ORDER BY labelled_at DESC, labels.rowid DESC
) = 1
"""


def record(store: Store, labels: Sequence[LabelRecord]) -> list[LabelRecord]:
    """Record labels of one kind by one annotator in one transaction; returns the new ones."""
    if not labels:
        return []
    with store.writing() as connection:
        values = {"kind": labels[0].kind, "who": labels[0].annotator}
        recorded = set(connection.execute(_IDENTITIES, values).fetchall())
        new = [label for label in labels if label.identity not in recorded]
        if new:
            rows = [label._asdict() for label in new]
            frame = pl.DataFrame(rows, schema_overrides=_COLUMN_TYPES, infer_schema_length=None)
            insert(connection, "audit.labels", frame)
    return new


GIVEN: Final = pl.col("label").is_not_null() | pl.col("rating").is_not_null()
"""The rows of `current_labels` with a label or a rating."""


def current_labels(
    connection: duckdb.DuckDBPyConnection, kind: Kind, *, undecided: bool = False
) -> pl.DataFrame:
    """The labels that count.

    Columns: subject, claim, metric, annotator, label, rating, draw, unsure, comment, seen,
    adjudicates. With `undecided` also the rows without a label, of annotators who are unsure or
    took theirs back.
    """
    found = read_table(connection, _CURRENT, kind=kind)
    return found if undecided else found.filter(GIVEN)


def drawn_rows(connection: duckdb.DuckDBPyConnection, kind: Kind, frame: str) -> pl.DataFrame:
    """The labelled rows drawn from a frame.

    Columns: draw, subject, sample_id, claim_id, passage, probability.
    """
    return read_table(connection, _DRAWN, kind=kind, frame=frame)
