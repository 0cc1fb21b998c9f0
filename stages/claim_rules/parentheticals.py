"""Parentheticals: appositions, relative clauses between commas, and "(born ...)".

Each can be taken out of its clause.
"""

from typing import Final, NamedTuple

from claimflow.stages.claim_rules.clauses import clause_structure, first_finite_verb
from claimflow.stages.claim_rules.lexicon import is_person_noun, possessive
from claimflow.stages.claim_rules.tags import FINITE, tag
from claimflow.stages.claim_rules.tokens import (
    Clause,
    Token,
    inserted_token,
    repeated_subject,
    tokenize,
    trim_punctuation,
    without_positions,
)

_WHOLE_EVENTS: Final = frozenset(
    "made makes means meant led leads caused causes resulted results allowed allows helped helps "
    "gave gives enabled enables is was".split()
)
_GOVERNORS: Final = frozenset({"verb", "participle", "be"})


def is_proper_name(subject: Clause) -> bool:
    """Whether a subject is one proper name: "Paris", "The Hague", "Leonardo da Vinci"."""
    if not subject or subject[-1].tag not in ("name", "parenthesis"):
        return False
    small = all(token.tag in ("name", "parenthesis") or len(token.text) <= 3 for token in subject)
    return small and subject[0].tag in ("name", "determiner")


def antecedent(clause: Clause, comma: int) -> Clause:
    """The name or definite noun phrase that ends before a comma; empty when uncertain."""
    end = comma
    while end > 1 and clause[end - 1].tag == "parenthesis":
        end -= 1
    start = end
    while start > 0 and clause[start - 1].tag == "name":
        start -= 1
    if start == end:
        return _definite_noun_phrase(clause, end)
    if start and clause[start - 1].tag in ("comma", "coordinator"):
        return ()
    named = clause[start:end]
    while start > 1 and clause[start - 1].tag in ("adjective", "noun", "number"):
        start -= 1
    return clause[start - 1 : end] if start and clause[start - 1].low == "the" else named


def relative_clause_statement(subject: Clause, inner: Clause) -> Clause | None:
    """A relative clause as a statement; None when its antecedent is not the subject in it."""
    word = inner[0].low
    if word == "whose" and len(inner) > 2 and first_finite_verb(inner) not in (None, 1):
        owner = subject[-1]._replace(text=possessive(subject[-1].text))
        return (*without_positions((*subject[:-1], owner)), *inner[1:])
    after = 1
    while after < len(inner) - 1 and inner[after].tag == "adverb":
        after += 1
    if word not in ("who", "which") or after >= len(inner) or inner[after].tag not in FINITE:
        return None
    if word == "which" and subject[-1].tag not in ("name", "parenthesis"):
        indefinite = subject[0].low in ("a", "an") or subject[0].tag != "determiner"
        if indefinite or (inner[after].low in _WHOLE_EVENTS and after + 1 == len(inner)):
            return None
    return (*repeated_subject(subject), *inner[1:])


def copular_statement(subject: Clause, inner: Clause, rest: Clause) -> Clause:
    """ "subject is inner" in the tense of the first verb of `rest`."""
    be = inserted_token("was" if is_past(rest) else "is", "be")
    return (*repeated_subject(subject), be, *inner)


def is_past(rest: Clause) -> bool:
    """Whether the first finite verb is in the past."""
    finite = first_finite_verb(rest)
    if finite is None:
        return False
    token = rest[finite]
    if token.tag == "verb":
        return not token.low.endswith("s")
    return token.low in ("was", "were", "had", "did", "could", "would")


def is_singular(rest: Clause) -> bool:
    """Whether the first finite verb can have a singular subject."""
    finite = first_finite_verb(rest)
    return finite is not None and rest[finite].low not in ("are", "were", "have", "do")


def _definite_noun_phrase(clause: Clause, end: int) -> Clause:
    """A definite noun phrase right after a verb or its preposition: "the library", "his teacher".

    Then it is certain which one is meant, and that a relative clause modifies it.
    """
    start = end
    while start > 0 and clause[start - 1].tag in ("adjective", "noun", "name"):
        start -= 1
    if start in (0, end) or clause[start - 1].tag != "determiner":
        return ()
    phrase = clause[start - 1 : end]
    if phrase[0].low in ("a", "an") or phrase[-1].tag != "noun":
        return ()
    if is_person_noun(phrase[-1].low):
        return phrase
    governor = start - 2
    if governor > 0 and clause[governor].tag == "preposition":
        governor -= 1
    return phrase if governor >= 0 and clause[governor].tag in _GOVERNORS else ()


# Finding a parenthetical in a clause.

_LIST_GOES_ON: Final = frozenset({"name", "number", "noun", "adjective", "coordinator", "verb"})
_PARTICIPLES: Final = frozenset("born known located situated".split())
_PLACE_OPENINGS: Final = {"in": "in", "at": "at", "to": "in", "into": "in"}


class Parenthetical(NamedTuple):
    """A clause without its parenthetical, and the parenthetical as a clause of its own."""

    main: Clause
    statement: Clause


def find_parenthetical(clause: Clause) -> Parenthetical | None:
    """The first parenthetical of a clause; None when it has none or the rules are not certain."""
    return birth(clause) or _opening(clause) or _after_subject(clause) or _at_end(clause)


def birth(clause: Clause) -> Parenthetical | None:
    """ "X (born 1815 in Y) was ...": X was born 1815 in Y."""
    for index, token in enumerate(clause):
        if token.tag in FINITE:
            return None
        if token.tag == "parenthesis" and index and clause[index - 1].tag == "name":
            if not token.text.startswith("(born ") or not _is_one_person(clause[:index]):
                return None
            main = (*clause[:index], *clause[index + 1 :])
            inner = _inside(token)
            return Parenthetical(
                main, (*without_positions(clause[:index]), inserted_token("was", "be"), *inner)
            )
    return None


_PARTICLES: Final = frozenset("da de del della den der di du la le ten ter van von y zu".split())
_NO_NAMES: Final = frozenset(
    """according among as besides both despite either except following if including like named
    neither nor only since together unlike when while with""".split()
)


def _is_one_person(names: Clause) -> bool:
    """Whether words are nothing but a name: not "The son of Ann Lee", not "Unlike Ann Lee"."""
    parts = all(token.tag == "name" or token.low in _PARTICLES for token in names)
    return parts and names[0].low not in _NO_NAMES


def _inside(parenthesis: Token) -> Clause:
    """Tokens within a parenthesis, with their offsets in the text."""
    inner = tag(tokenize(parenthesis.text, 1, len(parenthesis.text) - 1))
    shift = parenthesis.start
    moved = [t._replace(start=t.start + shift, end=t.end + shift) for t in inner]
    return (moved[0]._replace(spaced=True), *moved[1:])


def _opening(clause: Clause) -> Parenthetical | None:
    """ "Born in X, Y did ...": Y did. Y was born in X."""
    if clause[0].low != "born":
        return None
    found = clause_structure(clause)
    if found is None or not found.subject:
        return None
    inner = trim_punctuation(clause[: found.subject])
    subject = repeated_subject(clause[found.subject : found.verb])
    born = inner[0]._replace(text="born", spaced=True)
    return Parenthetical(
        clause[found.subject :], (*subject, inserted_token("was", "be"), born, *inner[1:])
    )


def _after_subject(clause: Clause) -> Parenthetical | None:
    """ "X, the capital of Y, lies ..." and "X, who was born in Y, did ..."."""
    opening = next((i for i, t in enumerate(clause) if t.tag == "comma"), None)
    if opening is None or opening + 2 >= len(clause):
        return None
    subject = clause[:opening]
    if any(t.tag in FINITE or t.tag in ("coordinator", "subordinator") for t in subject):
        return None
    closing = _closing(clause, opening + 1)
    if closing is None:
        return None
    inner, rest = clause[opening + 1 : closing], clause[closing + 1 :]
    main = (*subject, *rest)
    if clause_structure(main) is None:
        return None
    if inner[0].tag == "relative":
        statement = relative_clause_statement(subject, inner)
    else:
        statement = _apposition(subject, inner, rest)
    return Parenthetical(main, statement) if statement else None


def _apposition(subject: Clause, inner: Clause, rest: Clause) -> Clause | None:
    """What "X, inner, rest" states of X; None when `inner` is no apposition."""
    if not is_proper_name(subject) or first_finite_verb(inner) is not None or not is_singular(rest):
        return None
    if inner[0].low == "born":
        return (*repeated_subject(subject), inserted_token("was", "be"), *inner)
    if len(inner) == 1 and inner[0].text.isdigit() and len(inner[0].text) < 3:
        return copular_statement(
            subject,
            (*inner, inserted_token("years", "noun"), inserted_token("old", "adjective")),
            rest,
        )
    if any(token.tag == "comma" for token in inner) or len(inner) < 2:
        return None
    participle = inner[0] if inner[0].tag != "adverb" else inner[1]
    owner = inner[0].tag == "name" and inner[0].low.endswith(("'s", "’s", "s'"))
    if inner[0].tag == "determiner" or owner or participle.low in _PARTICIPLES:
        return copular_statement(subject, inner, rest)
    return None


def _closing(clause: Clause, start: int) -> int | None:
    """Index of the comma after which the main verb follows."""
    for index in range(start + 1, len(clause) - 1):
        if clause[index].tag == "comma":
            after = index + 1
            while after < len(clause) - 1 and clause[after].tag == "adverb":
                after += 1
            if clause[after].tag in FINITE:
                return index
    return None


def _at_end(clause: Clause) -> Parenthetical | None:
    """ "... founded by X, the head of Y" and "... is X, which was awarded Y"."""
    finite = first_finite_verb(clause)
    if finite is None:
        return None
    for index in range(finite + 1, len(clause) - 2):
        if clause[index].tag != "comma":
            continue
        inner = clause[index + 1 :]
        relative = inner[0].tag == "relative" or inner[0].low == "where"
        if relative or (inner[0].low in ("a", "an", "the") and _is_single_noun_phrase(inner)):
            statement = _final_statement(clause, finite, index)
            return Parenthetical(trim_punctuation(clause[:index]), statement) if statement else None
    return None


def _final_statement(clause: Clause, finite: int, comma: int) -> Clause | None:
    """The words after a comma as a statement about the noun phrase before it."""
    inner, named = clause[comma + 1 :], antecedent(clause, comma)
    if inner[0].tag == "determiner":
        certain = bool(named) and named[-1].tag == "name" and is_singular(clause)
        return copular_statement(named, inner, clause[finite:]) if certain else None
    if _resumes(inner):
        return None
    if inner[0].low == "where":
        return _where_statement(clause, comma, inner)
    return relative_clause_statement(named, inner) if named else None


def _is_single_noun_phrase(inner: Clause) -> bool:
    """Whether the tokens are one noun phrase: without commas, coordinators and finite verbs."""
    return all(t.tag not in ("comma", "coordinator") and t.tag not in FINITE for t in inner)


def _where_statement(clause: Clause, comma: int, inner: Clause) -> Clause | None:
    """ "X moved to Y, where he worked": In Y, X worked. Needs a subject that can only be X."""
    start = comma
    while start > 0 and clause[start - 1].tag == "name":
        start -= 1
    found = clause_structure(clause)
    preposition = _PLACE_OPENINGS.get(clause[start - 1].low) if start else None
    if start == comma or preposition is None or found is None:
        return None
    subject = clause[found.subject : found.verb]
    verb_follows = len(inner) > 2 and inner[2].tag in (*FINITE, "adverb")
    if not verb_follows or inner[1].low not in ("he", "she"):
        return None
    if subject[0].low != inner[1].low:
        others = any(token.tag == "name" for token in clause[found.main : start])
        if others or not is_proper_name(subject):
            return None
    place = (
        inserted_token(preposition, "preposition"),
        *without_positions(clause[start:comma]),
        inserted_token(",", "comma"),
    )
    place = (*place[:-1], place[-1]._replace(spaced=False))
    # A subject that opens the sentence has no blank before it there.
    again = repeated_subject(subject)
    return (*place, again[0]._replace(spaced=True), *again[1:], *inner[2:])


def _resumes(inner: Clause) -> bool:
    """Whether the main clause may go on after the relative clause."""
    for index, token in enumerate(inner[:-1]):
        if token.tag == "comma" and inner[index + 1].tag not in _LIST_GOES_ON:
            return True
    return False
