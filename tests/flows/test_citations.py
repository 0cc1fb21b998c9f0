"""Citations in whole runs: a wrong marker is noticed, and shown with what would be right."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import claimflow
from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.compose import compose
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store
from claimflow.testing import ScriptedJudge

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "flows/guides/sql.md").read_text("utf-8")

PASSAGES = [
    "The Eiffel Tower stands in Paris.",
    "The Colosseum was built in the first century.",
    "The harbour of Oslo is cold.",
]
ANSWERS = [
    {
        "sample_id": "right",
        "response": "The Eiffel Tower stands in Paris [1]. The Colosseum is very old.",
        "retrieved_contexts": PASSAGES,
    },
    {
        "sample_id": "wrong",
        "response": "The Eiffel Tower stands in Paris [2].",
        "retrieved_contexts": PASSAGES,
    },
    {
        "sample_id": "padded",
        "response": "The Eiffel Tower stands in Paris [1, 3].",
        "retrieved_contexts": PASSAGES,
    },
    {
        "sample_id": "lost",
        "response": "The Eiffel Tower stands in Paris [7].",
        "retrieved_contexts": PASSAGES,
    },
    {"sample_id": "none", "response": "The Eiffel Tower is high.", "retrieved_contexts": PASSAGES},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline of the configs over answers that cite, run once."""
    folder = tmp_path_factory.mktemp("citations")
    lines = [json.dumps(answer) for answer in ANSWERS]
    (folder / "answers.jsonl").write_text("\n".join(lines), "utf-8")
    pipeline = yaml.safe_load((ROOT / "configs/citations.yaml").read_text("utf-8"))
    pipeline |= {"samples": {"path": "answers.jsonl"}, "store": "s.duckdb"}
    (folder / "p.yaml").write_text(yaml.safe_dump(pipeline), "utf-8")
    assert main(["run", str(folder / "p.yaml")]) == 0
    return folder


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(folder / "s.duckdb")


def test_a_wrong_citation_is_noticed(store: Store) -> None:
    rows = query(store, "SELECT sample_id, metric, score FROM latest.scores").iter_rows()
    scores: dict[str, dict[str, float | None]] = {}
    for sample_id, metric, score in rows:
        scores.setdefault(sample_id, {})[metric.removeprefix("citation_")] = score
    assert scores == {
        "right": {"recall": 0.5, "precision": 1, "misattribution": 0},
        "wrong": {"recall": 0, "precision": 0, "misattribution": 1},
        "padded": {"recall": 1, "precision": 0.5, "misattribution": 0},
        "lost": {"recall": 0, "precision": 0, "misattribution": 1},
        "none": {"recall": 0, "precision": None, "misattribution": None},
    }


def test_the_query_of_the_guide_lists_misattributed_claims(store: Store) -> None:
    section = GUIDE.partition("\n### `citations`\n")[2].partition("\n### ")[0]
    (sql,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    found = query(store, sql).select("sample_id", "claim", "markers", "cited", "entailed_by")
    claim = "The Eiffel Tower stands in Paris."
    assert found.rows() == [("lost", claim, ["[7]"], [None], 0), ("wrong", claim, ["[2]"], [1], 0)]


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        ("wrong", "cites context [1] (marker [2]); misattributed: context [0] entails it instead"),
        ("padded", "cites context [0] (marker [1]), context [2] (marker [3])"),
        ("lost", "cites no context (marker [7]); misattributed: context [0] entails it instead"),
    ],
)
def test_a_claim_is_shown_with_what_it_cites(
    folder: Path, capsys: pytest.CaptureFixture[str], sample: str, shown: str
) -> None:
    assert main(["explain", sample, "--config", str(folder / "p.yaml")]) == 0
    lines = [line.strip("│├└─ ") for line in capsys.readouterr().out.splitlines()]
    assert shown in lines
    trace = claimflow.connect(folder / "s.duckdb").result("latest").sample(sample)
    assert [claim["cites"] for claim in trace.rows["claims"]] == [shown]
    assert "marker" in trace._repr_html_()


def test_claims_without_citations_have_no_verdict_and_nothing_to_show(store: Store) -> None:
    found = query(
        store,
        "SELECT sample_id FROM latest.claim_verdicts WHERE step = 'response_in_cited' ORDER BY ALL",
    )
    assert found["sample_id"].to_list() == ["lost", "padded", "right", "wrong"]
    trace = claimflow.connect(store.path).result("latest").sample("none")
    assert [claim["cites"] for claim in trace.rows["claims"]] == [None]


def test_all_is_reused_and_the_store_is_sound(
    folder: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(folder / "p.yaml")]) == 0
    assert "0 steps made, 7 reused" in " ".join(capsys.readouterr().out.split())
    assert check_store(store).faults == []


def test_verdicts_on_cited_passages_are_labelled_and_not_corrected(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--config", str(folder / "p.yaml")]
    sheet = folder / "labels.csv"
    step = ["--step", "response_in_cited"]
    assert main(["label", "export", *options, *step, "-o", str(sheet)]) == 0
    with sheet.open(encoding="utf-8", newline="") as file:
        premises = {row["sample_id"]: row["premise"] for row in csv.DictReader(file)}
    assert premises == {
        "right": PASSAGES[0],
        "wrong": PASSAGES[1],
        "padded": f"{PASSAGES[0]}\n{PASSAGES[2]}",
        "lost": "",
    }
    verdicts = str(folder / "verdicts.csv")
    assert main(["export", "verdicts", *options, "--format", "csv", "-o", verdicts]) == 0
    assert "response_in_cited" not in Path(verdicts).read_text("utf-8")
    capsys.readouterr()
    assert main(["export", "verdicts", *options, *step, "--format", "csv"]) == 2


def sentences(text: str) -> list[str]:
    return [f"{part.strip(' .')}." for part in re.sub(r" ?\[[\d, -]+\]", "", text).split(". ")]


def of_both_halves(claim: str, premise: str) -> str:
    """Entailed where the premise has every word of the claim."""
    words = set(re.findall(r"\w+", premise))
    return "entailed" if words.issuperset(re.findall(r"\w+", claim)) else "neutral"


def run_with(judge: Callable[[str, str], str], answer: dict[str, Any]) -> dict[str, Any]:
    result = claimflow.evaluate(
        [answer],
        metrics=["citation_precision"],
        judge=ScriptedJudge(claims=sentences, verdict=judge),
    )
    scores = result.scores.select("metric", "score")
    return {metric.removeprefix("citation_"): score for metric, score in scores.iter_rows()}


@pytest.mark.parametrize(
    ("response", "contexts", "precision"),
    [
        ("Red is warm [1, 2].", ["Red is warm", "blue"], 1 / 2),
        ("Red is warm [1][2].", ["Red is", "warm"], 1),
        ("Red is warm [1-3].", ["Red", "is warm", "blue"], 2 / 3),
        ("Red is warm [1-3].", ["Red", "is", "warm"], 1),
        ("Red is warm [1-4].", ["Red is warm", "Red", "is", "blue"], 1 / 4),
    ],
)
def test_a_language_model_judges_cited_passages(
    response: str, contexts: list[str], precision: float
) -> None:
    answer = {"sample_id": "s", "response": response, "retrieved_contexts": contexts}
    expected = {"recall": 1, "precision": precision, "misattribution": 0}
    assert run_with(of_both_halves, answer) == pytest.approx(expected)


def test_a_metric_by_name_brings_its_steps() -> None:
    steps = compose(["citation_recall"])
    assert list(steps) == [
        "response_claims",
        "response_citations",
        "response_in_passages",
        "response_in_cited",
        "citations",
        "summary",
    ]


def test_a_step_of_the_name_of_an_unused_input_may_be_any(tmp_path: Path) -> None:
    rubric = {"use": "rubric", "criterion": "It cites.", "metric": "citations"}
    judge = ScriptedJudge(claims=sentences, verdict=of_both_halves, check=lambda *_: "pass")
    answers = [ANSWERS[0] | {"user_input": "Where?"}]
    result = claimflow.evaluate(answers, metrics=["faithfulness", rubric], judge=judge)
    assert set(result.scores["metric"]) == {"faithfulness", "citations"}
