"""What continuous-eval's sentence splitter knows of English words, as far as it can be told.

Its splitter, NLTK's Punkt, learnt from newspapers which words are abbreviations, which often
begin a sentence, and which occur in lower case. What it learnt is not at hand: these lists
were written for this project. All words are in lower case without their last stop.
"""

from typing import Final

from claimflow.stages.text.stopwords import ENGLISH


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ABBREVIATIONS: Final = _words(
    # titles and ranks
    "mr mrs ms dr prof messrs jr sr hon rev gov sen sens rep reps gen lt col sgt adm cmdr maj capt "
    # firms
    "inc corp co cos ltd bros cie s.a s.p.a a.g b.v n.v l.p "
    # places
    "st ave ft u.s u.s.a u.s.s.r u.k u.n d.c l.a n.y n.j n.h n.c n.d n.m s.c s.d r.i w.va "
    "ala ariz ark calif colo conn fla ga ill kan ky mich minn neb nev okla ok ore pa tenn va "
    "wash wis wyo "
    # times
    "jan feb aug sept oct nov dec mon tues wed thurs fri a.m p.m a.d b.c yr "
    # degrees and the rest
    "ph.d m.d b.a m.a m.b.a vs mg "
)
"""A stop behind these ends no sentence, unless a frequent first word follows.

Not among them, and so always the end of a sentence: e.g, i.e, no, fig, eq, approx.
"""

FIRST_WORDS: Final = _words(
    "according after all also although among analysts and another as at because both but by "
    "despite during even for he his how however if in indeed instead it its last many meanwhile "
    "moreover most nevertheless now one our over separately she since so some still such that "
    "the their then there these they this those thus under unlike until we what when where while "
    "with without yesterday yet you"
)
"""Words that often begin a sentence."""

LOWER_CASE: Final = frozenset(
    word for word in ENGLISH | FIRST_WORDS if len(word) > 1 or word == "a"
) | _words(
    "add almost along already always animals any anyone apart around ask away back become before "
    "best better big blood books bring business call cars cases cells change check children cities "
    "come common companies compare consider costs countries data day days different doctors early "
    "earth eat either else energy enough every everyone everything example experts few find first "
    "food found four get give go good government great group groups half heat help here high hold "
    "home hundreds important including inside keep know large later learn leave less let life "
    "light like little local long look low make makes man may maybe men methods might million "
    "money months more much music must near need never new next nobody nothing notice often old "
    "once only open order others outside part parts patients people perhaps place plants please "
    "power prices products put read recent remember research results run say says scientists "
    "second see seen set several shall show small soon start stay stop students studies study "
    "take tell thank things think third thousands three time times today together tomorrow two "
    "use used using usually values various very vitamins wait want war was water ways well "
    "whether whole whose within women words work workers write years young"
)
"""Words that are more than names: an initial before one in upper case ended its sentence."""
