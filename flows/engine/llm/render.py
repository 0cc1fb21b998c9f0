"""From a form and its texts to the messages of one call."""

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import chain, count
from typing import Final

from claimflow.stages.prompt import Parts, blanks, cut, fill
from claimflow.stages.tools import Form

_PREMISE: Final = "premise"
_BETWEEN: Final = "\n\n"
_DIGEST_BYTES: Final = 4


def render(form: Form, premise: str, texts: Mapping[int, str]) -> list[dict[str, str]]:
    """The messages of a call that asks about `texts`, by id, held against `premise`.

    The prompt above its first blank is the system message, the same in every call; a
    prompt that begins with a blank has none. The rest is the user message, with every text
    byte for byte between tags that occur in no text of the call. The tags of a premise do
    not depend on the texts asked about, so that calls which share it share their beginning
    (unless a text holds the premise's own tag).

    Raises `ValueError` for a prompt without the blank of the texts or with one that
    is neither theirs nor `premise`.
    """
    static, varying = _parts(form.prompt, form.blank)
    name = form.blank.removesuffix("s")
    listed = list(texts.values())
    premise_tag = f"{_PREMISE}-{_unseen(premise, [premise, *listed])}"
    tag = f"{name}-{_unseen(_BETWEEN.join(listed), [premise, *listed])}"
    blocks = [_block(tag, text, f' id="{number}"') for number, text in texts.items()]
    values = {_PREMISE: _block(premise_tag, premise), form.blank: _BETWEEN.join(blocks)}
    user = {"role": "user", "content": fill(varying, values)}
    return [{"role": "system", "content": static}, user] if static.strip() else [user]


@lru_cache(maxsize=64)
def _parts(prompt: str, blank: str) -> Parts:
    if blank not in blanks(prompt):
        raise ValueError(f"the prompt has no blank {{{{{blank}}}}}")
    return cut(prompt, {_PREMISE, blank})


def _unseen(seed: str, texts: Collection[str]) -> str:
    """Hex digits that follow from `seed` alone and occur in none of `texts`.

    An author of texts can work them out beforehand and write them into one; then the
    next ones are taken.
    """
    first = _hashed(seed)
    nexts = (_hashed(f"{first} {number}") for number in count())
    return next(
        digits for digits in chain([first], nexts) if not any(digits in text for text in texts)
    )


def _hashed(text: str) -> str:
    content = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _block(tag: str, text: str, mark: str = "") -> str:
    return f"<{tag}{mark}>\n{text}\n</{tag}>"
