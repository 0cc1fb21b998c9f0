"""Claims that came with the samples, taken as they are."""

from collections.abc import Mapping
from typing import ClassVar

from claimflow.stages.base import Stage
from claimflow.stages.given import given_claims
from claimflow.stages.rows import Claim
from claimflow.stages.tables import Claims, Samples, build
from claimflow.stages.words import CLAIMS_OF, ClaimsField, Side


class SuppliedClaims(Stage):
    """Claims of one side of every sample that brings them, as they stand; nobody is asked.

    A claim that a sample brings twice counts once.
    """

    use: ClassVar[str] = "supplied_claims"
    version: ClassVar[int] = 2
    by_row: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "samples": ("sample_id", *CLAIMS_OF, *CLAIMS_OF.values())
    }

    of: Side

    def reads(self) -> frozenset[ClaimsField]:
        """The claims of that side."""
        return frozenset({CLAIMS_OF[self.of]})

    def run(self, samples: Samples) -> Claims:
        """One row per claim, in the order of the samples and of their claims.

        A sample that brings no claims, or an empty list of them, has no row.
        """
        brought = samples.select("sample_id", CLAIMS_OF[self.of], self.of).iter_rows()
        return build(
            Claim,
            (
                row
                for sample_id, claims, text in brought
                for row in given_claims(sample_id, self.of, claims or (), text)
            ),
        )
