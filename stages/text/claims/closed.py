"""The word classes that a word has on its own, and what they say of the word before."""

from typing import Final

from claimflow.stages.text.claims import words
from claimflow.stages.text.claims.tokens import Tag, Token

FINITE: Final = frozenset({"be", "have", "modal", "verb"})
NOMINAL: Final = frozenset({"noun", "name", "number", "parenthesis", "pronoun"})

CLOSED: Final[dict[str, Tag]] = {
    **dict.fromkeys(words.ADVERBS, "adverb"),
    **dict.fromkeys(words.PREPOSITIONS, "preposition"),
    **dict.fromkeys(words.DETERMINERS, "determiner"),
    **dict.fromkeys(words.PRONOUNS, "pronoun"),
    **dict.fromkeys(words.SUBORDINATORS, "subordinator"),
    **dict.fromkeys(words.RELATIVES, "relative"),
    **dict.fromkeys(words.COORDINATORS, "coordinator"),
    **dict.fromkeys(words.BE, "be"),
    **dict.fromkeys(words.HAVE, "have"),
    **dict.fromkeys(words.MODALS, "modal"),
    "be": "base",
    "being": "gerund",
    "'ll": "modal",
    "’ll": "modal",
    "'d": "modal",
    "’d": "modal",
    "'ve": "have",
    "’ve": "have",
    **dict.fromkeys(("'s", "’s", "'re", "’re", "'m", "’m"), "be"),
}
_OBJECT_STARTS: Final = frozenset(
    {"determiner", "preposition", "pronoun", "number", "name", "adverb", "parenthesis"}
)


def is_closed(token: Token | None, kind: Tag) -> bool:
    """Whether a word is of a closed class, whatever its neighbours."""
    return token is not None and CLOSED.get(token.low) == kind


def starts_object(following: Token | None) -> bool:
    """Whether what follows can stand right after a verb and not after a plural noun."""
    if following is None or following.tag in ("punctuation", "comma"):
        return True
    if following.tag in _OBJECT_STARTS or following.text[:1].isupper():
        return True
    return CLOSED.get(following.low, "noun") in _OBJECT_STARTS or following.low == "to"
