"""Corrections applied to tables of claims and verdicts: their rows and which edits apply."""

from datetime import datetime, timedelta
from typing import Any

import polars as pl

from claimflow.flows.runner.corrections import apply_edits
from claimflow.flows.store.edits import (
    Edit,
    applicable_edits,
    edits_in_force,
    fields_read,
    text_key,
    undo_edit,
)
from claimflow.stages.rows import Claim, Sample, Verdict, content_key
from claimflow.stages.tables import build, conform

AT = datetime(2026, 1, 1)
CALL = content_key("call")
TEXTS = {"a": "The tower is tall. Milk is white.", "b": "Snow is cold.", "c": "Ice is hard."}
SAMPLES = build(
    Sample,
    [
        {"sample_id": key, "response": text, "retrieved_contexts": [text]}
        for key, text in TEXTS.items()
    ],
)


def key(sample_id: str, claim: str | None) -> str:
    return content_key("claim", sample_id, "response", claim)


def claim(sample_id: str, words: str | None, **more: Any) -> dict[str, Any]:
    row = {"claim_id": key(sample_id, words), "sample_id": sample_id, "of": "response"}
    return row | {"claim": words, "call_id": CALL} | more


def edit(sample_id: str, rows: list[dict[str, Any]], **more: Any) -> Edit:
    made = Edit(
        edit_id=content_key("edit", 1),
        kind="claims",
        pipeline="p",
        step="s",
        sample_id=sample_id,
        field="response",
        text=text_key({"response": TEXTS[sample_id]}, "response"),
        rows=rows,
        replaced=[],
        who="ann",
        why="too bold",
        edited_at=AT,
    )
    return made._replace(**more)


def words(*claims: str) -> list[dict[str, Any]]:
    return [{"claim": one} for one in claims]


def message(table: pl.DataFrame) -> list[tuple[Any, ...]]:
    return table.select("sample_id", "claim", "start", "reason", "call_id").rows()


CLAIMS = build(
    Claim, [claim("a", "The tower is tall.", start=0, end=18), claim("c", "Ice is hard.")]
)
BY_ANN = "edited by ann: too bold"


def test_an_edit_gives_the_claims_of_its_sample_and_leaves_all_others() -> None:
    edits = [edit("a", words("The tower is high.", "The tower is tall.", "Pigs fly."))]
    table = conform(Claim, apply_edits(Claim, CLAIMS, SAMPLES, edits))
    assert message(table) == [
        ("a", "The tower is high.", 0, BY_ANN, None),
        ("a", "The tower is tall.", 0, None, CALL),
        ("a", "Pigs fly.", None, BY_ANN, None),
        ("c", "Ice is hard.", None, None, CALL),
    ]
    assert table["claim_id"][0] == key("a", "The tower is high.")


def test_new_claims_of_a_sample_keep_the_order_of_samples() -> None:
    table = apply_edits(Claim, CLAIMS, SAMPLES, [edit("b", words("Snow is white."))])
    assert table["sample_id"].to_list() == ["a", "b", "c"]


def test_an_edit_may_leave_no_claims() -> None:
    assert apply_edits(Claim, CLAIMS, SAMPLES, [edit("a", [])])["sample_id"].to_list() == ["c"]


def test_an_edit_replaces_a_failed_decomposition() -> None:
    failed = build(Claim, [claim("a", None, status="failed", failure="timeout", reason="late")])
    table = apply_edits(Claim, failed, SAMPLES, [edit("a", words("Milk is white."))])
    assert message(table) == [("a", "Milk is white.", 19, BY_ANN, None)]
    assert table["status"].to_list() == ["made"]


def test_the_later_edit_wins() -> None:
    edits = [edit("a", words("One.")), edit("a", words("Two."))]
    assert apply_edits(Claim, CLAIMS, SAMPLES, edits)["claim"].to_list() == ["Two.", "Ice is hard."]


def test_edits_of_other_parts_are_ignored() -> None:
    part = SAMPLES.filter(pl.col("sample_id") != "b")
    assert apply_edits(Claim, CLAIMS, part, [edit("b", words("One."))]).equals(CLAIMS)


def verdict(sample_id: str, passage: int | None, label: str | None, **more: Any) -> dict[str, Any]:
    row = {"claim_id": key(sample_id, "x"), "against": "retrieved_contexts", "passage": passage}
    return row | {"verdict": label} | more


def test_an_edited_verdict_clears_the_evidence_and_support_of_the_judge() -> None:
    judged = {"reason": "so", "call_id": CALL, "evidence": "e", "p_neutral": 1.0, "support": 0.2}
    ballot = {"agreement": 0.6, "ballot": '["entailed"]'}
    table = build(
        Verdict,
        [
            verdict("a", None, "neutral", **judged, **ballot),
            verdict("a", 0, None, status="failed", failure="timeout", reason="late"),
            verdict("a", 1, "neutral", **judged),
        ],
    )
    rows = [verdict("a", None, "entailed"), verdict("a", 0, "contradicted")]
    laid = conform(
        Verdict, apply_edits(Verdict, table, SAMPLES, [edit("a", rows, kind="verdicts")])
    )
    by_hand = {"reason": BY_ANN}
    assert laid.equals(
        build(
            Verdict,
            [
                verdict("a", None, "entailed", **by_hand),
                verdict("a", 0, "contradicted", **by_hand),
                verdict("a", 1, "neutral", **judged),
            ],
        )
    )


def test_edited_verdicts_on_removed_claims_are_ignored() -> None:
    table = build(Verdict, [verdict("a", None, "neutral")])
    gone = edit("b", [verdict("b", None, "entailed")], kind="verdicts")
    assert apply_edits(Verdict, table, SAMPLES, [gone]).equals(table)


def test_an_edit_applies_while_its_text_is_unchanged() -> None:
    one, other = (
        edit("a", []),
        edit("b", [], text=text_key({"response": "It was otherwise."}, "response")),
    )
    listed = edit(
        "c",
        [],
        field="retrieved_contexts",
        text=text_key({"retrieved_contexts": [TEXTS["c"]]}, "retrieved_contexts"),
    )
    gone = edit("a", [])._replace(sample_id="gone")
    assert list(applicable_edits([one, other, listed, gone], [SAMPLES])) == [one, listed]


def test_a_text_differs_from_a_list_of_it() -> None:
    texts: list[Any] = ["a", ["a"], [], None]
    assert len({text_key({"response": text}, "response") for text in texts}) == 4


def test_the_texts_of_several_fields_count_together() -> None:
    sample = {"user_input": "a", "response": "b", "reference": None}
    keys = {
        text_key(sample, "user_input,response"),
        text_key(sample, "response,user_input"),
        text_key(sample, "response,reference"),
        text_key(sample | {"response": "c"}, "user_input,response"),
        text_key(sample, "response"),
    }
    assert len(keys) == 5
    assert text_key(sample | {"reference": "d"}, "user_input,response") in keys


def test_what_is_read_beside_a_text_counts() -> None:
    assert fields_read("response", "question") == "response,user_input"
    assert fields_read("reference", "conversation") == "reference,user_input,history"
    assert fields_read("response", None) == fields_read("response", "none") == "response"
    assert fields_read("retrieved_contexts", "question") == "retrieved_contexts"
    field = "response,user_input,history"
    sample = {"response": "He did.", "user_input": "Did he?", "metadata": '{"topic": "x"}'}
    said = '{"topic": "y", "history": [{"role": "user", "content": "Curie?"}]}'
    keys = [text_key(sample | {"metadata": one}, field) for one in ("{}", '{"a": 1}', said)]
    assert keys[0] == keys[1] != keys[2]


def test_a_withdrawn_edit_does_not_apply_and_stays_recorded() -> None:
    one, other = edit("a", words("One.")), edit("b", [], edit_id=content_key("edit", 2))
    back = undo_edit(
        [one, other],
        one.edit_id,
        undoing=content_key("edit", 3),
        who="bob",
        why="it was right",
        at=AT + timedelta(days=1),
    )
    (undone,) = back
    assert (undone.rows, undone.replaced, undone.undoes) == ([], words("One."), one.edit_id)
    assert (undone.who, undone.why, undone.sample_id) == ("bob", "it was right", "a")
    assert edits_in_force([one, other, *back]) == [other]
