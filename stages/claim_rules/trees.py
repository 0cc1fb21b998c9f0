"""A parsed sentence, and claims put together of its words."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.lexicon import is_person_noun
from claimflow.stages.claim_rules.tokens import capitalized
from claimflow.stages.tools import Word

FINITE_TAGS: Final = frozenset({"VBD", "VBZ", "VBP", "MD"})
"""Penn Treebank tags of finite verb forms."""

NAME_TAGS: Final = frozenset({"NNP", "NNPS"})
NOUN_TAGS: Final = frozenset({"NN", "NNS", *NAME_TAGS})

_SUBJECTS: Final = ("nsubj", "nsubj:pass", "csubj", "csubj:pass", "expl")
_AUXILIARIES: Final = ("aux", "aux:pass", "cop")
_OUTER_MARKS: Final = frozenset({",", ";", ":", "-", "–", "—", "--", ".", "!"})
_INNER_MARKS: Final = frozenset({",", "-", "–", "—", "--"})
_BRACKETS: Final = (("(", ")"), ("[", "]"))
OBJECTS: Final = ("obj", "obl", "obl:agent")
"""Relations of what a predicate governs."""
QUOTATION_MARKS: Final = frozenset({'"', "“", "”", "''", "``"})
_CLITIC: Final = re.compile(r"['’.,;:)]|n['’]t")


class Piece(NamedTuple):
    """One word of a claim.

    `start` and `end` are its characters in the sentence, -1 where the claim repeats or adds it.
    `opens` says that it is the first word of the sentence, whose capital may be one of the place.
    """

    text: str
    spaced: bool
    start: int
    end: int
    tag: str
    opens: bool = False

    @property
    def low(self) -> str:
        """The text in lower case."""
        return self.text.lower()


Pieces = list[Piece]


class Tree:
    """A sentence with its dependency tree; words are named by their index."""

    def __init__(self, text: str, words: Sequence[Word]) -> None:
        self.texts = [text[word.start : word.end] for word in words]
        self.lows = [word.lower() for word in self.texts]
        self.words = _with_two_roles(_mended(words, self.lows), self.lows)
        self.children: list[list[int]] = [[] for _ in words]
        for index, word in enumerate(self.words):
            if word.head >= 0:
                self.children[word.head].append(index)
        self._subtrees: dict[int, frozenset[int]] = {}

    @cached_property
    def root(self) -> int:
        """The word that no other governs."""
        return next(index for index, word in enumerate(self.words) if word.head < 0)

    def subtree(self, index: int) -> frozenset[int]:
        """A word and all words that it governs, however far."""
        if index not in self._subtrees:
            found, waiting = {index}, [index]
            while waiting:
                for child in self.children[waiting.pop()]:
                    found.add(child)
                    waiting.append(child)
            self._subtrees[index] = frozenset(found)
        return self._subtrees[index]

    def is_contiguous(self, index: int) -> bool:
        """Whether what a word governs stands side by side, but for punctuation.

        In English it nearly always does: other trees are mostly wrong.
        """
        own = self.subtree(index)
        between = (n for n in range(min(own), max(own)) if n not in own)
        return all(self.words[n].relation == "punct" for n in between)

    def is_closed(self, index: int) -> bool:
        """Whether what a word governs ends with a comma, or before a mark, "and" or nothing.

        Else it may go on behind that.
        """
        last = max(self.subtree(index))
        end = self.texts[last] == "," or last + 1 == len(self.words)
        return end or self.words[last + 1].relation in ("punct", "cc")

    def subtrees(self, indices: Iterable[int]) -> frozenset[int]:
        """The words of several subtrees."""
        return frozenset().union(*map(self.subtree, indices))

    def tag(self, index: int) -> str:
        """Penn Treebank tag."""
        return self.words[index].tag

    def relation(self, index: int) -> str:
        """Universal Dependencies relation to the head."""
        return self.words[index].relation

    def of(self, index: int, *relations: str) -> list[int]:
        """The words that a word governs by one of these relations, in text order."""
        return [n for n in self.children[index] if self.words[n].relation in relations]

    def has(self, index: int, *relations: str) -> bool:
        """Whether a word governs another by one of these relations."""
        return bool(self.of(index, *relations))

    def is_spaced(self, index: int) -> bool:
        """Whether white space stands before a word."""
        return index > 0 and self.words[index - 1].end < self.words[index].start

    def conjuncts(self, head: int) -> list[int]:
        """All words coordinated with a head, whichever of them a parser hangs them on."""
        found: list[int] = []
        waiting = [head]
        while waiting:
            more = self.of(waiting.pop(), "conj")
            found += more
            waiting += more
        return sorted(found)

    def subject(self, clause: int) -> int | None:
        """The subject of a clause, which is named by its predicate."""
        return next(iter(self.of(clause, *_SUBJECTS)), None)

    def finite(self, clause: int) -> int | None:
        """The finite verb of a clause; None where it has none."""
        group = sorted([clause, *self.of(clause, *_AUXILIARIES)])
        return next((n for n in group if self.tag(n) in FINITE_TAGS), None)

    def is_past(self, clause: int) -> bool:
        """Whether the finite verb of a clause, or of the nearest one around it, is in the past."""
        while (found := self.finite(clause)) is None and self.words[clause].head >= 0:
            clause = self.words[clause].head
        return found is not None and (self.tag(found) == "VBD" or self.lows[found] == "had")

    def is_plural(self, clause: int) -> bool:
        """Whether the subject of a clause takes "are"."""
        verbs = {self.lows[n] for n in self.of(clause, *_AUXILIARIES)}
        if verbs & {"is", "was", "has", "does"}:
            return False
        if verbs & {"are", "were", "have", "do"}:
            return True
        subject = self.subject(clause)
        return subject is not None and self.is_plural_noun(subject)

    def is_plural_noun(self, noun: int) -> bool:
        """Whether a noun phrase takes "are": a plural, or several nouns."""
        plural = self.tag(noun) in ("NNS", "NNPS") or self.lows[noun] in ("they", "we", "you")
        return plural or self.has(noun, "conj")

    def is_verb(self, index: int) -> bool:
        """Whether a word is tagged as a form of a verb; modal verbs are not."""
        return self.tag(index).startswith("VB")

    def is_predicate(self, index: int) -> bool:
        """Whether a word is a verb, or has a copula."""
        return self.is_verb(index) or self.has(index, "cop")

    def auxiliaries(self, clause: int) -> list[int]:
        """The auxiliaries and the copula of a clause."""
        return sorted(self.of(clause, *_AUXILIARIES))

    def case(self, index: int) -> str:
        """The preposition of a noun: "in", "such as"; empty where it has none."""
        return " ".join(self.lows[n] for n in sorted(self.of(index, "case")))

    def says_what_is(self, predicate: int) -> bool:
        """Whether a predicate says what its subject is."""
        return self.has(predicate, "cop") or self.relation(predicate) == "appos"

    def is_both(self, index: int) -> bool:
        """Whether a word is the "both" of "both A and B", which each statement goes without."""
        return self.lows[index] == "both" and self.relation(index) == "cc:preconj"

    def in_brackets(self, index: int) -> bool:
        """Whether a word and what it governs stand in brackets; "item(s)" is one word."""
        first = min(self.subtree(index))
        return self.texts[first] in ("(", "[") and self.is_spaced(first)

    # Words in a row.

    def pieces(
        self, indices: Iterable[int], *, again: bool = False, other: dict[int, str] | None = None
    ) -> Pieces:
        """Words as pieces of a claim; `again` where another claim has them, `other` in place."""
        made = []
        for index in indices:
            word = self.words[index]
            text = (other or {}).get(index, self.texts[index])
            span = (-1, -1) if again else (word.start, word.end)
            made.append(Piece(text, self.is_spaced(index), *span, word.tag, index == 0))
        return made

    def here(self, pieces: Pieces) -> frozenset[int]:
        """The words whose own place is in `pieces`."""
        starts = {piece.start for piece in pieces if piece.start >= 0}
        return frozenset(n for n, word in enumerate(self.words) if word.start in starts)

    def places(self, pieces: Pieces, words: frozenset[int]) -> list[int]:
        """Where in `pieces` the words stand."""
        starts = {self.words[n].start for n in words}
        return [place for place, piece in enumerate(pieces) if piece.start in starts]

    def tidied(self, indices: Iterable[int], gone: Collection[int] = ()) -> list[int]:
        """Words in text order, without punctuation that what was taken out left behind.

        `gone` is what was taken out: commas beside it go with it.
        """
        kept = self._trimmed(self._with_hyphens(sorted(indices)))
        tidy: list[int] = []
        for index in kept:
            left_out = [n for n in range(tidy[-1] + 1, index) if n in gone] if tidy else []
            gap = bool(left_out)
            bracketed = gap and self.texts[left_out[0]] == "("  # "Ann (born 1951), Bo and Eva"
            if gap and self.texts[index] in _INNER_MARKS and not bracketed:
                continue
            if gap and self.texts[tidy[-1]] in _INNER_MARKS | {"("}:
                tidy.pop()
            tidy.append(index)
        return tidy

    def _with_hyphens(self, indices: Sequence[int]) -> list[int]:
        """With the hyphens between them, which may hang on another word."""
        full: list[int] = []
        for index in indices:
            between = index - 1
            tight = not self.is_spaced(between) and not self.is_spaced(index)
            hyphen = self.texts[between] in ("-", "/", "–")
            if full and index == full[-1] + 2 and hyphen and tight:
                full.append(between)
            full.append(index)
        return full

    def _trimmed(self, indices: list[int]) -> list[int]:
        """Without marks at either end, and brackets that lost their partner."""
        while indices:
            if self.texts[indices[-1]] in _OUTER_MARKS:
                indices = indices[:-1]
            elif self.texts[indices[0]] in _OUTER_MARKS:
                indices = indices[1:]
            elif (end := self._lonely(indices)) is not None:
                indices = indices[1:] if end == 0 else indices[:-1]
            elif self._is_bracketed(indices):
                indices = indices[1:-1]
            else:
                break
        return indices

    def _lonely(self, indices: Sequence[int]) -> int | None:
        """The end, 0 or -1, at which a bracket stands without its partner."""
        texts = [self.texts[index] for index in indices]
        marks = [pair for pair in _BRACKETS if texts.count(pair[0]) != texts.count(pair[1])]
        return next((end for pair in marks for end in (0, -1) if texts[end] in pair), None)

    def _is_bracketed(self, indices: Sequence[int]) -> bool:
        texts = [self.texts[index] for index in indices]
        return texts[0] == "(" and texts[-1] == ")" and texts.count("(") == 1


def _mended(words: Sequence[Word], lows: Sequence[str]) -> Sequence[Word]:
    """Words that hang where they nearly always do.

    A noun behind "a Polish physicist and" is not coordinated with "Polish", nor a predicate behind
    "was seen in tests and is" with "tests". What stands in "Born in France, " hangs on "Born", a
    year in brackets on the noun before it, an example on the noun before "such as", what follows
    a relative clause or "..., taking charge of Venice" without a comma on that clause,
    "historian" in "the Greek historian Ctesias" on the name, and "activist" in "Ann Lee, the
    president and activist, left" on "president", and the "and" of "and film producer" on
    "producer". "..., giving concerts" is no second predicate.
    """
    mended = list(words)

    def hang(index: int, head: int, relation: str | None = None) -> None:
        """Hang a word on another one, unless it governs that one: together they would be a ring."""
        if index not in _upwards(mended, head):
            own = mended[index]
            mended[index] = own._replace(head=head, relation=relation or own.relation)

    for index in _opening(words):
        hang(index, 0)
    for index, noun in (_examples(words, lows) | _bracketed(words)).items():
        oblique = words[index].relation == "obl"
        hang(index, _name_head(words, noun), "nmod" if oblique else None)
    for index, clause in _behind_clauses(words).items():
        hang(index, clause)
    for index, (head, relation) in _names(words, lows).items():
        hang(index, head, relation)
    for index, head in (_coordinated(words, lows) | _behind_appositions(words)).items():
        hang(index, head, "conj")
    for index, head in (_links_of_compounds(words) | _pairs(words, lows)).items():
        hang(index, head)
    for index in _participles(words):
        hang(index, words[index].head, "advcl")
    return mended


def _upwards(words: Sequence[Word], index: int) -> Iterator[int]:
    """A word, and every word above it up to the root."""
    while index >= 0:
        yield index
        index = words[index].head


def _with_two_roles(words: Sequence[Word], lows: Sequence[str]) -> Sequence[Word]:
    """ "an actor and film producer": a producer by the parser, but an actor and a producer."""
    copulas = {word.head for word in words if word.relation == "cop"}
    for role, word in enumerate(words[:-1]):
        last = word.head
        apart = word.relation == "compound" and lows[role + 1] == "and" and last in copulas
        if apart and last > role and is_person_noun(lows[role]) and is_person_noun(lows[last]):
            mended = list(words)
            for index, other in enumerate(words):
                if other.head == last and index < role:
                    mended[index] = other._replace(head=role)
                elif index == role + 1:
                    mended[index] = other._replace(head=last, relation="cc")
                elif role < index < last and other.head in (role, last):
                    mended[index] = other._replace(head=last, relation="compound")
            mended[role] = word._replace(head=words[last].head, relation=words[last].relation)
            mended[last] = words[last]._replace(head=role, relation="conj")
            return mended
    return words


def _coordinated(words: Sequence[Word], lows: Sequence[str]) -> dict[int, int]:
    """Where predicates and nouns behind "and" hang."""
    found = {}
    copulas = {word.head for word in words if word.relation == "cop"}
    modals = {word.head for word in words if word.tag == "MD"}
    finite = {word.head for word in words if word.tag in FINITE_TAGS}
    finite |= {index for index, word in enumerate(words) if word.tag in FINITE_TAGS}
    agents = {index: word.head for index, word in enumerate(words) if word.relation == "obl:agent"}
    verbs = {index for index, word in enumerate(words) if word.tag.startswith("VB")}
    passives = {word.head for word in words if word.relation == "aux:pass"}
    subjects = {word.head for word in words if word.relation in _SUBJECTS}
    cases = {
        word.head: low for word, low in zip(words, lows, strict=True) if word.relation == "case"
    }
    for index, word in enumerate(words):
        above = word.head
        # "was written by Ann Lee, produced by Bo Lind and shown in Rome"
        passive = word.tag == "VBN" and above in agents and index in agents.values()
        if passive and word.relation == "acl" and words[index - 1].tag == ",":
            found[index] = agents[above]
        # "was begun in 1248, abandoned in 1560, and completed in 1880"
        listed = word.relation == "advcl" and above in passives and words[index - 1].tag == ","
        if listed and word.tag == "VBN" and _goes_on(words, above, index):
            found[index] = above
        # "to make bags, to sell them, and to repair them"
        marks = (words[index - 2].tag, words[index - 1].tag) if index > 1 else ()
        purpose = word.relation == "advcl" and marks == (",", "TO")
        if purpose and word.tag == words[above].tag == "VB" and _goes_on(words, above, index):
            found[index] = above
        if word.relation != "conj" or above < 0:
            continue
        # "is found on Mars, but not on Venus"
        same = [
            n
            for n in range(above + 1, index)
            if words[n].head == above
            and words[n].relation == "obl"
            and cases.get(n) == cases.get(index)
        ]
        if same and above in verbs and index in cases and index not in subjects:
            found[index] = same[0]
        elif word.tag in NOUN_TAGS and words[above].relation in ("amod", "flat"):
            found[index] = words[above].head
        elif index in copulas and above not in copulas:
            found[index] = _above(words, above, copulas | verbs)
        elif index in modals and words[above].tag == "VB":
            found[index] = _above(words, above, finite)
    return {index: head for index, head in found.items() if 0 <= head < index}


def _behind_appositions(words: Sequence[Word]) -> dict[int, int]:
    """Where bare nouns behind an apposition hang: "Ann Lee, the president and activist, left"."""
    appositions = {word.head: index for index, word in enumerate(words) if word.relation == "appos"}
    described = {word.head for word in words if word.relation in ("det", "nmod:poss", "case")}
    return {
        index: appositions[word.head]
        for index, word in enumerate(words[:-1])
        if (word.relation, word.tag, words[index + 1].tag) == ("conj", "NN", ",")
        and word.head < appositions.get(word.head, -1) < index
        and words[appositions[word.head]].tag == "NN"
        and index not in described
    }


def _links_of_compounds(words: Sequence[Word]) -> dict[int, int]:
    """Where the "and" of "an actor and film producer" hangs: on "producer"."""
    found = {}
    for index, word in enumerate(words):
        within = word.relation == "cc" and words[word.head].relation in ("compound", "amod")
        noun = words[word.head].head
        if within and index < word.head and noun >= 0 and words[noun].relation == "conj":
            found[index] = noun
    return found


def _pairs(words: Sequence[Word], lows: Sequence[str]) -> dict[int, int]:
    """Where the second of a pair in a list hangs: "art, law and order, and trade"."""
    found = {}
    links = {word.head: n for n, word in enumerate(words) if word.relation == "cc"}
    members: dict[int, list[int]] = {}
    for index, word in enumerate(words):
        if word.relation == "conj":
            members.setdefault(word.head, []).append(index)
    for others in members.values():
        last = links.get(others[-1], 0)
        if not last or words[last - 1].tag != "," or lows[last] != "and":
            continue
        for before, index in pairwise(others[:-1]):
            link = links.get(index)
            if link is not None and lows[link] == "and" and words[link - 1].tag != ",":
                found[index] = before
    return found


def _participles(words: Sequence[Word]) -> list[int]:
    """Participles behind a comma that are taken for a further predicate: "..., giving concerts"."""
    linked = {word.head for word in words if word.relation in ("cc", "aux", "nsubj")}
    return [
        index
        for index, word in enumerate(words)
        if (word.relation, word.tag, words[index - 1].tag) == ("conj", "VBG", ",")
        and words[word.head].tag in FINITE_TAGS
        and index not in linked
    ]


def _goes_on(words: Sequence[Word], verb: int, index: int) -> bool:
    """Whether a list of verbs of one form goes on behind `index`: ", and completed"."""
    return any(
        word.relation == "conj" and word.head == verb and word.tag == words[index].tag
        for word in words[index + 1 :]
    )


def _above(words: Sequence[Word], index: int, wanted: Collection[int]) -> int:
    """The nearest word in `wanted` from `index` upwards; -1 where there is none."""
    while index >= 0 and index not in wanted:
        index = words[index].head
    return index


def _names(words: Sequence[Word], lows: Sequence[str]) -> dict[int, tuple[int, str]]:
    """Heads and relations of the parts of names that are taken for two things of one word.

    They are the "poet" of "the poet Mary Oliver" and the "Baptiste" of "Jean-Baptiste".
    """
    found = {}
    longer = {word.head for word in words if word.relation == "flat"}
    for index, word in enumerate(words):
        for other in range(index + 1, min(index + 3, len(words))):
            name = words[other]
            twice = (word.head, word.relation) == (name.head, name.relation)
            if twice and (word.tag, name.tag, other) == ("NNP", "CD", index + 1):
                found[other] = index, "flat"  # "World War One"
            subjects = word.relation in ("nsubj", "nsubj:pass") and other == index + 1
            if twice and subjects and name.tag == "NNP" and word.tag in ("NN", "NNP"):
                found[other] = index, "flat"  # "Song Kang"
            if name.tag != "NNP" or word.tag not in ("NN", "NNP"):
                continue
            twice &= word.relation in ("obl", "obj", "nmod", "obl:agent")
            hyphen = words[other - 1].tag == "HYPH" and word.tag == "NNP"
            within = word.relation if word.head == other else None
            person = is_person_noun(lows[index]) and other == index + 1
            if person and twice:
                found[index] = other, "compound"
                found |= _moved(words, index, other, ("case", "det", "acl:relcl", "appos"))
            elif hyphen and (twice or (within == "compound" and index in longer)):
                found |= _moved(words, other, index)
                found[index] = name.head, name.relation
                found[other] = index, "flat"
    return found


def _moved(
    words: Sequence[Word], one: int, other: int, relations: Collection[str] = ()
) -> dict[int, tuple[int, str]]:
    """What hangs on one word, for another: that of some relations, or everything."""
    return {
        index: (other, word.relation)
        for index, word in enumerate(words)
        if word.head == one and (not relations or word.relation in relations)
    }


def _behind_clauses(words: Sequence[Word]) -> dict[int, int]:
    """Where adjuncts right behind a clause hang: "a man, who won in 2009"."""

    def takes(place: int) -> bool:
        if words[place].relation == "acl:relcl":
            return True
        gerund = words[place].relation == "advcl" and words[place].tag == "VBG"
        # "before founding the company in 2001"
        return gerund and place > 0 and words[place - 1].tag in (",", "IN")

    found = {}
    for index, word in enumerate(words):
        if word.relation not in ("obl", "obl:unmarked") or word.head >= index:
            continue
        begin = index
        while begin and words[begin - 1].head == index and words[begin - 1].tag != ",":
            begin -= 1
        place = begin - 1
        while place > word.head and not takes(place):
            place = words[place].head
        if begin - 1 > word.head and words[begin - 1].tag != "," and place > word.head:
            found[index] = place
    return found


def _bracketed(words: Sequence[Word]) -> dict[int, int]:
    """Where years and participles in brackets hang: on the noun before the bracket."""
    found = {}
    for index in range(2, len(words) - 1):
        noun = words[index - 1].tag == "-LRB-" and words[index - 2].tag in NOUN_TAGS
        year = words[index].tag == "CD" and words[index + 1].tag == "-RRB-"
        participle = words[index].tag == "VBN" and words[index].relation == "acl"
        if noun and (year or participle):
            found[index] = index - 2
    return found


def _examples(words: Sequence[Word], lows: Sequence[str]) -> dict[int, int]:
    """Where examples hang: behind "such as" on the noun right before it.

    So do those behind ", including" if that noun is a plural and the one that they hang on is not.
    """
    found = {}
    for index, word in enumerate(words[1:], start=1):
        before = index - 1
        if lows[index] == "including" and words[before].tag == "," and before:
            before -= 1
            above = words[word.head].head
            told = words[before].tag == "NNS" and above >= 0 and words[above].tag == "NN"
        else:
            told = lows[index : index + 2] == ["such", "as"] and words[before].tag in NOUN_TAGS
        placed = word.relation == "case" and index < word.head
        if told and placed and words[word.head].relation in ("nmod", "obl"):
            found[word.head] = before
    return found


def _name_head(words: Sequence[Word], index: int) -> int:
    """The noun of which a word at the end of its name is a part."""
    while words[index].relation in ("compound", "flat") and words[index].head >= 0:
        index = words[index].head
    return index


def _opening(words: Sequence[Word]) -> list[int]:
    """The words of an opening participle's phrase that hang on the verb of its sentence."""
    if not words or words[0].tag not in ("VBN", "VBG") or words[0].relation != "advcl":
        return []
    end = next((n for n, word in enumerate(words) if word.tag == ","), 0)
    verb = words[0].head
    within = all(words[n].head in range(end) or words[n].head == verb for n in range(1, end))
    return [n for n in range(1, end) if words[n].head == verb] if verb > end and within else []


def added(text: str, tag: str = "VBZ") -> Piece:
    """A word that the sentence does not have."""
    return Piece(text, True, -1, -1, tag)


def again(pieces: Iterable[Piece]) -> Pieces:
    """Pieces as repeated in a further claim: their places do not count as its source."""
    return [piece._replace(start=-1, end=-1) for piece in pieces]


def joined(before: Sequence[Piece], behind: Sequence[Piece]) -> Pieces:
    """Pieces one after another, with a blank between them."""
    behind = list(behind)
    if before and behind and not _CLITIC.match(behind[0].text):
        behind[0] = behind[0]._replace(spaced=True)
    return [*before, *behind]


def trimmed(pieces: Iterable[Piece]) -> Pieces:
    """Pieces without punctuation at the end and without a comma after a comma."""
    kept: Pieces = []
    for piece in pieces:
        if piece.text != "," or not kept or kept[-1].text != ",":
            kept.append(piece)
    while kept and kept[-1].text in (",", ";", "."):
        kept.pop()
    return kept


def claim_text(pieces: Sequence[Piece]) -> str:
    """Pieces as a sentence: first letter capital, full stop at the end."""
    words = []
    for place, piece in enumerate(pieces):
        text = piece.text
        # The capital of a sentence's first word is that of the place, unless it is a name.
        if place and piece.opens and piece.tag not in NAME_TAGS and text != "I":
            text = text[:1].lower() + text[1:]
        words.append(" " + text if place and piece.spaced else text)
    sentence = capitalized("".join(words).strip())
    return sentence if sentence.endswith((".", '."', ".”")) else sentence + "."
