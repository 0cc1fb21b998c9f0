"""The parser that claimflow carries, for tests of the rules that read its trees."""

from typing import Final

from claimflow.flows.models.parser import EmbeddedParser

PARSER: Final = EmbeddedParser(threads=1)
"""It is loaded when it is first asked."""
