"""An entailment model of your own: a cross-encoder in ONNX format, in a folder or of the Hub."""

from claimflow.flows.engine.cross_encoder.model import CrossEncoder
from claimflow.flows.engine.cross_encoder.unfetched import Unfetched

__all__ = ["CrossEncoder", "Unfetched"]
