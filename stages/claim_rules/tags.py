"""Part-of-speech tags of one English sentence, from closed lists, endings and neighbours.

There is no model: where a word could have two tags its neighbours decide. The rules that use the
tags leave a sentence whole where the tags do not form a clause.
"""

from typing import Final

from claimflow.stages.claim_rules import lexicon
from claimflow.stages.claim_rules.lexicon import (
    BASE_FORMS,
    NOUN_FORMS,
    OFTEN_ADJECTIVES,
    PARTICIPLE_ONLY,
    PAST_ONLY,
    THIRD_PERSON_FORMS,
    is_past_or_participle,
    is_person_noun,
)
from claimflow.stages.claim_rules.tokens import Clause, Tag, Token

# Tags of a word on its own.

FINITE: Final = frozenset({"be", "have", "modal", "verb"})
NOMINAL: Final = frozenset({"noun", "name", "number", "parenthesis", "pronoun"})

CLOSED_CLASS: Final[dict[str, Tag]] = {
    **dict.fromkeys(lexicon.ADVERBS, "adverb"),
    **dict.fromkeys(lexicon.PREPOSITIONS, "preposition"),
    **dict.fromkeys(lexicon.DETERMINERS, "determiner"),
    **dict.fromkeys(lexicon.PRONOUNS, "pronoun"),
    **dict.fromkeys(lexicon.SUBORDINATORS, "subordinator"),
    **dict.fromkeys(lexicon.RELATIVE_PRONOUNS, "relative"),
    **dict.fromkeys(lexicon.COORDINATORS, "coordinator"),
    **dict.fromkeys(lexicon.BE, "be"),
    **dict.fromkeys(lexicon.HAVE, "have"),
    **dict.fromkeys(lexicon.MODALS, "modal"),
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


def is_closed_class(token: Token | None, kind: Tag) -> bool:
    """Whether a word belongs to this closed class on its own, without its context."""
    return token is not None and CLOSED_CLASS.get(token.low) == kind


def starts_object(following: Token | None) -> bool:
    """Whether the following word can stand right after a verb, but not after a plural noun."""
    if following is None or following.tag in ("punctuation", "comma"):
        return True
    if following.tag in _OBJECT_STARTS or following.text[:1].isupper():
        return True
    return CLOSED_CLASS.get(following.low, "noun") in _OBJECT_STARTS or following.low == "to"


# Verbs in context.


def verb_tag(
    low: str, previous: Token | None, before: list[Token], following: Token | None
) -> Tag | None:
    """Tag of a word that can be a verb; None when it is no verb in this context."""
    kind = previous.tag if previous else None
    if low == "have" and kind == "modal":
        return "base"
    if low in PARTICIPLE_ONLY or (low in PAST_ONLY and kind not in ("determiner", "adjective")):
        return "participle" if low in PARTICIPLE_ONLY else "verb"
    if is_past_or_participle(low):
        if low in OFTEN_ADJECTIVES and kind not in ("be", "have") and not starts_object(following):
            return "adjective"
        return _tag_past_form(kind, before, following)
    if previous and previous.low in ("to", *lexicon.MODALS) and low in BASE_FORMS:
        return "base"
    if low in THIRD_PERSON_FORMS:
        return _tag_third_person(low, kind, before, following)
    if low in BASE_FORMS and previous and is_plural(previous):
        return "verb" if starts_object(following) else None
    if (
        low in BASE_FORMS
        and kind == "coordinator"
        and any(t.tag in ("base", "verb") for t in before)
    ):
        return "base" if starts_object(following) else None
    return None


def _tag_past_form(kind: Tag | None, before: list[Token], following: Token | None) -> Tag:
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
    if kind == "comma" and _is_after_parenthetical(before) and starts_object(following):
        return "participle" if is_closed_class(following, "preposition") else "verb"
    if kind == "comma" and not starts_object(following):
        return "adjective" if following and following.tag == "noun" else "participle"
    return "participle" if kind == "comma" else "verb"


def _is_after_parenthetical(before: list[Token]) -> bool:
    """Whether two commas and no verb came before: "X, the king, ..."."""
    commas = sum(token.tag == "comma" for token in before)
    return commas > 1 and not any(token.tag in FINITE for token in before)


def _tag_third_person(
    low: str, kind: Tag | None, before: list[Token], following: Token | None
) -> Tag | None:
    if kind not in ("noun", "name", "relative", "pronoun", "coordinator", "comma", "parenthesis"):
        return None
    finite_before = any(token.tag in FINITE for token in before)
    if kind == "coordinator":
        object_follows = is_closed_class(following, "determiner") or is_closed_class(
            following, "pronoun"
        )
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


# Tagging a sentence.


_NOUN_ENDINGS: Final = ("tion", "ment", "ness", "ity", "ship", "ism", "ance", "ence")


def tag(tokens: list[Token]) -> Clause:
    """The tokens with their part-of-speech tags."""
    tagged: list[Token] = []
    _extend(tagged, tokens)
    promoted = _find_unmarked_verb(tagged)
    if promoted is not None:  # tags after a verb depend on it, so they are made anew
        del tagged[promoted + 1 :]
        tagged[promoted] = tagged[promoted]._replace(tag="verb")
        _extend(tagged, tokens)
    return _retag_reduced_participles(tagged)


def _extend(tagged: list[Token], tokens: list[Token]) -> None:
    for position in range(len(tagged), len(tokens)):
        token = tokens[position]
        known = token.tag != "noun"
        tagged.append(token if known else token._replace(tag=_tag(tagged, tokens, position)))


def _tag(before: list[Token], tokens: list[Token], position: int) -> Tag:
    low = tokens[position].low
    previous = _previous(before)
    following = tokens[position + 1] if position + 1 < len(tokens) else None
    capital = tokens[position].text[:1].isupper()
    if capital and _is_demonym_modifier(low, before, following):
        return "adjective"
    if capital and position and before[-1].tag != "punctuation" and low != "i":
        return "name"
    closed = CLOSED_CLASS.get(low)
    if low == "that":
        return _tag_that(previous, following)
    if low in ("after", "before", "since", "until", "till", "as"):
        return "subordinator" if is_closed_class(following, "pronoun") else "preposition"
    if low == "her" and (following is None or CLOSED_CLASS.get(following.low)):
        return "pronoun"
    if closed and not (low == "have" and previous and previous.tag == "modal"):
        return closed
    verbal = verb_tag(low, previous, before, following)
    if verbal:
        return verbal
    if capital and not position and not low.endswith("ly"):
        return _tag_sentence_initial(low, following)
    return _tag_open_class(low)


def _tag_that(previous: Token | None, following: Token | None) -> Tag:
    if previous is not None and previous.tag in ("noun", "name", "parenthesis", "comma"):
        return "relative"
    low = following.low if following else ""
    return "determiner" if previous is None and low in lexicon.BE else "subordinator"


def _tag_sentence_initial(low: str, following: Token | None) -> Tag:
    """Tag of a capitalised word at the start: a name, except for endings of other tags."""
    if following is not None and following.text[:1].isupper():
        return "name"
    if low.endswith(_NOUN_ENDINGS) or (low.endswith("s") and not low.endswith(("ss", "is", "us"))):
        return "noun"
    if low.endswith("ing"):
        return "gerund"
    return "name" if not low.endswith(("ous", "ful")) else "adjective"


def _tag_open_class(low: str) -> Tag:
    if low.endswith("ly") and low not in lexicon.NOT_ADVERBS:
        return "adverb"
    if low.endswith("ing") and len(low) > 5 and low not in lexicon.EVALUATIVE_WORDS:
        return "gerund" if low not in lexicon.ADJECTIVES else "adjective"
    last = low.rsplit("-", 1)[-1]
    if low in lexicon.ADJECTIVES or last in lexicon.DEMONYMS or low in lexicon.EVALUATIVE_WORDS:
        return "adjective"
    if low.endswith("ed") and len(low) > 4:
        return "adjective"
    adjective = low.endswith(tuple(lexicon.ADJECTIVE_ENDINGS)) and len(low) > 4
    if adjective and low not in lexicon.NOT_ADJECTIVES and not is_person_noun(low):
        return "adjective"
    return "noun"


def _is_demonym_modifier(low: str, before: list[Token], following: Token | None) -> bool:
    """A capitalised nationality before what it modifies: a *German* physicist."""
    if low.rsplit("-", 1)[-1] not in lexicon.DEMONYMS or following is None:
        return False
    if before and before[-1].tag == "name":
        return False
    after_modifier = bool(before) and before[-1].tag in ("determiner", "adjective", "coordinator")
    return after_modifier or following.text[:1].islower()


def _find_unmarked_verb(tagged: list[Token]) -> int | None:
    """Index of the noun that must be the verb, as no verb was found: "The company makes cars"."""
    candidate: int | None = None
    for position, token in enumerate(tagged):
        if token.tag in FINITE:
            return None
        borders = ("coordinator", "relative", "subordinator", "semicolon")
        if token.tag in borders and (candidate is not None or token.tag != "coordinator"):
            break
        if candidate is None and token.tag == "noun" and position:
            before = tagged[position - 1]
            third = token.low in THIRD_PERSON_FORMS and before.tag in ("noun", "name")
            if third or (token.low in BASE_FORMS and is_plural(before)):
                candidate = position
    if candidate is None and not any(token.tag in FINITE for token in tagged):
        return _after_second_comma(tagged)
    return candidate


def _after_second_comma(tagged: list[Token]) -> int | None:
    """ "X, the king, defeated Y": the past form after the parenthetical."""
    commas = 0
    for position, token in enumerate(tagged):
        if commas > 1 and tagged[position - 1].tag == "comma" and is_past_or_participle(token.low):
            return position
        commas += token.tag == "comma"
    return None


def _retag_reduced_participles(tagged: list[Token]) -> Clause:
    """Retag a past form as participle when the finite verb of the clause comes later.

    "The film directed in 1990 was released": what could be either is a verb only when
    nothing else before the next border is.
    """
    barriers = ("coordinator", "comma", "relative", "subordinator", "semicolon", "punctuation")
    pending: int | None = None
    for position, token in enumerate(tagged):
        if token.tag in barriers:
            pending = None
        elif token.tag in FINITE:
            if pending is not None and tagged[pending + 1].tag in ("preposition", "adverb"):
                tagged[pending] = tagged[pending]._replace(tag="participle")
            ambiguous = token.tag == "verb" and is_past_or_participle(token.low)
            after_pronoun = position > 0 and tagged[position - 1].tag in ("pronoun", "coordinator")
            pending = position if ambiguous and not after_pronoun else None
    return tuple(tagged)


def _previous(before: list[Token]) -> Token | None:
    """The last token that is no adverb."""
    for token in reversed(before):
        if token.tag != "adverb":
            return token
    return None
