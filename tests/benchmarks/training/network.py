"""The network in torch, for training: the encoder that claimflow carries, with a head for pairs.

The encoder reads premise and claim as one sequence with two token types. The inputs of the head
are the vector of [CLS], the means over the claim's and over the premise's tokens, the absolute
difference of these and their product. These are the features of sentence pairs in Conneau et al.
2017 (InferSent), here of a cross-encoder.
"""

import json
from collections.abc import Sequence

import torch
from safetensors.torch import load
from torch.nn import functional
from transformers import BertConfig, BertModel

from claimflow.flows.models.entailment.model import EncodedPair
from tests.benchmarks.training.official import Official

CLASSES = ("entailed", "contradicted", "neutral")
WIDTH = 384


class Network(torch.nn.Module):
    """The official encoder with an untrained head."""

    def __init__(self, official: Official) -> None:
        super().__init__()
        config = BertConfig(**json.loads(official.config))
        config.hidden_dropout_prob, config.attention_probs_dropout_prob = 0.1, 0.0
        self.bert = BertModel(config, add_pooling_layer=False)
        weights = {
            name: tensor
            for name, tensor in load(official.weights).items()
            if not name.startswith("pooler") and "position_ids" not in name
        }
        self.bert.load_state_dict(weights)
        # The examples hold a tenth of the vocabulary; the rest must stay comparable with it.
        self.bert.embeddings.word_embeddings.weight.requires_grad = False
        self.head = torch.nn.Linear(5 * WIDTH, len(CLASSES))
        torch.nn.init.normal_(self.head.weight, std=0.02)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, batch: Sequence[EncodedPair]) -> torch.Tensor:
        """Logits of `CLASSES`, a row per pair."""
        ids, kinds, mask = padded(batch)
        hidden = self.bert(
            input_ids=ids, token_type_ids=kinds, attention_mask=mask
        ).last_hidden_state
        claim, premise = (
            _mean(hidden, (kind * mask).unsqueeze(-1).to(hidden.dtype))
            for kind in (kinds, 1 - kinds)
        )
        apart, product = (claim - premise).abs(), claim * premise
        return self.head(torch.cat([hidden[:, 0], claim, premise, apart, product], 1))


def _mean(hidden: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return (hidden * chosen).sum(1) / chosen.sum(1)


def padded(batch: Sequence[EncodedPair]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, kinds of token (1 in the claim) and mask, of a row per pair."""
    shape = len(batch), max(len(pair.ids) for pair in batch)
    ids, kinds, mask = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    for row, pair in enumerate(batch):
        ids[row, : len(pair.ids)] = torch.tensor(pair.ids)
        kinds[row, pair.claim : len(pair.ids)] = 1
        mask[row, : len(pair.ids)] = 1
    return ids, kinds, mask


def loss(logits: torch.Tensor, labels: Sequence[str], weights: Sequence[float]) -> torch.Tensor:
    """Mean log loss; for `not` the probabilities of contradicted and neutral are added."""
    logs = functional.log_softmax(logits, 1)
    lost = [
        torch.logsumexp(row[1:], 0) if label == "not" else row[CLASSES.index(label)]
        for row, label in zip(logs, labels, strict=True)
    ]
    share = torch.tensor(weights)
    return -(torch.stack(lost) * share).sum() / share.sum()
