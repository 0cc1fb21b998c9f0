"""Tools that count what the steps of a pipeline would ask of endpoints, and ask nobody."""

from collections.abc import Mapping

from flows.engine.endpoints import EmbeddingEndpoint, Endpoint, Judge
from flows.engine.ledger import Ledger
from flows.engine.llm.charges import charges_of
from flows.engine.llm.embedding import WHO
from flows.engine.llm.estimate import CountingEmbedder, CountingJudge, Estimate, together
from flows.engine.llm.habits import recall_habits
from flows.engine.llm.panel import Panel
from flows.engine.pipeline import Pipeline
from flows.engine.store import Store
from stages.tools import Embedder

Endpoints = Mapping[str, Endpoint]
"""The endpoints that a step asks, by name."""


def asking(pipeline: Pipeline) -> dict[str, Endpoints]:
    """The steps that ask an endpoint, each with those that it asks."""
    found: dict[str, Endpoints] = {}
    for step in pipeline.steps:
        if step.judges:
            found[step.name] = {name: pipeline.judges[name] for name in step.judges}
        elif isinstance(pipeline.embedder, Endpoint) and Embedder in step.stage.tools.values():
            found[step.name] = {WHO: pipeline.embedder}
    return found


class Counter:
    """Counts what one step would ask. What is in `asked` need not be, which all steps share.

    With `fresh` what is on file is asked anew.
    """

    def __init__(
        self, endpoints: Endpoints, store: Store, asked: set[str], *, fresh: bool = False
    ) -> None:
        self._endpoints = endpoints
        self._judges = {
            name: CountingJudge(
                judge, Ledger(store), recall_habits(store, judge), asked, fresh=fresh
            )
            for name, judge in endpoints.items()
            if isinstance(judge, Judge)
        }
        self._embedders = {
            name: CountingEmbedder(embedder, Ledger(store), asked, fresh=fresh)
            for name, embedder in endpoints.items()
            if isinstance(embedder, EmbeddingEndpoint)
        }

    def tool(self, *, repeat: int = 0) -> Panel | CountingEmbedder:
        """The tool to lend in place of one that asks, at this `repeat` of the same questions."""
        if self._judges:
            return Panel(self._judges, repeat=repeat)
        return next(iter(self._embedders.values()))

    def estimate(self, *, scale: float = 1.0, about: bool = False) -> Estimate:
        """What was counted, `scale` times over; a guess where `about` says so."""
        parts = []
        for who, tool in (self._judges | self._embedders).items():
            price = charges_of(self._endpoints[who]) if tool.tally.calls else None
            parts.append(tool.tally.estimate(who, price, scale=scale, about=about))
        return together(parts)
