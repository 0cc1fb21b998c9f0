"""Examples as the inputs of the network: token ids, and the place where the claim begins."""

from collections.abc import Iterable
from functools import lru_cache

from tokenizers import Tokenizer

from claimflow.flows.models.entailment.model import EncodedPair, encode_pairs
from claimflow.flows.models.entailment.texts import PreparedClaim, PreparedPremise, premise_excerpt

_premise = lru_cache(64)(PreparedPremise)


def encoded(tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]]) -> list[EncodedPair]:
    """Each pair of premise and claim, encoded as for judging."""
    texts = [
        (premise_excerpt(_premise(premise), PreparedClaim(claim)), claim)
        for premise, claim in pairs
    ]
    return encode_pairs(tokenizer, texts)
