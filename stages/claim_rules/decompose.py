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
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from claimflow.stages.claim_rules.clauses import first_finite_verb
from claimflow.stages.claim_rules.markdown import without_markup
from claimflow.stages.claim_rules.non_claims import is_english
from claimflow.stages.claim_rules.parentheticals import birth
from claimflow.stages.claim_rules.predicate_nominals import listed_names
from claimflow.stages.claim_rules.pronouns import (
    PronounResolver,
    resolve_question,
    unresolved_pronoun,
)
from claimflow.stages.claim_rules.questions import (
    NO_CONTEXT,
    QUOTED,
    Context,
    asked,
    contrast_end,
    is_polar,
    may_be_polar,
    opening_of,
    polar_statement,
    short_answer,
)
from claimflow.stages.claim_rules.reading import NonClaim, Sentence, read_sentences
from claimflow.stages.claim_rules.simplify import drop_details, without_connective
from claimflow.stages.claim_rules.split import split_sentence
from claimflow.stages.claim_rules.tags import tag
from claimflow.stages.claim_rules.tokens import (
    Clause,
    capitalized,
    render,
    source_span,
    text_of,
    tokenize,
    trim_punctuation,
)
from claimflow.stages.claim_rules.trees import Piece, claim_text
from claimflow.stages.text.sentences import Span
from claimflow.stages.tools import Parser, Word

Extent = Literal["low", "high"]

_LONGEST: Final = 1500
_LONGEST_MESSAGE: Final = 5_000
"""Characters: of a sentence that is split, and of an earlier message in which the antecedent of a
pronoun is looked for."""


class TextClaim(NamedTuple):
    """A claim and the characters `start:end` of the text that it was taken from.

    `ambiguous` is what it leaves open, such as a pronoun that nothing resolves.
    """

    claim: str
    start: int
    end: int
    ambiguous: str | None = None


class _Draft(NamedTuple):
    """A sentence as one claim, with its clause where that is to be split.

    `place` is that of the sentence in the text. With `reworded` the sentence has other words than
    the text, so that each of its claims has the place of the whole; with `cut` it begins within a
    sentence of the text.
    """

    claim: TextClaim
    clause: Clause = ()
    place: Span = Span(0, 0)
    reworded: bool = False
    cut: bool = False

    @property
    def said(self) -> str:
        """What is parsed: a sentence, which ends in a full stop."""
        return f"{text_of(_with_stand_ins(self.clause))}."

    def claims(self, words: Sequence[Word]) -> list[TextClaim]:
        """The claims of the sentence, whose tree is `words`."""
        if not self.clause:
            return [self.claim]
        parsed = _with_stand_ins(self.clause)
        quoted = {
            read.text: token.text
            for read, token in zip(parsed, self.clause, strict=True)
            if read.text != token.text
        }
        places = _Places(parsed)
        claims = []
        for pieces in split_sentence(self.said, words):
            said = [piece._replace(text=quoted.get(piece.text, piece.text)) for piece in pieces]
            # A full stop in a quotation is the sentence's own: "Love."
            inner = [one._replace(text=_STOP_IN_QUOTATION.sub("", one.text)) for one in said[:-1]]
            said = [*inner, *said[-1:]]
            span = places.of(pieces) or self.place
            claims.append(self.placed(_marked(TextClaim(claim_text(said), *span))))
        if any(name in claim.claim for name in quoted for claim in claims):
            return [self.claim]  # A stand-in became part of another word.
        return claims or [self.claim]

    def placed(self, claim: TextClaim) -> TextClaim:
        """A claim of the sentence as one of the text."""
        if self.reworded:
            return claim._replace(start=self.place.start, end=self.place.end)
        return _marked(claim._replace(claim=capitalized(claim.claim))) if self.cut else claim


_STOP_IN_QUOTATION: Final = re.compile(r"(?<=\w)\.(?=[\"”]$)")
_SHORTEST: Final = 5
"""Words of a sentence of two statements: "Ann sings and dances"."""

_STAND_INS: Final = ("Alpha", "Omega", "Sigma", "Delta", "Gamma", "Kappa", "Lambda", "Theta")


def _with_stand_ins(clause: Clause) -> Clause:
    """A clause with a name in place of each quotation.

    To a parser the words of a title are words of the sentence: "Things Fall Apart".
    """
    words = text_of(clause).lower()
    names = [name for name in _STAND_INS if name.lower() not in words]
    quotations = [
        token
        for place, token in enumerate(clause)
        if token.tag == "name" and token.text[0] in '"“«' and not _touches_word(clause, place)
    ]
    shown = dict(zip(dict.fromkeys(token.text for token in quotations), names, strict=False))
    return tuple(token._replace(text=shown.get(token.text, token.text)) for token in clause)


def _touches_word(clause: Clause, place: int) -> bool:
    """Whether a letter or digit stands right beside a token, as in 27"wide or “A”s."""
    before, behind = clause[place - 1 : place], clause[place + 1 : place + 2]
    own = clause[place]
    left = before and not own.spaced and before[0].text[-1].isalnum()
    right = behind and not behind[0].spaced and behind[0].text[0].isalnum()
    return bool(left or right) or own.text[-1].isalnum()


def decompose(
    text: str,
    *,
    atomicity: Extent,
    coverage: Extent,
    context: Context = NO_CONTEXT,
    parser: Parser | None = None,
) -> list[TextClaim]:
    """Claims of `text` in the order of the text, each once; as `take_apart`."""
    found = take_apart(text, atomicity=atomicity, coverage=coverage, context=context, parser=parser)
    return [one for one in found if isinstance(one, TextClaim)]


def take_apart(
    text: str,
    *,
    atomicity: Extent,
    coverage: Extent,
    context: Context = NO_CONTEXT,
    parser: Parser | None = None,
) -> list[TextClaim | NonClaim]:
    """Claims of `text`, each once, and its sentences that claim nothing, in the order of the text.

    `context` is what the reader of the text knows. High atomicity needs a `parser`.
    """
    texts = [(text, context)]
    (found,) = take_apart_all(texts, atomicity=atomicity, coverage=coverage, parser=parser)
    return found


def take_apart_all(
    texts: Iterable[tuple[str, Context]],
    *,
    atomicity: Extent,
    coverage: Extent,
    parser: Parser | None = None,
) -> list[list[TextClaim | NonClaim]]:
    """`take_apart` for each text and its context: the sentences of all are parsed together.

    Raises `ValueError` for high atomicity without a `parser`.
    """
    if atomicity == "high" and parser is None:
        raise ValueError("high atomicity needs a parser")
    drafts, nothing = [], []
    for text, context in texts:
        some, others = _drafts(text, context, atomicity, coverage)
        drafts.append(some)
        nothing.append(others)
    trees: Mapping[str, Sequence[Word]] = {}
    if parser is not None:
        trees = parser.parse([draft.said for some in drafts for draft in some if draft.clause])
    return [
        _in_order((c for draft in some for c in draft.claims(trees.get(draft.said, ()))), others)
        for some, others in zip(drafts, nothing, strict=True)
    ]


def _in_order(
    claims: Iterable[TextClaim], nothing: Iterable[NonClaim]
) -> list[TextClaim | NonClaim]:
    """Both in the order of the text, each claim once."""
    distinct: dict[str, TextClaim] = {}
    for claim in claims:
        distinct.setdefault(claim.claim, claim)
    return sorted([*distinct.values(), *nothing], key=lambda one: (one.start, one.end))


def _drafts(
    text: str, context: Context, atomicity: Extent, coverage: Extent
) -> tuple[list[_Draft], list[NonClaim]]:
    """The sentences of a text, and those that claim nothing."""
    question = _question(context)
    resolver = PronounResolver(_clause(question))
    units = read_sentences(text, context, each_cell=atomicity == "high")
    place = _answering(units, text, question)
    drafts = []
    for number, unit in enumerate(units):
        sentence = unit
        if number == place:
            statement, sentence = _answer(text, unit, question, whole=len(units) == 1)
            if statement is not None:
                who = question.lower().startswith("who")
                if statement.claim.startswith(QUOTED):
                    said = _clause(text[statement.start : statement.end])
                    resolver.remember_answer(said, who=who)
                else:
                    resolver.remember(_clause(statement.claim), who=who)
                drafts.append(_Draft(statement))
        if isinstance(sentence, Sentence) and sentence.start < sentence.end:
            drafts += _drafts_of(text, sentence, resolver, atomicity, coverage)
    nothing = [unit for n, unit in enumerate(units) if isinstance(unit, NonClaim) and n != place]
    return drafts, nothing


def non_claims(text: str, context: Context = NO_CONTEXT) -> list[NonClaim]:
    """The sentences of a text that claim nothing, in its order."""
    units = read_sentences(text, context, each_cell=False)
    place = _answering(units, text, _question(context))
    return [unit for n, unit in enumerate(units) if isinstance(unit, NonClaim) and n != place]


class Completed(NamedTuple):
    """A text with its short answer as a statement, and whether it is no more than a phrase.

    A phrase answers a question with a question word: it is neither yes nor no.
    """

    text: str
    phrase: bool


def completed(text: str, context: Context) -> Completed | None:
    """A text with its short answer as a statement; None where it has none."""
    question = _question(context)
    if not question or not text.strip():
        return None
    units = read_sentences(text, context, each_cell=False)
    place = _answering(units, text, question)
    if place is None:
        return None
    unit, whole = units[place], len(units) == 1
    statement, rest = _answer(text, unit, question, whole=whole)
    if statement is None:
        return None
    behind = text[rest.start :].lstrip(" ")
    said = f"{text[: unit.start]}{statement.claim} {behind}".rstrip()
    return Completed(said, whole and not is_polar(question))


def _answering(units: Sequence[Sentence | NonClaim], text: str, question: str) -> int | None:
    """The sentence that may be a short answer: the first that is a claim, or is yes or no."""
    if not question:
        return None
    whole = len(units) == 1
    for number, unit in enumerate(units):
        if isinstance(unit, Sentence):
            return number if unit.said is None else None
        if may_be_polar(question) or (whole and unit.kind == "source"):
            statement, rest = _answer(text, unit, question, whole=whole)
            if statement is not None or rest != unit:
                return number
    return None


def _answer(
    text: str, unit: Sentence | NonClaim, question: str, *, whole: bool
) -> tuple[TextClaim | None, Sentence | NonClaim]:
    """What a sentence states as the answer to the question, and the rest of it, to take apart.

    The rest is the sentence itself where it is no answer. A phrase in a text of several sentences
    is an answer only where it ends as a sentence does.
    """
    start, end = unit.start, unit.end
    piece = text[start:end]
    statement = None
    opening = opening_of(piece) if may_be_polar(question) else None
    said = opening is not None and not any(map(str.isalnum, without_markup(piece[opening[1] :])))
    if whole or said or piece.rstrip().endswith("."):
        statement = short_answer(question, without_markup(piece))
    if statement is not None:
        return _marked(TextClaim(statement, start, end)), Sentence(end, end)
    if opening is None:
        return None, unit
    yes, length = opening
    rest = contrast_end(piece, length)
    behind = Sentence(start + rest, end, cut=True)
    if yes and rest == length:
        return None, behind
    # "No, it ended in 1944" says two things, and so does "Yes, but it was late".
    return _marked(TextClaim(polar_statement(question, yes), start, start + length)), behind


def _question(context: Context) -> str:
    """The question that a text answers, its pronoun resolved by the last two messages before."""
    question = asked(context)
    if not question or not context.history:
        return question
    before: list[Clause] = []
    for role, message in context.history[-2:]:
        told = message[:_LONGEST_MESSAGE]
        if role == "user":
            before = [_clause(asked(Context(told)))]
            continue
        for unit in read_sentences(told, NO_CONTEXT, each_cell=False):
            if isinstance(unit, Sentence) and unit.end - unit.start <= _LONGEST:
                before.append(trim_punctuation(tag(tokenize(told, unit.start, unit.end))))
    clause = _clause(question)
    resolved = resolve_question(clause, [one for one in before if one])
    return _replaced(question, Span(0, len(question)), clause, resolved).claim


def _clause(question: str) -> Clause:
    """The words of a question that is not too long to be one."""
    return tag(tokenize(question, 0, len(question))) if len(question) <= _LONGEST else ()


def _drafts_of(
    text: str, unit: Sentence, resolver: PronounResolver, atomicity: Extent, coverage: Extent
) -> Iterator[_Draft]:
    """A sentence; where it is split, "(born 1815 in Rome)" and each listed name are others."""
    place = Span(unit.start, unit.end)
    if unit.said is not None and unit.whole:
        yield _Draft(TextClaim(unit.said, *place))
        return
    words, span = text, place
    if unit.said is not None:
        words, span = unit.said, Span(0, len(unit.said))
    claim, clause = _claim_and_clause(words, span, resolver, atomicity, coverage)
    born = birth(clause) if clause else None
    listed = listed_names(clause) if clause and born is None else []
    parts = [(claim, clause)]
    if born or listed:
        parts = [
            (_marked(TextClaim(render(part), *(source_span(part) or span))), part if born else ())
            for part in born or listed
        ]
    for said, part in parts:
        draft = _Draft(
            said,
            part,
            place,
            reworded=unit.said is not None,
            cut=unit.cut and unit.said is None,
        )
        yield draft._replace(claim=draft.placed(said))


def _claim_and_clause(
    text: str, sentence: Span, resolver: PronounResolver, atomicity: Extent, coverage: Extent
) -> tuple[TextClaim, Clause]:
    """A sentence as a claim, and its clause where that is to be split, else an empty one."""
    whole = _whole(text[sentence.start : sentence.end], sentence)
    if sentence.end - sentence.start > _LONGEST:
        return whole, ()
    tokens = tokenize(text, *sentence)
    if not is_english([token.low for token in tokens]):
        return whole, ()
    clause = trim_punctuation(tag(tokens))
    if first_finite_verb(clause) is None:
        # The words of the tagger are few: the parser may still find a verb.
        resolver.remember(clause)
        reduced = trim_punctuation(without_connective(clause)) if atomicity == "high" else ()
        return _marked(whole), reduced if len(reduced) >= _SHORTEST else ()
    resolved = resolver.resolve(clause)
    resolver.remember(clause, resolved)
    claim = _replaced(text, sentence, clause, resolved)
    if (atomicity, coverage) == ("low", "high"):
        return _marked(claim), ()
    reduced = without_connective(clause)
    if coverage == "low":
        reduced = drop_details(reduced)
    if resolved != clause:
        reduced = _carried_over(reduced, clause, resolved)
    reduced = trim_punctuation(reduced)
    if reduced and reduced != resolved:
        claim = TextClaim(render(reduced), *(source_span(reduced) or sentence))
    return _marked(claim), reduced if atomicity == "high" else ()


def _whole(sentence: str, span: Span) -> TextClaim:
    return TextClaim(without_markup(sentence), *span)


def _marked(claim: TextClaim) -> TextClaim:
    """The claim with what it leaves open."""
    return claim._replace(ambiguous=unresolved_pronoun(claim.claim))


def _replaced(text: str, sentence: Span, clause: Clause, resolved: Clause) -> TextClaim:
    """The sentence as it stands, with the antecedent in place of its pronoun."""
    if resolved == clause:
        return _whole(text[sentence.start : sentence.end], sentence)
    place, words = _antecedent(clause, resolved)
    name = render(words).removesuffix(".") if place == 0 else _joined(words)
    pronoun = clause[place]
    before, after = text[sentence.start : pronoun.start], text[pronoun.end : sentence.end]
    return _whole(f"{before}{name}{after}", sentence)


def _antecedent(clause: Clause, resolved: Clause) -> tuple[int, Clause]:
    """Where the pronoun of a clause stands, and the words that replace it in `resolved`."""
    place = next(n for n, token in enumerate(clause) if token != resolved[n])
    return place, resolved[place : place + 1 + len(resolved) - len(clause)]


def _joined(words: Clause) -> str:
    """An antecedent within a sentence: its article without a capital."""
    first = words[0]
    if first.tag == "determiner":
        words = (first._replace(text=first.low), *words[1:])
    return text_of(words)


def _carried_over(reduced: Clause, clause: Clause, resolved: Clause) -> Clause:
    """The reduced clause with the antecedent that the whole clause got."""
    place, words = _antecedent(clause, resolved)
    own = clause[place]
    where = next((n for n, token in enumerate(reduced) if token.start == own.start), None)
    if where is None:
        return reduced
    return (*reduced[:where], *words, *reduced[where + 1 :])


class _Places:
    """Where the words of a clause, put together as `text_of` does, stand in the text."""

    def __init__(self, clause: Clause) -> None:
        self._clause = clause
        self._starts: list[int] = []
        length = 0
        for number, token in enumerate(clause):
            length += token.spaced and number > 0
            self._starts.append(length)
            length += len(token.text)

    def of(self, pieces: Sequence[Piece]) -> tuple[int, int] | None:
        """The span of the pieces that are not repeated; None where all are."""
        spans = [span for piece in pieces if (span := self._span(piece)) is not None]
        if not spans:
            return None
        return min(start for start, _ in spans), max(end for _, end in spans)

    def _span(self, piece: Piece) -> tuple[int, int] | None:
        if piece.start < 0:
            return None
        number = bisect_right(self._starts, piece.start) - 1
        token = self._clause[number]
        if token.start < 0:  # The antecedent of a pronoun stands elsewhere.
            return None
        if (piece.start, piece.text) == (self._starts[number], token.text):
            return token.start, token.end
        start = token.start + piece.start - self._starts[number]
        return min(start, token.end), min(start + piece.end - piece.start, token.end)
