"""Words that are written with a full stop inside a sentence, in several languages.

All are in lower case without their last stop. Initials ("J.") and dotted acronyms
("U.S.A.") need no list: the splitter knows them by their form.
"""

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NEVER_LAST: Final = _words(
    # English
    "mr mrs ms mx dr drs prof rev hon fr ste mt messrs gen col capt cpt lt sgt adm cmdr cpl "
    "sen rep gov supt vs viz cf approx eg ie dept e.g i.e "
    # German, Dutch, Scandinavian
    "bzw ca vgl ggf evtl sog inkl exkl bspw hr dipl ing geb gest z.b d.h u.a z.t s.o s.u v.a "
    "bijv mevr dhr bl.a f.eks t.ex resp "
    # French, Spanish, Portuguese, Italian
    "mme mmes mlle mgr sra srta dña dra ud uds sig dott avv p.ej p.ex p.es "
    # Russian, Polish, Czech, Turkish, Hindi
    "ул просп проф акад доц ср напр тов гр св табл им т.е т.н т.к "
    "np tzn tzw św např tzv örn डॉ प्रो श्री"
)
"""A sentence goes on behind these, whatever follows."""

BEFORE_NUMBER: Final = _words(
    "no nos n° nº nr núm num p pp pg vol vols ch chap sec sect art arts fig figs tab eq eqs ex par "
    "ver bd abb aufl abs kap pág págs стр рис гл № est c"
)
"""A sentence goes on behind these when a digit follows."""

MAYBE_LAST: Final = _words(
    "inc ltd co corp llc bros plc gmbh jr sr esq etc usw usf al st ph.d a.m p.m "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri "
    "ave av blvd rd hwy mtn univ assn govt intl dist div ariz ark calif colo conn del fla ga "
    "kan ky mich minn mont neb nev okla penn tenn tex vt wis wyo oz lb lbs ft yr yrs hrs "
    "asst assoc misc str mio mrd std jh uvm enz osv tj г гг в вв др пр тыс млн млрд руб коп"
)
"""A sentence ends with these only when a common first word follows."""

MONTHS: Final = _words(
    "januar jänner februar märz april mai juni juli august september oktober november dezember "
    "marts maj december"
)
"""Months of languages that write the day as "3."."""

FIRST_WORDS: Final = _words(
    "the a an this that these those he she it we you they i his her its our their my there here in "
    "on at for from by with as but and or so if when while since because although after before "
    "until once during despite however what who why where how which do does did is are was were "
    "can could will would should has have had not no please some many most all each both also "
    "another other one two then today "
    "der die das ein eine er sie es wir ihr ich und aber im am dies diese dieser dieses wenn als "
    "le la les un une il elle ils elles nous vous je et mais en dans ce cette ces "
    "el los las una ella ellos y pero este esta él он она оно они мы вы я это и но на"
)
"""Words that often begin a sentence and are no names."""

GERMAN_ARTICLES: Final = _words("der die das den dem des im vom zum")
"""Behind these "3." is an ordinal."""
