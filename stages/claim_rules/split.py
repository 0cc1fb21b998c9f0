"""High atomicity: split a clause into clauses that each state one thing.

Every rule takes a clause and gives its parts in text order, or nothing when it does not
apply or is not certain. "or" is never split: neither side of it is claimed.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.clauses import (
    ClauseStructure,
    clause_structure,
    first_finite_verb,
    is_negated,
    main_verb,
    split_time_and_place,
)
from claimflow.stages.claim_rules.lexicon import (
    INTRANSITIVE,
    PARTICIPLE_ONLY,
    is_past_or_participle,
)
from claimflow.stages.claim_rules.parentheticals import split_parenthetical
from claimflow.stages.claim_rules.predicate_nominals import (
    split_coordinated_nominals,
    split_participial_clause,
    split_relative_clause,
)
from claimflow.stages.claim_rules.tags import FINITE
from claimflow.stages.claim_rules.tokens import (
    Clause,
    Token,
    repeated_subject,
    trim_punctuation,
    without_positions,
)

# Coordinated clauses.

_PAIRED_CLAUSES: Final = frozenset({"either", "neither", "only", "rather", "both", "between"})
_CONTRASTS: Final = frozenset({"while", "whereas"})
_SUBJECT_STARTS: Final = frozenset({"determiner", "name", "noun", "pronoun", "adjective"})


def split_semicolons(clause: Clause) -> list[Clause]:
    """Clauses on both sides of a semicolon, when each has a verb of its own."""
    for index, token in enumerate(clause):
        if token.tag == "semicolon":
            left, right = trim_punctuation(clause[:index]), trim_punctuation(clause[index + 1 :])
            if _is_clause(left) and _is_clause(right):
                return [left, right]
            return []
    return []


def split_coordinated_clauses(clause: Clause) -> list[Clause]:
    """ "A did this, and B did that": two clauses, each with its subject."""
    if clause[0].tag == "subordinator" or _PAIRED_CLAUSES & {token.low for token in clause}:
        return []
    for index, token in enumerate(clause):
        if token.tag in ("relative", "subordinator", "semicolon") and token.low not in _CONTRASTS:
            return []
        if not _is_coordinator(clause, index):
            continue
        left, right = trim_punctuation(clause[:index]), trim_punctuation(clause[index + 1 :])
        if (
            _is_clause(left)
            and right
            and right[0].tag in _SUBJECT_STARTS
            and _starts_with_subject(right)
        ):
            return [left, right]
    return []


def _is_coordinator(clause: Clause, index: int) -> bool:
    token = clause[index]
    if token.low in _CONTRASTS:
        return index > 0 and clause[index - 1].tag == "comma"
    return token.low in ("and", "but")


def _is_clause(clause: Clause) -> bool:
    return bool(clause) and clause_structure(clause) is not None


def _starts_with_subject(right: Clause) -> bool:
    """Whether a subject and its verb follow, with no possible list between them."""
    found = clause_structure(right)
    if found is None or found.subject != 0 or found.finite > 12:
        return False
    subject = right[: found.verb]
    if any(token.tag in ("coordinator", "participle") for token in subject):
        return False
    return subject[0].tag in ("determiner", "pronoun", "name") or len(subject) <= 3


# Coordinated verb phrases.

_PAIRED: Final = frozenset({"either", "neither", "only", "rather"})
_BOTH: Final = frozenset({"both", "between"})
_TIMES: Final = frozenset("then later subsequently eventually after before until since".split())


class _VerbPhrase(NamedTuple):
    """One coordinated verb phrase: `clause[start:end]`, and the auxiliaries it shares."""

    start: int
    end: int
    shared: Clause


def split_coordinated_verb_phrases(clause: Clause) -> list[Clause]:
    """ "X did this and did that": one clause for each verb phrase, each with the subject."""
    found = clause_structure(clause)
    if found is None or clause[found.verb - 1].low == "both":
        return []
    if _PAIRED & {token.low for token in clause[found.verb :]}:
        return []
    parts = _coordinated_verb_phrases(clause, found)
    if len(parts) < 2:
        return []
    adjunct, subject = clause[: found.subject], clause[found.subject : found.verb]
    whole = [trim_punctuation(clause[part.start : part.end]) for part in parts]
    tail = _complement(whole[-1])
    results = []
    for position, (part, phrase) in enumerate(zip(parts, whole, strict=True)):
        last = position == len(parts) - 1
        if not last and phrase[-1].tag in ("preposition", "relative"):
            return []
        full = phrase if last or _complement(phrase) else (*phrase, *without_positions(tail))
        if not position:
            results.append((*adjunct, *subject, *full))
            continue
        opening = () if _has_own_time(phrase) else adjunct
        results.append((*repeated_subject((*opening, *subject)), *part.shared, *full))
    return results


def _coordinated_verb_phrases(clause: Clause, found: ClauseStructure) -> list[_VerbPhrase]:
    """The verb phrases; only one when none are coordinated or the structure is uncertain."""
    parts: list[_VerbPhrase] = []
    start, shared = found.verb, Clause()
    commas: list[int] = []
    paired = False  # the next "and" belongs to "between" or "both"
    index = found.main + 1
    while index < len(clause):
        token = clause[index]
        if token.tag in ("relative", "subordinator", "semicolon"):
            break
        begins = (token.low in ("and", "but") and not paired) or token.tag == "comma"
        paired = token.low in _BOTH or (paired and token.low != "and")
        after = index + 1 + (token.tag == "comma" and _is_and(clause, index + 1))
        new = _shared_auxiliaries(clause, found, after) if begins else None
        if new is None:
            if token.tag in FINITE:
                return []  # a second verb that nothing coordinates: the structure is unknown
            index += 1
            continue
        if token.tag == "comma" and after == index + 1:
            commas.append(len(parts))
        parts.append(_VerbPhrase(start, index, shared))
        start, shared = after, new
        index = _after_verb_group(clause, after)
    parts.append(_VerbPhrase(start, len(clause), shared))
    last_is_and = clause[start - 1].low in ("and", "but")
    return parts if not commas or last_is_and else parts[:1]


def _is_and(clause: Clause, index: int) -> bool:
    return index < len(clause) and clause[index].low in ("and", "but")


def _after_verb_group(clause: Clause, index: int) -> int:
    while clause[index].tag == "adverb":
        index += 1
    return main_verb(clause, index) + 1


def _shared_auxiliaries(clause: Clause, found: ClauseStructure, start: int) -> Clause | None:
    """Auxiliaries that a verb phrase at `start` shares; None when none begins there."""
    index = start
    while index < len(clause) and clause[index].tag == "adverb":
        index += 1
    if index >= len(clause):
        return None
    head, group = clause[index], clause[found.finite : found.main + 1]
    auxiliaries = tuple(token for token in group[:-1] if token.tag != "adverb")
    sharing = without_positions(auxiliaries) if auxiliaries and not is_negated(group) else None
    if head.tag in ("be", "have", "modal"):
        return ()
    if head.tag == "verb":
        ambiguous = is_past_or_participle(head.low)
        if ambiguous and len(group) == 1 and group[0].tag == "be":
            return None if _continues_participle(clause, found.main, index) else ()
        if not auxiliaries or not ambiguous:
            return ()
        adjacent = start == found.main + 2
        return sharing if adjacent or _continues_auxiliary(clause, index, group) else ()
    if head.tag == "participle":
        if group[-1].tag == "participle" and sharing is not None:
            return (
                sharing if clause[start - 1].tag != "comma" or _is_in_list(clause, start) else None
            )
        finite_form = head.low not in PARTICIPLE_ONLY and group[-1].tag == "verb"
        return () if finite_form and _is_in_list(clause, start) else None
    if head.tag == "base" and group[0].tag == "modal" and group[-1].tag == "base":
        return sharing
    return None


def _continues_participle(clause: Clause, main: int, index: int) -> bool:
    """Whether a past form is coordinated with a participle: "is a novel written and sold"."""
    present = clause[main].low not in ("was", "were")
    return present or any(token.tag == "participle" for token in clause[main:index])


def _continues_auxiliary(clause: Clause, index: int, group: Clause) -> bool:
    """Whether a form continues a passive or perfect: "was waived and claimed by"."""
    if group[-1].low == "born" or clause[index].low in INTRANSITIVE:
        return group[0].tag == "have"
    following = clause[index + 1] if index + 1 < len(clause) else None
    if following is not None and following.low == "to" and clause[-1] is not following:
        return group[0].tag == "have" or clause[index + 2].tag != "base"
    if group[0].tag == "have" and all(token.low != "been" for token in group):
        return True
    return following is None or following.tag == "preposition"


def _is_in_list(clause: Clause, start: int) -> bool:
    """Whether a later "and" with a verb ends the list that continues at `start`."""
    for index in range(start, len(clause) - 1):
        if clause[index].tag in ("relative", "subordinator", "semicolon"):
            return False
        if clause[index].low == "and" and clause[index + 1].tag in (*FINITE, "participle"):
            return True
    return clause[start - 1].low == "and"


def _complement(phrase: Clause) -> Clause:
    """What follows the verb group of a phrase."""
    finite = first_finite_verb(phrase)
    if finite is None:
        finite = next((i for i, t in enumerate(phrase) if t.tag in ("participle", "base")), 0)
    return phrase[main_verb(phrase, finite) + 1 :] if phrase else ()


def _has_own_time(phrase: Clause) -> bool:
    return any(_is_time(token) for token in phrase)


def _is_time(token: Token) -> bool:
    return token.tag == "number" or token.low in _TIMES


# All rules in order.

_RULES: Final[tuple[Callable[[Clause], list[Clause]], ...]] = (
    split_semicolons,
    split_parenthetical,
    split_coordinated_clauses,
    split_relative_clause,
    split_coordinated_verb_phrases,
    split_participial_clause,
    split_coordinated_nominals,
    split_time_and_place,
)
_MOST_PARTS: Final = 40
_SIGNS: Final = frozenset(".°%$€£¥+=/#&@×")
_CONDITIONS: Final = frozenset({"if", "unless", "whether", "lest"})


def split_clause(clause: Clause) -> list[Clause]:
    """The statements of a clause in the order found; the clause alone when it is one.

    A clause with punctuation that no rule covers (colons, dashes, single quotation marks) or
    with a condition is left whole.
    """
    done: list[Clause] = []
    waiting = [clause]
    while waiting:
        part = trim_punctuation(waiting.pop())
        pieces = _split_once(part) if len(done) + len(waiting) < _MOST_PARTS else []
        if pieces:
            waiting.extend(reversed(pieces))
        elif part:
            done.append(part)
    return done


def _split_once(clause: Clause) -> list[Clause]:
    if not clause or any(_is_unsupported(token.tag, token.low) for token in clause):
        return []
    for rule in _RULES:
        pieces = rule(clause)
        if pieces:
            return pieces
    return []


def _is_unsupported(kind: str, low: str) -> bool:
    return (kind == "punctuation" and low not in _SIGNS) or low in _CONDITIONS
