"""Changes of claims between two runs, and their causes."""

import json
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from claimflow.flows.quality.claim_changes import (
    StepChange,
)
from claimflow.flows.quality.comparison import compare
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, claim_id, claims, put_run, samples, verdicts

LLM = {"llm": {"model": "small", "temperature": 0}}
ASKED = {"settings": {"prompt": "Judge.", "votes": 1}, "tools": LLM}
TEXTS = {"x": ["One.", "Two."], "y": ["Three."]}
SAID = {("x", "One."): "entailed", ("x", "Two."): "neutral", ("y", "Three."): "entailed"}
FLIPPED = SAID | {("x", "One."): "contradicted"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "s.duckdb")


def steps(**tables: Table | Artifact) -> dict[str, Table | Artifact]:
    usual = {"samples": samples(["x", "y"]), "response_claims": claims(TEXTS, **ASKED)}
    return usual | {"in_reference": verdicts(SAID, **ASKED)} | tables


def changes(store: Store, a: str, b: str) -> list[tuple[Any, ...]]:
    """change, cause, step, sample, claim, a, b"""
    found = compare(store, a, b).claims
    return found.select("change", "cause", "step", "sample_id", "claim", "a", "b").rows()


def flip(cause: str) -> list[tuple[Any, ...]]:
    where = ("in_reference", "x", "One.")
    return [("verdict flipped", cause, *where, "entailed", "contradicted")]


def test_tables_shared_by_both_runs_have_no_changes(store: Store) -> None:
    a = put_run(store, steps())
    with store.reading() as connection:
        shared = connection.execute(
            "SELECT step, artifact_id::VARCHAR, digest::VARCHAR, kind FROM audit.run_steps "
            "JOIN (SELECT * EXCLUDE (run_id) FROM audit.artifacts) USING (artifact_id) "
            "ORDER BY position"
        ).fetchall()
    b = put_run(store, {step: Artifact(*artifact, 1, 1, 0) for step, *artifact in shared})
    assert all(change.same for change in compare(store, a, b).steps)
    assert changes(store, a, b) == []


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        ({"settings": {"prompt": "Judge well.", "votes": 1}, "tools": LLM}, "prompt"),
        ({"settings": {"prompt": "Judge.", "votes": 3}, "tools": LLM}, "settings"),
        ({"settings": ASKED["settings"], "tools": {"llm": {"model": "large"}}}, "judge"),
        ({"settings": {"prompt": "Other.", "votes": 3}, "tools": LLM}, "prompt and settings"),
        ({"settings": {"prompt": None, "votes": 1}, "tools": {"model": {"n": 1}}}, "judge"),
        ({**ASKED, "stage": "another"}, "stage"),
        (ASKED, "chance"),
    ],
)
def test_a_verdict_that_flipped_has_its_cause(
    store: Store, made: dict[str, Any], cause: str
) -> None:
    a = put_run(store, steps())
    b = put_run(store, steps(in_reference=verdicts(FLIPPED, **made)))
    assert changes(store, a, b) == flip(cause)


def test_step_changes_name_the_settings_that_differ(store: Store) -> None:
    a = put_run(store, steps(old=claims({})))
    other = {"settings": {"prompt": "Judge.", "votes": 3, "new": 1}, "tools": LLM}
    b = put_run(store, steps(in_reference=verdicts(FLIPPED, **other), young=claims({})))
    found = compare(store, a, b)
    assert found.only["steps"] == (["old"], ["young"])
    none: frozenset[str] = frozenset()
    assert found.steps[-1] == StepChange(
        "in_reference", "verdicts", False, ("settings",), ("new", "votes"), none
    )


def test_claims_of_one_run_only_are_changed_texts(store: Store) -> None:
    a = put_run(store, steps())
    texts = {"x": ["One.", "Two and a half."], "y": ["Three."]}
    other = {"settings": {"prompt": "Split.", "votes": 1}, "tools": LLM}
    b = put_run(store, steps(response_claims=claims(texts, **other)))
    where = ("claim text changed", "prompt", "response_claims", "x")
    assert changes(store, a, b) == [
        (*where, "Two and a half.", None, "Two and a half."),
        (*where, "Two.", "Two.", None),
    ]


def test_the_cause_of_a_failure_is_its_kind(store: Store) -> None:
    failing = SAID | {("x", "One."): "timeout"}
    a = put_run(store, steps(in_reference=verdicts(failing, **ASKED)))
    b = put_run(
        store,
        steps(
            in_reference=verdicts(SAID | {("x", "Two."): "refused"}, **ASKED),
            response_claims=claims(TEXTS | {"y": "took too long"}, **ASKED),
        ),
    )
    assert changes(store, a, b) == [
        ("newly failed", "refused", "in_reference", "x", "Two.", "neutral", "failed"),
        ("newly failed", "timeout", "response_claims", "y", None, "made", "failed"),
        ("no longer failed", "timeout", "in_reference", "x", "One.", "failed", "entailed"),
    ]


def test_a_changed_sample_causes_changes_of_rows_of_the_changed_field_only(store: Store) -> None:
    a = put_run(store, steps(samples=samples(["x", "y"], reference="old", response="R")))
    other = {"samples": samples(["x", "y"], reference="new", response="R")}
    texts = {"x": ["One.", "Two."], "y": ["Four."]}
    b = put_run(
        store,
        steps(
            **other,
            in_reference=verdicts(FLIPPED, **ASKED),
            response_claims=claims(texts, **ASKED),
        ),
    )
    where = ("claim text changed", "chance", "response_claims", "y")
    assert changes(store, a, b) == [
        *flip("sample changed"),
        (*where, "Four.", None, "Four."),
        (*where, "Three.", "Three.", None),
    ]


def test_claims_of_samples_that_only_one_run_has_are_not_listed(store: Store) -> None:
    a = put_run(store, steps())
    texts = {"x": TEXTS["x"], "z": ["Nine."]}
    b = put_run(store, steps(samples=samples(["x", "z"]), response_claims=claims(texts, **ASKED)))
    assert changes(store, a, b) == []


def test_edits_by_hand_are_a_cause_of_their_own(store: Store) -> None:
    edit = uuid4()
    flipped = FLIPPED | {("x", "Two."): "entailed"}
    asked = {**ASKED, "settings": {"prompt": "Judge well.", "votes": 1}}
    a = put_run(store, steps())
    below = put_run(store, steps(in_reference=verdicts(SAID, **asked)))
    with store.reading() as connection:
        [base] = connection.execute(
            "SELECT artifact_id::VARCHAR FROM audit.run_steps "
            "WHERE run_id = $run AND step = 'in_reference'",
            {"run": below},
        ).fetchall()[0]
    by_hand = {"stage": "edits", "inputs": {"base": base}, "tools": LLM}
    by_hand["settings"] = {**asked["settings"], "edits": [str(edit)]}
    b = put_run(store, steps(in_reference=verdicts(flipped, **by_hand)))
    record_edit(store, edit, "verdicts", "in_reference", [claim_id("x", "Two.")])
    rows = changes(store, a, b)
    assert [(row[1], row[4]) for row in rows] == [("prompt", "One."), ("edited by hand", "Two.")]
    # An edit that both runs have explains nothing.
    c = put_run(store, steps(in_reference=verdicts(SAID, **by_hand)))
    assert {row[1] for row in changes(store, b, c)} == {"chance"}


def record_edit(store: Store, edit: Any, kind: str, step: str, ids: list[str]) -> None:
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO audit.edits BY NAME SELECT $edit AS edit_id, $kind AS kind, "
            "'p' AS pipeline, $step AS step, 'x' AS sample_id, 'reference' AS field, "
            "$edit AS text, $rows AS rows, '[]' AS replaced, 'me' AS who, 'so' AS why, "
            "$now AS edited_at",
            {
                "edit": str(edit),
                "kind": kind,
                "step": step,
                "rows": json.dumps([{"claim_id": one} for one in ids]),
                "now": datetime(2026, 1, 1),
            },
        )
