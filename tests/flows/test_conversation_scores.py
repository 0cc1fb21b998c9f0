"""Scores of conversations: by turn, by conversation, and intervals that know turns are alike."""

import json
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

import claimflow
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.quality.comparison import compare
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store
from claimflow.stages.scores.formulas import clustered_mean_interval

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "flows/guides/sql.md").read_text("utf-8")
PIPELINES = (ROOT / "configs/guides/pipelines.md").read_text("utf-8")

TOWER = "The Eiffel Tower stands in Paris."
HIGH = "The Eiffel Tower is 330 metres high."
OSLO = "The harbour of Oslo is cold."

STEPS = {
    "context_matches": {"use": "lexical_match", "against": "retrieved_contexts"},
    "deterministic_faithfulness": {"use": "deterministic_faithfulness"},
    "summary": {"use": "summarize_scores"},
}


def conversation(name: str, *responses: str) -> dict[str, Any]:
    """A conversation that was given one passage in its first turn, and none later."""
    messages: list[dict[str, Any]] = []
    for n, response in enumerate(responses, start=1):
        messages.append({"role": "user", "content": f"Question {n} of {name}?"})
        contexts = {"contexts": [TOWER]} if n == 1 else {"contexts": [HIGH]}
        messages.append({"role": "assistant", "content": response, **contexts})
    return {"id": name, "messages": messages}


RECORDS = [
    conversation("good", TOWER, HIGH, HIGH),
    conversation("bad", OSLO, OSLO),
    conversation("mixed", TOWER, OSLO),
    conversation("fine", TOWER),
    {"id": "single", "question": "Where?", "answer": TOWER, "contexts": [TOWER]},
    {"id": "plain", "question": "Where?", "answer": OSLO, "contexts": [TOWER]},
]


def write(folder: Path, records: list[dict[str, Any]], **more: Any) -> Path:
    (folder / "s.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    pipeline = {"name": "p", "samples": {"path": "s.jsonl"}, "store": "s.duckdb", "steps": STEPS}
    path = folder / "p.yaml"
    path.write_text(yaml.safe_dump(pipeline | more, sort_keys=False), "utf-8")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("conversations")
    assert main(["run", str(write(folder, RECORDS))]) == 0
    return Store(folder / "s.duckdb")


def scores(store: Store) -> dict[str, float]:
    rows = query(
        store,
        "SELECT sample_id, score FROM latest.scores WHERE metric = 'bleu_faithfulness'",
    )
    return dict(rows.iter_rows())


def test_turns_are_a_view(store: Store) -> None:
    found = query(store, "SELECT * EXCLUDE (run_id) FROM latest.turns ORDER BY sample_id").rows()
    assert len(found) == 8
    assert found[0] == ("p", "samples", "bad", 1, "bad-turn-1", "Question 1 of bad?", OSLO)
    assert [row[2:5] for row in found[3:6]] == [
        ("good", 1, "good-turn-1"), ("good", 2, "good-turn-2"), ("good", 3, "good-turn-3"),
    ]  # fmt: skip


def test_scores_by_conversation_are_a_view(store: Store) -> None:
    of_turns = scores(store)
    found = query(
        store,
        "SELECT conversation_id, turns, n_scored, mean, minimum FROM latest.conversation_scores "
        "WHERE metric = 'bleu_faithfulness' ORDER BY ALL",
    )
    wanted = []
    for name, turns in (("bad", 2), ("fine", 1), ("good", 3), ("mixed", 2)):
        values = [of_turns[f"{name}-turn-{n}"] for n in range(1, turns + 1)]
        wanted.append((name, turns, turns, pytest.approx(sum(values) / turns), min(values)))
    assert found.rows() == wanted


def sql_of(section: str) -> str:
    text = GUIDE.partition(f"\n### `{section}`\n")[2].partition("\n### ")[0]
    (sql,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    return str(sql)


def test_the_queries_of_the_guide(store: Store) -> None:
    by_turn = query(store, sql_of("turns")).filter(metric="bleu_faithfulness")
    assert by_turn.select("turn", "scored").rows() == [(1, 4), (2, 3), (3, 1)]
    of_turns = scores(store)
    worst = query(store, sql_of("conversation_scores")).filter(metric="bleu_faithfulness")
    turns = {"bad": [1, 2], "mixed": [1, 2]}
    lowest = {
        name: min(numbers, key=lambda n: of_turns[f"{name}-turn-{n}"])
        for name, numbers in turns.items()
    }
    assert worst["conversation_id"].to_list() == ["bad", "mixed"]
    assert dict(worst.select("conversation_id", "turn").iter_rows()) == lowest
    assert worst.row(0)[-1] == f"Question {lowest['bad']} of bad?"


def clusters(names: list[str]) -> list[str]:
    return [name.partition("-turn-")[0] for name in names]


def test_intervals_and_gates_are_clustered(store: Store, tmp_path: Path) -> None:
    of_turns = scores(store)
    names = sorted(of_turns)
    low, high = clustered_mean_interval(
        np.array([of_turns[name] for name in names]), clusters(names)
    )
    interval = query(
        store,
        "SELECT low, high FROM latest.summaries WHERE metric = 'bleu_faithfulness'",
    )
    assert interval.rows() == [(low, high)]
    assert low is not None
    gates = {"bleu_faithfulness": {"min": 0.1}}
    assert main(["run", str(write(tmp_path, RECORDS, gates=gates))]) in (0, 5)
    gate = query(Store(tmp_path / "s.duckdb"), "SELECT low, high FROM audit.gates")
    assert gate.rows() == [(low, high)]


def test_differences_are_clustered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    better = [
        conversation("good", TOWER, HIGH, HIGH),
        conversation("bad", TOWER, HIGH),
        conversation("mixed", TOWER, OSLO),
        conversation("fine", TOWER),
        *RECORDS[4:],
    ]
    assert main(["run", str(write(tmp_path, RECORDS))]) == 0
    gates = {"bleu_faithfulness": {"no_worse_than": "previous", "by": 0.1}}
    assert main(["run", str(write(tmp_path, better, gates=gates))]) in (0, 5)
    store = Store(tmp_path / "s.duckdb")
    runs = query(store, "SELECT run_id FROM audit.runs ORDER BY started_at")["run_id"].to_list()
    found = compare(store, *runs)
    [one] = [metric for metric in found.metrics if metric.metric == "bleu_faithfulness"]
    assert found.by == "conversation_id"
    assert one.difference is not None
    # Four conversations, and two samples of none.
    assert (one.difference.samples, one.difference.units) == (10, 6)
    [of_samples] = [
        metric
        for metric in compare(store, *runs, by="turn").metrics
        if metric.metric == "bleu_faithfulness"
    ]
    assert of_samples.difference is not None
    assert of_samples.difference.units == 5
    gate = query(store, "SELECT value, low, high FROM audit.gates WHERE baseline IS NOT NULL").row(
        0
    )
    assert gate == (one.difference.mean, one.difference.low, one.difference.high)
    capsys.readouterr()
    with chdir(tmp_path):
        assert main(["diff", *runs, "--store", "s.duckdb"]) == 0
    assert "one unit for each conversation_id" in " ".join(capsys.readouterr().out.split())


def test_runs_without_conversations_are_compared_by_sample(tmp_path: Path) -> None:
    path = write(tmp_path, RECORDS[4:])
    assert main(["run", str(path)]) == 0
    assert main(["run", str(path)]) == 0
    store = Store(tmp_path / "s.duckdb")
    runs = query(store, "SELECT run_id FROM audit.runs ORDER BY started_at")["run_id"].to_list()
    assert compare(store, *runs).by is None
    assert query(store, "FROM turns").is_empty()
    assert query(store, "FROM conversation_scores").is_empty()


FORGOTTEN: list[dict[str, Any]] = [
    {
        "id": "c",
        "messages": [
            {"role": "user", "content": "Where is the tower?"},
            {"role": "assistant", "content": TOWER, "contexts": [TOWER]},
            {"role": "user", "content": "Where was that again?"},
            {"role": "assistant", "content": TOWER, "contexts": [OSLO]},
        ],
    }
]


def test_earlier_turns_can_support_claims() -> None:
    means = {}
    for setting in (None, "history", "contexts"):
        metrics = [{"use": "faithfulness"}]
        found = claimflow.evaluate(FORGOTTEN, metrics=metrics, earlier_turns=setting)
        means[setting] = found.scores.sort("sample_id")["score"].to_list()
    assert means == {None: [1.0, 0.0], "history": [1.0, 0.0], "contexts": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("context", "earlier_turns: 'context' is unknown; did you mean 'contexts'?"),
        (True, "earlier_turns: is of type bool; give 'history' or 'contexts'"),
    ],
)
def test_a_wrong_setting_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        claimflow.evaluate(FORGOTTEN, earlier_turns=value)
    assert str(caught.value) == message


def test_the_setting_in_a_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = {"path": "s.jsonl", "earlier_turns": "contexts"}
    path = write(tmp_path, FORGOTTEN, samples=samples)
    assert main(["run", str(path)]) == 0
    contexts = query(
        Store(tmp_path / "s.duckdb"),
        "SELECT retrieved_contexts FROM latest.samples ORDER BY sample_id",
    )
    assert contexts["retrieved_contexts"].to_list() == [
        [TOWER],
        [OSLO, "user: Where is the tower?", f"assistant: {TOWER}"],
    ]
    capsys.readouterr()
    write(tmp_path, FORGOTTEN, samples={**samples, "earlier_turns": "both"})
    assert main(["run", str(path)]) == 2
    error = capsys.readouterr().err
    assert "p.yaml:4 samples.earlier_turns: 'both'" in error
    with chdir(tmp_path):
        command = ["run", "p.yaml", "--earlier-turns", "contexts"]
        write(tmp_path, FORGOTTEN)
        assert main(command) == 2
        assert "--earlier-turns: is for a data file" in capsys.readouterr().err


def test_a_data_file_with_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, FORGOTTEN)
    with chdir(tmp_path):
        command = ["run", "s.jsonl", "--metrics", "deterministic_faithfulness"]
        assert main([*command, "--earlier-turns", "contexts", "--save", "made.yaml"]) == 0
        made = yaml.safe_load((tmp_path / "made.yaml").read_text("utf-8"))
    assert made["samples"] == {"path": "s.jsonl", "earlier_turns": "contexts"}
    said = capsys.readouterr().err
    assert "2 samples with sample_id from id, user_input from messages" in said
    assert "retrieved_contexts from messages" in said


def test_the_example_of_the_guide() -> None:
    section = PIPELINES.partition("\n## Conversations\n")[2].partition("\n## ")[0]
    (line,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    result = claimflow.evaluate([json.loads(line)], metrics=["faithfulness"])
    table = result.sql(
        "SELECT sample_id, turn, response, score FROM turns JOIN scores USING (run_id, sample_id) "
        "ORDER BY turn"
    )
    assert isinstance(table, pl.DataFrame)
    cells = [re.split(r"\s{2,}", row.strip()) for row in shown.splitlines()[1:]]
    assert [[str(cell) for cell in row] for row in table.iter_rows()] == cells


IBSEN = [
    {"role": "user", "content": "Who was Henrik Ibsen?"},
    {"role": "assistant", "content": "Henrik Ibsen was a Norwegian playwright."},
    {"role": "user", "content": "Where was he born?"},
    {"role": "assistant", "content": "Skien"},
]


def test_metrics_by_name_understand_a_turn_by_the_conversation() -> None:
    found = claimflow.evaluate(
        [{"id": "ibsen", "messages": IBSEN, "reference": "In Skien."}],
        metrics=["factual_correctness"],
    )
    by_side = found.claims.filter(pl.col("sample_id") == "ibsen-turn-2").select("of", "claim")
    assert sorted(by_side.rows()) == [
        ("reference", "Henrik Ibsen was born in Skien."),
        ("response", "Henrik Ibsen was born in Skien."),
    ]
    score = found.scores.filter(pl.col("sample_id") == "ibsen-turn-2")["score"].item()
    assert score > 0.7


def test_metrics_by_name_of_plain_questions_have_no_context_setting() -> None:
    found = claimflow.evaluate([{"question": "Who?", "answer": "Ann", "reference": "Ann"}])
    configs = found.sql(f"SELECT config FROM audit.runs WHERE run_id = '{found.run_id}'")
    assert "conversation" not in configs["config"].item()
