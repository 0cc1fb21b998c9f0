"""Closed word lists: numbers, units, negations, stop words."""

import unicodedata
from functools import lru_cache
from typing import Final

REMEMBERED: Final = 1 << 16
"""Words whose normal forms are kept at hand."""


@lru_cache(maxsize=REMEMBERED)
def fold(word: str) -> str:
    """`word` in lower case and without accents; empty when it is nothing but accents."""
    lower = word.lower()
    if lower.isascii():
        return lower
    decomposed = unicodedata.normalize("NFKD", lower)
    return "".join(c for c in decomposed if not unicodedata.combining(c)) or lower


def folded(words: str) -> tuple[str, ...]:
    """Each of `words`, which white space separates, folded."""
    return tuple(map(fold, words.split()))


NUMBERS: Final = {
    word: value
    for value, words in enumerate(
        "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|"
        "fifteen|sixteen|seventeen|eighteen|nineteen".split("|")
    )
    for word in words.split()
} | {
    "first": 1,
    "second": 2,
    "twice": 2,
    "double": 2,
    "third": 3,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
    "dozen": 12,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "seventy": 70,
    "eighty": 80,
    "ninety": 90,
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
"""Words for numbers, and what they are worth."""

SCALES: Final = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "millions": 10**6,
    "mln": 10**6,
    "billion": 10**9,
    "bn": 10**9,
    "trillion": 10**12,
    "k": 10**3,
}
"""Words that multiply the number before them."""

UNITS: Final = {
    spelling: folded(words)[0]
    for words in (
        "percent per-cent pct",
        "dollar dollars usd buck bucks",
        "euro euros eur",
        "pound pounds gbp lb lbs",
        "yen jpy",
        "rupee rupees inr",
        "kilometre kilometres kilometer kilometers km kms",
        "metre metres meter meters",
        "centimetre centimetres centimeter centimeters cm",
        "millimetre millimetres millimeter millimeters mm",
        "mile miles mi",
        "foot feet ft",
        "inch inches",
        "yard yards yd",
        "kilogram kilograms kg kilo kilos",
        "gram grams",
        "milligram milligrams mg",
        "ton tons tonne tonnes",
        "ounce ounces oz",
        "litre litres liter liters",
        "gallon gallons",
        "second seconds sec secs",
        "minute minutes min mins",
        "hour hours hr hrs",
        "day days",
        "week weeks",
        "month months",
        "year years yr yrs",
        "decade decades",
        "century centuries",
        "degree degrees",
        "celsius centigrade",
        "fahrenheit",
        "acre acres",
        "hectare hectares ha",
        "watt watts",
        "kilowatt kilowatts kw",
        "megawatt megawatts mw",
        "calorie calories kcal",
        "byte bytes",
        "megabyte megabytes mb",
        "gigabyte gigabytes gb",
    )
    for spelling in folded(words)
}
"""Units of measure by spelling."""

CALENDAR: Final = {
    spelling: folded(words)[0]
    for words in (
        "january jan januar janvier enero января январь",
        "february feb februar février febrero февраля февраль",
        "march mar märz mars marzo марта март",
        "april apr avril abril апреля апрель",
        "may mai mayo мая май",
        "june jun juni juin junio июня июнь",
        "july jul juli juillet julio июля июль",
        "august aug août agosto августа август",
        "september sept sep septembre septiembre сентября сентябрь",
        "october oct oktober octobre octubre октября октябрь",
        "november nov novembre noviembre ноября ноябрь",
        "december dec dezember décembre diciembre декабря декабрь",
        "monday mon montag lundi lunes",
        "tuesday tue dienstag mardi martes",
        "wednesday wed mittwoch mercredi miércoles",
        "thursday thu donnerstag jeudi jueves",
        "friday fri freitag vendredi viernes",
        "saturday sat samstag samedi sábado",
        "sunday sun sonntag dimanche domingo",
        "spring frühling printemps",
        "summer sommer été verano",
        "autumn fall herbst automne otoño",
        "winter hiver invierno",
    )
    for spelling in folded(words)
}
"""Months, week days and seasons by spelling."""

NEGATIONS: Final = frozenset(
    folded(
        "not n't no never none nobody nothing nowhere neither nor cannot without hardly barely "
        "scarcely fail fails failed failing lack lacks lacked lacking unable "
        "nicht kein keine keinen keiner keinem nie niemals nichts ohne "
        "pas jamais aucun aucune rien sans ningún ninguna nunca nada tampoco "
        "não nunca nenhum nenhuma sem nessun nessuna senza niet geen nooit zonder "
        "не нет ни никогда ничего без нельзя nie bez brak "
        "不 没 沒 無 无 非 未 否 沒有 没有 ない ません 안 못 없 "
        "لا لم لن ليس ليست غير بدون नहीं मत ना değil yok"
    )
)
"""Words that turn a statement round; they count for polarity, not for coverage."""

ANSWERS: Final = frozenset({"no", "нет"})
"""Those of them that, set apart, answer a question and turn nothing round."""

STOP: Final = frozenset(
    folded(
        "a an the this that these those of in on at to for from by with as into onto over "
        "under about "
        "and or but if then than so because while when where which who whom whose what how why "
        "is are was were be been being am do does did doing done have has had having will "
        "would shall "
        "should can could may might must it its he him his she her hers they them their "
        "theirs we us "
        "our ours you your yours i me my mine himself herself itself themselves there "
        "here also too "
        "very just such both each other another any some same own s t d ll re ve m "
        "up out off down through during between among against before after again further once "
        "der das den dem des ein eine einer eines einem einen und oder aber ist sind waren "
        "wird wurde im in am zu zum zur von vom mit auf für an als auch sich er sie es "
        "le la les un une des du de et ou est sont était dans sur pour par avec ce cette "
        "il elle qui que el los las una y o es fue en con por para del al se su lo "
        "e os um uma da do dos das em no na "
        "и в на с по к из от за для что как это он она они был была было были его её их "
        "的 了 是 在 和 与 也 于 我 他 她 它 们 这 那 の は が を に で と も "
        "في من على إلى عن أن إن كان كانت هو هي هذا هذه التي الذي و"
    )
)
"""Words that say little by themselves; they count for order, not for coverage."""
