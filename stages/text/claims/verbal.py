"""Whether a word is a verb where it stands, and in which form."""

from claimflow.stages.text.claims import words
from claimflow.stages.text.claims.closed import FINITE, is_closed, starts_object
from claimflow.stages.text.claims.tokens import Tag, Token
from claimflow.stages.text.claims.verbs import (
    BASES,
    NOUN_FORMS,
    OFTEN_ADJECTIVES,
    PARTICIPLE_ONLY,
    PAST_ONLY,
    THIRDS,
    is_past_or_participle,
)


def verb_tag(
    low: str, previous: Token | None, before: list[Token], following: Token | None
) -> Tag | None:
    """Tag of a word that can be a verb; None when it is none here."""
    kind = previous.tag if previous else None
    if low == "have" and kind == "modal":
        return "base"
    if low in PARTICIPLE_ONLY or (low in PAST_ONLY and kind not in ("determiner", "adjective")):
        return "participle" if low in PARTICIPLE_ONLY else "verb"
    if is_past_or_participle(low):
        if low in OFTEN_ADJECTIVES and kind not in ("be", "have") and not starts_object(following):
            return "adjective"
        return _past(kind, before, following)
    if previous and previous.low in ("to", *words.MODALS) and low in BASES:
        return "base"
    if low in THIRDS:
        return _third(low, kind, before, following)
    if low in BASES and previous and is_plural(previous):
        return "verb" if starts_object(following) else None
    if low in BASES and kind == "coordinator" and any(t.tag in ("base", "verb") for t in before):
        return "base" if starts_object(following) else None
    return None


def _past(kind: Tag | None, before: list[Token], following: Token | None) -> Tag:
    if kind in ("be", "have", "gerund", "participle") or (before and before[-1].low == "been"):
        return "participle"
    if kind in ("determiner", "adjective", "preposition", "base", "modal", None):
        return "adjective"
    if kind == "coordinator" and not starts_object(following):
        pair = before[-2] if before[-1].tag == "coordinator" and len(before) > 1 else None
        if pair is not None and pair.tag == "adjective":
            return "adjective"
    if following is not None and following.low == "by":
        return "participle"
    if kind == "comma" and _after_aside(before) and starts_object(following):
        return "participle" if is_closed(following, "preposition") else "verb"
    if kind == "comma" and not starts_object(following):
        return "adjective" if following and following.tag == "noun" else "participle"
    return "participle" if kind == "comma" else "verb"


def _after_aside(before: list[Token]) -> bool:
    """Whether two commas and no verb came before: "X, the king, ..."."""
    commas = sum(token.tag == "comma" for token in before)
    return commas > 1 and not any(token.tag in FINITE for token in before)


def _third(low: str, kind: Tag | None, before: list[Token], following: Token | None) -> Tag | None:
    if kind not in ("noun", "name", "relative", "pronoun", "coordinator", "comma", "parenthesis"):
        return None
    finite_before = any(token.tag in FINITE for token in before)
    if kind == "coordinator":
        object_follows = is_closed(following, "determiner") or is_closed(following, "pronoun")
        object_follows = object_follows or (following is not None and following.tag == "number")
        if low in NOUN_FORMS and before[-1].tag != "adverb" and not object_follows:
            return None
        return "verb" if finite_before and following is not None else None
    if kind == "noun" and finite_before:
        return None
    return "verb" if starts_object(following) or kind in ("relative", "pronoun") else None


def is_plural(token: Token) -> bool:
    """Whether a verb in the plain form can follow: "they", "rats"."""
    if token.tag == "pronoun":
        return token.low in ("we", "they", "you", "i")
    return token.tag == "noun" and token.low.endswith("s") and not token.low.endswith("ss")
