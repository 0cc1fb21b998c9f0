"""How much of a prompt a provider would have cached: prefixes seen before, in fixed steps."""

from typing import Final

_FIRST: Final = 1024 * 4
_STEP: Final = 128 * 4
_KEPT: Final = 100_000


class Prefixes:
    """The beginnings of recent prompts, from 1,024 tokens on in steps of 128."""

    def __init__(self) -> None:
        self._seen: dict[int, None] = {}

    def cached(self, prompt: str) -> int:
        """The tokens of `prompt` whose prefix came before; it is known from now on."""
        chain, start, cached, known = 0, 0, 0, True
        for end in range(_FIRST, len(prompt) + 1, _STEP):
            chain = hash((chain, prompt[start:end]))
            start = end
            known = known and chain in self._seen
            cached = end // 4 if known else cached
            self._seen[chain] = None
        while len(self._seen) > _KEPT:
            del self._seen[next(iter(self._seen))]
        return cached
