"""claimflow: evaluate the answers of RAG and LLM systems claim by claim."""

from claimflow.flows import __version__

__all__ = ["__version__"]
