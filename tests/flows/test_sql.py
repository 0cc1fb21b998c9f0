"""What flows/guides/sql.md says about the tables of a store, and the queries that it gives."""

import re
import shutil
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store
from claimflow.stages.rows import row_kinds
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import CLAIMS, EMBEDDED, VERIFY, Judged, about, sample

README: Final = (Path(__file__).parents[2] / "flows/guides/sql.md").read_text("utf-8")
TABLES: Final = README.partition("\n## Tables\n")[2].partition("\n## ")[0]
QUERIES: Final = dict(
    re.findall(
        r"\n([^\n]+):\n\n```sql\n(.*?)\n```",
        README.partition("\n## Ten queries\n")[2].partition("\n## ")[0],
        re.DOTALL,
    )
)

PARIS, OPENED, CHEESE = CLAIMS
STEPS: Final = {
    "response_claims": EMBEDDED,
    "response_in_reference": VERIFY | {"votes": 3},
    "response_in_contexts": VERIFY | {"against": "retrieved_contexts"},
    "context_matches": {"use": "lexical_match", "against": "retrieved_contexts"},
    "factual_correctness": {"use": "factual_correctness", "mode": "precision"},
    "faithfulness": {"use": "faithfulness"},
    "deterministic_faithfulness": {"use": "deterministic_faithfulness"},
    "summary": {"use": "summarize_scores"},
}


def sample_of_document(name: str) -> dict[str, Any]:
    """A sample whose contexts hold two of its claims, and the name of their document."""
    document = "guide.md" if name == "tower" else "menu.md"
    contexts = [PARIS, CHEESE] if name == "tower" else ["The menu has no words in common."]
    return sample(name, document=document, retrieved_contexts=contexts)


SWAYED: Final = faults.swayed()


def invent(reply: str) -> str:
    """The reply with evidence that is in no text."""
    return re.sub(r'"evidence": "[^"]*"', '"evidence": "as everybody knows"', reply)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two runs; in the second the judge is another one, which is slow and fails at times."""
    folder = tmp_path_factory.mktemp("sql")
    names = ["tower", "menu", "late", "made up", "broken"]
    with serve() as endpoint:
        judged = Judged(folder, endpoint)
        price = {"input": 1000, "output": 0}
        judged.write(map(sample_of_document, names), steps=STEPS, price=price)
        judged.run()
        endpoint.behaviour.fault = faults.either(
            faults.where(lambda body: body.get("seed") == 1 and about("tower")(body), SWAYED),
            faults.where(about("menu"), SWAYED),
            faults.where(about("late"), faults.slow(2.0)),
            faults.where(about("made up"), faults.content(invent)),
            faults.where(about("broken"), faults.refused()),
        )
        judged.write(map(sample_of_document, names), steps=STEPS, model="hosted_vllm/other")
        judged.run()
    return judged.store


def tables_of_guide() -> list[tuple[str, str]]:
    """Each table of the guide: its name, and what is said of it."""
    tables = re.split(r"\n### `([\w.]+)`\n", TABLES)[1:]
    return list(zip(tables[::2], tables[1::2], strict=True))


def documented() -> dict[str, list[str]]:
    """The columns of each table in the guide, in order."""
    columns = {}
    for name, text in tables_of_guide():
        cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        columns[name] = re.findall(r"`(\w+)`", " ".join(cells))
    return columns


def test_every_table_is_documented_column_by_column(store: Store) -> None:
    found = query(
        store,
        "SELECT CASE schema_name WHEN 'main' THEN '' ELSE 'audit.' END || table_name AS name, "
        "list(column_name ORDER BY column_index) AS columns FROM duckdb_columns() "
        "WHERE NOT internal AND schema_name IN ('main', 'audit') GROUP BY name",
        seconds=20,
    )
    there = dict(found.iter_rows())
    for row in row_kinds():
        assert there[row.table][:2] == ["run_id", "step"]
        there[row.table] = there[row.table][2:]
    described = documented()
    assert {name: sorted(columns) for name, columns in described.items()} == {
        name: sorted(columns) for name, columns in there.items()
    }


def test_views_and_columns_have_the_comments_of_the_guide(store: Store) -> None:
    views = query(
        store,
        "SELECT schema_name || '.' || view_name, comment FROM duckdb_views() WHERE NOT internal "
        "UNION ALL SELECT schema_name || '.' || table_name, comment FROM duckdb_tables() "
        "WHERE schema_name = 'audit'",
    )
    assert [name for name, comment in views.iter_rows() if not comment] == []
    columns = query(
        store,
        "SELECT schema_name, table_name, column_name, comment FROM duckdb_columns() "
        "WHERE NOT internal AND schema_name IN ('main', 'latest', 'audit')",
    )
    guide: dict[tuple[str, str], str] = {}
    for name, text in tables_of_guide():
        for column, meaning in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", meaning).replace("`", "")
            guide[name, column] = plain
    of_rows = [row.table for row in row_kinds()]
    for schema, table, column, comment in columns.iter_rows():
        name = f"audit.{table}" if schema == "audit" else table
        if (schema == "latest" and column == "pipeline") or (
            table in of_rows and column in ("run_id", "step")
        ):
            assert comment
        else:
            assert comment == guide[name, column], (schema, table, column)


def test_every_view_of_all_runs_has_one_of_the_latest_run(store: Store) -> None:
    views = query(
        store,
        "SELECT view_name, list(schema_name ORDER BY schema_name) AS schemas, "
        "min(comment), max(comment) AS latest FROM duckdb_views() "
        "WHERE NOT internal AND schema_name IN ('main', 'latest') GROUP BY view_name",
    )
    assert {"scores", "claim_verdicts", "unstable"} < set(views["view_name"])
    for name, schemas, one, other in views.iter_rows():
        assert schemas == ["latest", "main"], name
        assert (one[:9], other[:11]) == ("All runs.", "The latest "), name
    rows = query(
        store,
        "SELECT (SELECT count(*) FROM latest.unstable), (SELECT count(DISTINCT run_id) "
        "FROM claim_verdicts), (SELECT count(DISTINCT run_id) FROM latest.claim_verdicts)",
    )
    assert rows.row(0) == (3, 2, 1)


def test_no_column_needs_quotation_marks_for_its_end(store: Store) -> None:
    found = query(
        store,
        "SELECT DISTINCT schema_name FROM duckdb_columns() "
        "WHERE NOT internal AND column_name = 'end' AND schema_name <> 'stored'",
    )
    assert found.is_empty()
    spans = query(store, "SELECT start, stop FROM latest.claims WHERE sample_id = 'tower'")
    texts = query(store, "SELECT response FROM latest.samples WHERE sample_id = 'tower'")
    assert {texts.item()[start:stop] for start, stop in spans.iter_rows()} == {
        PARIS,
        OPENED,
        CHEESE,
    }


def test_verdicts_with_their_samples_need_no_join_and_old_joins_work(store: Store) -> None:
    joined = query(
        store,
        "SELECT sample_id, claim, verdict FROM latest.verdicts JOIN (SELECT DISTINCT run_id, "
        "claim_id, sample_id, claim FROM latest.claims) USING (run_id, claim_id) ORDER BY ALL",
    )
    plain = query(store, "SELECT sample_id, claim, verdict FROM latest.claim_verdicts ORDER BY ALL")
    assert plain.rows() == joined.rows()
    counts = query(
        store, "SELECT (SELECT count(*) FROM verdicts), (SELECT count(*) FROM claim_verdicts)"
    )
    assert counts.item(0, 0) == counts.item(0, 1) > 0
    # What queries of earlier releases wrote, where a sample_id of verdicts would be ambiguous.
    for sql in (
        "SELECT sample_id FROM verdicts JOIN claims USING (claim_id)",
        "SELECT sample_id FROM verdicts AS v JOIN claims AS c ON c.claim_id = v.claim_id",
        "SELECT user_input FROM latest.verdicts JOIN latest.claims USING (pipeline, run_id, "
        "claim_id) JOIN latest.samples USING (pipeline, run_id, sample_id)",
    ):
        assert not query(store, sql).is_empty()


def answer(store: Store, title: str) -> pl.DataFrame:
    (sql,) = [text for name, text in QUERIES.items() if name.startswith(title)]
    return query(store, sql, seconds=20)


def test_there_are_ten_queries() -> None:
    assert len(QUERIES) == 10


def test_unsupported_claims_by_document(store: Store) -> None:
    assert answer(store, "Unsupported claims").rows() == [
        ("p", "menu.md", 12, 12),
        ("p", "guide.md", 1, 3),
    ]


def test_verdicts_that_flipped(store: Store) -> None:
    assert answer(store, "Verdicts that flipped").rows() == [
        ("p", "menu", CHEESE, "reference", "neutral", "entailed"),
        ("p", "menu", OPENED, "reference", "contradicted", "neutral"),
        ("p", "menu", PARIS, "reference", "entailed", "contradicted"),
    ]


def test_cost_by_day_and_step(store: Store) -> None:
    of_days = answer(store, "What judges cost")
    assert of_days["day"].is_sorted(descending=True)
    # Midnight may have come between the calls.
    sums = pl.col("calls", "of_unknown_price", "tokens_in", "usd").sum()
    by_step = of_days.group_by("step").agg(sums).sort("calls", descending=True)
    rows = by_step.rows(named=True)
    # Equal contexts are judged once for all; what the second judge costs is not known.
    assert [(row["step"], row["calls"], row["of_unknown_price"]) for row in rows] == [
        ("response_in_reference", 30, 15),
        ("response_in_contexts", 4, 2),
    ]
    assert [row["usd"] * 1000 for row in rows] == [row["tokens_in"] / 2 for row in rows]


def test_slowest_calls(store: Store) -> None:
    slowest = answer(store, "The slowest calls")
    assert slowest.height == 10
    late = slowest.filter(pl.col("seconds") >= 2.0)
    assert late["model"].to_list() == ["hosted_vllm/other"] * 3
    assert late.equals(slowest.head(3))


def test_words_and_meaning_apart(store: Store) -> None:
    rows = answer(store, "Samples where words").rows()
    assert [row[1] for row in rows] == ["broken", "late", "made up", "menu", "tower"]
    assert rows[0][2:] == pytest.approx((2 / 3, 0, 2 / 3))
    assert rows[4][2:] == pytest.approx((1, 2 / 3, 1 / 3))


def test_claims_without_evidence(store: Store) -> None:
    assert answer(store, "Claims that were judged without").rows() == [
        ("p", "made up", OPENED, "contradicted", "as everybody knows"),
        ("p", "made up", PARIS, "entailed", "as everybody knows"),
    ]


def test_what_failed(store: Store) -> None:
    ((pipeline, step, failure, failed, example),) = answer(store, "What failed").rows()
    assert (pipeline, step, failure, failed) == ("p", "response_in_reference", "refused", 3)
    assert example.endswith("refused: I'm sorry, but I cannot assist with that.")


def test_the_words_of_a_call(store: Store) -> None:
    rows = answer(store, "The judge's very words").rows()
    assert [row[:3] for row in rows] == [
        ("p", CHEESE, "neutral"),
        ("p", OPENED, "contradicted"),
        ("p", PARIS, "entailed"),
    ]
    assert all('"reason": "The premise has another number."' in row[3] for row in rows)


def test_a_metric_over_runs(store: Store) -> None:
    trend = answer(store, "A metric over the runs")
    assert trend.select("n_scored", "n").rows() == [(5, 5), (4, 5)]
    assert trend["mean"].to_list() == pytest.approx([1 / 3, 1 / 3])


def test_votes_that_differ(store: Store) -> None:
    rows = answer(store, "Claims of the latest run").rows()
    assert [row[:5] for row in rows] == [
        ("p", "response_in_reference", "tower", CHEESE, "neutral"),
        ("p", "response_in_reference", "tower", OPENED, "contradicted"),
        ("p", "response_in_reference", "tower", PARIS, "entailed"),
    ]
    assert {row[5] for row in rows} == {2 / 3}
    assert sorted(rows[0][6]) == ["entailed", "neutral", "neutral"]


@pytest.fixture(scope="module")
def of_two(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The same store, but that its first run is of another pipeline."""
    copy = Store(tmp_path_factory.mktemp("two") / "s.duckdb")
    shutil.copy(store.path, copy.path)
    with copy.writing() as connection:
        connection.execute(
            "UPDATE audit.runs SET pipeline = 'another' "
            "WHERE started_at = (SELECT min(started_at) FROM audit.runs)"
        )
    return copy


@pytest.mark.parametrize("title", [name for name in QUERIES if name != "The slowest calls"])
def test_queries_keep_pipelines_apart(store: Store, of_two: Store, title: str) -> None:
    def rows(of: Store, pipeline: str) -> list[tuple[Any, ...]]:
        return answer(of, title).filter(pl.col("pipeline") == pipeline).rows()

    if "latest." in QUERIES[title] or "audit.latest_runs" in QUERIES[title]:
        assert rows(of_two, "p") == rows(store, "p")
    elif title.startswith("Verdicts that flipped"):
        assert answer(of_two, title).is_empty()
    elif title.startswith("What failed"):
        assert rows(of_two, "p")
        assert not rows(of_two, "another")
    else:
        assert len(rows(of_two, "p")) + len(rows(of_two, "another")) == answer(of_two, title).height
        assert rows(of_two, "another")


def test_the_store_passes_the_integrity_checks(store: Store) -> None:
    assert check_store(store).faults == []
