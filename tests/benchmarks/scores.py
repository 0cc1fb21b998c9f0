"""CPU seconds of every score stage and of the summaries on many samples.

Run as `python tests/benchmarks/scores.py [SAMPLES]`. Every sample has five claims on
either side, three passages and four sentences.
"""

import sys
import time
from collections.abc import Callable

import polars as pl

from stages.rows import Claim, Sample, SentenceMatch, Similarity, Verdict
from stages.score import ContextRecall, FactualCorrectness, Faithfulness
from stages.score_answers import AnswerCorrectness, SemanticSimilarity
from stages.score_lexical import MEASURES, DeterministicCorrectness, DeterministicFaithfulness
from stages.summarize import SummarizeScores
from stages.tables import conform

LABEL = (
    pl.int_range(pl.len())
    .mod(3)
    .replace_strict({0: "entailed", 1: "neutral", 2: "contradicted"}, return_dtype=pl.String)
)


def ids(count: int) -> pl.DataFrame:
    return pl.DataFrame({"n": range(count)}).select(sample_id=pl.format("sample-{}", "n"))


def repeated(frame: pl.DataFrame, times: int, name: str) -> pl.DataFrame:
    return frame.join(pl.DataFrame({name: range(times)}), how="cross")


def judged(count: int, of: str, against: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    claims = repeated(ids(count), 5, "n").select(
        "sample_id",
        claim_id=pl.format("{}-{}-{}", "sample_id", pl.lit(of), "n"),
        of=pl.lit(of),
        claim=pl.lit("a claim"),
    )
    verdicts = claims.select("claim_id", against=pl.lit(against), verdict=LABEL.over(pl.lit(1)))
    if against == "retrieved_contexts":
        verdicts = repeated(verdicts, 3, "passage")
    return conform(Claim, claims), conform(Verdict, verdicts)


def matched(count: int, against: str, times: int, place: str) -> pl.DataFrame:
    measures = {name: pl.lit(0.5) for name in MEASURES}
    frame = repeated(ids(count), times, place).with_columns(
        against=pl.lit(against), sentence=pl.lit("x"), start=pl.lit(0), end=pl.lit(1), **measures
    )
    return conform(SentenceMatch, frame)


def stages(count: int) -> dict[str, Callable[[], pl.DataFrame]]:
    text = "The Eiffel Tower is located in Paris. " * 12
    samples = conform(
        Sample,
        ids(count).with_columns(
            response=pl.lit(text),
            reference=pl.lit(text),
            retrieved_contexts=pl.lit([text] * 3, pl.List(pl.String)),
            metadata=pl.concat_str(pl.lit('{"topic":'), pl.int_range(pl.len()) % 50, pl.lit("}")),
        ),
    )
    response, in_reference = judged(count, "response", "reference")
    reference, in_response = judged(count, "reference", "response")
    _, response_in = judged(count, "response", "retrieved_contexts")
    _, reference_in = judged(count, "reference", "retrieved_contexts")
    sides = {"left": pl.lit("response"), "right": pl.lit("reference")}
    similarity = conform(Similarity, ids(count).with_columns(cosine=pl.lit(0.5), **sides))
    by_sentence = matched(count, "retrieved_contexts", 4, "position")
    by_reference = matched(count, "reference", 2, "source")
    both = (response, reference, in_reference, in_response)
    correctness = FactualCorrectness().run(samples, *both)
    many = {str(n): correctness for n in range(16)}
    return {
        "factual_correctness": lambda: FactualCorrectness().run(samples, *both),
        "answer_correctness": lambda: AnswerCorrectness().run(samples, *both, similarity),
        "semantic_similarity": lambda: SemanticSimilarity().run(samples, similarity),
        "faithfulness": lambda: Faithfulness().run(samples, response, response_in),
        "context_recall": lambda: ContextRecall().run(samples, reference, reference_in),
        "deterministic_faithfulness": lambda: DeterministicFaithfulness().run(samples, by_sentence),
        "deterministic_correctness": lambda: DeterministicCorrectness().run(samples, by_reference),
        "summarize_scores, 16 metrics": lambda: SummarizeScores().run(samples, many),
        "the same in 50 slices": lambda: SummarizeScores(slices=("topic",)).run(samples, many),
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print(f"{count:,} samples")
    for name, run in stages(count).items():
        before = time.process_time()
        rows = run().height
        print(f"{name:32} {time.process_time() - before:7.2f} CPU s {rows:9,} rows")


if __name__ == "__main__":
    main()
