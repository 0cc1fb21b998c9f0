"""The stages that score samples.

`claim_metrics`, `answer_metrics`, `retrieval_metrics`, `citation_metrics` and `lexical_metrics`
hold the stages, `summaries` the one that summarizes scores. They share `claim_counts` (claims by
verdict), `empty_cases` (samples with nothing to score, and the base class `ScoreStage`), `finalize`
(status and reason of a score) and `formulas`.
"""
