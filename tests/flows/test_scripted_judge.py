"""A judge with scripted answers, and providers named `module:Name`, in whole runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimflow
from claimflow.flows.judge.provider import ProviderError
from claimflow.testing import ScriptedJudge

ANSWERS = [
    {"sample_id": "a", "response": "It is high. It is old.", "retrieved_contexts": ["It is high."]},
    {"sample_id": "b", "response": "It is red.", "retrieved_contexts": ["It is blue."]},
]


def sentences(text: str) -> list[str]:
    return [part.strip(" .") + "." for part in text.split(". ")]


def is_there(claim: str, premise: str) -> str:
    return "entailed" if claim in premise else "neutral"


def faithfulness(result: Any) -> dict[str, float | None]:
    rows = result.scores.filter(metric="faithfulness").select("sample_id", "score").rows()
    return dict(rows)


def test_functions_say_what_the_judge_thinks() -> None:
    judge = ScriptedJudge(claims=sentences, verdict=is_there)
    result = claimflow.evaluate(ANSWERS, metrics=["faithfulness"], judge=judge)
    assert faithfulness(result) == {"a": 0.5, "b": 0.0}
    calls = result.calls
    assert calls.height == len(judge.requests) > 0
    assert calls["prompt_tokens"].min() > 0
    assert calls["completion_tokens"].min() > 0
    assert set(calls["cost"]) == {0}


ATOMICITY = """
SELECT settings->>'atomicity' FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
WHERE run_steps.run_id = $run AND stage = 'decompose_claims'
"""


def test_metrics_by_name_count_by_the_support_of_the_verdicts() -> None:
    judge = ScriptedJudge(claims=sentences, verdict=is_there)
    judged = claimflow.evaluate(ANSWERS, metrics=["faithfulness"], judge=judge)
    assert judged.verdicts["support"].to_list() == [None] * 3
    assert judged.sql(ATOMICITY, {"run": judged.run_id}).rows() == [("high",)]
    by_model = claimflow.evaluate(ANSWERS, metrics=["faithfulness"])
    verdicts = by_model.verdicts
    assert verdicts["support"].to_list() == verdicts["p_entailed"].to_list()
    assert by_model.sql(ATOMICITY, {"run": by_model.run_id}).rows() == [("low",)]
    support = verdicts.group_by("sample_id").agg(pl.col("support").mean())
    assert faithfulness(by_model) == pytest.approx(dict(support.rows()))
    with_defaults = claimflow.evaluate(ANSWERS, metrics=[{"use": "faithfulness"}])
    assert set(faithfulness(with_defaults).values()) <= {0.0, 0.5, 1.0}


def test_the_share_of_votes_counts(tmp_path: Path) -> None:
    steps = {
        "response_claims": {"use": "decompose_claims", "of": "response", "judge": "embedded"},
        "response_in_contexts": {
            "use": "verify_claims",
            "claims": "response_claims",
            "against": "retrieved_contexts",
            "votes": 3,
        },
        "faithfulness": {"use": "faithfulness", "count": "probabilities"},
    }
    said = iter(["entailed", "neutral", "entailed"] * 3)
    judge = ScriptedJudge(verdict=lambda claim, premise: next(said))
    result = claimflow.evaluate(ANSWERS[1:], pipeline={"name": "v", "steps": steps}, judge=judge)
    assert result.verdicts.select("verdict", "support").rows() == [("entailed", 2 / 3)]
    assert faithfulness(result) == {"b": 2 / 3}


def test_a_named_judge_is_not_asked_twice(tmp_path: Path) -> None:
    for asked in (True, False):
        judge = ScriptedJudge(claims=sentences, verdict=is_there, name="twice")
        store = tmp_path / "s.duckdb"
        claimflow.evaluate(ANSWERS, metrics=["faithfulness"], judge=judge, store=store)
        assert bool(judge.requests) is asked


def test_a_rubric_is_scripted() -> None:
    judge = ScriptedJudge(check=lambda _, sample: "pass" if "old" in sample else "fail")
    rubric = {"use": "rubric", "criterion": "It says the age.", "metric": "age"}
    result = claimflow.evaluate(ANSWERS, metrics=[rubric], judge=judge)
    assert dict(result.scores.select("sample_id", "score").rows()) == {"a": 1.0, "b": 0.0}


def test_a_list_is_given_call_by_call_and_an_exception_is_a_failed_row() -> None:
    refused = ProviderError("refused", "not this text")
    reply = {"texts": [{"id": 1, "claims": ["It is high."]}]}
    judge = ScriptedJudge([reply, refused])
    steps = {"response_claims": {"use": "decompose_claims", "of": "response"}}
    pipeline = {
        "name": "p",
        "samples": {"path": ""},
        "judge": judge.settings | {"max_concurrency": 1},
        "steps": steps,
        "fail_when": "never",
    }
    result = claimflow.evaluate(ANSWERS, pipeline=pipeline)
    rows = result.claims.select("sample_id", "claim", "status", "failure").rows()
    assert sorted(rows) == [
        ("a", "It is high.", "made", None),
        ("b", None, "failed", "refused"),
    ]


def test_a_script_that_ends_too_early_ends_the_run() -> None:
    judge = ScriptedJudge([])
    with pytest.raises(claimflow.JudgeError, match="the script has no answer to call 1"):
        claimflow.evaluate(ANSWERS, metrics=["faithfulness"], judge=judge)


def test_a_judge_without_a_script_is_refused() -> None:
    with pytest.raises(TypeError, match="give answers, or functions"):
        ScriptedJudge()


PROVIDER = """
import json
from claimflow.testing import ScriptedJudge

class MyJudge(ScriptedJudge):
    def __init__(self):
        super().__init__(claims=lambda text: [text], verdict=lambda claim, premise: "entailed")

instance = MyJudge()
number = 5
"""


def run(folder: Path, provider: str) -> subprocess.CompletedProcess[str]:
    """`claimflow run` on a pipeline with the provider, in a process of its own."""
    (folder / "my_judges.py").write_text(PROVIDER, "utf-8")
    (folder / "broken_judges.py").write_text("def f(:\n", "utf-8")
    lines = "\n".join(json.dumps(row) for row in ANSWERS)
    (folder / "answers.jsonl").write_text(lines, "utf-8")
    (folder / "p.yaml").write_text(
        f"""name: p
samples: {{path: answers.jsonl}}
store: p.duckdb
judge: {{provider: "{provider}", model: any}}
steps:
  response_claims: {{use: decompose_claims, of: response}}
  response_in_contexts: {{use: verify_claims, claims: response_claims, against: retrieved_contexts}}
  faithfulness: {{use: faithfulness}}
""",
        "utf-8",
    )
    return subprocess.run(
        [sys.executable, "-m", "claimflow", "run", str(folder / "p.yaml")],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder.parent,
        env=os.environ,
    )


@pytest.mark.parametrize("name", ["MyJudge", "instance"])
def test_a_provider_beside_the_pipeline_judges(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, f"my_judges:{name}")
    assert done.returncode == 0, done.stderr
    with claimflow.Store(tmp_path / "p.duckdb").reading() as connection:
        assert connection.execute("SELECT score FROM scores").fetchall() == [(1.0,), (1.0,)]
        models = connection.execute("SELECT DISTINCT outcome FROM audit.calls").fetchall()
    assert models == [("ok",)]


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("my_judges:MyJugde", "p.yaml:4 judge.provider: the module my_judges"),
        ("no_such_judges:Judge", "p.yaml:4 judge.provider: there is no module 'no_such_judges'"),
        ("broken_judges:Judge", "broken_judges cannot be imported: SyntaxError"),
        ("my_judges:number", "judge provider my_judges:number: cannot be loaded: TypeError"),
    ],
)
def test_a_provider_that_cannot_be_used_is_one_line(
    tmp_path: Path, provider: str, message: str
) -> None:
    done = run(tmp_path, provider)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "p.duckdb").exists()


def test_the_scripted_judge_of_the_guide_judges() -> None:
    guide = (Path(__file__).parents[2] / "configs/guides/judges.md").read_text("utf-8")
    code = guide.partition("## A scripted judge for tests")[2]
    defined: dict[str, Any] = {}
    exec(code.partition("```python\n")[2].partition("```")[0], defined)
    defined["test_my_pipeline"]()
