"""Examples as the network takes them: token ids, and where the claim begins."""

from collections.abc import Iterable
from functools import lru_cache

from tokenizers import Tokenizer

from claimflow.flows.models.entailment.model import Encoded, encode
from claimflow.flows.models.entailment.texts import Claim, Premise, reading

_premise = lru_cache(64)(Premise)


def encoded(tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]]) -> list[Encoded]:
    """Each pair of premise and claim, as the network is given it when it judges."""
    texts = [(reading(_premise(premise), Claim(claim)), claim) for premise, claim in pairs]
    return encode(tokenizer, texts)
