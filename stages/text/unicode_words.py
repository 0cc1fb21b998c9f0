"""Words of any language by Unicode Standard Annex #29, case-folded, and text in NFC.

Of the annex's rules these are kept: letters and digits join (WB5, WB8 to WB10), an apostrophe or a
full stop joins letters (WB6, WB7: "can't", "example.com"), a point, a comma or an apostrophe joins
digits (WB11, WB12), an underscore joins both (WB13a, WB13b), a quotation mark joins Hebrew
letters (WB7b, WB7c), marks and joiners stay with what they follow (WB4), and all else is
separate (WB999). So Hangul is cut at blanks, and Thai, Lao, Khmer and Burmese, which have
none, after each letter with its marks. Punctuation, symbols and emoji, which hold no letter or
digit, are no words.

Tailored, as the annex allows:

- Katakana is taken by character (without WB13), as Han and Hiragana are.
- A number keeps its sign and a leading point.
- A colon, a semicolon and a narrow blank join nothing.
- Underscores and apostrophes at the ends of a word are no part of it: `_so_`, 'so'.
"""

import re
import unicodedata
from typing import Final

import regex

# Most of a text is runs of letters: {letter}++ matches a run in one step.
_SHAPE: Final = (
    r"(?:(?<![\w)\]}}%°+\-−])[-+−](?=\.?{digit}))?(?:(?<![\w.])\.(?={digit}))?"
    r"{first}(?:{letter}++(?:{marks}(?:{mid_letter}{marks}(?={letter})|{joined}{hebrew})?)?"
    r"|{digit}++{marks}(?:{mid_digit}{marks}(?={digit})|{joined})?)++"
)


def _shape(**classes: str) -> str:
    joined = r"(?:{joiner}{marks})++(?={letter}|{digit})".format(**classes)
    return _SHAPE.format(joined=joined, **classes)


_WORD: Final = regex.compile(
    r"(?V1)"
    + _shape(
        # Some symbols count as letters inside a word, but not at its begin.
        first=r"(?=[\p{Alphabetic}\p{N}])",
        letter=r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}]",
        digit=r"[\p{WB=Numeric}--\u066b]",
        marks=r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+",
        joiner=r"[\p{WB=ExtendNumLet}--\u202f]",
        mid_letter=r"[\p{WB=MidLetter}\p{WB=MidNumLet}'--:\ufe13\ufe55\uff1a]",
        mid_digit=r"[\p{WB=MidNum}\p{WB=MidNumLet}'\u066b--;\u037e\ufe10\ufe14\uff1b]",
        hebrew=r"|(?<=\p{WB=Hebrew_Letter}[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+)"
        r'"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+(?=\p{WB=Hebrew_Letter})',
    )
    + r"|[[\p{L}\p{N}]--\p{WB=Extend}][\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
)
# Equal to _WORD for ASCII texts, three times as fast.
_ASCII_WORD: Final = re.compile(
    _shape(
        first="",
        letter="[A-Za-z]",
        digit="[0-9]",
        marks="",
        joiner="_",
        mid_letter="[.']",
        mid_digit="[.,']",
        hebrew="",
    )
)
# Invisible characters: soft hyphens, joiners, directions, variants of a glyph.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+"
)
_APOSTROPHE: Final = re.compile("[’ʼ]")
# Signs that Arabic and Hebrew may leave out: vowel signs and the like, and the stroke that only
# makes a word longer. Hamza and madda are not among them, because they make another letter.
_OPTIONAL: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]+"
)
_GROUPED: Final = re.compile(r"^[-+]?\d{1,3}(?:[,'٬]\d{2,3})*[,'٬]\d{3}(?![\d,'٬])", re.MULTILINE)
_GROUP: Final = re.compile("[,'٬]")
_POINT_FIRST: Final = re.compile(r"^([-+]?)\.", re.MULTILINE)
_LONGEST_WORD: Final = 100


def unicode_words(text: str) -> list[str]:
    """Case-folded words of `text`, in order; punctuation, symbols and emoji are no words.

    Numbers keep sign and decimal point ("-3.5") and lose what groups thousands (1,250,000
    and 1'250'000 are "1250000"). Compatibility forms (NFKC), and forms that differ only in
    invisible characters, in the vowel signs of Arabic and Hebrew or in the dot of a Turkish i are
    one word. Chinese and Japanese are taken by character.
    """
    words = (_ASCII_WORD if text.isascii() else _WORD).findall(text)
    if not words:
        return []
    # Folding keeps line breaks, so all words are folded in one call.
    lines = _folded("\n".join(words), longest=max(map(len, words)))
    if "," in lines or "'" in lines or "٬" in lines:
        lines = _GROUPED.sub(lambda match: _GROUP.sub("", match[0]), lines)
    if "." in lines:
        lines = _POINT_FIRST.sub(r"\g<1>0.", lines)
    # A word of optional signs alone is an empty line now. No word holds a blank.
    return lines.split()


def _folded(lines: str, *, longest: int) -> str:
    if lines.isascii():
        return lines.lower()
    plain = _case_folded(_INVISIBLE.sub("", _APOSTROPHE.sub("'", lines).replace("−", "-")))
    if longest > _LONGEST_WORD:
        # Normalising takes quadratic time on a long run of combining marks.
        return plain
    # Some compatibility forms stand for capitals, or hold a blank.
    plain = _case_folded(unicodedata.normalize("NFKC", plain)).replace(" ", "")
    return unicodedata.normalize("NFKC", plain)


def _case_folded(lines: str) -> str:
    # In capitals the Turkish dotless i is the same as the i of other languages.
    folded = lines.casefold().replace("i\u0307", "i").replace("ı", "i")
    return _OPTIONAL.sub("", folded)


# The most marks in a row that Unicode expects of any text (UAX #15, stream-safe text).
# Composing takes quadratic time on a long run of them.
_LONG_RUN: Final = regex.compile(r"\p{M}{31}")


def to_nfc(text: str) -> str:
    """`text` in Normalization Form C (é is one character); unchanged where 31 marks stand in a row.

    Texts out of PDF files and file names often have letters and marks apart.
    """
    if text.isascii() or _LONG_RUN.search(text) or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)
