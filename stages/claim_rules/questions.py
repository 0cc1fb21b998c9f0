"""Answers as statements: a short answer becomes the claim that it makes as an answer.

The rules are of English. Where the grammar of a question is not certain, the statement quotes it:
The answer to "How far is it?" is two miles.
"""

import re
from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.clauses import first_finite_verb
from claimflow.stages.claim_rules.lexicon import (
    BASE_FORMS,
    BE,
    DETERMINERS,
    HAVE,
    MODALS,
    NOUN_FORMS,
    is_past_or_participle,
)
from claimflow.stages.claim_rules.non_claims import clause_of, is_english
from claimflow.stages.claim_rules.tags import CLOSED_CLASS, tag
from claimflow.stages.claim_rules.tokens import Clause, Token, capitalized, text_of, tokenize
from claimflow.stages.text.refusals import is_refusal
from claimflow.stages.text.sentences import split_sentences


class Context(NamedTuple):
    """What a reader of a text knows: the question that it answers, and the conversation before.

    `history` has the role (user or assistant) and the text of each earlier message, oldest first.
    """

    question: str = ""
    history: tuple[tuple[str, str], ...] = ()


NO_CONTEXT: Final = Context()

QUOTED: Final = "The answer to"
"""How a statement begins that quotes its question."""

_LONGEST_READ: Final = 3_000
_LONGEST_QUESTION: Final = 300
_LONGEST_ANSWER: Final = 200
"""Characters: a longer text is not a short answer to one question."""

_WH: Final = frozenset("who whom whose what which when where why how".split())
_AUXILIARIES: Final = BE | HAVE | MODALS
_ASKING: Final = re.compile(
    r"(?:please\s+)?(?:name|give|tell\s+me|list|state|identify|find)\b", re.IGNORECASE
)
_SMALL: Final = frozenset({"determiner", "preposition", "adverb", "coordinator", "subordinator"})
_ELLIPSIS: Final = re.compile(
    r"(?:[\w'’-]{1,30}\s+){1,3}(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should"
    r"|must|may|might)(?:\s+not|n['’]t)?",
    re.IGNORECASE,
)
"""An answer that leaves out its predicate: "We do", "A guard did"."""
_BECAUSE: Final = re.compile(r"(?:because|since|due\s+to)\b", re.IGNORECASE)
_THANKS: Final = re.compile(
    r"(?:thanks?|thank\s+you|welcome|hello|hi|hey|dear|sorry|good\s+(?:news|question|morning)|great"
    r"|nice)\b",
    re.IGNORECASE,
)
_QUANTIFIERS: Final = frozenset(
    "must all every each both most many some only anybody anyone anything everybody everyone "
    "everything somebody someone something always still already because".split()
)
_LABEL: Final = re.compile(r"(?:the\s+)?(?:short\s+)?answer(?:\s+is)?\s*:\s*", re.IGNORECASE)
_SUBJECT_PRONOUNS: Final = frozenset("he she it they we i".split())
_SENTENCE_WORDS: Final = 6
"""Words of an answer that is more often a sentence than a phrase, if it ends as one."""
_LONGEST_WORD: Final = 20
_OF_SPEAKERS: Final = frozenset("i you we my your our me us mine yours ours".split())
"""Words that mean another one in the answer than in the question."""
_LIST_MARK: Final = re.compile(r"[,;:=]| [-–—] ")
_NUMBERS: Final = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty hundred zero".split()
)
# Yes and no at the start of an answer: not those of "No. 5" and "Right-wing".
_YES: Final = re.compile(
    r"[\W_]*(?:(?P<yes>yes|yeah|yep|correct|true|right|absolutely|definitely|indeed)|(?P<no>no|nope"
    r"|false|incorrect|wrong|not\s+really))(?:[*_]{1,2})?",
    re.IGNORECASE,
)
_AFTER_YES: Final = re.compile(
    r"(?!\.\s*\d)(?:\s?\[\d{1,3}\])*\s*(?:[^\w\s'’-]+_*\s*|_+\s*|-\s+|$)"
    r"(?:(?:of\s+course|certainly|sure|absolutely|indeed|definitely|exactly)\b[\s,.!]*)?",
    re.IGNORECASE,
)
_ONLY_YES: Final = re.compile(r"\W*(?:sure|of\s+course|certainly)\W*", re.IGNORECASE)
_CONDITION: Final = re.compile(
    r"(?:(?:but|and)\s+)?(?:only\s+)?(?:if|unless|when|whenever|while|until|as\s+long|provided|in\s+case"
    r"|except|depending)\b",
    re.IGNORECASE,
)
_CONTRAST: Final = re.compile(r"(?:but|although|though|however|yet)\b,?\s*", re.IGNORECASE)
_MARKUP: Final = re.compile(r"[#|*_`>\-]")
_CLOSING: Final = " \t\n.!;,"
_IN_YEARS: Final = re.compile(
    r"(?:early\s+|late\s+|mid-?)?(?:the\s+)?\d{3,4}s?\b(?:\s*(?:AD|BC|CE|BCE))?$"
)
_HOUR: Final = re.compile(r"\d\s*[ap]\.?m\b\.?", re.IGNORECASE)
_ON_DAYS: Final = re.compile(
    r"(?:(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}\b"
    r"|\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))",
    re.IGNORECASE,
)


def asked(context: Context) -> str:
    """The question that a text answers, on one line; empty where there is none or no single one."""
    question = " ".join(context.question[-_LONGEST_READ:].split())
    if not question:
        return ""
    last = question
    if len(question) > 1:
        spans = split_sentences(question)
        asking = [question[start:end] for start, end in spans if question[start:end].endswith("?")]
        if len(asking) > 1 or (asking and not question.endswith("?")):
            return ""
        last = asking[0] if asking else question
        if not asking and len(spans) > 1:
            return ""
    first = _first_word(last).partition("'")[0].partition("’")[0]
    is_question = last.endswith("?") or first in _WH or is_polar(last) or _ASKING.match(last)
    return last if is_question and len(last) <= _LONGEST_QUESTION else ""


def short_answer(question: str, answer: str) -> str | None:
    """The statement that a phrase makes as the answer to a question; None where it makes none.

    The phrase is yes or no, with words without a verb behind it or none, or has no finite verb.
    """
    bare = _LABEL.sub("", answer.strip(_CLOSING)).strip(_CLOSING)
    if (
        not question
        or not any(map(str.isalnum, bare))
        or len(answer) > _LONGEST_ANSWER
        or "\n" in bare
    ):
        return None
    if is_polar(question) and _ONLY_YES.fullmatch(bare):
        return polar_statement(question, yes=True)
    opening = opening_of(bare) if may_be_polar(question) else None
    if opening is not None:
        rest = bare[opening[1] :].strip(_CLOSING)
        if not any(map(str.isalnum, rest)) or _is_ellipsis(rest):
            rest = ""
        if rest and _CONDITION.match(rest):
            return polar_statement(question, opening[0], rest)
        return None if rest and _has_verb(rest) else polar_statement(question, opening[0], rest)
    if is_refusal(answer) or bare.endswith(("?", ":")) or "=" in bare or _THANKS.match(bare):
        return None
    if _is_ellipsis(bare) or (_first_word(question) == "why" and _BECAUSE.match(bare) is not None):
        return _quoted(question, bare)
    if _has_verb(bare) or _is_order(bare) or _may_be_sentence(question, answer):
        return None
    if _MARKUP.match(bare):
        return None
    return _by_grammar(_words(question), bare) or _quoted(question, bare)


def is_polar(question: str) -> bool:
    """Whether a question asks for yes or no."""
    return _first_word(question) in _AUXILIARIES


def begins_as_question(sentence: str) -> bool:
    """Whether a sentence begins with a question word or an auxiliary."""
    first = re.split("['’]", _first_word(sentence), maxsplit=1)[0]  # "Who's there"
    return first in _WH or is_polar(sentence)


def may_be_polar(question: str) -> bool:
    """Whether yes or no answers a question: of English by its first word, else by its mark."""
    return is_polar(question) or (question.endswith("?") and _first_word(question) not in _WH)


def _first_word(question: str) -> str:
    return re.split(r"[\s,]", question.lower().lstrip("\"'“ "), maxsplit=1)[0]


def opening_of(answer: str) -> tuple[bool, int] | None:
    """Whether an answer begins with yes (True) or no, and where that ends; None where neither.

    A word that only stresses it belongs to it: "Yes, of course! It is".
    """
    said = _YES.match(answer)
    if said is None:
        return None
    after = _AFTER_YES.match(answer, said.end())
    return (said["yes"] is not None, after.end()) if after else None


def contrast_end(answer: str, start: int) -> int:
    """Where the clause begins behind "but" at `start` of an answer; `start` without such a word."""
    found = _CONTRAST.match(answer, start)
    return found.end() if found else start


def polar_statement(question: str, yes: bool, rest: str = "") -> str:
    """The statement that yes or no makes as an answer; `rest` is what the answer says beside it."""
    plain = None if rest else _as_statement(_words(question), yes=yes)
    said = ("yes" if yes else "no") + (f", {rest}" if rest else "")
    return plain or _quoted(question, said)


def _quoted(question: str, answer: str) -> str:
    answer = _inside(answer)
    shown = question.replace('"', "'").rstrip(".")
    return f'{QUOTED} "{shown}" is {answer}.'


def _is_ellipsis(answer: str) -> bool:
    return _ELLIPSIS.fullmatch(answer) is not None and not answer.endswith("May")


def _is_order(answer: str) -> bool:
    """Whether a phrase tells the reader to do something: "Contact Anna"."""
    first, *rest = answer.split(maxsplit=2)
    if first.lower() not in BASE_FORMS:
        return False
    behind = rest[0] if rest else ""
    return first.lower() not in NOUN_FORMS or behind[:1].isupper() or behind in DETERMINERS


def _may_be_sentence(question: str, answer: str) -> bool:
    """Whether an answer may be a sentence whose verb the tagger does not know.

    Words it does not know are nouns to it, so that its verb stands as one behind another.
    """
    words = _words(answer)
    # "They expose the immune system", "It expired in May"
    if len(words) > 1 and words[0].low in _SUBJECT_PRONOUNS and words[1].low not in CLOSED_CLASS:
        return True
    if len(words) < _SENTENCE_WORDS:
        return len(answer) > _LONGEST_WORD and " " not in answer.strip()
    asked = [word.low for word in _words(question)]
    how = asked[0] == "how" and asked[1:2] and asked[1] in (*_AUXILIARIES, "to")
    if how or not is_english(asked):
        return True  # "How do I make tea?" "Boil some water first of all."
    return answer.rstrip().endswith(".") and any(
        one.tag in ("noun", "name", "pronoun", "comma")
        and two.tag in ("noun", "adjective")
        and two.text.islower()
        for one, two in pairwise(words)
    )


def _inside(answer: str) -> str:
    """An answer as it stands within a sentence: without the capital of a small word."""
    first, *rest = answer.split(maxsplit=1)
    if not rest or (len(first) > 1 and first.isupper()):
        # "A" may be a letter, "IN" a name.
        return answer.lower() if first.lower() in _NUMBERS else answer
    small = CLOSED_CLASS.get(first.lower()) in _SMALL or first.lower() in _NUMBERS
    return answer[:1].lower() + answer[1:] if small and first not in ("I", "US") else answer


def _has_verb(text: str) -> bool:
    text = _HOUR.sub("", _ON_DAYS.sub("", text))  # "May 5", "9 am"
    return first_finite_verb(clause_of(text)) is not None


def _words(question: str) -> Clause:
    bare = question.rstrip("?!. ")
    tagged = tag(tokenize(bare, 0, len(bare)))
    return tuple(one._replace(tag="name") if one.text == "US" else one for one in tagged)


def _sentence(*parts: str) -> str:
    joined = " ".join(part for part in parts if part)
    return f"{capitalized(joined)}."


def _as_statement(words: Clause, *, yes: bool) -> str | None:
    """A yes/no question as a statement: "Is tin a metal" is "tin is a metal"; None if unsure."""
    if len(words) < 3 or any(token.low in ("or", "any", "ever", "than") for token in words):
        return None
    if _speaks(words) or any(token.tag == "comma" for token in words):
        return None
    # "Do all birds fly?" "No": not all do. "Must it be paid?" "No": it need not.
    if not yes and not _QUANTIFIERS.isdisjoint(token.low for token in words):
        return None
    if any(token.tag in ("subordinator", "be", "have", "modal") for token in words[1:]):
        return None
    auxiliary = words[0].low.replace("’", "'")
    if auxiliary.endswith("n't"):
        auxiliary = {"won't": "will", "can't": "can"}.get(auxiliary, auxiliary[:-3])
    if auxiliary not in _AUXILIARIES or words[1].low in ("there", "not", "you", "i", "we", "this"):
        return None
    end = _subject_end(words, auxiliary)
    if end is None:
        return None
    negation = "" if yes else "not"
    return _sentence(text_of(words[1:end]), auxiliary, negation, text_of(words[end:]))


def _subject_end(words: Clause, auxiliary: str) -> int | None:
    """Where the subject that follows an auxiliary ends; None where that is not certain.

    It is a noun phrase, with its "of" phrases, before a word that must begin the predicate.
    """
    end = _phrase_end(words, 1)
    if auxiliary in BE and end == len(words) and end - 1 == 2 + (words[1].tag == "determiner"):
        return end - 1  # "Is the device waterproof"
    while end is not None and end + 1 < len(words) and words[end].low == "of":
        end = _phrase_end(words, end + 1)
    if end is None or end >= len(words):
        return None
    following = words[end]
    if auxiliary in BE:
        starts = ("determiner", "participle", "gerund", "adjective", "preposition", "number")
        # "Is the warranty valid for": what looks like a second noun may begin the predicate.
        names = all(token.tag == "name" for token in words[end - 2 : end])
        nouns = sum(token.tag == "noun" for token in words[1:end])
        sure = (following.tag in starts or _is_participle(following)) and (names or nouns <= 1)
        # "Is the plant in Oslo closed": a predicate may come behind the preposition.
        inside = following.tag == "preposition" and any(
            token.tag in ("participle", "adjective") for token in words[end:]
        )
        return end if sure and not inside else None
    plain = following.tag in ("base", "verb", "be", "participle") or following.low in BASE_FORMS
    return end if plain else None


def _is_participle(token: Token) -> bool:
    return token.tag == "participle" or is_past_or_participle(token.low)


def _phrase_end(words: Clause, start: int) -> int | None:
    """Where a simple noun phrase ends: a pronoun, a name, or a determiner with its nouns."""
    if start >= len(words):
        return None
    first = words[start]
    if first.tag == "pronoun":
        return start + 1
    index = start + 1 if first.tag == "determiner" else start
    while index < len(words) and (
        words[index].tag == "adjective" or words[index].low in ("first", "most", "least", "only")
    ):
        index += 1
    begin = index
    while index < len(words) and words[index].tag in ("name", "noun", "number"):
        # "Did the war end": a noun that is a plain form of a verb ends the phrase.
        if index > begin and words[index].tag == "noun" and words[index].low in BASE_FORMS:
            break
        index += 1
    return index if index > begin else None


def _by_grammar(words: Clause, answer: str) -> str | None:
    """The statement of a question with a question word; None where its grammar is not certain."""
    if len(words) < 2 or any(token.tag == "comma" for token in words):
        return None
    lows = [token.low for token in words]
    if _speaks(words):
        return None
    if lows[0] in ("who", "what") and lows[1] in ("is", "was", "are", "were"):
        return _with_be(words, answer)
    if lows[0] in ("who", "what") and words[1].tag == "verb" and words[1].low not in BASE_FORMS:
        return None if _LIST_MARK.search(answer) else _sentence(answer, text_of(words[1:]))
    if lows[0] in ("where", "when") and lows[1] in ("is", "was", "are", "were"):
        end = _subject_end(words[1:], lows[1])
        whole = _phrase_end(words, 2)
        if end is not None and _is_participle(words[1 + end]):
            place = _with_preposition(answer, time=lows[0] == "when")
            said = text_of(words[2 : 1 + end]), lows[1], text_of(words[1 + end :])
            return _sentence(*said, place) if place else None
        if whole == len(words):
            place = _with_preposition(answer, time=lows[0] == "when")
            return _sentence(text_of(words[2:]), lows[1], place) if place else None
    return None


def _speaks(words: Clause) -> bool:
    """Whether a question speaks of who asks or is asked, who are others in an answer."""
    return any(token.low in _OF_SPEAKERS and token.text != "US" for token in words)


def _with_be(words: Clause, answer: str) -> str | None:
    """ "Who was the first president": The first president was ANSWER."""
    rest = words[2:]
    end = _phrase_end(words, 2)
    if end is None:
        return None
    if any(token.tag in ("verb", "be", "have", "modal") for token in rest):
        return None
    if any(token.tag == "pronoun" for token in rest):
        return None
    if words[-1].tag == "preposition":
        return None
    participle = next((n for n, token in enumerate(rest) if token.tag == "participle"), None)
    if participle is not None and rest[0].tag != "determiner":
        return None
    return _sentence(text_of(rest), words[1].low, _inside(answer))


def _with_preposition(answer: str, *, time: bool) -> str | None:
    """The answer to when or where, as an adjunct: in 1990, on May 5, in Oslo."""
    answer = _inside(answer)
    first = tag(tokenize(answer, 0, len(answer)))[:1]
    if first and first[0].tag in ("preposition", "adverb", "subordinator"):
        return answer
    if _is_participle(first[0]):
        return None
    if not time:
        return f"in {answer}"
    if _IN_YEARS.match(answer):
        return f"in {answer}"
    return f"on {answer}" if _ON_DAYS.match(answer) else answer
