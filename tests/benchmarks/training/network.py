"""The networks in torch, for training: sentence encoders with other heads.

For entailment the encoder reads premise and claim as one sequence with two token types. The inputs
of the head are the vector of [CLS], the means over the claim's and over the premise's tokens, the
absolute difference of these and their product. These are the features of sentence pairs in Conneau
et al. 2017 (InferSent), here of a cross-encoder.

The parser scores every word as the head of every other, and every relation of the two (Dozat and
Manning 2017).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from safetensors.torch import load
from torch.nn import functional
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel

from claimflow.flows.models.entailment.model import EncodedPair
from tests.benchmarks.training.encoding import CLS, SEP
from tests.benchmarks.training.graph import ARC, LABEL, WIDTH
from tests.benchmarks.training.official import Official, OfficialLarge

CLASSES = ("entailed", "contradicted", "neutral")


class CrossEncoder(torch.nn.Module, ABC):
    """A sentence encoder of that width, with an untrained head for pairs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = torch.nn.Linear(5 * width, len(CLASSES))
        torch.nn.init.normal_(self.head.weight, std=0.02)
        torch.nn.init.zeros_(self.head.bias)

    @abstractmethod
    def layers(self) -> Sequence[torch.nn.Module]:
        """The layers of the encoder, the lowest first."""

    @abstractmethod
    def encode(self, ids: torch.Tensor, kinds: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Vectors (pairs, tokens, width) of what `padded` gives."""

    def forward(self, batch: Sequence[EncodedPair]) -> torch.Tensor:
        """Logits of `CLASSES`, a row per pair."""
        device = self.head.weight.device
        ids, kinds, mask = (part.to(device) for part in padded(batch))
        hidden = self.encode(ids, kinds, mask)
        claim, premise = (
            _mean(hidden, (kind * mask).unsqueeze(-1).to(hidden.dtype))
            for kind in (kinds, 1 - kinds)
        )
        apart, product = (claim - premise).abs(), claim * premise
        return self.head(torch.cat([hidden[:, 0], claim, premise, apart, product], 1))


class Network(CrossEncoder):
    """all-MiniLM-L6-v2 with an untrained head."""

    def __init__(self, official: Official) -> None:
        super().__init__(WIDTH)
        self.bert = _official_encoder(official)

    def layers(self) -> Sequence[torch.nn.Module]:
        """The layers of the encoder, the lowest first."""
        return tuple(self.bert.encoder.layer)

    def encode(self, ids: torch.Tensor, kinds: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Vectors (pairs, tokens, width) of what `padded` gives."""
        read = self.bert(input_ids=ids, token_type_ids=kinds, attention_mask=mask)
        return read.last_hidden_state


class LargeNetwork(CrossEncoder):
    """all-mpnet-base-v2 with an untrained head.

    Its vocabulary is that of MiniLM, four places later, and its own special tokens. It knows no
    types of tokens: two vectors that begin as zeros tell premise and claim apart.
    """

    def __init__(self, official: OfficialLarge) -> None:
        config = MPNetConfig(**json.loads(official.config))
        super().__init__(config.hidden_size)
        self.mpnet = MPNetModel(config, add_pooling_layer=False)
        weights = load(official.weights)
        kept = {name: one for name, one in weights.items() if not name.startswith("pooler")}
        self.mpnet.load_state_dict(kept, strict=False)
        self.kinds = torch.nn.Parameter(torch.zeros(2, config.hidden_size))
        for fixed in (
            self.mpnet.embeddings.word_embeddings,
            self.mpnet.encoder.relative_attention_bias,
        ):
            fixed.weight.requires_grad = False

    def layers(self) -> Sequence[torch.nn.Module]:
        """The layers of the encoder, the lowest first."""
        return tuple(self.mpnet.encoder.layer)

    def encode(self, ids: torch.Tensor, kinds: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Vectors (pairs, tokens, width) of what `padded` gives."""
        special = torch.where(ids == CLS, 0, torch.where(ids == SEP, 2, ids + 4))
        words = self.mpnet.embeddings.word_embeddings(special.masked_fill(mask == 0, 1))
        read = self.mpnet(inputs_embeds=words + self.kinds[kinds], attention_mask=mask)
        return read.last_hidden_state


def _official_encoder(official: Official) -> BertModel:
    config = BertConfig(**json.loads(official.config))
    config.hidden_dropout_prob, config.attention_probs_dropout_prob = 0.1, 0.0
    encoder = BertModel(config, add_pooling_layer=False)
    weights = {
        name: tensor
        for name, tensor in load(official.weights).items()
        if not name.startswith("pooler") and "position_ids" not in name
    }
    encoder.load_state_dict(weights)
    # The examples hold a tenth of the vocabulary; the rest must stay comparable with it.
    encoder.embeddings.word_embeddings.weight.requires_grad = False
    return encoder


class WordScores(NamedTuple):
    """Of a batch of sentences, whose word 0 is the root.

    `arcs` (sentences, words, words) has the score of each word (second axis) as a dependent of
    each (third axis); `own` and `other` (sentences, words, 65) are what relations are scored by, of
    a word as a dependent and as a head; `tags` (sentences, words, tags) are logits.
    """

    arcs: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor
    tags: torch.Tensor


class ParserNetwork(torch.nn.Module):
    """The official encoder with untrained heads for that many relations and tags."""

    def __init__(self, official: Official, relations: int, tags: int) -> None:
        super().__init__()
        self.bert = _official_encoder(official)
        self.arc_d, self.arc_h = torch.nn.Linear(WIDTH, ARC), torch.nn.Linear(WIDTH, ARC)
        self.lab_d, self.lab_h = torch.nn.Linear(WIDTH, LABEL), torch.nn.Linear(WIDTH, LABEL)
        self.arc_w = torch.nn.Parameter(torch.zeros(ARC + 1, ARC))
        self.lab_w = torch.nn.Parameter(torch.zeros(relations, LABEL + 1, LABEL + 1))
        torch.nn.init.normal_(self.arc_w, std=0.02)
        torch.nn.init.normal_(self.lab_w, std=0.02)
        self.tag = torch.nn.Linear(WIDTH, tags)
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, first: torch.Tensor) -> WordScores:
        """Scores of padded sentences.

        `ids` and `mask` (sentences, tokens) are the word pieces and 1 where there is one, `first`
        (sentences, words) is the place of each word's first piece, and of [CLS] for the root.
        """
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        words = torch.gather(hidden, 1, first.unsqueeze(-1).expand(-1, -1, WIDTH))
        words = self.drop(words)

        def reduced(layer: torch.nn.Linear) -> torch.Tensor:
            return self.drop(functional.gelu(layer(words)))

        dependent, head = _with_one(reduced(self.arc_d)), reduced(self.arc_h)
        own, other = _with_one(reduced(self.lab_d)), _with_one(reduced(self.lab_h))
        arcs = dependent @ self.arc_w @ head.transpose(1, 2)
        return WordScores(arcs, own, other, self.tag(words))

    def relations(self, scores: WordScores, heads: torch.Tensor) -> torch.Tensor:
        """Logits (sentences, words, relations) of each word's relation to its head."""
        chosen = heads.unsqueeze(-1).expand(-1, -1, LABEL + 1)
        other = torch.gather(scores.other, 1, chosen)
        return torch.einsum("bwi,rij,bwj->bwr", scores.own, self.lab_w, other)


def _with_one(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


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


def log_losses(logs: torch.Tensor, labels: Sequence[str | None]) -> torch.Tensor:
    """The log loss of each row of log probabilities; without a label it means nothing.

    For `not` the probabilities of contradicted and neutral are added.
    """
    known = [CLASSES.index(label) if label in CLASSES else -1 for label in labels]
    wanted = torch.tensor(known, device=logs.device)
    own = logs.gather(1, wanted.clamp(min=0).unsqueeze(1)).squeeze(1)
    return -torch.where(wanted < 0, torch.logsumexp(logs[:, 1:], 1), own)
