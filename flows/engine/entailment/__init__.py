"""The entailment tool: natural language inference without a language model."""

from claimflow.flows.engine.entailment.model import EmbeddedEntailment

__all__ = ["EmbeddedEntailment"]
