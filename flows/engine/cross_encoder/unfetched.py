"""A model that is not on this machine yet."""

from collections.abc import Mapping, Sequence

from claimflow.flows.engine.hub_model import HubModel
from claimflow.stages.tools import Judgement, Pair


class Unfetched:
    """Stands for a model of the Hub in a plan: nobody knows what it will say.

    Its identity is nobody's, so that nothing on file passes for what it said.
    """

    def __init__(self, model: HubModel) -> None:
        self.identity: dict[str, str | int | float] = {"name": str(model), "files": "not fetched"}

    def judge(self, _: Sequence[Pair], /) -> Mapping[Pair, Judgement]:
        """Of no pair a judgement."""
        return {}
