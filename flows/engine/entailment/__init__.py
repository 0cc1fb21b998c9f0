"""The entailment tool: natural language inference without a language model."""

from flows.engine.entailment.model import EmbeddedEntailment

__all__ = ["EmbeddedEntailment"]
