"""Tables for tests of the score stages."""

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pytest

from claimflow.stages.rows import Claim, Verdict, content_key
from claimflow.stages.tables import build

Labels = Mapping[str, Sequence[str | Sequence[str]]]
Judge = Callable[[str, str, Labels], tuple[pl.DataFrame, pl.DataFrame]]


def judge(of: str, against: str, labels: Labels) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Claims of a side and verdicts on them, from one label per claim for every sample.

    A sequence in place of a label is one label per retrieved context.
    """
    claims, verdicts = [], []
    for sample_id, of_sample in labels.items():
        for n, label in enumerate(of_sample):
            key = content_key("claim", sample_id, of, n)
            claims.append(
                {"claim_id": key, "sample_id": sample_id, "of": of, "claim": f"claim {n}"}
            )
            passages = [(None, label)] if isinstance(label, str) else list(enumerate(label))
            verdicts += [
                {"claim_id": key, "against": against, "passage": passage, "verdict": verdict}
                for passage, verdict in passages
            ]
    return build(Claim, claims), build(Verdict, verdicts)


@pytest.fixture(name="judge", scope="session")
def _judge() -> Judge:
    return judge
