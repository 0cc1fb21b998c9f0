"""CPU seconds of every score stage and of the summaries, by number of samples.

    python -m tests.benchmarks.scores [SAMPLES ...]

Every sample has five claims on either side, three passages and four sentences: 100,000 samples
have 1,000,000 claims, for which every stage must take less than 5 seconds. The last column is the
growth of CPU from the last count but one to the last, which must be linear. Each figure is the
least of three runs.
"""

import argparse
from collections.abc import Callable

import polars as pl

from claimflow.stages.rows import Claim, Sample, SentenceMatch, Similarity, Verdict
from claimflow.stages.scores.answer_metrics import AnswerCorrectness, SemanticSimilarity
from claimflow.stages.scores.claim_metrics import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.scores.lexical_metrics import (
    DeterministicCorrectness,
    DeterministicFaithfulness,
)
from claimflow.stages.scores.retrieval_metrics import NoiseSensitivity, RagChecker
from claimflow.stages.scores.summaries import SummarizeScores
from claimflow.stages.tables import conform
from tests.benchmarks.measuring import fastest_of_three

LABEL = (
    pl.int_range(pl.len())
    .mod(3)
    .replace_strict({0: "entailed", 1: "neutral", 2: "contradicted"}, return_dtype=pl.String)
)


def ids(count: int) -> pl.DataFrame:
    return pl.DataFrame({"n": range(count)}).select(sample_id=pl.format("sample-{}", "n"))


def repeated(frame: pl.DataFrame, times: int, name: str) -> pl.DataFrame:
    return frame.join(pl.DataFrame({name: range(times)}), how="cross")


def judged(
    count: int, of: str, against: str, *, passages: int = 0
) -> tuple[pl.DataFrame, pl.DataFrame]:
    claims = repeated(ids(count), 5, "n").select(
        "sample_id",
        claim_id=pl.format("{}-{}-{}", "sample_id", pl.lit(of), "n"),
        of=pl.lit(of),
        claim=pl.lit("a claim"),
    )
    verdicts = claims.select("claim_id", against=pl.lit(against))
    if passages:
        verdicts = repeated(verdicts, passages, "passage")
    verdicts = verdicts.with_columns(verdict=LABEL)
    return conform(Claim, claims), conform(Verdict, verdicts)


def matched(count: int, against: str, times: int, place: str) -> pl.DataFrame:
    fields = SentenceMatch.model_fields.items()
    measures = {name: pl.lit(0.5) for name, f in fields if f.annotation in (float, float | None)}
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
    _, response_by = judged(count, "response", "retrieved_contexts", passages=3)
    _, reference_by = judged(count, "reference", "retrieved_contexts", passages=3)
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
        "context_recall, by passage": lambda: ContextRecall().run(samples, reference, reference_by),
        "rag_checker": lambda: RagChecker().run(samples, *both, response_by, reference_by),
        "noise_sensitivity": lambda: NoiseSensitivity().run(
            samples, response, reference, in_reference, response_by, reference_by
        ),
        "factual_correctness, ragas-0.4": lambda: FactualCorrectness(compat="ragas-0.4").run(
            samples, *both
        ),
        "rag_checker, ragchecker-0.1": lambda: RagChecker(compat="ragchecker-0.1").run(
            samples, *both, response_by, reference_by
        ),
        "deterministic_faithfulness": lambda: DeterministicFaithfulness().run(samples, by_sentence),
        "deterministic_correctness": lambda: DeterministicCorrectness().run(samples, by_reference),
        "summarize_scores, 16 metrics": lambda: SummarizeScores().run(samples, many),
        "the same in 50 slices": lambda: SummarizeScores(slices=("topic",)).run(samples, many),
    }


def main(counts: list[int]) -> None:
    heads = [f"{count:>10,}" for count in counts]
    print(f"{'CPU seconds for samples:':32}{''.join(heads)}  growth")
    by_count = [
        {name: fastest_of_three(run) for name, run in stages(count).items()} for count in counts
    ]
    for name in by_count[0]:
        times = [found[name] for found in by_count]
        growth = f"{times[-1] / times[-2]:>8.1f}" if len(times) > 1 else ""
        print(f"{name:32}{''.join(f'{t:>10.3f}' for t in times)}{growth}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("samples", nargs="*", type=int, default=[1_000, 10_000, 100_000])
    main(parser.parse_args().samples)
