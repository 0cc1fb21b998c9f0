"""Closed sets of words that rows and settings share."""

from collections.abc import Mapping
from typing import Final, Literal

Side = Literal["response", "reference"]
SampleText = Literal["user_input", Side]
SampleField = Literal[SampleText, "retrieved_contexts"]
"""The texts of a sample that are decomposed into claims, all single ones, and all of them."""

ClaimsField = Literal["response_claims", "reference_claims"]
CLAIMS_OF: Final[Mapping[Side, ClaimsField]] = {
    "response": "response_claims",
    "reference": "reference_claims",
}
"""The claims that come with a sample, by the side that they are of."""

Label = Literal["entailed", "contradicted", "neutral"]
"""What natural language inference says of a premise and a claim."""

JudgedBy = Literal["embedded", "judge", "audit"]
"""Whose verdict counts in a cascade: that of the embedded model, which was sure; the judge's,
since it was not; the judge's, though it was."""

EndpointFailure = Literal["rate_limited", "server_error", "timeout", "bad_request", "too_long"]
ReplyFailure = Literal[
    "refused", "truncated", "empty", "unparseable", "invalid", "missing", "conflict"
]
FailureKind = Literal[EndpointFailure, ReplyFailure, "not_asked"]
"""Why a language model gave no answer. In this order: the endpoint sent us away until the call's
time was over, broke or could not be reached, did not answer in time, does not take the request,
or its model cannot hold the text; the model or its provider declined; the reply was cut off, holds
nothing, no JSON, or JSON of another shape, leaves this one out, or says two different things of it;
the budget was spent."""

MatchCompat = Literal["continuous-eval-0.3"]
ClaimCompat = Literal["ragas-0.4", "ragas-0.4-legacy"]
PassageCompat = Literal["ragchecker-0.1"]
"""Libraries whose arithmetic a score can follow: on lexical matches, on claims, on claims by
passage. `ragas-0.4` is its collections, `ragas-0.4-legacy` its older metrics."""
