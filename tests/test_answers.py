"""The benchmark of answers: its figures by hand, its data sets, and a small run from end to end."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from claimflow.stages.registry import STAGES
from claimflow.testing import ScriptedJudge
from tests.benchmarks.answers import (
    BOOTSTRAPS,
    FOLDER,
    SETS,
    SETTINGS,
    Setting,
    auc,
    baselines,
    bootstrap,
    classified_right,
    figure_of,
    main,
    ranks,
    rows_of,
    score_set,
    spearman,
    steps_for,
)

SHIPPED = [name for name, one in SETS.items() if not one.left_out]
LICENCES = (FOLDER / "LICENSES.md").read_text("utf-8")


def numbers(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def test_ranks_count_a_value_as_often_as_a_sample_has_it() -> None:
    times = np.array([[1.0, 1, 1, 1], [2, 0, 1, 1]])
    found = ranks(numbers(5, 7, 9, 9), times)
    assert found[0].tolist() == [1, 2, 3.5, 3.5]
    assert found[1, [0, 2, 3]].tolist() == [1.5, 3.5, 3.5]


@pytest.mark.parametrize(
    ("scores", "people", "times", "expected"),
    [
        ((1, 2, 3, 4), (1, 3, 2, 4), (1, 1, 1, 1), 0.8),
        ((1, 1, 2), (1, 2, 3), (1, 1, 1), np.sqrt(3) / 2),
        # Without its second row, and with the first twice: three rows in the same order.
        ((1, 9, 2, 3), (1, 0, 2, 3), (2, 0, 1, 1), 1.0),
    ],
)
def test_spearman(
    scores: list[float], people: list[float], times: list[float], expected: float
) -> None:
    found = spearman(numbers(*scores), numbers(*people), np.array([times], dtype=float))
    assert found[0] == pytest.approx(expected, abs=1e-12)


def test_spearman_of_constant_scores_is_not_a_number() -> None:
    assert np.isnan(spearman(numbers(1, 1, 1), numbers(1, 2, 3), np.ones((1, 3))))[0]


def test_auc_counts_ties_as_half() -> None:
    # Of the four pairs of good and bad three are in order and one is a tie. In the second sample
    # the tied good response is there twice: six pairs, four in order, two ties.
    times = np.array([[1.0, 1, 1, 1], [1, 1, 2, 1], [1, 1, 0, 0]])
    found = auc(numbers(1, 2, 2, 3), numbers(0, 0, 1, 1), times)
    assert found[:2].tolist() == pytest.approx([3.5 / 4, 5 / 6])
    assert np.isnan(found[2])


def test_accuracy_takes_the_threshold_of_the_other_folds() -> None:
    # The last response needs a threshold of at most 0.4; the best of the other four is 0.8.
    scores, people = numbers(0.1, 0.9, 0.2, 0.8, 0.4), numbers(0, 1, 0, 1, 1)
    assert classified_right(scores, people, np.arange(5)).tolist() == [1, 1, 1, 1, 0]
    figure = figure_of("accuracy", scores, people, list("abcde"))
    assert figure.values is not None
    assert figure.values[0] == 0.8
    # A bootstrap sample has between none and all of the five groups right, each with 0.8.
    assert (figure.values[1], figure.values[2]) == (pytest.approx(0.4), 1.0)


def test_a_response_without_a_score_is_classified_as_bad_and_left_out_of_the_others() -> None:
    scores, people = numbers(0.1, np.nan, 0.2, 0.8, 0.9, np.nan), numbers(0, 1, 0, 1, 1, 0)
    right = classified_right(scores, people, np.arange(6) % 5)
    assert (right[1], right[5]) == (0, 1)
    figure = figure_of("AUC", scores, people, list("abcdef"))
    assert figure.values is not None
    assert (figure.values[0], figure.n) == (1, 4)
    assert "100.0  (100.0 to 100.0)" in str(figure)


def test_bootstrap_draws_whole_groups() -> None:
    times = bootstrap(np.array([0, 0, 1, 2, 2, 2]))
    assert times.shape == (BOOTSTRAPS + 1, 6)
    assert times[0].tolist() == [1] * 6
    assert (times[:, [0, 3, 3]] == times[:, [1, 4, 5]]).all()
    assert (times[:, [0, 2, 3]].sum(axis=1) == 3).all()
    # Of 27 equally likely draws of three groups 8 lack the first one.
    assert (times[1:, 0] == 0).mean() == pytest.approx(8 / 27, abs=0.03)


def test_more_rows_of_a_group_make_no_interval_narrower() -> None:
    random = np.random.default_rng(1)
    people = random.random(30)
    scores = people + random.random(30)
    groups = [str(number) for number in range(30)]
    once = figure_of("Spearman", scores, people, groups)
    repeated = [np.repeat(column, 4) for column in (scores, people)]
    grouped = figure_of("Spearman", *repeated, list(np.repeat(groups, 4)))
    alone = figure_of("Spearman", *repeated, [str(number) for number in range(120)])
    assert once.values is not None
    assert alone.values is not None
    assert grouped.values == pytest.approx(once.values)
    assert alone.values[2] - alone.values[1] < 0.7 * (once.values[2] - once.values[1])


@pytest.mark.parametrize("name", ["Spearman", "AUC", "accuracy"])
def test_without_scores_or_differences_there_is_no_figure(name: str) -> None:
    people = numbers(0, 1, 0, 1)
    for scores in (np.full(4, np.nan), np.ones(4)):
        figure = figure_of(name, scores, people, list("aabb"))  # type: ignore[arg-type]
        assert figure.values is None or name == "AUC"
        assert figure.n == np.isfinite(scores).sum()
    assert str(figure_of("AUC", np.full(4, np.nan), people, list("aabb"))).strip() == "-"


def test_baselines() -> None:
    sample = {"response": "In the town of Rome.", "reference": "Rome, Italy / the town"}
    recall, f1 = "words: share of the reference's in the response", "words: F1 of both"
    inside = "containment: a gold answer in the response"
    assert baselines(sample, "reference", gold=True) == {recall: 1, f1: 4 / 7, inside: 1}
    assert baselines(sample, "reference", gold=False) == {recall: 3 / 4, f1: 6 / 9}
    other = {"response": "Athens", "reference": "Then"}
    assert baselines(other, "reference", gold=True) == {recall: 0, f1: 0, inside: 0}
    contexts = {"response": "Rome is old", "retrieved_contexts": ["Rome is", "in Italy"]}
    assert list(baselines(contexts, "contexts", gold=False).values()) == [2 / 3]
    assert list(baselines(contexts | {"response": ""}, "contexts", gold=False).values()) == [0]


@pytest.mark.parametrize("name", SHIPPED)
def test_set_has_its_fields_and_a_licence(name: str) -> None:
    one, rows = SETS[name], rows_of(name)
    assert len({row["id"] for row in rows}) == len(rows)
    assert len({one.group_of(row) for row in rows}) >= 10
    needed = {"user_input", "response"} | ({"response_b"} if one.pairs else set())
    for target in one.targets:
        needed.add("reference" if target.direction == "reference" else "retrieved_contexts")
        people = np.array([target.human(row) for row in rows], dtype=float)
        judged = people[np.isfinite(people)]
        assert len(judged) >= 65
        kinds = set(judged)
        assert kinds == {0, 1} if target.figure != "Spearman" else len(kinds) > 2
    assert all(needed <= row.keys() for row in rows)
    assert f"| {name} |" in LICENCES
    file = (FOLDER / f"{name}.jsonl.gz").read_bytes()
    assert file[4:8] == bytes(4), "the file has the time when it was made"
    assert gzip.decompress(file).endswith(b"}\n")


def test_what_is_left_out_says_why() -> None:
    assert {path.name for path in FOLDER.glob("*.gz")} == {f"{n}.jsonl.gz" for n in SHIPPED}
    for name in SETS.keys() - set(SHIPPED):
        assert f"`{name}`" in LICENCES
        with pytest.raises(FileNotFoundError):
            rows_of(name)


def test_set_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "ragtruth_qa.jsonl").write_text(json.dumps({"id": "1"}) + "\n", "utf-8")
    assert rows_of("ragtruth_qa", tmp_path) == [{"id": "1"}]


def test_each_setting_is_a_line_of_its_own() -> None:
    for direction, settings in SETTINGS.items():
        lines = [setting.line(setting.use) for setting in settings]
        assert len(set(lines)) == len(lines)
        steps = steps_for([direction])
        assert {f"{direction}_{n}" for n in range(len(settings))} < steps.keys()
    other = Setting("faithfulness", {"compat": "ragas-0.4"}, "high")
    assert other.line("faithfulness") == "faithfulness, compat ragas-0.4, claims high"


def test_run_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        ["--set", "openqa_nq301", "ragtruth_qa", "--limit", "2", "--store", str(tmp_path / "s.db")]
    )
    text = capsys.readouterr().out
    assert "openqa_nq301: 9 rows of 2 questions, A PART of 746 rows of 151 questions" in text
    assert "ragtruth_qa: left out, as its contexts are passages of MS MARCO" in text
    lines = {line[:70].strip(): line[70:] for line in text.splitlines() if line[:4] == "    "}
    for setting in SETTINGS["reference"]:
        for metric in STAGES[setting.use].metrics:
            assert " of 9" in lines[setting.line(metric)]
    assert "9 of 9" in lines["containment: a gold answer in the response"]
    assert "correct or not: AUC; 77.8 % good\n" in text
    assert "no model calls" in text


def test_pairs_are_judged_once(tmp_path: Path) -> None:
    rows = rows_of("ragchecker_pairs")[1:3]
    judge = ScriptedJudge(
        claims=lambda text: [text[:40]],
        verdict=lambda claim, premise: "entailed" if claim in premise else "neutral",
        name="scripted",
    )
    store = tmp_path / "s.duckdb"
    found, costs = score_set("ragchecker_pairs", rows, judge=judge, store=store)
    assert re.search(r"scripted: \d+ calls, [\d,]+ tokens, 0.0000 USD", costs[0])
    _, costs = score_set("ragchecker_pairs", rows, judge=judge, store=store)
    assert costs == ["no model calls"]
    lines = found["reference"]
    recall = "words: share of the reference's in the response"
    each = [
        baselines(row | {"response": row[side]}, "reference", gold=False)[recall]
        for side in ("response", "response_b")
        for row in rows
    ]
    assert lines[recall].tolist() == [each[2] - each[0], each[3] - each[1]]
    assert lines["factual_correctness"].tolist() == [0, 0]
