"""Decompose a text into claims by rules, without a language model.

| atomicity | coverage | a sentence gives |
|---|---|---|
| low | high | itself |
| low | low | itself without details |
| high | high | every statement in it, each with its subject |
| high | low | the statements in it that are left without the details |

The rules are for English. A sentence of another language, one longer than 1,500 characters, and
one that they cannot split with certainty is a claim as it stands.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from claimflow.stages.claim_rules.clauses import first_finite_verb
from claimflow.stages.claim_rules.lexicon import ENGLISH_FUNCTION_WORDS, FOREIGN_FUNCTION_WORDS
from claimflow.stages.claim_rules.pronouns import PronounResolver, unresolved_pronoun
from claimflow.stages.claim_rules.questions import (
    NO_CONTEXT,
    Context,
    asked,
    is_polar,
    opening_of,
    polar_statement,
    short_answer,
)
from claimflow.stages.claim_rules.simplify import drop_details, without_connective
from claimflow.stages.claim_rules.split import split_clause
from claimflow.stages.claim_rules.tags import tag
from claimflow.stages.claim_rules.tokens import (
    MULTIPLICATION,
    Clause,
    render,
    source_span,
    tokenize,
    trim_punctuation,
)
from claimflow.stages.rows import NonClaimKind
from claimflow.stages.text.refusals import is_refusal
from claimflow.stages.text.sentences import Span, split_sentences

# Sentences that claim nothing: questions, greetings, offers of help, headings, code.


_HEADING: Final = re.compile(r"\s*(?:#{1,6}\s|(?:\*\*|__)[^*_\n]{1,200}(?:\*\*|__)\s*:?\s*$)")
_CLOSERS: Final = "\"'”’»)]}*_ \t"
_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_CHAT: Final = re.compile(
    r"""(?:hello|hi|hey|greetings|welcome|dear|good\ (?:morning|afternoon|evening|day|question)
    |thanks|thank\ you|you['’]?re\ (?:very\ )?welcome|sure|certainly|of\ course|absolutely|okay|ok
    |great|yes|no|sorry|apologies|cheers|goodbye|bye|got\ it|no\ problem|my\ pleasure)
    (?:[ ,]+(?:there|everyone|all|again|you|so\ much|very\ much|thing|question|for\ asking
    |for\ (?:your|the)\ question|i\ can\ help(?:\ you)?(?:\ with\ that)?|happy\ to\ help))*\s*$
    |i(?:['’]m|\ am)\ (?:happy|glad|here|delighted)\ to\ help
    |(?:i(?:['’]d|\ would)\ be|i(?:['’]m|\ am))\ (?:happy|glad|pleased)\ to\ (?:help|assist)
    |i(?:['’]m|\ am)\ (?:really\ |very\ |so\ )?sorry\b(?!,?\ but)|i\ apologi[sz]e
    |(?:i\ )?hope\ (?:this|that|it)\ (?:helps|answers|was|is|clarifies)
    |let\ me\ know|let['’]s\ |let\ us\ (?:look|see|know|explore)|let\ me\ (?:explain|help|break)
    |feel\ free|please\ (?:let|feel|do\ not\ hesitate|don['’]t\ hesitate|ask|contact|provide
    |clarify|specify|try)
    |(?:do\ not|don['’]t)\ hesitate|if\ you\ (?:have|need|want|would\ like)\ (?:any|more|further)
    \ .{0,60}(?:let\ me|feel\ free|ask|please)
    |click\ here|stay\ tuned|have\ a\ (?:great|nice|good|wonderful)|enjoy\b.{0,30}$
    |here(?:['’]s|\ is|\ are)\ (?:the|a|an|some|your|my)\ .{0,120}:\s*$""",
    re.IGNORECASE | re.VERBOSE,
)


def is_non_claim(sentence: str, *, alone: bool) -> bool:
    """Whether a sentence is a question, greeting, heading or offer, and so not true or false.

    `alone` says that the sentence is the whole text: then a bold line is an answer, not a
    heading.
    """
    bare = sentence.rstrip(_CLOSERS)
    if not any(character.isalnum() for character in bare):
        return True
    if bare.endswith(("?", "？", "؟", "⁇")):
        return True
    if not alone and (_HEADING.match(sentence) or bare.endswith((":", "："))):
        return True
    if len(bare) > 300:
        return False
    return _CHAT.match(bare.strip(" .!…*_#-•").strip()) is not None


def code_blocks(text: str) -> list[tuple[int, int]]:
    """Spans between fences of three backticks or tildes; an open one runs to the end."""
    fences = [match.start() for match in _FENCE.finditer(text)]
    if len(fences) % 2:
        fences.append(len(text))
    return list(zip(fences[::2], fences[1::2], strict=True))


Extent = Literal["low", "high"]

_LONGEST: Final = 1500
_LONGEST_OPENING: Final = 40
_LONGEST_MESSAGE: Final = 5_000
"""Characters: of a sentence that is split, of yes or no at its start, and of an earlier message in
which the antecedent of a pronoun is looked for."""
_MARKER: Final = re.compile(r"(?:(?:[-*+•‣◦–>]|#{1,6}|\(?\d{1,3}[.)]|\(?[a-zA-Z]\))\s+)+")
_MARKUP: Final = re.compile(rf"(?!{MULTIPLICATION})\*\*|__|\s*\[\d{{1,3}}\]|`")
_LINK: Final = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\s]{1,300}\)")


class TextClaim(NamedTuple):
    """A claim and the characters `start:end` of the text that it was taken from.

    `ambiguous` is what it leaves open, such as a pronoun that nothing resolves.
    """

    claim: str
    start: int
    end: int
    ambiguous: str | None = None


class NonClaim(NamedTuple):
    """A sentence `start:end` of a text that claims nothing, and what it is."""

    kind: NonClaimKind
    start: int
    end: int


def decompose(
    text: str, *, atomicity: Extent, coverage: Extent, context: Context = NO_CONTEXT
) -> list[TextClaim]:
    """Claims of `text` in the order of the text, each once."""
    found = take_apart(text, atomicity=atomicity, coverage=coverage, context=context)
    return [one for one in found if isinstance(one, TextClaim)]


def take_apart(
    text: str, *, atomicity: Extent, coverage: Extent, context: Context = NO_CONTEXT
) -> list[TextClaim | NonClaim]:
    """Claims of `text`, each once, and its sentences that claim nothing, in the order of the text.

    `context` is what the reader of the text knows.
    """
    claims: dict[str, TextClaim] = {}
    non_claims: list[NonClaim] = []
    question = _question(context)
    resolver = PronounResolver(_clause(question))
    sentences = list(_sentences(text))
    place = _answering(sentences, text, question)
    for number, (kind, sentence) in enumerate(sentences):
        span = sentence
        if number == place:
            statement, span = _answer(text, sentence, question, whole=len(sentences) == 1)
            if statement is not None:
                said = _clause(statement.claim)
                resolver.remember(said, who=question.lower().startswith("who"))
                claims[statement.claim] = statement
            if span.start >= span.end:
                continue
        elif kind is not None:
            non_claims.append(NonClaim(kind, *sentence))
            continue
        for claim in _claims(text, span, resolver, atomicity, coverage):
            # Behind "Yes," it begins with a small letter.
            words = claim.claim[:1].upper() + claim.claim[1:] if number == place else claim.claim
            claims.setdefault(words, _marked(claim._replace(claim=words)))
    return sorted([*claims.values(), *non_claims], key=lambda one: (one.start, one.end))


def completed(text: str, context: Context) -> str | None:
    """A text with its short answer as a statement; None where it has none."""
    question = _question(context)
    if not question or not text.strip():
        return None
    sentences = list(_sentences(text))
    place = _answering(sentences, text, question)
    if place is None:
        return None
    sentence = sentences[place][1]
    statement, rest = _answer(text, sentence, question, whole=len(sentences) == 1)
    if statement is None:
        return None
    behind = text[rest.start :].lstrip(" ")
    return f"{text[: sentence.start]}{statement.claim} {behind}".rstrip()


def _answering(
    sentences: list[tuple[NonClaimKind | None, Span]], text: str, question: str
) -> int | None:
    """The sentence that may be a short answer: the first that is a claim, or is yes or no."""
    if not question:
        return None
    polar = is_polar(question)
    for number, (kind, sentence) in enumerate(sentences):
        said = text[sentence.start : min(sentence.end, sentence.start + _LONGEST_OPENING)]
        if kind is None or (polar and opening_of(said) is not None):
            return number
    return None


def _answer(
    text: str, sentence: Span, question: str, *, whole: bool
) -> tuple[TextClaim | None, Span]:
    """What a sentence states as the answer to the question, and the rest of it, to take apart.

    A phrase in a text of several sentences is an answer only where it ends as a sentence does.
    """
    piece = text[sentence.start : sentence.end]
    rest = Span(sentence.end, sentence.end)
    statement = None
    if whole or piece.rstrip().endswith("."):
        statement = short_answer(question, _without_markup(piece))
    if statement is not None:
        return _marked(TextClaim(statement, *sentence)), rest
    opening = opening_of(piece) if is_polar(question) else None
    if opening is None:
        return None, sentence
    yes, length = opening
    behind = Span(sentence.start + length, sentence.end)
    if yes:
        return None, behind
    # "No, it ended in 1944" says two things.
    said = TextClaim(polar_statement(question, yes), sentence.start, sentence.start + length)
    return _marked(said), behind


def _question(context: Context) -> str:
    """The question that a text answers, its pronoun resolved by the last two messages before."""
    question = asked(context)
    if not question or not context.history:
        return question
    resolver = PronounResolver()
    for role, message in context.history[-2:]:
        told = message[:_LONGEST_MESSAGE]
        if role == "user":
            resolver = PronounResolver(_clause(asked(Context(told))))
            continue
        for kind, (start, end) in _sentences(told):
            if kind is None and end - start <= _LONGEST:
                clause = trim_punctuation(tag(tokenize(told, start, end)))
                resolver.remember(clause, resolver.resolve(clause))
    clause = _clause(question)
    resolved = resolver.resolve_question(clause)
    return _replaced(question, Span(0, len(question)), clause, resolved).claim


def _clause(question: str) -> Clause:
    """The words of a question that is not too long to be one."""
    return tag(tokenize(question, 0, len(question))) if len(question) <= _LONGEST else ()


def non_claims(text: str) -> list[NonClaim]:
    """The sentences of a text that claim nothing, in its order."""
    return [NonClaim(kind, *sentence) for kind, sentence in _sentences(text) if kind is not None]


def _sentences(text: str) -> Iterator[tuple[NonClaimKind | None, Span]]:
    """The sentences of a text, without their list markers, and what each is that claims nothing."""
    sentences = split_sentences(text)
    blocks = code_blocks(text)
    for start, end in sentences:
        while blocks and blocks[0][1] < start:
            blocks.pop(0)
        if blocks and blocks[0][0] <= start:
            continue
        piece = text[start:end]
        if is_non_claim(piece, alone=len(sentences) == 1) or is_refusal(piece):
            yield "greeting", Span(start, end)
            continue
        marker = _MARKER.match(piece)
        if marker is None or marker.end() < len(piece):
            yield None, Span(start + (marker.end() if marker else 0), end)


def _claims(
    text: str, sentence: Span, resolver: PronounResolver, atomicity: Extent, coverage: Extent
) -> list[TextClaim]:
    whole = _whole(text[sentence.start : sentence.end], sentence)
    if sentence.end - sentence.start > _LONGEST:
        return [whole]
    tokens = tokenize(text, *sentence)
    if not _is_english([token.low for token in tokens]):
        return [whole]
    clause = trim_punctuation(tag(tokens))
    if first_finite_verb(clause) is None:
        resolver.remember(clause)
        return [whole]
    resolved = resolver.resolve(clause)
    resolver.remember(clause, resolved)
    if (atomicity, coverage) == ("low", "high"):
        return [_marked(_replaced(text, sentence, clause, resolved))]
    reduced = without_connective(clause)
    if coverage == "low":
        reduced = drop_details(reduced)
    if resolved != clause:
        reduced = _carried_over(reduced, clause, resolved)
    parts = split_clause(reduced) if atomicity == "high" else [reduced]
    if parts == [clause] or not all(parts):
        return [_marked(whole)]
    return [_marked(_claim(part, sentence)) for part in parts]


def _whole(sentence: str, span: Span) -> TextClaim:
    return TextClaim(_without_markup(sentence), *span)


def _marked(claim: TextClaim) -> TextClaim:
    """The claim with what it leaves open."""
    return claim._replace(ambiguous=unresolved_pronoun(claim.claim))


def _replaced(text: str, sentence: Span, clause: Clause, resolved: Clause) -> TextClaim:
    """The sentence as it stands, with the antecedent in place of its pronoun."""
    if resolved == clause:
        return _whole(text[sentence.start : sentence.end], sentence)
    place = next(n for n, token in enumerate(clause) if token != resolved[n])
    words = resolved[place : place + 1 + len(resolved) - len(clause)]
    name = render(words).removesuffix(".") if place == 0 else _joined(words)
    pronoun = clause[place]
    before, after = text[sentence.start : pronoun.start], text[pronoun.end : sentence.end]
    return _whole(f"{before}{name}{after}", sentence)


def _joined(words: Clause) -> str:
    first = words[0]
    if first.tag == "determiner":
        words = (first._replace(text=first.low), *words[1:])
    return "".join(" " * token.spaced + token.text for token in words).strip()


def _carried_over(reduced: Clause, clause: Clause, resolved: Clause) -> Clause:
    """The reduced clause with the antecedent that the whole clause got."""
    place = next(n for n, token in enumerate(clause) if token != resolved[n])
    words = resolved[place : place + 1 + len(resolved) - len(clause)]
    own = clause[place]
    where = next((n for n, token in enumerate(reduced) if token.start == own.start), None)
    if where is None:
        return reduced
    return (*reduced[:where], *words, *reduced[where + 1 :])


def _claim(part: Clause, sentence: Span) -> TextClaim:
    start, end = source_span(part) or sentence
    return TextClaim(render(part), start, end)


def _without_markup(sentence: str) -> str:
    """The sentence without markup, on one line."""
    return " ".join(_LINK.sub(r"\1", _MARKUP.sub("", sentence)).split())


def _is_english(words: list[str]) -> bool:
    """Whether English function words are at least as many as foreign ones."""
    return sum(word in ENGLISH_FUNCTION_WORDS for word in words) >= sum(
        word in FOREIGN_FUNCTION_WORDS for word in words
    )
