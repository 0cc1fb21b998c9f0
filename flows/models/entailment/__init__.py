"""The embedded entailment model: natural language inference without a language model."""
