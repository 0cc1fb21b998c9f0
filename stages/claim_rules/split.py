"""High atomicity: the statements of a parsed sentence, each with its subject.

They are read off the dependency tree: clauses and predicates that "and" joins, appositions,
relative clauses and participles that tell more of a noun, "Born in ...", examples, the members of
lists, and several adjuncts of one verb. Nothing is read out of conditions, questions and
attitudes; what is reported keeps who says it. "or" is split behind "can" alone: else neither side
of it is claimed.
"""

from collections.abc import Collection, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from claimflow.stages.claim_rules.detached import (
    CONTRASTS,
    PAST_OF_GERUND,
    Detached,
    begins_with_that,
    detached_parts,
    finite_form,
    has_number,
    is_condition,
    is_nominal_predicate,
    is_relative_word,
    made_of_subject,
    nearest_noun,
    noun_phrase,
    place_noun,
    relative_pronoun,
    time_before,
)
from claimflow.stages.claim_rules.lexicon import (
    ARTICLES,
    EVENT_PARTICIPLES,
    indefinite_article,
    is_person_noun,
    possessive,
)
from claimflow.stages.claim_rules.predicates import divided, predicates
from claimflow.stages.claim_rules.statements import statements
from claimflow.stages.claim_rules.trees import (
    FINITE_TAGS,
    NAME_TAGS,
    NOUN_TAGS,
    QUOTATION_MARKS,
    Piece,
    Pieces,
    Tree,
    added,
    again,
    claim_text,
    joined,
    trimmed,
)
from claimflow.stages.text.word_lists import word_set
from claimflow.stages.tools import Word

_MOST_CLAIMS: Final = 40
_UNSPLIT: Final = frozenset({"either", "neither"})
_CONDITIONS: Final = word_set("if unless whether lest provided")
_FRAMES: Final = word_set(
    """theory principle fiction novel book story film movie play series show episode game legend
    myth mythology folklore tale poem opera dream"""
)
_ATTITUDES: Final = word_set(
    """according allegedly apparently arguably hypothetically likely maybe perhaps possibly
    potentially presumably probably purportedly reportedly seemingly supposedly"""
)
"""Words of a sentence that none of its statements may lose."""
_STATES: Final = word_set(
    """located situated known considered based called named found used made composed surrounded set
    dedicated regarded associated related owned headquartered nicknamed titled entitled renowned
    noted inspired"""
)
"""Participles that state what is, not what happened."""
_WITH_OBJECT: Final = word_set("dealt consisted resulted featured contained included")
"""Participles that behind "was ... and" are past forms."""
_WITH_TWO_OBJECTS: Final = word_set(
    """named called considered given awarded made elected appointed dubbed titled nicknamed declared
    crowned granted offered taught paid shown sent told asked ranked voted proclaimed deemed"""
)
"""Participles whose passive has an object: "was elected and named president"."""
_UNDONE: Final = word_set(
    "failed lost declined died survived escaped returned resigned refused retired remained"
)
"""Verbs that behind "was nominated but" are past forms."""
_ONLY_PAST: Final = word_set(
    "ran fell went came began grew took gave wrote became rose flew drove chose saw did ate sang"
)
"""Past forms that are no participles, whatever a parser says."""
_BROUGHT_UP: Final = word_set("raised educated buried baptised baptized schooled")
"""Participles of "was born ... and", often taken for past forms."""
_NOT_THE_ONLY: Final = word_set("more other last final such only further additional")
_CONTENTS: Final = word_set(
    """myth lie pity shame fact rumor rumour claim belief theory idea possibility secret mystery
    surprise miracle misconception truth mistake tragedy fallacy legend hoax joke coincidence"""
)
"""Nouns that say what is to be thought of what follows: "It is a myth that ..."."""
_EXPLAINED: Final = frozenset({"e.g.", "i.e.", "viz."})
_HOW_OFTEN: Final = word_set("usually often always typically generally normally mostly")
_WANTING: Final = frozenset({"IN", "CC", "DT", "TO", "PRP$", "WDT", "WP", "WRB"})
"""Penn Treebank tags of words that others must follow."""
_KEPT_WHOLE: Final = frozenset(
    {
        *(("of", "which"), ("of", "whom"), ("not", "only"), ("all", "but")),
        *(("that", "order"), ("this", "order")),
    }
)
"""In "A and B, both of which ..." or "in that order" what follows is of several together."""
_KEPT_CASES: Final = frozenset({"in", "at", "on"})
"""Prepositions that "where" takes over from its noun; for others it is "in"."""


def split_sentence(text: str, words: Sequence[Word]) -> list[Pieces]:
    """The statements of a sentence with the tree `words`; empty where it stays whole."""
    if not words or len([word for word in words if word.relation == "root"]) != 1:
        return []
    tree = Tree(text, words)
    if not _is_statement(tree):
        return []
    splitter = _Splitter(tree)
    if not splitter.add_one():
        splitter.add_clause(tree.root, range(len(words)))
    found = {claim_text(pieces): pieces for pieces in splitter.claims if pieces}
    if not splitter.certain or not 1 < len(found) <= _MOST_CLAIMS:
        return []
    if any(_breaks_off(tree, pieces) for pieces in found.values()) or _loses(tree, splitter):
        return []
    return list(found.values())


def _is_statement(tree: Tree) -> bool:
    """Whether a sentence has a subject and a finite verb, and neither asks nor sets a condition.

    Nor does one with quotation marks: quotations as a whole are names here.
    """
    conditions = any(
        low in _CONDITIONS and tree.relation(index) in ("mark", "advmod")
        for index, low in enumerate(tree.lows)
    )
    whole = _UNSPLIT | QUOTATION_MARKS | _ATTITUDES | _EXPLAINED
    conditions |= tree.lows[0] in ("had", "were", "should")  # "Had it rained, ..."
    conditions |= any(map(partial(_sets_frame, tree), tree.children[tree.root]))
    if tree.texts[-1] == "?" or conditions or set(tree.lows) & whole:
        return False
    finite = tree.finite(tree.root)
    if finite is None or ":" in tree.texts[:finite]:  # "Mandela: Long Walk to Freedom is ..."
        return False
    if not _KEPT_WHOLE.isdisjoint(pairwise(tree.lows)):
        return False
    if _is_enumerated(tree) or _is_cleft(tree):
        return False
    words = range(len(tree.words))
    if any(_may_hang_deeper(tree, n) or _passes_a_verb(tree, n) for n in words):
        return False
    subjects = tree.of(tree.root, "nsubj", "nsubj:pass")
    # "C#" as two words
    if any(not tree.texts[n][0].isalnum() and tree.is_spaced(n) for n in subjects):
        return False
    return tree.subject(tree.root) is not None


def _is_enumerated(tree: Tree) -> bool:
    """Whether marks of a list stand in a sentence: "(a) a hammer, (b) a saw"."""
    places = range(len(tree.texts) - 2)
    marks = [
        n
        for n in places
        if tree.texts[n] == "(" and len(tree.texts[n + 1]) == 1 and tree.texts[n + 2] == ")"
    ]
    return len(marks) > 1


def _is_cleft(tree: Tree) -> bool:
    """Whether a sentence is one of "It was Ann who left" or "It is a myth that Ann left"."""
    root, subject = tree.root, tree.subject(tree.root)
    it = subject is not None and tree.lows[subject] in ("it", "this", "that")
    indefinite = any(tree.lows[n] in ("a", "an") for n in tree.of(root, "det"))
    clauses = tree.of(root, "acl:relcl", "acl", "ccomp")
    told = tree.has(root, "cop") and any(
        n > root and tree.texts[min(tree.subtree(n)) - 1] != "," for n in clauses
    )
    chosen = not indefinite or tree.lows[root] in _CONTENTS
    return it and told and chosen and tree.tag(root) in NOUN_TAGS


def _sets_frame(tree: Tree, part: int) -> bool:
    """Whether the rest of a sentence holds only in what opens it.

    "Left open, it spoils and smells"; "In the novel, Ann leaves Bo and dies".
    """
    subject = tree.subject(tree.root)
    if subject is None or part > subject:
        return False
    if tree.relation(part) == "advcl" and tree.subject(part) is None:
        return tree.tag(part) in ("VBN", "JJ") and is_condition(tree, part, tree.root)
    return tree.relation(part) == "obl" and tree.lows[part] in _FRAMES and tree.case(part) == "in"


def _may_hang_deeper(tree: Tree, index: int) -> bool:
    """Whether it is not certain what a verb is coordinated with.

    In "She met a man who lived in Rome and studied law" it may be either verb before it.
    """
    head = tree.words[index].head
    if tree.relation(index) != "conj":
        return False
    if tree.tag(index) == "VBN" and tree.relation(head) in ("nsubj", "nsubj:pass"):
        return True  # "Ann, known as A, and sometimes called B, is a poet"
    comma = any(tree.texts[n] == "," for n in range(max(0, min(tree.subtree(index)) - 1), index))
    return (tree.is_predicate(index) and not comma) and any(
        tree.relation(n) in ("acl:relcl", "ccomp", "advcl")
        and tree.finite(n) is not None
        # "X is a town that lies on a river and has a harbour" says the same either way.
        and not is_nominal_predicate(tree, tree.words[n].head, head)
        for n in tree.subtree(head)
        if head < n < index
    )


def _passes_a_verb(tree: Tree, index: int) -> bool:
    """Whether a relative clause hangs on a noun before another verb: hardly ever in English.

    In "She lay in a bed, where she saw a doctor, who spoke" the bed does not speak.
    """
    if tree.relation(index) != "acl:relcl":
        return False
    begin = min(tree.subtree(index))
    return any(tree.tag(n) in FINITE_TAGS for n in range(tree.words[index].head, begin))


def _breaks_off(tree: Tree, claim: Pieces) -> bool:
    """Whether a claim lacks a bracket, or ends as no sentence does, and this one does not."""
    texts = [piece.text for piece in claim]
    if texts.count("(") != texts.count(")"):
        return True
    lows = [piece.low for piece in claim]
    if any(piece.low == "both" and piece.tag == "CC" for piece in claim) and "and" not in lows:
        return True
    if any(one.text == ";" and two.tag in FINITE_TAGS for one, two in pairwise(claim)):
        return True
    if _cuts_word(tree, claim):
        return True
    last = claim[-1]
    whole = tree.words[-1].end if tree.texts[-1].isalnum() else tree.words[-2].end
    return (last.tag in _WANTING or last.low == "including") and last.end != whole


def _cuts_word(tree: Tree, claim: Pieces) -> bool:
    """Whether a claim has a part of what a hyphen joins: the 18 of "the 2017-18 season"."""
    here = tree.here(claim)
    return any(
        (one in here) != (two in here)
        for one, two in pairwise(range(len(tree.words)))
        if tree.words[one].end == tree.words[two].start
        and "-" in (tree.texts[one][-1], tree.texts[two][0])
    )


def _loses(tree: Tree, splitter: "_Splitter") -> bool:
    """Whether a noun or a number is in no claim, as can be where a tree is wrong."""
    told = splitter.replaced.union(*map(tree.here, splitter.claims))
    return any(tree.tag(n) in (*NOUN_TAGS, "CD") for n in range(len(tree.words)) if n not in told)


def _is_active(tree: Tree, clause: int, predicate: int) -> bool:
    """Whether a further predicate of a clause is finite: "was a poet and published books"."""
    tag, low = tree.tag(predicate), tree.lows[predicate]
    if low in _ONLY_PAST or (tag == "VBN" and low in _UNDONE and not tree.has(clause, "cop")):
        return True
    modal = any(tree.tag(n) == "MD" for n in tree.auxiliaries(clause))
    if tag == "VBD" and modal and any(tree.lows[n] == "have" for n in tree.auxiliaries(clause)):
        return False  # "may have seen Rome and met the Pope"
    with_object = tree.has(predicate, "obj")
    if tag == "VBD":
        return with_object or low not in _BROUGHT_UP or not tree.has(clause, "aux:pass")
    if tag == "VBN" and low not in _WITH_TWO_OBJECTS:
        be = tree.has(clause, "cop", "aux:pass")
        have = any(tree.lows[n] in ("has", "have", "had") for n in tree.of(clause, "aux"))
        return be and not have and (with_object or low in _WITH_OBJECT)
    return tag in ("VBZ", "VBP")


class _Splitter:
    """Collects the claims of one sentence.

    `certain` is false where the tree cannot be right. `replaced` are the words for which the claims
    have others. `_gone` are the words of what was detached,
    `_other` those that have another form in the claim that is being made.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.claims: list[Pieces] = []
        self.certain = True
        self.replaced: set[int] = set()
        self._gone: set[int] = set()
        self._other: dict[int, str] = {}

    def add_one(self) -> bool:
        """Add the claims of "One writer who lived in Rome is Ann Lee", if the sentence is such.

        They are that Ann Lee is a writer, and that Ann Lee lived in Rome.
        """
        tree, name = self.tree, self.tree.root
        kind = tree.subject(name)
        own = tree.of(name, "nsubj", "cop", "punct", "flat", "compound")
        if kind is None or tree.tag(name) != "NNP" or set(own) != set(tree.children[name]):
            return False
        counted = [tree.lows[n] for n in tree.of(kind, "nummod", "det")]
        first = min(tree.subtree(kind))
        if {tree.lows[n] for n in tree.of(kind, "amod")} & _NOT_THE_ONLY:
            return False
        if counted != ["one"] or tree.tag(kind) != "NN" or tree.lows[first] != "one":
            return False
        clauses = tree.of(kind, "acl:relcl")
        pronouns = [relative_pronoun(tree, n) for n in clauses]
        told = tree.tidied(n for n in tree.subtree(kind) - tree.subtrees(clauses) if n != first)
        verbs = tree.of(name, "cop")
        if len(clauses) > 1 or None in pronouns or not told or len(verbs) != 1:
            return False
        if any(tree.relation(n) not in ("nsubj", "nsubj:pass") for n in pronouns if n is not None):
            return False
        named = tree.pieces(tree.tidied(tree.subtree(name) - tree.subtrees([kind, *verbs])))
        article = added(indefinite_article(tree.texts[told[0]]), "DT")
        self.claims.append([*joined(named, tree.pieces(verbs)), article, *tree.pieces(told)])
        self.replaced.add(first)
        for clause, pronoun in zip(clauses, pronouns, strict=True):
            self.add_clause(clause, tree.subtree(clause) - {pronoun or 0}, again(named))
        return True

    def add_clause(
        self,
        clause: int,
        allowed: Collection[int],
        subject: Pieces | None = None,
        verb: Sequence[Piece] = (),
    ) -> None:
        """Add the claims of a clause of its words in `allowed`.

        `subject` stands in place of its own subject, `verb` before its predicate.
        """
        tree = self.tree
        parts = detached_parts(tree, clause, allowed)
        taken = tree.subtrees(part.node for part in parts if not part.stays)
        self._gone |= taken
        own = (tree.subtree(clause) & frozenset(allowed)) - taken
        self._check_order(parts, own)
        named = self._named(clause, own) if subject is None else subject
        for predicate in divided(tree, predicates(tree, clause, own), own):
            pieces = tree.pieces(tree.tidied(predicate.words, self._gone), other=self._other)
            if predicate.head != clause:
                if begins_with_that(tree, predicate.head):
                    self.certain = False  # the claim would lack the verb before "that"
                auxiliaries = self._shared_auxiliaries(clause, predicate.head, verb)
                pieces = joined([*named, *auxiliaries], pieces)
            elif subject is not None:
                pieces = joined([*subject, *verb], pieces)
            pieces = joined(pieces, tree.pieces(predicate.shared, again=True))
            self.claims += statements(tree, predicate.head, pieces)
        for part in parts:
            self._add_detached(part, clause, named)

    def _check_order(self, parts: Sequence[Detached], own: frozenset[int]) -> None:
        """A clause that goes on behind another coordinated with it was not parsed well."""
        tree = self.tree
        ends = [max(tree.subtree(part.node)) for part in parts if part.kind == "clause"]
        words = [n for n in own if tree.relation(n) != "punct"]
        self.certain &= all(end > max(words, default=0) for end in ends)

    def _named(self, clause: int, own: frozenset[int]) -> Pieces:
        """The subject of a clause, to be repeated."""
        subject = self.tree.subject(clause)
        if subject is None:
            return []
        tree = self.tree
        words = tree.subtree(subject)
        self.certain &= not min(words) < clause < max(words)
        brackets = [n for n in tree.children[subject] if tree.in_brackets(n)]
        whole = (words & own) - tree.subtrees(brackets)
        return tree.pieces(tree.tidied(whole, self._gone), again=True)

    def _shared_auxiliaries(
        self, clause: int, predicate: int, verb: Sequence[Piece]
    ) -> list[Piece]:
        """The auxiliaries of a clause for a further predicate that has no finite form."""
        tree = self.tree
        if tree.auxiliaries(predicate) or _is_active(tree, clause, predicate):
            return []
        how_often = {tree.lows[n] for n in tree.of(predicate, "advmod")} & _HOW_OFTEN
        if tree.tag(predicate) == "VB" and how_often and tree.is_plural(clause):
            return []  # "Effects may include headache and usually pass": no "may" there
        verbal = tree.tag(predicate) in ("VBN", "VBG", "VB")
        if tree.tag(predicate) == "VBN" and not tree.is_verb(clause):
            return [*verb, self._be(predicate, clause, plural=tree.is_plural(clause))]
        kept = [n for n in tree.auxiliaries(clause) if tree.relation(n) != "cop" or not verbal]
        return [*verb, *tree.pieces(kept, again=True)]

    # What is detached.

    def _add_detached(self, part: Detached, clause: int, subject: Pieces) -> None:
        tree, node = self.tree, part.node
        words = tree.subtree(node)
        match part.kind:
            case "clause":
                self.add_clause(node, words - self._links(node))
            case "appositive":
                about, plural = self._about(part, clause, subject)
                plural = tree.tag(node) == "NNS" or (plural and tree.tag(node) != "NN")
                self._add_appositive(part, [*about, self._be(node, clause, plural=plural)])
            case "participle":
                about, plural = self._about(part, clause, subject)
                self.add_clause(node, words, about, [self._be(node, clause, plural=plural)])
            case "relative":
                self._add_relative(part, clause, subject)
            case _:
                self._add_adverbial(part, clause, subject)

    def _add_adverbial(self, part: Detached, clause: int, subject: Pieces) -> None:
        """Add the claims of a clause or participle that hangs on the predicate of another one."""
        tree, node = self.tree, part.node
        words = tree.subtree(node)
        match part.kind:
            case "contrast" | "reason":
                marks = tree.of(node, "mark", "advmod")
                dropped = {n for n in marks if tree.lows[n] in CONTRASTS | {"because"}}
                self.add_clause(node, words - dropped)
            case "opening":
                be = self._be(node, clause, plural=tree.is_plural(clause))
                self.add_clause(node, words, subject, [be])
            case "gerund" | "after":
                gerunds = [node, *(n for n in tree.conjuncts(node) if tree.tag(n) == "VBG")]
                self._other = {n: PAST_OF_GERUND[tree.lows[n]] for n in gerunds}
                self.add_clause(node, words - set(tree.of(node, "mark")), subject)
                self._other = {}
            case "absolute":
                own = tree.subject(node)
                plural = own is not None and tree.is_plural_noun(own)
                form = finite_form(tree.lows[node], past=tree.is_past(clause), plural=plural)
                self._other = {node: form or tree.texts[node]}
                self.add_clause(node, words - set(tree.of(node, "mark")))
                self._other = {}
            case "when":
                marks = [n for n in tree.children[node] if tree.lows[n] == "when"]
                year = time_before(tree, node) or node
                then = [added("in", "IN"), *tree.pieces([year], again=True)]
                self.claims.append(joined(tree.pieces(tree.tidied(words - set(marks))), then))
            case "having":
                having = set(tree.of(node, "aux"))
                past = [] if tree.lows[node].endswith("ed") else [added("had", "VBD")]
                self.add_clause(node, words - having, subject, past)
            case "making":
                named = made_of_subject(tree, node, clause) or node
                be = self._be(named, clause, plural=tree.is_plural(clause))
                words = tree.subtree(named)
                self.claims.append(joined([*subject, be], tree.pieces(tree.tidied(words))))

    def _links(self, node: int) -> set[int]:
        """The conjunctions and marks that a coordinated clause begins with."""
        tree = self.tree
        outer = {n for n in tree.children[node] if tree.relation(n) in ("cc", "mark")}
        outer |= {n for n in tree.children[node] if tree.lows[n] == "so" and n < node}
        return outer

    def _be(self, node: int, clause: int, *, plural: bool) -> Piece:
        """The form of "be" for a participle or an apposition: an event is in the past."""
        tree = self.tree
        event = tree.tag(node) == "VBN" and tree.lows[node] not in _STATES
        dated = event and has_number(tree, tree.subtree(node))
        if dated or tree.lows[node] in EVENT_PARTICIPLES or tree.is_past(clause):
            return added("were" if plural else "was")
        return added("are" if plural else "is")

    def _about(self, part: Detached, clause: int, subject: Pieces) -> tuple[Pieces, bool]:
        """What a part tells more of: the subject, if that is on a predicate noun, or its noun.

        In "the winner is Ann Lee, who" it is Ann Lee.
        """
        tree = self.tree
        of_subject = is_nominal_predicate(tree, part.head, clause)
        article = any(tree.lows[n] in ARTICLES for n in tree.of(part.head, "det"))
        of_subject &= tree.tag(part.head) not in NAME_TAGS or article
        if of_subject and tree.subject(clause) is not None:
            return subject, tree.is_plural(clause)
        # Of a coordination the noun alone is repeated.
        plural = tree.tag(part.head) in ("NNS", "NNPS") or tree.lows[part.head] == "they"
        return self._noun(part.head, part.node), plural

    def _noun(self, noun: int, part: int) -> Pieces:
        """A noun phrase to be repeated, without its `part`; "a city" is then "the city"."""
        pieces = self.tree.pieces(noun_phrase(self.tree, noun, part), again=True)
        # A preposition that hangs on another word: "substituted for guard Lee, who fell".
        self.certain &= not pieces or pieces[0].tag != "IN"
        if pieces and pieces[0].low in ARTICLES:
            pieces[0] = pieces[0]._replace(text="the")
        return pieces

    def _add_appositive(self, part: Detached, opening: Pieces) -> None:
        tree, node = self.tree, part.node
        inner = detached_parts(tree, node, tree.subtree(node))
        taken = tree.subtrees(one.node for one in inner)
        self._gone |= taken
        words = tree.tidied(tree.subtree(node) - taken, self._gone)
        self.claims += statements(tree, node, joined(opening, tree.pieces(words)))
        for one in inner:
            self._add_detached(one, node, opening[:-1])

    # Relative clauses.

    def _add_relative(self, part: Detached, clause: int, subject: Pieces) -> None:
        tree, node = self.tree, part.node
        words = tree.subtree(node)
        pronoun = relative_pronoun(tree, node)
        if pronoun is None:
            return
        about, _ = self._about(part, clause, subject)
        head = part.head
        verbal = tree.is_verb(head) or is_nominal_predicate(tree, head, clause)
        if tree.lows[pronoun] in ("which", "where") and verbal:
            where = tree.lows[pronoun] == "where"
            nearest = place_noun(tree, node) if where else nearest_noun(tree, node)
            if nearest is not None and nearest != head:
                head, about = nearest, self._noun(nearest, node)
        above, relation = tree.words[pronoun].head, tree.relation(pronoun)
        if above == node and relation in ("nsubj", "nsubj:pass"):
            self.add_clause(node, words - {pronoun}, about)
        elif tree.lows[pronoun] == "whose":
            self._add_possessed(node, pronoun, about)
        else:
            named = self._resolved(node, head, clause, subject)
            self._add_moved(node, pronoun, head, about, named)

    def _add_possessed(self, node: int, pronoun: int, about: Pieces) -> None:
        """ "whose father was a judge": X's father was a judge."""
        tree = self.tree
        noun = tree.words[pronoun].head
        owner = about[-1]._replace(text=possessive(about[-1].text))
        named = tree.pieces(n for n in sorted(tree.subtree(noun)) if n > pronoun)
        self.add_clause(node, tree.subtree(node) - tree.subtree(noun), [*about[:-1], owner, *named])

    def _resolved(self, node: int, head: int, clause: int, subject: Pieces) -> Pieces:
        """The subject of the clause, where that of a clause below it can only mean the same.

        "Ann moved to Rome, where she died": no other name is there but that of the place.
        """
        tree = self.tree
        own, outer = tree.subject(node), tree.subject(clause)
        if own is None or outer is None or tree.lows[own] not in ("he", "she", "they"):
            return []
        person = tree.tag(outer) in NAME_TAGS or is_person_noun(tree.lows[outer])
        if tree.lows[own] != "they" and not person:
            return []
        elsewhere = tree.subtree(outer) | tree.subtree(head) | tree.subtree(node)
        names = any(tree.tag(n) in NAME_TAGS for n in range(len(tree.words)) if n not in elsewhere)
        owned = tree.has(outer, "nmod:poss")  # "Her husband was Bo, with whom she had a child"
        return [] if names or owned or tree.tag(outer) == "PRP" else subject

    def _add_moved(self, node: int, pronoun: int, head: int, about: Pieces, named: Pieces) -> None:
        """A relative clause with the noun where its pronoun would stand in a sentence.

        `named` stands in place of its subject, if there is any.
        """
        tree = self.tree
        own = tree.subject(node)
        words = tree.subtree(node) - (tree.subtree(own) if named and own is not None else set())
        low, relation = tree.lows[pronoun], tree.relation(pronoun)
        if relation == "obj":
            verbs = [n for n in tree.conjuncts(node) if tree.is_verb(n)]
            # "which he bought, and which he sold"
            self.certain &= len(tree.of(node, "conj")) == len(verbs)
            pronouns = [n for n in words if is_relative_word(tree, n) and tree.tag(n) != "WRB"]
            self.certain &= len(pronouns) == 1
            subject = named or ([] if own is None else tree.pieces(sorted(tree.subtree(own))))
            first = words - {pronoun} - tree.subtrees(verbs)
            self._add_with_object(node, first, named, about)
            for verb in verbs:
                more = tree.subtrees(n for n in verbs if n > verb)
                links = set(tree.of(verb, "cc", "punct"))
                opening = [*again(subject), *self._shared_auxiliaries(node, verb, ())]
                if tree.subject(verb) is not None:
                    opening = []
                self._add_with_object(verb, tree.subtree(verb) - more - links, opening, about)
        elif low in ("where", "when"):
            case = next((tree.lows[n] for n in tree.of(head, "case")), "at")
            there = [added(case if case in _KEPT_CASES else "in", "IN"), *again(about)]
            rest = tree.pieces(tree.tidied(words - {pronoun}))
            self.claims.append(joined(joined(named, rest), there))
        else:  # "in which"
            there = joined(tree.pieces(tree.of(pronoun, "case")), again(about))
            rest = tree.pieces(tree.tidied(words - tree.subtree(pronoun)))
            self.claims.append(trimmed(joined(joined(named, rest), there)))

    def _add_with_object(
        self, verb: int, words: Collection[int], opening: Pieces, about: Pieces
    ) -> None:
        """A clause with its object behind the verb, or behind the "in" of "starred in"."""
        tree = self.tree
        clause = tree.tidied(words)
        place = clause.index(verb) + 1
        while place < len(clause) and tree.relation(clause[place]) == "compound:prt":
            place += 1
        if tree.tag(clause[-1]) == "IN" and tree.words[clause[-1]].head == verb:
            place = len(clause)
        pieces = joined(joined(opening, tree.pieces(clause[:place])), again(about))
        self.claims.append(joined(pieces, tree.pieces(clause[place:])))
