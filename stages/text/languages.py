"""Language detection by script and function words."""

from collections import Counter
from typing import Final

import regex

from claimflow.stages.text.unicode_words import unicode_words
from claimflow.stages.text.word_lists import word_set

_LETTER: Final = regex.compile(
    r"(?P<Latin>\p{Latin}+)|(?P<Cyrillic>\p{Cyrillic}+)|(?P<Arabic>\p{Arabic}+)|(?P<Han>\p{Han}+)"
    r"|(?P<Kana>[\p{Hiragana}\p{Katakana}]+)|(?P<Hangul>\p{Hangul}+)|(?P<Greek>\p{Greek}+)"
    r"|(?P<Hebrew>\p{Hebrew}+)|(?P<Devanagari>\p{Devanagari}+)|(?P<Thai>\p{Thai}+)"
    r"|(?P<Bengali>\p{Bengali}+)|(?P<Tamil>\p{Tamil}+)|(?P<Telugu>\p{Telugu}+)"
    r"|(?P<Gujarati>\p{Gujarati}+)|(?P<Gurmukhi>\p{Gurmukhi}+)|(?P<Kannada>\p{Kannada}+)"
    r"|(?P<Malayalam>\p{Malayalam}+)|(?P<Sinhala>\p{Sinhala}+)|(?P<Lao>\p{Lao}+)"
    r"|(?P<Khmer>\p{Khmer}+)|(?P<Burmese>\p{Myanmar}+)|(?P<Georgian>\p{Georgian}+)"
    r"|(?P<Armenian>\p{Armenian}+)|(?P<Ethiopic>\p{Ethiopic}+)|(?P<Tibetan>\p{Tibetan}+)"
    r"|(?P<other>\p{L}+)"
)
_LONGEST: Final = 4_000
"""Characters of a text that are read."""

_LEAD: Final = 2
"""By how many function words a language must lead over the second."""

_FEWEST_HAN: Final = 8
"""Chinese characters after which a Japanese text would have had a kana syllable."""


FUNCTION_WORDS: Final = {
    "English": word_set(
        "the and of to in is was are were be been has had have that this these those it its he she "
        "they his her their with for from by on at as an not which who when or but can will would "
        "into than also there about after between because during such most more other some however "
        "therefore thus"
    ),
    "German": word_set(
        "der die das und ist ein eine einen einem einer eines dem den des nicht auch wurde wurden "
        "werden wird war waren mit von zu zum zur im in am auf für aus bei nach als an sich hat "
        "haben sind oder aber dass wie es er sie ihr sein seine durch über um vor noch nur unter"
    ),
    "French": word_set(
        "le la les l un une des du de et est sont été était dans pour que qui sur pas avec au aux "
        "ne en il elle ils elles ce cette ces son sa ses leur par plus comme ou mais se à a ont "
        "avait dont où fut entre sans être fait aussi"
    ),
    "Spanish": word_set(
        "el la los las un una unos unas y de del en por con que es son fue era se su sus al lo no "
        "para como más pero o está ha han entre también sobre desde este esta estos hasta sin "
        "porque cuando muy ser donde a"
    ),
    "Italian": word_set(
        "il lo la gli le un uno una di del della dei delle e è che per con in sono non nel nella "
        "al alla dal dalla si su suo sua come più ma o ha hanno era stato stata fu anche tra fra "
        "questo questa degli dell da ed essere i"
    ),
    "Portuguese": word_set(
        "o a os as um uma de do da dos das e é em no na nos nas por com que não foi são se seu sua "
        "para ao à mais mas ou como também foram era pelo pela entre ser tem sobre até quando"
    ),
    "Dutch": word_set(
        "de het een en van is in op te met voor niet zijn werd wordt werden aan door als dat die "
        "dit er uit bij ook maar om naar of was hij zij haar over heeft hebben had kan meer deze "
        "tot nog"
    ),
    "Swedish": word_set(
        "och att det som är en ett av på för med den de inte i till om har var han hon från vid "
        "eller men sig så kan när under efter också blev ut sin"
    ),
    "Danish or Norwegian": word_set(
        "og at det som er en et av af på for med den de ikke i til om har var han hun fra ved "
        "eller men seg sig så kan når under etter efter også ble blev ut ud sin"
    ),
    "Polish": word_set(
        "i w z na do nie jest się że to o jak po od za przez dla są był była było oraz ale który "
        "która które ich jego jej czy może przy także tego tym jako ze"
    ),
}

_SPOKEN_ENGLISH: Final = word_set(
    "i you we me my your our do does did what how why if so all like know think want would there "
    "no yes am please thanks"
)
"""Words that tell English questions and chats from languages that share a few words with it."""

_LANGUAGES: Final = {
    word: [
        language
        for language, words in FUNCTION_WORDS.items()
        if word in words or (language == "English" and word in _SPOKEN_ENGLISH)
    ]
    for word in _SPOKEN_ENGLISH.union(*FUNCTION_WORDS.values())
}


def language_of(text: str) -> str | None:
    """The language of a text; None where it is not certain.

    The name of a script where its languages are not distinguished: "Cyrillic", "Arabic".
    """
    text = text[:_LONGEST]
    if text.isascii():
        return _by_function_words(text)
    letters: Counter[str] = Counter()
    for match in _LETTER.finditer(text):
        letters[str(match.lastgroup)] += match.end() - match.start()
    if not letters:
        return None
    east_asian = letters["Han"] + letters["Kana"]
    main, most = letters.most_common(1)[0]
    if east_asian >= most and main != "Latin":
        return _east_asian(letters)
    return _by_function_words(text) if main == "Latin" else main if main != "other" else None


def _east_asian(letters: Counter[str]) -> str | None:
    if letters["Kana"]:
        return "Japanese"
    return "Chinese" if letters["Han"] >= _FEWEST_HAN else None


def _by_function_words(text: str) -> str | None:
    words = Counter(
        word for joined in unicode_words(text) for word in joined.split("'") if word in _LANGUAGES
    )
    votes: Counter[str] = Counter()
    distinct: Counter[str] = Counter()
    for word, count in words.items():
        for language in _LANGUAGES[word]:
            votes[language] += count
            distinct[language] += 1
    (best, most), (_, second), *_ = [*votes.most_common(2), ("", 0), ("", 0)]
    # One word may be part of a name: "Los Angeles".
    return best if most - second >= _LEAD and distinct[best] > 1 else None
