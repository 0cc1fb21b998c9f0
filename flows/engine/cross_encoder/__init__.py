"""An entailment model of your own: a cross-encoder in ONNX format."""

from flows.engine.cross_encoder.model import CrossEncoder

__all__ = ["CrossEncoder"]
