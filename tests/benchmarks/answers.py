"""Metrics of whole answers compared with people's judgements, on public data sets.

    python -m tests.benchmarks.answers [--set NAME ...] [--limit N] [--judge JUDGE]
        [--store FILE] [--data FOLDER]

Each set of `SETS` says what people scored. Each line of a table compares one metric with that: the
figure in per cent, its 95 % interval, and how many of the rows have a score.

- Spearman: rank correlation with the human score. For pairs of responses, of the difference of
  their scores with the human preference.
- AUC: probability that a response that people call good has a higher score than one that they call
  bad; ties count half.
- accuracy: share of responses classified as people do. The threshold of a metric is the one that is
  best on the other four fifths of the groups. A response without a score is classified as bad.

Spearman and AUC leave out rows without a score. Intervals are the central 95 % of 2,000 bootstrap
samples of groups (question, conversation, document), since responses of one group are similar; for
accuracy with the thresholds fixed. To measure another setting, add a line to `SETTINGS`.

Baselines need no model: `words` counts distinct lower-case words, `containment` asks whether the
response contains a gold answer. The sets join several gold answers of a question by " / ": the
baselines take the best of them, all other metrics read the whole as the reference.

`--judge` is a model as litellm names it, or settings in YAML: `'{model: hosted_vllm/Qwen/Qwen3-8B,
api_base: "http://127.0.0.1:8000/v1"}'`. Without it the embedded model judges, in up to ten minutes
of CPU for a set. With `--store` a later run with more metrics or groups judges only what is new.
`--data` is a folder with files of sets that are not in the repository, as JSON Lines.
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

import claimflow
from claimflow.flows.errors import InputError, JudgeError
from claimflow.flows.report.run_text import calls_text
from claimflow.flows.store.results import calls_made
from claimflow.stages.registry import STAGES

Row = dict[str, Any]
Numbers = NDArray[np.float64]
Settings = dict[str, Any]
Direction = Literal["reference", "contexts"]
FigureName = Literal["Spearman", "AUC", "accuracy"]
Scores = dict[Direction, dict[str, Numbers]]  # by line: the score of each row, NaN for none

FOLDER: Final = Path(__file__).parents[1] / "data" / "answers"
FIELDS: Final = ("user_input", "response", "reference", "retrieved_contexts")
BOOTSTRAPS, FOLDS = 2_000, 5


class Setting(NamedTuple):
    """A score stage with settings, on claims and verdicts that were made with others."""

    use: str
    score: Settings = {}  # noqa: RUF012
    claims: str = "low"
    verdicts: str = "usual"

    def line(self, metric: str) -> str:
        """The name of the line of a metric: every setting that is not the documented default."""
        if self.claims == "sentences":
            return f"{metric}, as in the quickstart"
        parts = [metric, *(f"{name} {value}" for name, value in self.score.items())]
        parts += [f"claims {self.claims}"] if self.claims != "low" else []
        parts += [f"verdicts {self.verdicts}"] if self.verdicts != "usual" else []
        return ", ".join(parts)


def _verify(claims: str, against: str) -> Settings:
    return {"use": "verify_claims", "claims": claims, "against": against}


CLAIMS: Final[Mapping[str, Settings]] = {
    "low": {"atomicity": "low", "coverage": "low"},  # as documented
    "high": {"atomicity": "high", "coverage": "high"},  # as in the quickstart with a judge
    "sentences": {"atomicity": "low", "coverage": "high"},  # as in the quickstart
}
AGREEING: Final[Settings] = {"beta": 2, "recall_of": "reference", "count": "probabilities"}
"""The settings of the quickstart."""
VERDICTS: Final[Mapping[str, Settings]] = {"usual": {}}
INPUTS: Final[Mapping[str, Settings]] = {
    "response_claims": {"use": "decompose_claims", "of": "response"},
    "reference_claims": {"use": "decompose_claims", "of": "reference"},
    "response_in_reference": _verify("response_claims", "reference"),
    "reference_in_response": _verify("reference_claims", "response"),
    "response_in_contexts": _verify("response_claims", "retrieved_contexts"),
    "similarity": {"use": "embedding_similarity", "left": "response", "right": "reference"},
    "reference_matches": {"use": "lexical_match", "against": "reference", "unit": "text"},
    "context_matches": {"use": "lexical_match", "against": "retrieved_contexts"},
}

SETTINGS: Final[Mapping[Direction, Sequence[Setting]]] = {
    "reference": (
        Setting("factual_correctness"),
        Setting("factual_correctness", {"recall_of": "reference"}),
        Setting("factual_correctness", {"mode": "precision"}),
        Setting("factual_correctness", {"mode": "recall", "recall_of": "reference"}),
        Setting("factual_correctness", claims="high"),
        Setting("factual_correctness", {"recall_of": "reference"}, "high"),
        Setting("factual_correctness", {"mode": "precision"}, "high"),
        Setting("factual_correctness", {"mode": "recall", "recall_of": "reference"}, "high"),
        Setting("answer_correctness"),
        Setting("answer_correctness", {"recall_of": "reference"}),
        Setting("answer_correctness", claims="high"),
        Setting("answer_correctness", {"recall_of": "reference"}, "high"),
        Setting("factual_correctness", AGREEING, "sentences"),
        Setting("answer_correctness", AGREEING, "sentences"),
        Setting("semantic_similarity"),
        Setting("deterministic_correctness"),
    ),
    "contexts": (
        Setting("faithfulness"),
        Setting("faithfulness", claims="high"),
        Setting("faithfulness", {"count": "probabilities"}, "sentences"),
        Setting("deterministic_faithfulness"),
    ),
}


def question(row: Row) -> str:
    """The question, which several responses answer."""
    return str(row["user_input"])


def part_of_id(separator: str, part: int) -> Callable[[Row], str]:
    """A part of the id, which names a document or a conversation."""
    return lambda row: str(row["id"]).split(separator)[part]


def score(row: Row) -> float:
    """The only judgement of a row."""
    return float(row["human_score"])


def scores(field: str) -> Callable[[Row], float]:
    """One of several judgements of a row."""
    return lambda row: float(row["human_scores"][field])


def no_factual_error(row: Row) -> float:
    """1 without a factual error, else 0."""
    return float(not row["human_scores"]["has_factual_error"])


def few_missing_pieces(row: Row) -> float:
    """The number of missing pieces of information, with a minus."""
    return -float(sum(row["human_scores"]["missing_info"].values()))


def coverage_of_model(row: Row) -> float:
    """Coverage by a summary that a model wrote."""
    return np.nan if row["model"] == "human" else float(row["human_scores"]["coverage"])


class Target(NamedTuple):
    """A judgement of people, and how metrics of one direction are compared with it.

    `human` is the judgement of a row: for AUC and accuracy 1 for good and 0 for bad, NaN for a row
    that is left out.
    """

    title: str
    human: Callable[[Row], float]
    figure: FigureName = "Spearman"
    direction: Direction = "reference"
    published: str = ""


class AnswerSet(NamedTuple):
    """A data set: what people judged, and which rows form a group.

    `pairs`: rows have a second response, `response_b`. `gold`: the reference is one or more short
    gold answers. `left_out`: why the file is not in the repository.
    """

    targets: Sequence[Target]
    groups: str = "questions"
    group_of: Callable[[Row], str] = question
    pairs: bool = False
    gold: bool = False
    left_out: str = ""


def gold_answers(published: str = "") -> AnswerSet:
    """A set of short answers that people called correct or incorrect."""
    accuracy = Target("correct or not", score, "accuracy", published=published)
    return AnswerSet([accuracy, Target("correct or not", score, "AUC")], gold=True)


RAGCHECKER = "RAGChecker with a large model 60.9, ragas answer similarity 57.2"
RAGAS = "ragas faithfulness with a large model 63.5"

SETS: Final[Mapping[str, AnswerSet]] = {
    "ragchecker_pairs": AnswerSet(
        [
            Target("more correct", scores("correctness")),
            Target("more complete", scores("completeness")),
            Target("better overall", scores("overall"), published=RAGCHECKER),
        ],
        pairs=True,
    ),
    "mtrag_human": AnswerSet(
        [
            Target("faithfulness", scores("faithfulness"), "Spearman", "contexts", RAGAS),
            Target("completeness", scores("completeness")),
        ],
        "conversations",
        part_of_id("<::>", 0),
    ),
    "openqa_nq301": gold_answers("GPT-4 84.8, string containment 75.0"),
    "evouna_nq": gold_answers(),
    "evouna_tq": gold_answers(),
    "factscore_bio": AnswerSet(
        [Target("share of facts supported", score, direction="contexts")], "persons"
    ),
    "qa_feedback": AnswerSet(
        [
            Target("no factual error", no_factual_error, "AUC", "contexts"),
            Target("few missing pieces of information", few_missing_pieces),
        ]
    ),
    "ragtruth_qa": AnswerSet(
        [Target("no hallucinated span", lambda row: float(score(row) == 1), "AUC", "contexts")],
        left_out="its contexts are passages of MS MARCO, which are for non-commercial research",
    ),
    "realsumm": AnswerSet(
        [Target("share of the reference's facts present", score)], "documents", part_of_id("-", 1)
    ),
    "squality_human": AnswerSet(
        [
            Target("correctness", scores("correctness")),
            Target("coverage", scores("coverage")),
            Target("coverage, summaries of models only", coverage_of_model),
        ],
        "stories",
        part_of_id("-", 1),
    ),
}


def rows_of(name: str, folder: Path | None = None) -> list[Row]:
    """The rows of a set, from the repository or from `folder`.

    Raises `FileNotFoundError` where neither has a file of it.
    """
    path = FOLDER / f"{name}.jsonl.gz"
    if path.exists() or folder is None:
        return list(map(json.loads, gzip.decompress(path.read_bytes()).splitlines()))
    return list(map(json.loads, (folder / f"{name}.jsonl").read_bytes().splitlines()))


def steps_for(directions: Sequence[Direction]) -> dict[str, Settings]:
    """The steps of a pipeline with every setting of these directions.

    The score step of a setting is named by direction and position, as in `reference_3`.
    """
    steps: dict[str, Settings] = {}
    for direction in directions:
        for position, setting in enumerate(SETTINGS[direction]):
            inputs = {table: _input_step(table, setting) for table in STAGES[setting.use].expects}
            steps |= dict(inputs.values())
            wires = {table: name for table, (name, _) in inputs.items()}
            steps[f"{direction}_{position}"] = {"use": setting.use, **setting.score, **wires}
    return steps


def _input_step(table: str, setting: Setting) -> tuple[str, Settings]:
    """Name and settings of the step that makes an input of a score stage."""
    step = INPUTS[table]
    if step["use"] == "decompose_claims":
        return f"{table}_{setting.claims}", step | CLAIMS[setting.claims]
    if step["use"] == "verify_claims":
        claims = {"claims": f"{step['claims']}_{setting.claims}"}
        name = f"{table}_{setting.claims}_{setting.verdicts}"
        return name, step | claims | VERDICTS[setting.verdicts]
    return table, step


def score_set(
    name: str,
    rows: Sequence[Row],
    *,
    judge: str | Mapping[str, Any] | claimflow.JudgeProvider | None = None,
    store: Path | None = None,
    progress: bool = False,
) -> tuple[Scores, list[str]]:
    """Scores of a set by every setting and baseline; lines on calls, their cost and failed rows.

    For pairs, the score of a row is that of `response_b` minus that of `response`.
    """
    one = SETS[name]
    directions = list(dict.fromkeys(target.direction for target in one.targets))
    samples = [
        {field: row[field] for field in FIELDS if field in row}
        | {"sample_id": f"{row['id']}/{side}", "response": row[side]}
        for side in ("response", *(["response_b"] if one.pairs else []))
        for row in rows
    ]
    pipeline = {"name": name, "steps": steps_for(directions)}
    result = claimflow.evaluate(
        samples, pipeline=pipeline, judge=judge, store=store, progress=progress
    )
    found: Scores = {direction: {} for direction in directions}
    place = {str(sample["sample_id"]): number for number, sample in enumerate(samples)}
    columns = ("step", "sample_id", "metric", "score")
    for step, sample_id, metric, value in result.scores.select(columns).iter_rows():
        direction, _, position = step.partition("_")
        line = SETTINGS[direction][int(position)].line(metric)
        column = found[direction].setdefault(line, np.full(len(samples), np.nan))
        column[place[sample_id]] = np.nan if value is None else value
    for direction, lines in found.items():
        each = [baselines(sample, direction, gold=one.gold) for sample in samples]
        lines |= {line: np.array([base[line] for base in each]) for line in each[0]}
        if one.pairs:
            lines |= {k: column[len(rows) :] - column[: len(rows)] for k, column in lines.items()}
    calls = calls_made(result.open_store(), result.run_id).rows(named=True)
    failed = (
        f"{row['step']}: {row['failed']:,} rows failed: {row['reason']}"
        for row in result.failures.iter_rows(named=True)
    )
    return found, [*(map(calls_text, calls) if calls else ["no model calls"]), *failed]


def baselines(sample: Row, direction: Direction, *, gold: bool) -> dict[str, float]:
    """The baselines of a sample: name -> score. A share of no words is 0."""
    response = _words(sample["response"])
    said = set(response)
    if direction == "contexts":
        known = said & set(_words("\n".join(sample["retrieved_contexts"])))
        return {"words: share of the response's in the contexts": len(known) / max(len(said), 1)}
    references = sample["reference"].split(" / ") if gold else [sample["reference"]]
    texts = [text for text in map(_words, references) if text]
    shared = [(len(set(text) & said), len(set(text))) for text in texts]
    found = {
        "words: share of the reference's in the response": max(
            (n / size for n, size in shared), default=0.0
        ),
        "words: F1 of both": max((2 * n / (size + len(said)) for n, size in shared), default=0.0),
    }
    if gold:
        inside = any(f" {' '.join(text)} " in f" {' '.join(response)} " for text in texts)
        found["containment: a gold answer in the response"] = float(inside)
    return found


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def ranks(values: Numbers, times: Numbers) -> Numbers:
    """The rank of each value, from 1, in samples that have it so many `times`; ties share ranks.

    `times` has a row for each sample and a column for each value; so has the result.
    """
    distinct, kind = np.unique(values, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    starts = np.searchsorted(kind[order], np.arange(len(distinct)))
    totals = np.add.reduceat(times[:, order], starts, axis=1)
    return np.asarray((totals.cumsum(axis=1) - (totals - 1) / 2)[:, kind])


def spearman(scores: Numbers, people: Numbers, times: Numbers) -> Numbers:
    """Spearman's rank correlation in each sample; NaN where one side is constant."""
    middle = (times.sum(axis=1, keepdims=True) + 1) / 2
    x, y = ranks(scores, times) - middle, ranks(people, times) - middle
    spread = (times * x * x).sum(axis=1) * (times * y * y).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray((times * x * y).sum(axis=1) / np.sqrt(spread))


def auc(scores: Numbers, people: Numbers, times: Numbers) -> Numbers:
    """Area under the ROC curve of good (1) against bad in each sample; NaN without one of them."""
    good = people == 1
    n_good, n_bad = times[:, good].sum(axis=1), times[:, ~good].sum(axis=1)
    summed = (times * ranks(scores, times))[:, good].sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray((summed - n_good * (n_good + 1) / 2) / (n_good * n_bad))


def classified_right(scores: Numbers, people: Numbers, groups: NDArray[np.intp]) -> Numbers:
    """1 for each row that the best threshold of the other folds classifies as people do, else 0.

    `groups` numbers the group of each row; a fold is every fifth group. A row without a score is
    classified as bad.
    """
    values = np.nan_to_num(scores, nan=-np.inf)
    right = np.zeros(len(values))
    for fold in range(FOLDS):
        other = groups % FOLDS != fold
        steps = np.unique(values[other & np.isfinite(values)])
        best = max(steps, key=lambda s: float(((values[other] >= s) == people[other]).mean()))
        right[~other] = (values[~other] >= best) == people[~other]
    return right


class Figure(NamedTuple):
    """A figure with its 95 % interval, from -1 to 1, of the `n` rows that have a score.

    `values` is figure, lower and upper bound; None where there is none: constant scores or
    judgements, or for accuracy fewer groups than folds.
    """

    values: tuple[float, float, float] | None
    n: int

    def __str__(self) -> str:
        if self.values is None:
            return f"{'-':>6}{'':18}"
        value, low, high = (100 * number for number in self.values)
        return f"{value:6.1f}  " + f"({low:.1f} to {high:.1f})".ljust(16)


def figure_of(name: FigureName, scores: Numbers, people: Numbers, groups: Sequence[str]) -> Figure:
    """The figure of scores beside human judgements, with a bootstrap of whole groups."""
    scored = np.isfinite(scores)
    n = int(scored.sum())
    number = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    numbers = np.array([number[group] for group in groups])
    if not n or (name == "accuracy" and len(number) < FOLDS):
        return Figure(None, n)
    if name == "accuracy":
        times = bootstrap(numbers)
        right = classified_right(scores, people, numbers)
        figures = (times * right).sum(axis=1) / times.sum(axis=1)
    else:
        measure = {"Spearman": spearman, "AUC": auc}[name]
        figures = measure(scores[scored], people[scored], bootstrap(numbers[scored]))
    known = figures[1:][np.isfinite(figures[1:])]
    if np.isnan(figures[0]) or len(known) < BOOTSTRAPS / 2:
        return Figure(None, n)
    low, high = np.percentile(known, [2.5, 97.5])
    return Figure((float(figures[0]), float(low), float(high)), n)


def bootstrap(groups: NDArray[np.intp]) -> Numbers:
    """How often each row is in the data (row 0: once), and in each bootstrap sample of groups."""
    distinct, group = np.unique(groups, return_inverse=True)
    even = np.full(len(distinct), 1 / len(distinct))
    drawn = np.random.default_rng(0).multinomial(len(distinct), even, BOOTSTRAPS)
    return np.vstack([np.ones(len(distinct)), drawn])[:, group]


def report(name: str, rows: Sequence[Row], found: Scores) -> Iterator[str]:
    """The lines of a set: a table for each judgement of people."""
    one = SETS[name]
    for target in one.targets:
        people = np.array([target.human(row) for row in rows], dtype=float)
        kept = np.flatnonzero(np.isfinite(people)).tolist()
        groups = [one.group_of(rows[place]) for place in kept]
        good = f"; {100 * people[kept].mean():.1f} % good" if target.figure != "Spearman" else ""
        published = f"; published: {target.published}" if target.published else ""
        yield f"\n  {target.title}: {target.figure}{good}{published}"
        for line, scores in found[target.direction].items():
            figure = figure_of(target.figure, scores[kept], people[kept], groups)
            yield f"    {line:66}{figure}  {figure.n:,} of {len(kept):,}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables of the sets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--set", nargs="+", choices=list(SETS), metavar="NAME", dest="sets")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N groups of each set")
    parser.add_argument("--judge", type=yaml.safe_load, help="a model, or settings in YAML")
    parser.add_argument("--store", type=Path, metavar="FILE", help="keep everything in this file")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="files of further sets")
    chosen = parser.parse_args(arguments)
    if chosen.limit is not None and chosen.limit < 1:
        parser.error(f"--limit {chosen.limit}: expected a number of groups from 1 on")
    for name in chosen.sets or SETS:
        one = SETS[name]
        try:
            whole = rows_of(name, chosen.data)
        except FileNotFoundError:
            print(f"\n{name}: left out, as {one.left_out}: --data FOLDER reads {name}.jsonl")
            continue
        groups = list(dict.fromkeys(map(one.group_of, whole)))
        first = groups[: chosen.limit]
        rows = [row for row in whole if one.group_of(row) in set(first)]
        part = f", A PART of {len(whole):,} rows of {len(groups):,} {one.groups}"
        counted = f"{len(rows):,} rows of {len(first):,} {one.groups}"
        print(f"\n{name}: {counted}{part if len(first) < len(groups) else ''}", flush=True)
        try:
            progress = sys.stderr.isatty()
            found, costs = score_set(
                name, rows, judge=chosen.judge, store=chosen.store, progress=progress
            )
        except (InputError, JudgeError) as error:
            raise SystemExit(str(error)) from None
        print(
            *report(name, rows, found), "", *(f"  {line}" for line in costs), sep="\n", flush=True
        )


if __name__ == "__main__":
    main()
