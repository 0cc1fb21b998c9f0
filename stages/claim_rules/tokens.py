"""Tokens of one sentence for the rules, and claims rendered from them."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

Tag = Literal[
    "adjective",
    "adverb",
    "base",  # plain form after "to", a modal or as a complement
    "be",  # finite form of to be
    "comma",
    "coordinator",
    "determiner",
    "gerund",
    "have",  # finite form of to have
    "modal",  # modals and finite forms of to do
    "name",  # capitalised words and quotations
    "noun",
    "number",
    "parenthesis",
    "participle",
    "preposition",
    "pronoun",
    "punctuation",
    "relative",
    "semicolon",
    "subordinator",
    "verb",  # finite form of any other verb
]


class Token(NamedTuple):
    """One token; quotations, parentheses and links are one token each.

    `start` and `end` are offsets into the text. They are -1 for a token that a claim repeats from
    another place in the sentence, and for one that is not in the text.
    """

    text: str
    tag: Tag
    spaced: bool
    start: int
    end: int

    @property
    def low(self) -> str:
        """The text in lower case."""
        return self.text.lower()


Clause = tuple[Token, ...]

MULTIPLICATION: Final = (
    r"(?:(?:(?<=\d)|(?<=\d\s)|(?<=\*))\*+\s?\d"
    r"|(?:(?<=[\w)])\*|(?<=[\w)]\*))\*(?:[-+(]?\d|[a-z]\b))"
)
"""Where asterisks are no markup: "3 * 4", "2**3", "r**2", "x**n"."""

_TOKEN = re.compile(
    rf"""(?P<markup>(?!{MULTIPLICATION})\*+|__+|`|\[\d{{1,3}}\])
      | \[(?P<link>[^\[\]\n]{{1,200}})\]\([^()\s]{{1,300}}\)
      | (?P<quote>"[^"\n]{{1,200}}"|“[^“”\n]{{1,200}}”|«[^«»\n]{{1,200}}»)
      | (?P<parenthesis>\([^()\n]{{1,300}}\))
      | (?P<word>(?:[A-Za-z]\.){{2,}}
          | (?:[A-Z]|Dr|Mr|Mrs|Ms|St|Jr|Sr|Prof)\.(?=\s+[A-Z])
          | \w[\w\u0300-\u036f]*s['’](?=\s+\w)
          | [$€£]?\d+(?:[.,:]\d+)+%?
          | [$€£]?\w[\w\u0300-\u036f]*(?:[-'’.&/]\w[\w\u0300-\u036f]*)*%?)
      | (?P<punctuation>[^\w\s])""",
    re.VERBOSE,
)
_CONTRACTION = re.compile(
    r"(he|she|it|they|we|you|i|who|there|that)(['’](?:s|re|ve|d|ll|m))", re.IGNORECASE
)
_MARKS: dict[str, Tag] = {",": "comma", ";": "semicolon"}
_ENDING: Final = frozenset({"comma", "semicolon", "punctuation"})
_BEFORE_NUMBER: Final = frozenset("-−+±~≈<>≤≥$€£¥#")
_BEHIND_NUMBER: Final = frozenset("°%‰$€£¥+#")


def tokenize(text: str, start: int, end: int) -> list[Token]:
    """Tokens of `text[start:end]` without markup; words are tagged "noun" until `tag` is called."""
    tokens: list[Token] = []
    last = start
    spaced = False
    for match in _TOKEN.finditer(text, start, end):
        spaced = spaced or match.start() > last
        last = match.end()
        kind = match.lastgroup
        if kind == "markup":
            continue
        piece = match["link"] if kind == "link" else match[0]
        comma = kind == "quote" and piece[-2] == ","
        contraction = _CONTRACTION.fullmatch(piece) if kind == "word" else None
        if contraction:
            middle = match.start() + len(contraction[1])
            tokens.append(Token(contraction[1], "noun", spaced, match.start(), middle))
            tokens.append(Token(contraction[2], "noun", False, middle, last))
        elif comma:  # American style: the comma inside belongs to the sentence
            quotation = piece[:-2] + piece[-1]
            tokens.append(Token(quotation, "name", spaced, match.start(), last))
            tokens.append(Token(",", "comma", False, last, last))
        else:
            tokens.append(Token(piece, _kind(kind, piece), spaced, match.start(), last))
        spaced = False
    return tokens


def _kind(kind: str | None, piece: str) -> Tag:
    if kind in ("quote", "link"):
        return "name"
    if kind == "parenthesis":
        return "parenthesis"
    if kind == "punctuation":
        return _MARKS.get(piece, "punctuation")
    return "number" if piece.lstrip("$€£")[:1].isdigit() else "noun"


def without_positions(clause: Iterable[Token]) -> Clause:
    """The tokens as repeated in another claim: their places do not count as its source."""
    return tuple(token._replace(start=-1, end=-1) for token in clause)


def repeated_subject(subject: Iterable[Token]) -> Clause:
    """The subject for a further claim: without positions and parentheses."""
    return without_positions(without_parentheses(subject))


def without_parentheses(clause: Iterable[Token]) -> Clause:
    """The clause without parentheses, except those within a word: "f(x)", "item(s)"."""
    return tuple(
        token
        for place, token in enumerate(clause)
        if token.tag != "parenthesis" or (place and not token.spaced)
    )


def inserted_token(text: str, tag: Tag) -> Token:
    """A token that the text does not have."""
    return Token(text, tag, True, -1, -1)


def source_span(clause: Sequence[Token]) -> tuple[int, int] | None:
    """Where the clause's own tokens stand in the text; None when it has none."""
    own = [token for token in clause if token.start >= 0]
    return (own[0].start, max(token.end for token in own)) if own else None


def trim_punctuation(clause: Sequence[Token]) -> Clause:
    """The clause without punctuation at either end; signs as in "-5", "5 €" and "C++" stay."""
    first, last = 0, len(clause)
    while (
        first < last
        and clause[first].tag in _ENDING
        and not _is_signed_number(clause[first : first + 2])
    ):
        first += 1
    while last > first and clause[last - 1].tag in _ENDING:
        if clause[last - 1].text in _BEHIND_NUMBER:
            break
        last -= 1
    return tuple(clause[first:last])


def _is_signed_number(pair: Sequence[Token]) -> bool:
    """Whether the first of two tokens is the sign of the second, a number."""
    if len(pair) < 2 or pair[0].text not in _BEFORE_NUMBER:
        return False
    return pair[1].tag == "number" and not pair[1].spaced


def text_of(clause: Sequence[Token]) -> str:
    """The clause as it stands, without blanks at its ends."""
    return "".join(" " * token.spaced + token.text for token in clause).strip()


def render(clause: Sequence[Token]) -> str:
    """The clause as a sentence: first letter capital, full stop at the end."""
    words: list[str] = []
    for position, token in enumerate(clause):
        text = token.text
        if position and token.tag in ("determiner", "pronoun") and text != "I":
            text = text[:1].lower() + text[1:]
        words.append(" " + text if position and token.spaced else text)
    sentence = capitalized("".join(words))
    return sentence if sentence.endswith(".") else sentence + "."


def capitalized(sentence: str) -> str:
    """The sentence with a capital first letter, unless its first word has one inside ("iPhone")."""
    first = sentence.partition(" ")[0]
    return sentence if first[1:].lower() != first[1:] else sentence[:1].upper() + sentence[1:]
