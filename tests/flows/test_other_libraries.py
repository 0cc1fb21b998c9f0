"""The scripts of the guide for people who come from another library."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import claimflow
from claimflow.testing import ScriptedJudge
from tests.endpoint.server import serve

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "configs/guides/other_libraries.md").read_text("utf-8")
FIRST, TEST = re.findall(r"```python\n((?s:.*?))```", GUIDE)
ROW = {
    "user_input": "When did the tower open?",
    "response": "The tower opened in 1889.",
    "reference": "The tower opened in 1889.",
    "retrieved_contexts": ["The tower in Paris opened in 1889."],
}


def run(folder: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / ".package"), **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_script_asks_the_judge(tmp_path: Path) -> None:
    with serve() as endpoint:
        world = {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": endpoint.api_base}
        printed = run(tmp_path, "-c", FIRST, **world)
        assert endpoint.hits > 0
    assert printed.startswith("faithfulness 0.5")
    assert "1 of 1" in printed


def test_the_test_of_the_guide_passes_in_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_answers.py").write_text(TEST, "utf-8")
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "test_answers.py")


@pytest.mark.parametrize(
    "names",
    [
        ("user_input", "response", "reference", "retrieved_contexts"),  # ragas
        ("input", "actual_output", "expected_output", "retrieval_context"),  # DeepEval
        ("question", "answer", "ground_truth_answers", "retrieved_context"),  # continuous-eval
        ("query", "response", "gt_answer", "retrieved_context"),  # RAGChecker
    ],
)
def test_rows_can_stay_as_they_are(names: tuple[str, ...]) -> None:
    row = dict(zip(names, ROW.values(), strict=True))
    if "ground_truth_answers" in row:
        row["ground_truth_answers"] = [ROW["reference"]]
    by_verdicts = [{"use": "faithfulness"}, {"use": "factual_correctness"}]
    result = claimflow.evaluate([row], metrics=by_verdicts)
    assert (result["faithfulness"].mean, result["factual_correctness"].mean) == (1.0, 1.0)


def test_a_rubric_stands_for_a_criterion_of_deepeval_and_promptfoo() -> None:
    judge = ScriptedJudge(check=lambda _text, _criterion: "pass")
    polite = {"use": "rubric", "criterion": "The answer is polite.", "reads": ["response"]}
    result = claimflow.evaluate([ROW], metrics=[polite], judge=judge)
    [score] = result.scores.to_dicts()
    assert (score["score"], score["status"]) == (1.0, "scored")
