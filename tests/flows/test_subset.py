"""Runs on part of the samples, selected by a file of ids or by a query."""

import json
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.runner.prepare import Prepared, prepare


def select(small: Path, selection: str) -> Prepared:
    return prepare(small, rerun=Rerun(samples=selection))


def ids(prepared: Prepared) -> list[str]:
    return [name for table in prepared.samples.shards(2) for name in table["sample_id"]]


def message(small: Path, selection: str) -> str:
    with pytest.raises(InputError) as caught:
        select(small, selection)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ids", "silence\n\n  tower \n"),
        ("ids.txt", "\ufeffsilence\r\ntower\r\nsilence"),
        ("ids.csv", "note,sample_id\nx,silence\ny,tower\n"),
        ("ids.jsonl", '{"sample_id": "silence"}\n{"sample_id": "tower", "x": 1}\n'),
    ],
)
def test_a_file_selects_samples_which_keep_their_order(small: Path, name: str, text: str) -> None:
    path = small.with_name(name)
    path.write_text(text, "utf-8", newline="")
    found = select(small, str(path))
    assert ids(found) == ["tower", "silence"]
    assert found.samples.count == 2
    assert found.samples.digest != prepare(small).samples.digest


def test_ids_may_hold_other_separators_of_lines(small: Path) -> None:
    texts = {"response": "x", "reference": "y", "contexts": ["z"]}
    lines = [texts | {"sample_id": "a\u2028b\x0bc"}, texts]
    small.with_name("samples.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    path = small.with_name("ids")
    path.write_text("a\u2028b\x0bc\n", "utf-8")
    assert ids(select(small, str(path))) == ["a\u2028b\x0bc"]


def test_a_query_selects_samples(small: Path) -> None:
    run_pipeline(prepare(small))
    query = "FROM latest.sentence_matches WHERE sentence LIKE '%Eiffel%'"
    found = select(small, query)
    assert ids(found) == ["tower"]
    part = run_pipeline(found)
    # A run of some samples does not become the latest.
    assert ids(select(small, query)) == ["tower"]
    assert ids(select(small, f"FROM sentence_matches WHERE run_id = '{part.run_id}'")) == ["tower"]
    assert message(small, "SELECT 1 AS one, 2 AS two") == (
        "--samples: the query returns one, two; return a column sample_id"
    )
    assert message(small, "select sample_id from latest.samples where false") == (
        "--samples: names no sample; name at least one"
    )
    assert message(small, "FROM nowhere").startswith("sql: Catalog Error")
    assert message(small, "SELECT * FROM read_csv('/etc/passwd')").startswith(
        "sql: Permission Error"
    )


def test_a_query_needs_a_store(small: Path) -> None:
    store = small.with_name("small.duckdb")
    assert (
        message(small, "FROM samples") == f"{store}: there is no store here; run a pipeline first"
    )


def test_unknown_ids_are_reported(small: Path) -> None:
    path = small.with_name("ids")
    path.write_text("tower\nno\n", "utf-8")
    assert message(small, str(path)) == (
        "--samples: 'no' is not a sample of samples.jsonl; use ids of those samples"
    )
    path.write_text("tower\n" + "".join(f"n{number}\n" for number in range(1200)), "utf-8")
    assert message(small, str(path)) == (
        "--samples: 'n0', 'n1', 'n2', 'n3', 'n4' and 1,195 more are not samples (1,200 of them) "
        "of samples.jsonl; use ids of those samples"
    )


def test_a_file_without_ids_is_reported(small: Path) -> None:
    assert message(small, "selected.txt") == (
        "--samples: there is no file 'selected.txt'; name a file of sample ids, or write a SELECT"
    )
    empty = small.with_name("none")
    empty.write_text(" \n", "utf-8")
    assert message(small, str(empty)) == "--samples: names no sample; name at least one"
    latin = small.with_name("latin")
    latin.write_bytes("Größe".encode("latin-1"))
    assert message(small, str(latin)).startswith(f"{latin}: cannot be read ('utf-8' codec")
    assert message(small, str(latin)).endswith("; write one id a line, as UTF-8")
    path = small.with_name("ids.jsonl")
    path.write_text('{"sample_id": "tower"}\n{"id": "birth"}\n[]\n', "utf-8")
    assert message(small, str(path)).splitlines()[0] == (f"{path}:2: has no sample_id; write one")
    assert len(message(small, str(path)).splitlines()) == 2


@pytest.mark.parametrize("limit", [0, -1, "x"])
def test_a_limit_that_is_no_number_of_samples_is_refused(small: Path, limit: Any) -> None:
    with pytest.raises(InputError, match="is no number of samples; give 1 or more"):
        prepare(small, limit=limit)
