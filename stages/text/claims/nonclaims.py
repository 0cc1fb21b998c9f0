"""Sentences that claim nothing: questions, greetings, offers of help, headings, code."""

import re
from typing import Final

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
    """Whether a sentence says nothing that could be true or false.

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
