"""claimflow: evaluate the answers of RAG and LLM systems claim by claim."""

from importlib.metadata import version

__version__ = version("claimflow")

__all__ = ["__version__"]
