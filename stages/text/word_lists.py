"""Word lists: English stop words, and for sentence splitting abbreviations of several languages."""

from typing import Final


def word_set(text: str) -> frozenset[str]:
    """The words of `text`, which white space separates."""
    return frozenset(text.split())


STOP_WORDS: Final = word_set(
    """
    a about above after again against ain all am an and any are aren as at be because been
    before being below between both but by can couldn d did didn do does doesn doing don down
    during each few for from further had hadn has hasn have haven having he her here hers
    herself him himself his how i if in into is isn it its itself just ll m ma me mightn more
    most mustn my myself needn no nor not now o of off on once only or other our ours
    ourselves out over own re s same shan she should shouldn so some such t than that the
    their theirs them themselves then there these they this those through to too under until
    up ve very was wasn we were weren what when where which while who whom why will with won
    wouldn y you your yours yourself yourselves
    """
)
"""English function words: NLTK's stop words without the entries that hold an apostrophe, which
never match a word whose punctuation is removed."""

# What is written with a full stop inside a sentence.

NEVER_SENTENCE_FINAL: Final = word_set(
    # English
    "mr mrs ms mx dr drs prof rev hon fr ste mt messrs gen col capt cpt lt sgt adm cmdr cpl "
    "sen rep gov pres supt vs viz cf approx eg ie dept e.g i.e "
    # German, Dutch, Scandinavian
    "bzw ca vgl ggf evtl sog inkl exkl bspw hr dipl ing geb gest z.b d.h u.a z.t s.o s.u v.a "
    "med phil jur kath evang zzgl einschl insb ggü ehem verh verw urspr "
    "bijv mevr dhr mej bl.a f.eks t.ex resp "
    # French, Spanish, Portuguese, Italian
    "mme mmes mlle mlles mgr sra sras sres srta dña dra gral cnel lic ud uds ee aprox admón párr "
    "párrf ilmo exmo exma profa sig sigg sig.ra dott dott.ssa prof.ssa avv cfr p.ej p.ex p.es "
    "c.-à-d "
    # Russian, Polish, Czech, Turkish
    "ул просп проф акад доц ср см напр тов гр св табл им пгт кв куб т.е т.н т.к "
    "np tzn tzw św např tzv örn "
    # Hindi, Arabic
    "डॉ प्रो श्री श्रीमती रु पं د أ"
)
"""A sentence goes on behind these, whatever follows."""

BEFORE_NUMBER: Final = word_set(
    "no nos n° nº nr num p pp pg vol vols ch chap sec sect art arts fig figs tab eq eqs ex par "
    "ver abb aufl abs kap pag pagg стр рис гл № est c cap reg sec séc "
    "apt apto dpto tel ext"
)
"""A sentence goes on behind these when a number follows, in digits or as in XIX."""

BEFORE_NUMBER_OR_SMALL: Final = word_set(
    "max máx mín avg núm pág págs gegr erb constr opger evt réf éd"
)
"""A sentence goes on behind these when a digit or a small letter follows. Those in small letters,
which are no names, end it only when a common first word follows."""

MONTHS: Final = word_set(
    "jan janv févr avr juil juill ene abr ago dic dez okt янв фев апр авг сен сент окт нояб дек"
)
"""A sentence goes on behind these when a digit or a small letter follows; other names of months,
which are no names of people, are in RARELY_SENTENCE_FINAL."""

RARELY_SENTENCE_FINAL: Final = word_set(
    "inc ltd co corp llc bros plc gmbh jr sr esq al st ph.d a.m p.m "
    "ff feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri lun "
    "ave av blvd rd hwy mtn univ assn govt intl dist div ariz ark calif colo conn del fla ga "
    "kan ky mich minn mont neb nev okla penn tenn tex vt wis wyo oz lb lbs ft mi yr yrs hrs min "
    "cm "
    "bd boul bv avda ctra pza depto dto ul engl frz griech dt österr niederl "
    "env hab bn asst assoc misc str mio mrd std jh uvm enz osv tj uu г гг в вв пр тыс млн млрд "
    "руб коп дол долл कि.मी कि.ग्रा"
)
"""A sentence ends with these only when a common first word follows."""

ENUMERATION_ENDS: Final = word_set("etc usw usf ecc т.д т.п др")
"""Words that end an enumeration: the sentence goes on behind them only in lower case."""

ABBREVIATIONS: Final = (
    NEVER_SENTENCE_FINAL
    | BEFORE_NUMBER
    | BEFORE_NUMBER_OR_SMALL
    | MONTHS
    | RARELY_SENTENCE_FINAL
    | ENUMERATION_ENDS
)

AFTER_ORDINAL: Final = word_set(
    "januar jänner februar märz april mai juni juli august september oktober november dezember "
    "marts maj december jan feb mär mrz apr jun jul aug sep sept okt nov dez "
    "jahrhundert jahrhunderts jh jahrtausend weltkrieg lebensjahr geburtstag auflage quartal "
    "spieltag"
)
"""What follows the number of a day or a place in languages that write it as "3."."""

SENTENCE_STARTERS: Final = word_set(
    "the a an this that these those he it she we you they i his her its our their my there here in "
    "on at for from by with as but and or so if when while since because although after before "
    "until once during despite however what who why where how which do does did is are was were "
    "can could will would should has have had not no please some many most all each both also "
    "another other one two then today "
    "der die das ein eine er sie es wir ihr ich und aber im am dies diese dieser dieses wenn als "
    "le la les un une il elle ils elles nous vous je et mais en dans ce cette ces "
    "el los las una ella ellos y pero este esta él он она оно они мы вы я это и но на"
)
"""Words that often begin a sentence and are no names."""

GERMAN_ARTICLES: Final = word_set("der die das den dem des im vom zum zur beim")
"""Behind these "3." is an ordinal."""
