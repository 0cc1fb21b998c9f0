"""The network of the entailment model."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from claimflow.flows.models.entailment.model import (
    SHIPPED,
    TOKENIZER_FILE,
    WINDOW,
    Network,
    encode_pairs,
)

PAIRS = [
    ("The tower stands in Paris.", "The tower is in Paris."),
    ("The tower stands in Paris.", "The tower is in London."),
    ("", ""),
    ("word " * 400, "claim " * 300),
    ("Die Brücke wurde 1931 eröffnet.", "😀 巴黎"),
    ("The tower stands in Paris.", "The tower is not in Paris."),
]


@pytest.fixture(name="network", scope="module")
def _network() -> Network:
    return Network(SHIPPED, threads=1)


def test_a_pair_is_encoded_as_one_sequence() -> None:
    tokenizer = Tokenizer.from_file(str(SHIPPED / TOKENIZER_FILE))
    short, _, empty, long, *_ = encode_pairs(tokenizer, PAIRS)
    premise, claim = (tokenizer.encode(text).ids for text in PAIRS[0])
    assert short.ids == (*premise, *claim[1:])
    assert short.claim == len(premise)
    assert empty == ((101, 102, 102), 2)
    # A claim takes at most half the window.
    assert (len(long.ids), long.claim) == (WINDOW, WINDOW - WINDOW // 2 - 1)


def test_a_row_depends_on_its_pair_alone(network: Network) -> None:
    together = network.logits(PAIRS)
    alone = np.concatenate([network.logits([pair]) for pair in reversed(PAIRS)])[::-1]
    assert together.shape == (len(PAIRS), 3)
    assert np.isfinite(together).all()
    assert together.tobytes() == alone.tobytes()
    assert network.logits([]).shape == (0, 3)


def test_entailed_contradicted_and_other_claims_differ(network: Network) -> None:
    follows, other, *_, denied = network.logits(PAIRS)
    assert follows.argmax() == 0
    assert denied.argmax() == 1
    assert other.argmax() != 0
