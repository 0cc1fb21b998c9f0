"""Embedded models: entailment, cross-encoders, sentence encoders, Hugging Face Hub, ONNX."""
