"""Recognise refusals: texts that only decline to answer."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from claimflow.stages.text.unicode_words import to_nfc

_SOURCE: Final = (
    r"(?:(?:the|this|these|those|any|given|provided|available|supplied|retrieved|above|your|my|"
    r"current|search|attached)\s+){0,4}"
    r"(?:context|contexts|text|texts|passages?|documents?|information|sources?|content|data|"
    r"knowledge|articles?|excerpts?|results?|materials?|question|query|reference)"
)
_OPENING: Final = (
    r"(?:(?:however|unfortunately|apologies|sorry|but|well|therefore|thus|so|"
    r"(?:i(?:['’]m|\s+am)\s+(?:very\s+|so\s+)?(?:sorry|afraid))|i\s+apologi[sz]e|"
    r"as\s+an\s+ai(?:\s+\w+){0,3}|"
    r"(?:es\s+)?tut\s+mir\s+leid|leider|désolée?|lo\s+siento|mi\s+dispiace|desculpe|извините|抱歉|"
    r"(?:(?:based|relying)\s+(?:only\s+|solely\s+)?on|according\s+to|from|given|in)\s+"
    + _SOURCE
    + r")(?:[\s,]+(?:and|that)\b)?[\s,，]+){0,8}"
)
"""Phrases before a refusal, at most eight. The words behind "as an AI" may be openings too, so
that without a limit a text of nothing but such words would take exponential time."""
_NOT: Final = r"(?:(?:do|does|did|can|could)(?:\s+not|n['’]?t)|can['’]?t|cannot)"
_TELL: Final = (
    r"(?:answer|provide|determine|find|say|tell|give|help|assist|respond|know|confirm|verify|"
    r"identify|locate|offer|comment|be\s+(?:sure|certain))"
)
_INFORMATION: Final = (
    r"(?:(?:any|enough|sufficient|specific|explicit|exact|direct|directly|explicitly|the|much|"
    r"further|such|relevant|clear|specifically|precise|detailed|an|a|that|this|available|"
    r"access\s+to|real-time|current|up-to-date|recent|personal)\s+){0,4}"
    r"(?:information|details?|data|answers?|mention|knowledge|context|evidence|statement|idea)"
)
_HOLD: Final = (
    r"(?:contain|provide|mention|specify|include|state|say|give|offer|discuss|address|answer|"
    r"indicate|reveal|describe|list|have|cover)"
)
_CORE: Final = (
    rf"i\s+{_NOT}\s+(?:really\s+|actually\s+|currently\s+|have\s+)?(?:{_TELL}\b|{_INFORMATION})",
    rf"(?:i(?:['’]m|\s+am)|we(?:['’]re|\s+are))\s+(?:unable|not\s+able)\s+to\s+{_TELL}\b",
    r"(?:i(?:['’]m|\s+am)|we(?:['’]re|\s+are))\s+not\s+(?:sure|certain|aware|familiar)\b",
    rf"i\s+have\s+(?:no|insufficient|not\s+enough)\s+{_INFORMATION}",
    r"i\s+(?:could|can|did)(?:\s+not|n['’]?t)\s+find\b",
    rf"{_SOURCE}\s+{_NOT}\s+(?:\w+ly\s+)?{_HOLD}\b",
    rf"there(?:\s+is|['’]s|\s+are|\s+was)\s+(?:no|not\s+enough|insufficient|not\s+any)\s+{_INFORMATION}"
    rf"\b(?!\s+that)",
    rf"no\s+{_INFORMATION}\s+(?:is|was|are|about|on|regarding|available|found|given|provided)\b",
    rf"(?:unable|not\s+able|not\s+possible|impossible|insufficient\s+\w+)\s+to\s+{_TELL}\b",
    rf"it\s+(?:is|['’]s)\s+(?:unclear|unknown|(?:im|not\s+)possible\s+to\s+{_TELL}|"
    r"not\s+(?:clear|known|mentioned|specified|stated|provided|explicitly))\b",
    rf"(?:this|that|it|the\s+answer)?\s*(?:is|was)?\s*not\s+(?:\w+ly\s+)?(?:mentioned|specified|"
    rf"stated|provided|given|available|known|found)(?:\s+(?:in|by|from)\s+{_SOURCE})?\s*$",
    r"(?:this|that|it|the\s+answer)?\s*cannot\s+be\s+(?:determined|answered|found|known)\b",
    r"(?:no\s+(?:answer|idea|information|data)|unknown|n/?a|none\s+given|unanswerable)\s*$",
    # Without its accent "no se" is "not" in Spanish: "no se vende".
    r"(?:yo\s+)?no\s+(?:sé\b|se\s*$)|je\s+ne\s+sais\s+pas|ich\s+wei(?:ß|ss)\s+(?:es\s+)?nicht|"
    r"(?:io\s+)?non\s+lo\s+so|(?:eu\s+)?não\s+sei|я\s+не\s+знаю|我不知道|我无法|わかりません|لا\s+أعرف",
)
_REFUSAL: Final = re.compile(_OPENING + "(?:" + "|".join(_CORE) + ")", re.IGNORECASE)
_CONTENT: Final = re.compile(
    r"[,;،]?\s+(?:(?:but|however|although|though|yet|aber|doch|mais|pero|però|mas|но|однако)\b|"
    r"ma\s|و?لكن)|[,，、。]\s*(?:但|不过|でも|しかし)",
    re.IGNORECASE,
)
_COURTESY: Final = re.compile(
    r"(?:(?:i(?:['’]m|\s+am)\s+)?(?:so\s+|very\s+)?sorry(?:\s+about\s+that|\s+for\s+.{0,40})?|"
    r"i\s+apologi[sz]e.{0,60}|apologies.{0,40}|please\s+.{0,120}|thank\s+you.{0,40}|"
    r"if\s+you\s+.{0,140}|let\s+me\s+know.{0,80}|as\s+an\s+ai.{0,60}|hello|hi|hmm)$",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"[.!?。！？]+(?:\s+|$)|\n+")
_LONGEST: Final = 800


def is_refusal(text: str) -> bool:
    """Whether the text only says that it cannot or does not answer.

    True when at least one sentence refuses and every other one is mere courtesy. A text
    that goes on to answer ("I don't know the year, but it was in Paris.") is no refusal.
    """
    return len(text) <= _LONGEST and _only_refuses(to_nfc(text))


@lru_cache(maxsize=1 << 15)  # Every score step asks about the same responses.
def _only_refuses(text: str) -> bool:
    refused = False
    # One at a time, because the first sentence of most texts is neither.
    for part in _sentences(text):
        sentence = part.strip(" \t\"'*_-")
        if _refuses(sentence):
            refused = True
        elif sentence and not _COURTESY.match(sentence):
            return False
    return refused


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.start()]
        start = end.end()
    yield text[start:]


def _refuses(sentence: str) -> bool:
    found = _REFUSAL.match(sentence)
    return found is not None and _CONTENT.search(sentence, found.end()) is None
