"""What a sentence is that claims nothing: a greeting, an offer, a heading, an instruction.

A rule applies only where nothing else fits: a sentence with a subject and a finite verb is a claim,
as is one of another language than English that is no question, heading or source line.
"""

import re
from typing import Final

from claimflow.stages.claim_rules.clauses import first_finite_verb
from claimflow.stages.claim_rules.lexicon import (
    BASE_FORMS,
    ENGLISH_FUNCTION_WORDS,
    FOREIGN_FUNCTION_WORDS,
    NOUN_FORMS,
    THIRD_PERSON_FORMS,
    is_past_or_participle,
)
from claimflow.stages.claim_rules.tags import CLOSED_CLASS, tag
from claimflow.stages.claim_rules.tokens import Clause, Token, tokenize, trim_punctuation
from claimflow.stages.rows import NonClaimKind
from claimflow.stages.text.refusals import is_refusal
from claimflow.stages.text.word_lists import word_set

_CLOSERS: Final = "\"'”’»)]}*_ \t"
_LONGEST: Final = 300
"""Characters of a sentence that may be a greeting, an offer, an instruction or a stem."""

MARKER: Final = re.compile(r"(?:(?:[-*+•‣⁃◦▪●–>]|#{1,6}|\(?\d{1,3}[.)]|\(?[a-zA-Z]\))(?:\s+|$))+")
"""The marks before a list item, a quotation or a heading."""


def non_claim_kind(
    sentence: str, *, whole_line: bool, single_line: bool, alone: bool, how_to: bool
) -> NonClaimKind | None:
    """What a sentence is that claims nothing; None for a claim.

    `whole_line` says that it is a line of its own, `single_line` that the text has no other line
    (then it is an answer, not a heading), `alone` that the text has no other sentence. With
    `how_to` the text is about how to do something: its instructions are claims.
    """
    bare = sentence.rstrip(_CLOSERS)
    marker = MARKER.match(sentence)
    content = sentence[marker.end() if marker else 0 :]
    said = any(map(str.isalnum, content))
    if _is_markup(sentence, bare) or not (said or (alone and not content)):
        return "markup"
    if is_refusal(sentence):
        return "refusal"
    if bare.endswith(("?", "？", "؟", "⁇")):
        return "question"
    if is_source(content, alone=alone):
        return "source"
    if not single_line and _is_heading(sentence, bare, whole_line=whole_line):
        return "heading"
    return None if len(bare) > _LONGEST else _said_to_reader(content, alone=alone, how_to=how_to)


def _said_to_reader(content: str, *, alone: bool, how_to: bool) -> NonClaimKind | None:
    """What a sentence is that says nothing but something to the reader."""
    said = _EDGES.sub("", content)
    if _GREETING.match(said) or _is_address(content, alone=alone):
        return "greeting"
    if _OFFER.match(said):
        return "offer"
    return "instruction" if not how_to and _is_instruction(content, alone=alone) else None


# Markup, headings and source lines.

_MARKUP_LINE: Final = re.compile(
    r"(?:</?[a-zA-Z][a-zA-Z0-9]*+(?:[ \t][^<>\n]{0,300})?/?>[ \t]*+)++"
    r"|!\[[^\[\]\n]{0,300}\]\([^()\n]{0,500}\)"
)
"""Tags of HTML, or an image of Markdown."""


_CITED: Final = re.compile(r"\[\d{1,3}\]")


def _is_markup(sentence: str, bare: str) -> bool:
    words = _CITED.sub("", sentence) if len(sentence) <= _LONGEST else bare
    return not any(map(str.isalnum, words)) or _MARKUP_LINE.fullmatch(sentence) is not None


_HASHES: Final = re.compile(r"\s*#{1,6}\s")
_BOLD: Final = re.compile(r"\s*(?:\*\*|__)([^*_\n]{1,200})(?:\*\*|__)\s*:?\s*")
UNDERLINE: Final = re.compile(r"[ \t]{0,3}(?:={3,200}|-{3,200})[ \t]*")
"""A line that makes a heading of the line above it."""


def _is_heading(sentence: str, bare: str, *, whole_line: bool) -> bool:
    if _HASHES.match(sentence) or bare.endswith((":", "：")):
        return True
    bold = _BOLD.fullmatch(sentence) if whole_line else None
    if bold is None:
        return False
    # A statement may be printed in bold.
    return not (bold[1].rstrip().endswith((".", "!")) and _has_finite_verb(bold[1]))


def is_underlined_heading(line: str) -> bool:
    """Whether a line above an underline is a heading: short, and no sentence."""
    return len(line) <= 100 and not line.endswith((".", "!", ":", ";", ",")) and (
        not _has_finite_verb(line)
    )  # fmt: skip


_SOURCE_LABEL: Final = (
    r"(?:(?:sources?|references?|bibliography|works\ cited|citations?|further\ reading|see\ also"
    r"|external\ links|read\ more|learn\ more)(?:\ (?:used|cited|and\ further\ reading))?)"
)
_SOURCE_LINE: Final = re.compile(
    rf"\W{{0,6}}(?:{_SOURCE_LABEL}[*_]{{0,3}}\s?[:：]|see\ also\b"
    r"|(?:retrieved|accessed|available|adapted)\ (?:from|at|online)\b|\[\^[^\[\]\s]{1,40}\]:"
    r"|\[[^\[\]\n]{1,40}\]:\s{0,3}<?https?://)",
    re.IGNORECASE | re.VERBOSE,
)
_SOURCE_HEADING: Final = re.compile(
    rf"\W{{0,8}}{_SOURCE_LABEL}\W{{0,6}}", re.IGNORECASE | re.VERBOSE
)
_URL: Final = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_NUMBERED: Final = re.compile(r"\s{0,3}\[\d{1,3}\]:?\s")
_PUBLISHED: Final = re.compile(
    r"https?://|www\.|\bdoi\b|\bisbn\b|\bet\ al\b|\bvol\.|\bpp?\.\ ?\d|\(\d{4}[a-z]?\)"
    r"|\b(?:retrieved|accessed)\b|\b(?:wikipedia|britannica|journal|press|proceedings)\b",
    re.IGNORECASE | re.VERBOSE,
)


def is_source(content: str, *, alone: bool) -> bool:
    """Whether a sentence, without its list marker, only names where something was found."""
    if len(content) > 1000:
        return False
    without_urls, urls = _URL.subn(" ", content)
    label = _SOURCE_LINE.match(content)
    if label:
        named = content[label.end() :]
        see = label[0].strip(_CLOSERS).casefold().startswith(("see", "[", "retrieved", "accessed"))
        return bool(urls) or see or not (alone or _has_finite_verb(named))
    if urls and len(without_urls.split()) <= 3 and not _has_finite_verb(without_urls):
        return True
    return bool(
        _NUMBERED.match(content) and (urls or _PUBLISHED.search(content))
        and not _has_finite_verb(without_urls)
    )  # fmt: skip


def is_source_heading(line: str) -> bool:
    """Whether a line announces a list of sources."""
    return len(line) <= 60 and _SOURCE_HEADING.fullmatch(line) is not None


def is_reference(content: str) -> bool:
    """Whether a line of a list of sources names one."""
    return len(content) <= 1000 and (
        _PUBLISHED.search(content) is not None or _NUMBERED.match(content) is not None
    )


# What is said to the reader.

_EDGES: Final = re.compile(r"^\W+|(?<!\W)\W+$")
"""What is no letter or digit at the ends of a sentence, emoji among it."""

_GREETING: Final = re.compile(
    r"""(?:hello|hi|hey|greetings|welcome|dear|good\ (?:morning|afternoon|evening|day|question)
    |thanks|thank\ you|you['’]?re\ (?:very\ )?welcome|sure|certainly|of\ course|absolutely|okay|ok
    |great|yes|no|sorry|apologies|cheers|goodbye|bye|got\ it|no\ problem|my\ pleasure)
    (?:[ ,]+(?:there|everyone|all|again|you|so\ much|very\ much|thing|question|for\ asking
    |for\ (?:your|the)\ question|i\ can\ help(?:\ you)?(?:\ with\ that)?|happy\ to\ help)){0,6}\s*$
    |(?:thanks|thank\ you)\ (?:so\ much\ |very\ much\ )?for\b.{0,80}$
    |(?:hi|hello|hey|dear)\ .{1,60}(?:thanks|thank\ you)\b.{0,60}$
    |nice\ to\ (?:meet|hear)\b.{0,40}$|welcome\ to\b.{0,60}$|(?:good|great)\ (?:news|choice)$
    |i\ (?:completely\ |fully\ )?understand\ (?:your|how|that\ this)\b.{0,60}$
    |bonjour|hola|hallo|ciao|guten\ tag|gracias|merci|danke
    |i(?:['’]m|\ am)\ (?:really\ |very\ |so\ )?sorry\b(?!,?\ but)|i\ apologi[sz]e
    |(?:i\ )?hope\ (?:this|that|it)\ (?:helps|answers|was|is|clarifies)
    |let['’]s\ |let\ us\ (?:look|see|know|explore)|let\ me\ (?:explain|break)
    |stay\ tuned|have\ a\ (?:great|nice|good|wonderful)|enjoy\b.{0,30}$
    |(?:(?:best|kind|warm|kindest|warmest)\ (?:regards|wishes)|regards|sincerely|yours\ (?:truly
    |sincerely|faithfully)|sincerely\ yours|with\ (?:kind|best|warm)\ regards|take\ care)
    (?:,[ ]?(?-i:[A-Z])[\w.'’-]{0,30}(?:[ ](?-i:[A-Z])[\w.'’-]{0,30}){0,3})?\s*,?$
    |best,?$""",
    re.IGNORECASE | re.VERBOSE,
)
_SIGN_OFF: Final = re.compile(
    r"(?:(?:best|kind|warm|kindest|warmest)\ (?:regards|wishes)|regards|sincerely|best|cheers"
    r"|yours\ (?:truly|sincerely|faithfully)|sincerely\ yours|with\ (?:kind|best|warm)\ regards"
    r"|thanks|thank\ you),?",
    re.IGNORECASE | re.VERBOSE,
)
_TITLE: Final = r"(?:dr|mr|mrs|ms|prof|sir|madam|professor|doctor)\.?"
_CAPITAL: Final = "[A-ZÀ-ÖØ-ÞĀ-ɏΑ-ΩА-Я]"
_NAME: Final = (
    rf"(?:{_TITLE}|(?-i:{_CAPITAL})[\w\u0300-\u036f.'’-]{{0,30}}|there|all|everyone|and|or|&)"
)
_ADDRESS: Final = re.compile(
    rf"(?:hello|hi|hey|dear|good\ (?:morning|afternoon|evening|day)|greetings|welcome|thanks"
    rf"|thank\ you|goodbye|bye|cheers)(?:[ ,]{{1,2}}{_NAME}){{1,6}}"
    r"\s?(?P<end>[,!.:]{0,3})\W{0,20}",
    re.IGNORECASE | re.VERBOSE,
)
_SIGNATURE: Final = re.compile(r"\W{0,3}(?:[A-Z][\w.'’-]{0,30}[ ]?){1,4}\W{0,3}")
_OFFER: Final = re.compile(
    r"""(?:(?:so|and|also|just|but|again|please|otherwise),?\ )?(?:
    i(?:['’]m|\ am)\ (?:always\ )?(?:happy|glad|here|delighted)\ to\ (?:help|assist)
    |(?:i(?:['’]d|\ would|['’]ll|\ will)\ be|i(?:['’]m|\ am))\ (?:happy|glad|pleased)\ to
    |happy\ to\ (?:help|assist|provide|elaborate|explain|share)
    |let\ me\ (?:know|help)|feel\ free|please\ (?:let|feel|do\ not\ hesitate|don['’]t\ hesitate|ask)
    |(?:do\ not|don['’]t)\ hesitate|just\ (?:ask|let\ me\ know)|reach\ out\ (?:if|to\ (?:me|us))
    |if\ (?:you(?:['’]d|\ have|\ need|\ want|\ would|\ require|\ are|['’]re)|there['’]?\ ?i?s)\b
    .{0,120}?(?:let\ me|feel\ free|just\ ask|please\ (?:ask|let)|i\ can|i['’](?:d|ll)
    |i\ would\ be|hesitate)
    |please\ (?:provide|clarify|specify|share|rephrase)\b.{0,60}?\b(?:information|details?|context
    |questions?|more)\b
    |if\ you\ (?:have|need|want|would\ like)\ (?:any|more|further)\ .{0,60}(?:ask|please)
    |i\ can\ (?:also\ )?(?:help|assist)\ you)""",
    re.IGNORECASE | re.VERBOSE,
)


def _is_address(content: str, *, alone: bool) -> bool:
    """Whether a sentence only addresses a person by name: "Hi Anna!", "Dear Dr. Smith,"."""
    match = _ADDRESS.fullmatch(content.strip().strip("*_"))
    # Without a mark at its end the whole answer may be a title: "Hey Jude".
    return match is not None and (not alone or match["end"][:1] in ("!", ","))


def is_sign_off(line: str) -> bool:
    """Whether a line ends a letter, so that the next one may be a name."""
    return len(line) <= 40 and _SIGN_OFF.fullmatch(line) is not None


def is_signature(line: str) -> bool:
    """Whether a line may be the name of the writer."""
    return len(line) <= 60 and _SIGNATURE.fullmatch(line) is not None


# Instructions.

_FRAME: Final = re.compile(
    r"""(?:(?:also|but|however|and|finally),?\ )?
    (?:(?:please\ )?(?:note|remember|be\ aware|keep\ in\ mind|bear\ in\ mind|be\ advised)
    (?:,?\ (?:though|however|also),?)?\ that,?\ (?=\S)
    |(?:please\ )?note:\ ?(?=\S))""",
    re.IGNORECASE | re.VERBOSE,
)


def frame_end(sentence: str) -> int:
    """Where the claim of "Note that X" begins; 0 without such a frame."""
    match = _FRAME.match(sentence)
    return match.end() if match else 0


_INSTRUCTION_VERBS: Final = word_set(
    """add adjust allow apply arrange attach avoid bake beat blend boil bring brush bookmark call
    check choose chop clean click close combine confirm connect consider consult contact cook copy
    cover create cut decide delete dial disconnect discard download drag drain drizzle drop enable
    disable ensure enter explain fill find flip fold fry garnish get gather give go grab grate
    grease grill hold identify insert inspect install
    keep knead launch learn leave lift locate lock log loosen look lower
    make marinate mash measure melt mix move navigate notify obtain open paste peel pick place plug
    pour preheat prepare press provide pull push put raise read record reduce refer refrigerate
    register reheat remember remove repeat replace request reset restart review rinse roast roll
    rotate save scroll season seek select send serve set shake shut sift simmer slice soak specify
    spread sprinkle start stay stir stop store strain submit switch take talk tap taste tell test
    think tighten toss transfer try turn twist type uninstall unplug unscrew update upload use
    verify visit wait warm wash watch whisk wipe wrap write"""
)
_CLEAR_VERBS: Final = word_set(
    """avoid bake choose chop click connect consider consult disable discard ensure garnish insert
    knead locate marinate melt navigate obtain peel preheat prepare reheat refrigerate remember
    remove rinse select serve sift simmer specify sprinkle stir submit uninstall unplug unscrew
    verify whisk enter add gather pour"""
)
"""Verbs whose plain form is hardly ever a noun: what follows need not be an object."""

_NOT_IMPERATIVE: Final = word_set("let have be do love die mean seem belong lack happen remain")
_LEADS: Final = word_set(
    "please then next now first second third finally lastly also always never simply just "
    "carefully gently start instead afterwards"
)
_PLEASE: Final = re.compile(r"please,?\s+(?!note\b|remember\b|be\s+aware\b)[a-z]", re.IGNORECASE)
_NEGATED: Final = re.compile(r"(?:do\s+not|don['’]t)\s+[a-z]", re.IGNORECASE)
_CLICK_HERE: Final = re.compile(r"click\s+here\b", re.IGNORECASE)
_SUBORDINATE: Final = frozenset({"subordinator", "relative"})
_AFTER_VERB: Final = word_set(
    "the your this these those it them each all any both yourself a an some"
)
_PARTICLES: Final = word_set(
    "on to into up down off out for in with until over aside through well gently at from"
)
_PARTICLE_VERBS: Final = word_set(
    "click go look refer log turn plug scroll tap wait switch stir mix press check sign navigate "
    "boil simmer cook bake drain roll start talk speak stay search start think"
)


def _is_instruction(content: str, *, alone: bool) -> bool:
    """Whether a sentence tells the reader to do something: a plain form at its start, no subject.

    Without a stop at its end the whole answer may be a title: "Get Out".
    """
    sentence = content.strip().strip("*_ ")
    if alone and not sentence.endswith((".", "!")):
        return False
    words = sentence.split(None, 4)
    if len(words) < 2 or frame_end(sentence):
        return False
    if _CLICK_HERE.match(sentence):
        return True
    asked = _PLEASE.match(sentence) is not None
    negated = _NEGATED.match(sentence) is not None
    if not (asked or negated) and not _opens_with_verb(words):
        return False
    clause = clause_of(sentence)
    if not is_english([token.low for token in clause]) or _is_title(sentence):
        return False
    start = next((i for i, token in enumerate(clause) if token.low not in _LEADS), 0)
    if not (asked or negated or _governs(clause, start)):
        return False
    return not _has_main_verb(clause[start + (2 if negated else 1) :])


def _opens_with_verb(words: list[str]) -> bool:
    """Whether the first word behind "Then", "Always" or another such word can be a plain form."""
    leads = 0
    while leads < 2 and leads + 2 < len(words) and words[leads].lower().rstrip(",") in _LEADS:
        leads += 1
    verb = words[leads].lower().rstrip(",:")
    return verb == "be" or (is_plain_form(verb) and verb not in _NOT_IMPERATIVE)


def is_plain_form(word: str) -> bool:
    """Whether a word in lower case can be the plain form of a verb."""
    return word in BASE_FORMS or word in _INSTRUCTION_VERBS


def is_imperative(sentence: str) -> bool:
    """Whether a list item begins with a verb in its plain form: "Eliminate food sources"."""
    words = sentence.split(None, 2)
    if not words or not _opens_with_verb(words):
        return False
    return words[0].casefold() in _CLEAR_VERBS or _governs(clause_of(sentence), 0)


def _governs(clause: Clause, start: int) -> bool:
    """Whether the word at `start` has an object or a particle, so that it is a verb."""
    verb, rest = clause[start].low, clause[start + 1 :]
    if not rest:
        return False
    following = rest[0]
    if (following.low in _AFTER_VERB and len(rest) > 1) or following.low in ("it", "them"):
        return True
    if verb in _PARTICLE_VERBS and following.low in _PARTICLES:
        return True
    if verb == "make" and following.low == "sure":
        return True
    return verb in _CLEAR_VERBS and CLOSED_CLASS.get(following.low, "noun") not in (
        "be", "have", "modal", "coordinator", "preposition",
    )  # fmt: skip


def _has_main_verb(rest: Clause) -> bool:
    """Whether a finite verb follows that is in no subordinate clause."""
    subordinate = False
    for place, token in enumerate(rest):
        if token.tag in _SUBORDINATE or token.low in ("that", "if", "when", "until", "before"):
            subordinate = True
        elif token.tag == "semicolon":
            return False
        elif token.tag in ("be", "have", "modal", "verb") and not subordinate:
            return not _is_next_instruction(rest, place)
    return False


def _is_next_instruction(rest: Clause, place: int) -> bool:
    """Whether a verb is another plain form: "Mix the eggs and stir."."""
    before: Token | None = rest[place - 1] if place else None
    return before is not None and before.tag in ("coordinator", "comma", "adverb") and (
        is_plain_form(rest[place].low)
    )  # fmt: skip


def _is_title(sentence: str) -> bool:
    """Whether all words but short ones have a capital letter: "Meet the Parents"."""
    words = [word for word in re.findall(r"[^\W\d_]+", sentence) if len(word) > 3]
    return len(words) > 1 and all(word[0].isupper() for word in words)


# What the rules know of a sentence.


def clause_of(sentence: str) -> Clause:
    """The tagged tokens of a sentence of at most 1,500 characters."""
    return trim_punctuation(tag(tokenize(sentence, 0, min(len(sentence), 1500))))


def _has_finite_verb(sentence: str) -> bool:
    return first_finite_verb(clause_of(sentence)) is not None


def is_english(words: list[str]) -> bool:
    """Whether English function words are at least as many as foreign ones."""
    return sum(word in ENGLISH_FUNCTION_WORDS for word in words) >= sum(
        word in FOREIGN_FUNCTION_WORDS for word in words
    )


def is_fragment(sentence: str) -> bool:
    """Whether a list item has no finite verb, so that it completes what stands above the list."""
    if len(sentence) > _LONGEST or ":" in sentence:
        return False
    clause = clause_of(sentence)
    verb = first_finite_verb(clause)
    if verb is not None and verb == len(clause) - 1:
        # "Lower cost": what could be a past form is a noun here.
        low = clause[verb].low
        verb = None if low in BASE_FORMS and is_past_or_participle(low) else verb
    return bool(clause) and verb is None and not _is_verb_phrase(clause)


def _is_verb_phrase(clause: Clause) -> bool:
    """Whether it begins with a verb in the third person: "Reduces cost"."""
    first = clause[0].low
    return first in THIRD_PERSON_FORMS and first not in NOUN_FORMS
