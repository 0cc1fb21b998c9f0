"""Pronouns: resolve the subject of a clause, and find claims with an unresolved pronoun."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from claimflow.stages.claim_rules.clauses import (
    ClauseStructure,
    clause_structure,
    first_finite_verb,
    main_verb,
)
from claimflow.stages.claim_rules.lexicon import (
    BASE_FORMS,
    BE,
    HAVE,
    MODALS,
    is_person_noun,
    possessive,
)
from claimflow.stages.claim_rules.predicate_nominals import predicate_nominal
from claimflow.stages.claim_rules.tags import FINITE, tag
from claimflow.stages.claim_rules.tokens import (
    Clause,
    Token,
    tokenize,
    without_parentheses,
    without_positions,
)

_PEOPLE: Final = frozenset({"he", "she"})
_GENDER: Final = {"he": "he", "his": "he", "she": "she", "her": "she"}
_THINGS: Final = frozenset({"it", "its"})
_SEVERAL: Final = frozenset({"they", "their"})
_RESOLVED: Final = _PEOPLE | _THINGS | _SEVERAL | {"his", "her"}
_POSSESSIVES: Final = frozenset({"his", "her", "its", "their"})
_OF_WOMEN: Final = frozenset(
    "woman girl daughter mother wife sister queen princess actress lady grandmother aunt niece "
    "widow bride mrs. ms. miss mrs ms heroine goddess hostess businesswoman".split()
)
_OF_MEN: Final = frozenset(
    "man boy son father husband brother king prince actor gentleman grandfather uncle nephew "
    "widower mr. mr sir god businessman".split()
)
_VERBS_OF_THINGS: Final = frozenset(
    "located situated founded built published released written directed constructed".split()
)
_MAKING: Final = frozenset(
    "wrote created founded directed invented painted composed built designed discovered released "
    "published produced developed written recorded sang".split()
)
"""Verbs whose object is a thing."""
_OF_AUTHORS: Final = frozenset("wrote painted composed directed sang invented".split())
"""Verbs whose subject is a person."""
_PARTS_OF_MENTIONS: Final = frozenset({"name", "noun", "number", "adjective", "participle"})
_PLACES: Final = frozenset("in at on from near of into through across as".split())
"""Prepositions before places, dates and roles, which are rarely meant by a later pronoun."""
_INTERJECTIONS: Final = frozenset("hi hello hey thanks sorry sure yes no well okay ok".split())
_ASKING: Final = frozenset("who what when where which why how".split()) | BE | HAVE | MODALS
_LISTING: Final = frozenset({"and", "or", ",", "&"})
_INDEFINITE: Final = frozenset("a an some any no every each another".split())
_DEFINITE: Final = frozenset("the this that his her its their".split())
_PARTICLES: Final = frozenset(
    "de del della da di du des la le van von der den ter bin ibn al".split()
)
"""Words in lower case within a name."""

_MOST_MENTIONS: Final = 40
"""Mentions of a text that are remembered: the latest. Older ones are rarely meant."""


class _Mention(NamedTuple):
    """A noun phrase of a sentence, as it is repeated in place of a pronoun.

    `person` is None for a name that may be one. `made` marks what an author made: "wrote Faust".
    """

    words: Clause
    role: Literal["subject", "object", "other"]
    person: bool | None
    plural: bool
    made: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether it stands for one thing, not for a stuff or for things in general: "a pool"."""
        return self.words[0].tag == "determiner" or any(t.tag == "name" for t in self.words)

    @property
    def key(self) -> frozenset[str]:
        """The words that tell two mentions apart."""
        return frozenset(token.low for token in self.words) - {"the"}

    @property
    def is_named(self) -> bool:
        """Whether a reader knows what is meant: a name, or a definite noun phrase."""
        first, *rest = self.words
        named = _is_name(self.words) or (
            first.tag == "determiner" and first.low not in _INDEFINITE and _is_name(rest)
        )
        return first.low in _DEFINITE or named


class PronounResolver:
    """Replaces subject pronouns whose antecedent is certain, as sentences are read in order.

    A pronoun refers to the subject of the sentence before (Grosz, Joshi and Weinstein 1995: what
    is a pronoun now was the centre before), unless that sentence names another person for "he" and
    "she", another thing as object for "it", or other people or things for "they". Then, and where
    nothing of the kind was named, it stays. The question that the text answers is the sentence
    before the first.
    """

    def __init__(self, question: Clause = ()) -> None:
        self._last: list[_Mention] = []
        self._people: list[_Mention] = []
        self._gender: dict[frozenset[str], str] = {}
        self._continued = False
        """Whether the subject of the last sentence was a pronoun: then it stays in the centre."""
        self._has_object_pronoun = False
        self._lost = False
        """Whether it is not known what that pronoun meant: then no later one is known either."""
        if question:
            self._last = _question_mentions(question)
            self._note_people()

    def resolve(self, clause: Clause) -> Clause:
        """The clause with the antecedent in place of its subject pronoun, where that is certain."""
        place = _pronoun_place(clause)
        antecedent = self._antecedent(clause, place) if place is not None else None
        if place is None or antecedent is None:
            return clause
        return _with_antecedent(clause, place, antecedent)

    def remember(
        self, clause: Clause, resolved: Clause | None = None, *, who: bool = False
    ) -> None:
        """Remember what a sentence names; `resolved` is the sentence with its pronoun replaced.

        With `who` its subject is a person, as it answers the question who it is.
        """
        place = _pronoun_place(clause)
        pronoun = clause[place] if place is not None else None
        self._continued = pronoun is not None and pronoun.tag == "pronoun"
        if resolved is None or resolved == clause:
            if self._continued:
                self._lost = True
                return
            resolved = clause
        self._lost = False
        self._last = _mentions(resolved)
        self._has_object_pronoun = any(
            token.low in ("it", "them", "him", "her") for token in resolved[1:]
        )
        if who and self._last and self._last[0].role == "subject":
            self._last[0] = self._last[0]._replace(person=True)
        if self._continued and pronoun is not None and pronoun.low == "it" and self._last:
            self._last[0] = self._last[0]._replace(person=False)
        if pronoun is not None and pronoun.low in _GENDER and resolved != clause:
            self._last = [
                one._replace(person=True) if one.role == "subject" and self._continued else one
                for one in self._last
            ]
            if self._continued and self._last and self._last[0].role == "subject":
                self._gender[self._last[0].key] = _GENDER[pronoun.low]
        self._note_people()

    def remember_answer(self, clause: Clause, *, who: bool) -> None:
        """Remember a phrase that answered the question: later pronouns may mean it as well.

        It is a person only where the question is `who`.
        """
        named = [_mention(clause, start, end, "object") for start, end in _noun_phrases(clause)]
        self._last += [
            one if who else one._replace(person=one.person or False)
            for one in named
            if one.is_counted
        ]

    def _note_people(self) -> None:
        for one in self._last:
            if one.person is False or one.plural:
                continue
            if one.role == "other" and one.person is None:
                continue
            self._people = [old for old in self._people if not _same(old, one)] + [
                _fuller(one, next((old for old in self._people if _same(old, one)), one))
            ]
        del self._people[:-_MOST_MENTIONS]

    def _antecedent(self, clause: Clause, place: int) -> _Mention | None:
        low = clause[place].low
        if self._lost:
            return None
        # What a clause names cannot be what its subject pronoun means: "she met Ann".
        own = {token.low for token in clause[place + 1 :] if token.tag == "name"}
        self._last = [one for one in self._last if not self._is_own(one, own)]
        subject = next((one for one in self._last if one.role == "subject"), None)
        if low in _GENDER:
            return self._person(_GENDER[low], subject)
        if low in _THINGS:
            if low == "it" and _may_be_expletive(clause, place):
                return None
            if subject is not None and subject.person is None and _says_what_it_is(clause, place):
                return None  # "It was 1933", "It was a play": of what is not known.
            return self._thing(subject)
        return self._several(subject)

    @staticmethod
    def _is_own(one: _Mention, own: set[str]) -> bool:
        return one.role != "subject" and _is_name(one.words) and one.key <= own

    def _person(self, gender: str, subject: _Mention | None) -> _Mention | None:
        def fits(one: _Mention) -> bool:
            known = self._gender_of(one)
            return one.person is not False and not one.plural and known in (None, gender)

        people = [one for one in self._people if fits(one)]
        if subject is not None and fits(subject) and subject.is_named:
            others = [
                one
                for one in self._last
                if one.role != "subject" and fits(one) and not _same(one, subject)
            ]
            if not others or (self._continued and self._gender_of(subject) is not None):
                return _fuller(
                    subject, next((old for old in people if _same(old, subject)), subject)
                )
            return None
        others = [one for one in self._last if one.person and fits(one) and one.is_named]
        sure = others or [one for one in people if one.person] or people
        return sure[0] if len(sure) == 1 and sure[0].is_named else None

    def _gender_of(self, one: _Mention) -> str | None:
        """The pronoun by which a person was meant before, or which a word for them says."""
        if _OF_WOMEN & one.key:
            return "she"
        if _OF_MEN & one.key:
            return "he"
        keys = (key for key in self._gender if key <= one.key or one.key <= key)
        return self._gender[key] if (key := next(keys, None)) is not None else None

    def _thing(self, subject: _Mention | None) -> _Mention | None:
        objects = [
            one
            for one in self._last
            if one.role == "object" and not one.person and not one.plural and one.is_counted
        ]
        if subject is None or subject.plural or self._has_object_pronoun:
            return None
        if not subject.person:
            return None if objects and not self._continued else subject
        made = [one for one in objects if one.made]
        return made[0] if len(objects) == len(made) == 1 else None

    def _several(self, subject: _Mention | None) -> _Mention | None:
        if subject is None or not subject.plural:
            return None
        others = [one for one in self._last if one.role == "object" and one.plural]
        return None if others and not self._continued else subject


def _says_what_it_is(clause: Clause, place: int) -> bool:
    behind = clause[place + 1 : place + 3]
    return (
        len(behind) == 2
        and behind[0].tag == "be"
        and (behind[1].tag == "number" or behind[1].low in _INDEFINITE)
    )


def _with_antecedent(clause: Clause, place: int, antecedent: _Mention) -> Clause:
    """A clause with the antecedent in place of the pronoun."""
    own = clause[place]
    words = list(without_positions(antecedent.words))
    words[0] = words[0]._replace(spaced=own.spaced)
    if own.low in _POSSESSIVES and (own.tag == "determiner" or place == 0):
        words[-1] = words[-1]._replace(text=possessive(words[-1].text))
    return (*clause[:place], *words, *clause[place + 1 :])


def resolve_question(question: Clause, before: Sequence[Clause]) -> Clause:
    """A question with what its pronoun means, where the sentences `before` name one such thing.

    The first of them may be a question, too. Anything named in any of them counts.
    """
    place = next((n for n, token in enumerate(question) if token.low in _RESOLVED), None)
    if place is None or (question[place].low == "it" and _is_expletive(question, place)):
        return question
    named: list[_Mention] = []
    for clause in before:
        found = _mentions(clause) if first_finite_verb(clause) is not None else []
        if clause[0].low in _ASKING or not found:
            found = _question_mentions(clause)
        for one in found:
            same = next((old for old in named if _same(old, one)), None)
            if same is not None:
                named.remove(same)
                one = _fuller(one, same)  # noqa: PLW2901
            named.append(one)
    low = question[place].low
    if low in _SEVERAL:
        fitting = [one for one in named if one.plural]
    elif low in _THINGS:
        things = [one for one in named if not one.person and not one.plural]
        sure = [one for one in things if one.person is False]
        fitting = sure if len(sure) == 1 else things
    else:
        fitting = [one for one in named if one.person is not False and not one.plural]
    if len(fitting) != 1 or not fitting[0].is_counted:
        return question
    return _with_antecedent(question, place, fitting[0])


def _pronoun_place(clause: Clause) -> int | None:
    """The index of the pronoun that is the subject of a clause, or the determiner it begins with.

    None where its subject is no pronoun.
    """
    if clause and clause[0].low in _RESOLVED:
        return 0
    found = clause_structure(clause)
    if found is None:
        return None
    first = clause[found.subject]
    alone = found.verb - found.subject == 1
    if first.low in _RESOLVED and (alone if first.tag == "pronoun" else first.tag == "determiner"):
        return found.subject
    return None


def _mentions(clause: Clause) -> list[_Mention]:
    """What a sentence names, the subject first; without what only describes it, and places."""
    phrases = list(_noun_phrases(clause))
    structure = clause_structure(clause)
    finite = structure.finite if structure else first_finite_verb(clause)
    if finite is None or not phrases:
        return []
    subject = _subject(clause, phrases, finite, structure.subject if structure else 0)
    main = main_verb(clause, finite)
    others = list(_others(clause, phrases, max(finite, subject[1] if subject else 0), main))
    if subject is None:
        return others
    one = _with_predicate(_mention(clause, *subject, "subject"), clause)
    one = _coordinated(clause, one, phrases, subject) or one
    if (
        clause[main].tag == "be"
        and others
        # Not of "a router made by Acme".
        and others[0].role == "object"
        and _is_name(others[0].words)
        and not _is_name(one.words)
    ):
        # "The head of Acme is Ann" says who that is.
        one, *others = [others[0]._replace(role="subject", person=one.person or None), *others[1:]]
    if clause[main].low in _OF_AUTHORS and one.person is None and others:
        one = one._replace(person=True)
    return [one, *others]


def _others(
    clause: Clause, phrases: Sequence[tuple[int, int]], finite: int, main: int
) -> Iterator[_Mention]:
    """What a sentence names behind its finite verb: objects, people, subjects of other clauses."""
    places: set[int] = set()
    for start, end in phrases:
        before = clause[start - 1].low if start else ""
        oblique = _is_oblique(clause, start)
        if (oblique and before in _PLACES) or (before in _LISTING and start - 1 in places):
            places.add(end)
            continue
        if start <= finite:
            # "After leaving Oslo, Ann", "Ann, head of Acme,": beside the subject.
            continue
        one = _mention(clause, start, end, "other" if oblique else "object")
        other_clause = end < len(clause) and clause[end].tag in FINITE  # "whereas UDP is not"
        named = start == main + 1 and _is_name(one.words)
        if clause[main].tag == "be" and not (oblique or other_clause or named):
            continue  # "X is a city" names nothing new.
        if one.role == "object" and one.person is None and clause[main].low in _MAKING:
            one = one._replace(person=False, made=clause[main].low in _OF_AUTHORS)
        yield one


def _subject(
    clause: Clause, phrases: Sequence[tuple[int, int]], finite: int, first: int
) -> tuple[int, int] | None:
    """The noun phrase before the finite verb that is its subject, at `first` or behind it."""
    before = [
        (start, end)
        for start, end in phrases
        if first <= start
        and end <= finite
        and not _is_oblique(clause, start)
        # "Investors who sell": a verb that the tagger takes for a noun.
        and not (start and clause[start - 1].low in ("who", "which", "whom"))
        # A mark before it: "|x|" is no noun phrase; nor is a greeting or an order.
        and not (start and clause[start - 1].tag == "punctuation")
        and not (end - start == 1 and clause[start].low in _INTERJECTIONS)
        and not (start == 0 and end < finite and clause[0].low in BASE_FORMS)
    ]
    if not before:
        return None
    return before[0] if _is_inserted(clause, before[-1], finite) else before[-1]


def _coordinated(
    clause: Clause, one: _Mention, phrases: Sequence[tuple[int, int]], subject: tuple[int, int]
) -> _Mention | None:
    """The subject of "Ann and Eva met", which is both; None where there is one."""
    place = phrases.index(subject)
    start = subject[0]
    while place and clause[start - 1].low in ("and", "&") and phrases[place - 1][1] == start - 1:
        place -= 1
        start = phrases[place][0]
    if start == subject[0]:
        return None
    words = without_positions(clause[start : subject[1]])
    return one._replace(words=words, plural=True)


def _noun_phrases(clause: Clause) -> Iterator[tuple[int, int]]:
    """The noun phrases `start:end` of a clause, each with the "of" phrases behind it."""
    index = 0
    while index < len(clause):
        end = _phrase_end(clause, index)
        if end == index:
            index += 1
            continue
        while end + 1 < len(clause) and clause[end].low == "of":
            more = _phrase_end(clause, end + 1)
            if more == end + 1:
                break
            end = more
        yield index, end
        index = end


def _phrase_end(clause: Clause, start: int) -> int:
    """Where the noun phrase that begins at `start` ends; `start` itself where none does."""
    index = start
    if index < len(clause) and clause[index].tag == "determiner":
        index += 1
    first, last = index, start
    while index < len(clause) and clause[index].tag in _PARTS_OF_MENTIONS:
        index += 1
        tag_of = clause[index - 1].tag
        if tag_of in ("name", "noun") or (tag_of == "number" and last == index - 1 > first):
            last = index
    return last if last > first else start


def _is_oblique(clause: Clause, start: int) -> bool:
    return start > 0 and clause[start - 1].tag == "preposition"


def _is_inserted(clause: Clause, phrase: tuple[int, int], finite: int) -> bool:
    """Whether a comma stands between a noun phrase and the verb: "X, a city, is"."""
    return any(token.tag in ("comma", "relative") for token in clause[phrase[1] : finite])


def _mention(
    clause: Clause, start: int, end: int, role: Literal["subject", "object", "other"]
) -> _Mention:
    words = without_positions(without_parentheses(clause[start:end]))
    of = next((n for n, token in enumerate(words) if token.low == "of"), len(words))
    head = words[of - 1]
    named = _is_name(words) and not any(_is_possessive(token.low) for token in words)
    counted = words[0].tag in ("determiner", "number") or any(t.tag == "name" for t in words)
    about_person = is_person_noun(head.low) or any(
        token.low in _OF_WOMEN | _OF_MEN for token in words[:of]
    )
    person = True if about_person and counted and not named else None
    person = None if named else bool(person)
    plural = head.tag == "noun" and head.low.endswith("s") and not head.low.endswith(("ss", "us"))
    return _Mention(words, role, person, plural)


def _is_name(words: Sequence[Token]) -> bool:
    """Whether a noun phrase is a name, such as Ludwig van Beethoven."""
    ends = {words[0].tag, words[-1].tag} if words else set()
    return ends == {"name"} and all(
        token.tag == "name" or token.low in _PARTICLES for token in words
    )


def _is_possessive(low: str) -> bool:
    return low.endswith(("'s", "’s", "s'", "s’"))


def _with_predicate(subject: _Mention, clause: Clause) -> _Mention:
    """The subject with what its predicate says of it: a person, or a thing."""
    if subject.person is not None:
        return subject
    if _is_person(clause):
        return subject._replace(person=True)
    found = clause_structure(clause)
    if predicate_nominal(clause) is not None or (found and _is_thing(clause, found)):
        return subject._replace(person=False)
    return subject


def _question_mentions(clause: Clause) -> list[_Mention]:
    """What a question names, its subject first; nothing where a pronoun in it is not resolved."""
    if clause and clause[0].low in BASE_FORMS:
        clause = clause[1:]  # "Tell me about X", "Describe X"
    lows = [token.low for token in clause]
    if not lows or "there" in lows[:3] or not _RESOLVED.isdisjoint(lows):
        return []
    found: list[_Mention] = []
    for start, end in _noun_phrases(clause):
        if _is_no_mention(clause, start, end, first=not found):
            continue
        role: Literal["object", "other"] = "other" if _is_oblique(clause, start) else "object"
        sure = _sure_end(clause, start, end)
        if sure is None:
            return []
        one = _mention(clause, start, sure, role if found else "subject")
        if one.person is None:
            one = one._replace(person=_asked_person(lows, one))
        if lows[0] == "who" and lows[1:2] not in (["is"], ["was"]) and not found:
            one = one._replace(role="object")  # "Who wrote Hamlet?"
        found.append(one)
    return found


def _sure_end(clause: Clause, start: int, end: int) -> int | None:
    """Where a noun phrase of a question ends, less what may begin its predicate; None if unsure."""
    before = {token.tag for token in clause[:start]}
    if "modal" in before:
        return _before_plain_form(clause, start, end)
    return _before_predicate(clause, start, end) if "be" in before else end


def _before_plain_form(clause: Clause, start: int, end: int) -> int | None:
    """Where the subject of "Did the war end" ends; None where its verb is not found."""
    first = start + (2 if clause[start].tag == "determiner" else 1)
    for place in range(first, end):
        token = clause[place]
        after_name = clause[place - 1].tag == "name" and token.low not in _PARTICLES
        if token.low in BASE_FORMS or (token.tag == "noun" and after_name):
            return place
    later = clause[end:]
    verb = any(token.tag in ("base", "verb") or token.low in BASE_FORMS for token in later)
    return end if verb or start > 2 else None


def _before_predicate(clause: Clause, start: int, end: int) -> int | None:
    """Where the subject of "Is Venus bigger than" ends; None for "Is the warranty valid for".

    What ends the question is its predicate: "Is the device waterproof".
    """
    ends = not any(token.text.isalnum() for token in clause[end:])
    if start == 1 and ends and end - start == 2 + (clause[1].tag == "determiner"):
        return end - 1
    if clause[start].tag == "name":
        later = (n for n in range(start, end) if clause[n].tag == "noun")
        return next((n for n in later if clause[n].low not in _PARTICLES), end)
    nouns = sum(token.tag == "noun" for token in clause[start:end])
    behind = clause[end].tag == "preposition" if end < len(clause) else False
    return None if nouns > 1 and behind else end


def _is_no_mention(clause: Clause, start: int, end: int, *, first: bool) -> bool:
    """Whether a phrase of a question names nothing that a pronoun in the answer can mean."""
    before = clause[start - 1].low if start else ""
    if before in ("what", "which", "whose", "many", "much", "to"):
        return True
    one = clause[start]
    if end - start == 1 and one.low in BASE_FORMS and one.tag != "name":
        return True
    if first:
        return False
    oblique = _is_oblique(clause, start)
    # "Is Ann the head of Acme?" names Ann.
    described = clause[0].low in BE and one.tag == "determiner" and not oblique
    return described or (oblique and before in _PLACES)


def _asked_person(lows: Sequence[str], one: _Mention) -> bool | None:
    """Whether a question says of a name that it is one of a person; None where it may be."""
    if one.role != "subject":
        return None if len(one.words) > 1 else False
    if lows[:2] in (["who", "is"], ["who", "was"]) or {"born", "die"}.intersection(lows):
        return True
    by_what = lows[0] == "who" or lows[:2] in (["what", "is"], ["what", "are"], ["what", "was"])
    return False if by_what else None


def _same(one: _Mention, other: _Mention) -> bool:
    """Whether two mentions may be of the same: the words of one are among those of the other."""
    return one.key <= other.key or other.key <= one.key


def _fuller(one: _Mention, other: _Mention) -> _Mention:
    """The mention with more words, and what is known of either."""
    longer = other if len(other.words) > len(one.words) and other.is_named else one
    known = [person for person in (one.person, other.person) if person is not None]
    return longer._replace(person=any(known) if known else None, role=one.role)


def _is_person(clause: Clause) -> bool:
    """Whether the predicate holds of people only: a person noun, or "born"."""
    found = clause_structure(clause)
    if found is None:
        return False
    if any(token.low == "born" for token in clause[found.subject : found.main + 1]):
        return True
    if any(token.low.startswith("(born") for token in clause[found.subject : found.verb]):
        return True
    stated = predicate_nominal(clause)
    if stated is None:
        return False
    for token in clause[stated.start + 1 :]:
        if is_person_noun(token.low):
            return True
        if token.tag not in ("adjective", "noun", "adverb", "name", "coordinator"):
            return False
    return False


def _is_thing(clause: Clause, found: ClauseStructure) -> bool:
    """Whether the verb is only used of things: located, published, built."""
    return clause[found.main].low in _VERBS_OF_THINGS


def _may_be_expletive(clause: Clause, place: int) -> bool:
    """Whether "it" may stand for no thing: "it is known that", "it takes an hour to", "it is late".

    A description with an article or a participle says what the thing is.
    """
    if _is_expletive(clause, place):
        return True
    behind = clause[place + 1 :]
    lows = [token.low for token in behind]
    if not behind or behind[0].tag not in ("be", "modal", "have"):
        return bool(behind) and behind[0].low in _RAISING_VERBS | {"takes", "took", "depends"}
    after = next((token for token in behind[1:] if token.tag != "adverb"), None)
    if after is None:
        return True
    stated = after.tag in ("determiner", "participle", "gerund", "preposition", "base", "be")
    if "that" in lows or "who" in lows:
        return True
    return not stated and not _COMPLEMENTIZERS.isdisjoint(lows)


# Unresolved pronouns in a claim.

_PERSONAL_PRONOUNS: Final = frozenset(
    "he she it they him her them his its their hers theirs "
    "himself herself itself themselves".split()
)
_LONGEST: Final = 1_500
"""Characters of a claim that are read."""

_DEMONSTRATIVES: Final = frozenset({"this", "that", "these", "those"})
_PRONOUN: Final = re.compile(
    rf"\b(?:{'|'.join(sorted(_PERSONAL_PRONOUNS | _DEMONSTRATIVES))})\b", re.IGNORECASE
)
_NOMINAL_TAGS: Final = frozenset({"name", "noun", "parenthesis", "gerund"})
_OPENING: Final = frozenset({"subordinator", "preposition", "adverb", "gerund", "participle"})
_INTERROGATIVES: Final = frozenset({"whether", "if", "how", "why", "when", "where"})
_COMPLEMENTIZERS: Final = frozenset({"that", "to", "who"}) | _INTERROGATIVES
_RAISING_VERBS: Final = frozenset(
    "seems seemed appears appeared follows followed happens happened".split()
)
_COPULAR_TAGS: Final = frozenset(
    {"be", "modal", "base", "verb", "adverb", "adjective", "participle"}
)
_JUDGING: Final = frozenset(
    "important possible impossible necessary best better easy easier difficult hard harder "
    "advisable recommended worth likely unlikely clear essential crucial vital common helpful "
    "useful safe true good wise okay unclear reasonable ideal customary illegal legal typical "
    "normal rare time".split()
)
"""What "it" is without standing for a thing: "it is important to", "it is worth noting"."""

_WEATHER_VERBS: Final = frozenset(
    "rain rains rained raining snow snows snowed snowing hail hailed hailing".split()
)


def unresolved_pronoun(claim: str) -> str | None:
    """The first pronoun of an English claim without an antecedent in the claim; None if none.

    Any noun before a pronoun may be its antecedent, so "Einstein said that he left" has no
    unresolved pronoun and "He left" has one. In "After he left, Einstein wrote" the antecedent
    follows. The "it" of "it is known that" and "it rains" is an expletive, which has none.
    """
    end = min(len(claim), _LONGEST)
    if not _PRONOUN.search(claim, 0, end):
        return None
    clause = tag(tokenize(claim, 0, end))
    named = False
    for index, token in enumerate(clause):
        if not named and _is_unresolved(clause, index):
            return token.text
        named = named or token.tag in _NOMINAL_TAGS
    return None


def _is_unresolved(clause: Clause, index: int) -> bool:
    low = clause[index].low
    if low in _DEMONSTRATIVES:
        following = clause[index + 1] if index + 1 < len(clause) else None
        return index == 0 and following is not None and following.tag in FINITE
    if low not in _PERSONAL_PRONOUNS or _has_later_antecedent(clause, index):
        return False
    return low != "it" or not _is_expletive(clause, index)


def _has_later_antecedent(clause: Clause, index: int) -> bool:
    """Whether the antecedent follows an opening clause: "After he left, Einstein"."""
    if clause[0].tag not in _OPENING:
        return False
    behind = clause[index:]
    comma = next((place for place, token in enumerate(behind) if token.tag == "comma"), None)
    return comma is not None and any(token.tag in ("name", "noun") for token in behind[comma:][:4])


def _is_expletive(clause: Clause, index: int) -> bool:
    """Whether "it" only fills the place of a subject: "it rains", "it is known that"."""
    behind = clause[index + 1 :]
    opening = [token.low for token in behind[:8] if token.tag != "adverb"]
    if len(opening) > 2 and behind[0].tag in ("be", "modal") and _JUDGING.intersection(opening[:3]):
        later = opening[2:]
        if any(low in ("to", "that", "if", "for") or low.endswith("ing") for low in later):
            return True
    if _WEATHER_VERBS.intersection(token.low for token in behind[:3]):
        return True
    lows = [token.low for token in behind]
    place = next((place for place, low in enumerate(lows) if low in _COMPLEMENTIZERS), None)
    if not place:
        return False
    between, tags = behind[:place], {token.tag for token in behind[:place]}
    if between[0].low not in _RAISING_VERBS and between[0].tag not in ("be", "modal"):
        return False
    if lows[place] == "to":
        infinitive = place + 1 < len(behind) and behind[place + 1].tag == "base"
        noted = "that" in lows[place : place + 4]
        return (
            (infinitive or noted) and tags <= _COPULAR_TAGS | {"noun"} and "participle" not in tags
        )
    if lows[place] in _INTERROGATIVES and "participle" in tags and "known" not in lows[:place]:
        return False
    return tags <= _COPULAR_TAGS or _is_cleft(between)


def _is_cleft(between: Clause) -> bool:
    """ "It was Einstein who", "it was in 1990 that"; not "it is a city that"."""
    second = between[1] if len(between) > 1 else None
    if second is None or any(token.tag in ("participle", "comma") for token in between):
        return False
    return second.tag in ("name", "number", "preposition") or second.low == "the"
