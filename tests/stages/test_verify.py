"""Claim verification, with models that answer from a table and note what they are asked."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.stages.decompose import claim_row
from claimflow.stages.judging.verdicts import Opinion
from claimflow.stages.rows import Citation, Claim, Sample, content_key
from claimflow.stages.tables import build
from claimflow.stages.tools import Failure, Form, Judgement, Pair, Question, Reply
from claimflow.stages.verify import VerifyClaims

YES = Judgement(0.8, 0.1, 0.1, 0, 5)
NO = Judgement(0.2, 0.5, 0.3, 0, 5)
OPEN = Judgement(0.2, 0.4, 0.4, 0, 0)


class Listed:
    """Gives the judgement listed for a premise, or the default; none for `silent` ones."""

    def __init__(self, default: Judgement | None = YES, **by_premise: Judgement) -> None:
        self.default = default
        self.by_premise = by_premise
        self.asked: list[list[Pair]] = []

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        self.asked.append(list(pairs))
        judged = {pair: self.by_premise.get(pair.premise, self.default) for pair in pairs}
        return {pair: judgement for pair, judgement in judged.items() if judgement}


PROMPT = "Does it follow?\n{{premise}}\n{{claims}}"
CALL = content_key("call", "c")
CITED = {"against": "retrieved_contexts", "premises": "cited"}


def opinion(verdict: str, evidence: str | None = "", reason: str | None = "so") -> Opinion:
    return Opinion.model_validate({"verdict": verdict, "evidence": evidence, "reason": reason})


class Opinionated:
    """A language model with an opinion on every claim, the one listed or the default."""

    def __init__(self, default: Opinion | Failure, **by_claim: Opinion | Failure) -> None:
        self.default = default
        self.by_claim = by_claim
        self.asked: list[list[Question]] = []
        self.forms: list[Form] = []

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Reply | Failure]:
        self.asked.append(list(questions))
        self.forms.append(form)
        return {question: self.reply(question) for question in questions}

    def reply(self, question: Question) -> Reply | Failure:
        opinion = self.by_claim.get(question.text, self.default)
        return opinion if isinstance(opinion, Failure) else Reply(opinion, CALL)


def claims(*made: tuple[str, str | None]) -> pl.DataFrame:
    return build(
        Claim,
        [
            {
                "claim_id": content_key("claim", sample_id, number),
                "sample_id": sample_id,
                "of": "response",
                "claim": claim,
                "status": "made" if claim is not None else "failed",
            }
            for number, (sample_id, claim) in enumerate(made)
        ],
    )


def verify(
    samples: Sequence[dict[str, Any]],
    claims: pl.DataFrame,
    model: Listed | Opinionated,
    **settings: Any,
) -> list[dict[str, Any]]:
    """The rows that a model gives; a language model is given the prompt besides."""
    by_llm = isinstance(model, Opinionated)
    stage = VerifyClaims(**({"prompt": PROMPT} if by_llm else {}), **settings)
    tools = {"llm" if by_llm else "model": model}
    return stage.make({"samples": build(Sample, samples), "claims": claims}, tools).rows(named=True)


@pytest.mark.parametrize(
    ("judgement", "threshold", "verdict"),
    [
        (YES, 0.5, "entailed"),
        (YES, 0.8, "entailed"),
        (YES, 0.81, "neutral"),
        (NO, 0.5, "contradicted"),
        (NO, 0.2, "entailed"),
        (OPEN, 0.5, "neutral"),
    ],
)
def test_label(judgement: Judgement, threshold: float, verdict: str) -> None:
    samples = [{"sample_id": "s", "reference": "first"}]
    model = Listed(judgement)
    (row,) = verify(samples, claims(("s", "c")), model, against="reference", threshold=threshold)
    assert row["verdict"] == verdict
    probabilities = (row["p_entailed"], row["p_contradicted"], row["p_neutral"])
    assert probabilities == judgement[:3]
    assert row["support"] == judgement.entailed
    assert (row["status"], row["reason"], row["passage"]) == ("judged", None, None)


@pytest.mark.parametrize(
    ("probabilities", "settings", "verdict"),
    [
        ((0.45, 0.40, 0.15), {}, "neutral"),  # more probably entailed than contradicted
        ((0.75, 0.20, 0.05), {"threshold": 0.8}, "neutral"),
        ((0.20, 0.39, 0.41), {}, "neutral"),
        ((0.20, 0.41, 0.39), {}, "contradicted"),
        ((0.30, 0.40, 0.30), {}, "contradicted"),
        ((0.31, 0.39, 0.30), {}, "neutral"),  # the most probable, but below its threshold
        ((0.31, 0.39, 0.30), {"contradiction_threshold": 0.0}, "contradicted"),
        ((0.20, 0.60, 0.20), {"contradiction_threshold": 0.7}, "neutral"),
        ((0.20, 0.40, 0.40), {"contradiction_threshold": 0.0}, "neutral"),  # a tie
        ((0.40, 0.60, 0.00), {"threshold": 0.4}, "entailed"),
    ],
)
def test_contradicted_is_the_most_probable_and_reaches_its_threshold(
    probabilities: tuple[float, float, float], settings: dict[str, float], verdict: str
) -> None:
    stage = VerifyClaims(against="reference", **settings)
    assert stage.verdict_of(Judgement(*probabilities, 0, 0)) == verdict


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.5, 1), st.floats(0, 1))
def test_a_higher_threshold_invents_no_contradiction(
    entailed: float, share: float, threshold: float, contradiction_threshold: float
) -> None:
    """What is entailed at one threshold is entailed or neutral at any higher one."""
    contradicted = share * (1 - entailed)
    judgement = Judgement(entailed, contradicted, 1 - entailed - contradicted, 0, 0)
    lower, higher = (
        VerifyClaims(
            against="reference", threshold=each, contradiction_threshold=contradiction_threshold
        ).verdict_of(judgement)
        for each in (0.5, threshold)
    )
    assert lower == higher or (lower, higher) == ("entailed", "neutral")


def test_joined_contexts_are_one_premise_and_evidence_names_its_passage() -> None:
    samples = [{"sample_id": "s", "retrieved_contexts": ["first", "the second", ""]}]
    model = Listed(Judgement(0.9, 0.05, 0.05, 10, 16))
    (row,) = verify(samples, claims(("s", "c")), model, against="retrieved_contexts")
    assert model.asked == [[Pair("first\nthe second\n", "c")]]
    assert row["passage"] is None
    assert row["evidence"] == "second"
    assert (row["evidence_passage"], row["evidence_start"], row["evidence_end"]) == (1, 4, 10)


def test_evidence_over_two_passages_is_cut_to_the_greater_part() -> None:
    samples = [{"sample_id": "s", "retrieved_contexts": ["first", "second"]}]
    model = Listed(Judgement(0.9, 0.05, 0.05, 3, 12))
    (row,) = verify(samples, claims(("s", "c")), model, against="retrieved_contexts")
    assert (row["evidence"], row["evidence_passage"], row["evidence_start"]) == ("second", 1, 0)


def test_each_context_is_a_premise() -> None:
    samples = [{"sample_id": "s", "retrieved_contexts": ["first", " ", "third"]}]
    model = Listed(first=YES, third=NO)
    rows = verify(samples, claims(("s", "c")), model, against="retrieved_contexts", premises="each")
    assert [(r["passage"], r["verdict"], r["reason"]) for r in rows] == [
        (0, "entailed", None),
        (1, "neutral", "the premise is empty"),
        (2, "contradicted", None),
    ]
    assert [(r["evidence"], r["evidence_passage"]) for r in rows] == [
        ("first", 0),
        (None, None),
        ("third", 2),
    ]


@pytest.mark.parametrize("field", ["reference", "response"])
def test_evidence_in_a_single_text_has_no_passage(field: str) -> None:
    (row,) = verify(
        [{"sample_id": "s", field: "first text"}], claims(("s", "c")), Listed(), against=field
    )
    assert (row["evidence"], row["evidence_passage"]) == ("first", None)
    assert (row["evidence_start"], row["evidence_end"]) == (0, 5)


@pytest.mark.parametrize(
    ("fields", "settings", "verdicts"),
    [
        ({"reference": None}, {"against": "reference"}, []),
        ({"reference": ""}, {"against": "reference"}, ["neutral"]),
        ({"reference": " \n"}, {"against": "reference"}, ["neutral"]),
        ({"retrieved_contexts": None}, {"against": "retrieved_contexts"}, []),
        ({"retrieved_contexts": []}, {"against": "retrieved_contexts"}, ["neutral"]),
        ({"retrieved_contexts": ["", ""]}, {"against": "retrieved_contexts"}, ["neutral"]),
        ({"retrieved_contexts": []}, {"against": "retrieved_contexts", "premises": "each"}, []),
    ],
)
def test_missing_and_empty_premises(fields: Any, settings: Any, verdicts: list[str]) -> None:
    model = Listed()
    rows = verify([{"sample_id": "s", **fields}], claims(("s", "c")), model, **settings)
    assert [row["verdict"] for row in rows] == verdicts
    assert all(row["reason"] == "the premise is empty" for row in rows)
    assert all((row["p_neutral"], row["evidence"]) == (1.0, None) for row in rows)
    assert all(row["support"] == 0.0 for row in rows)
    assert model.asked == []


def test_every_pair_is_asked_once_and_failed_claims_not_at_all() -> None:
    samples = [{"sample_id": "s", "reference": "first"}, {"sample_id": "t", "reference": "first"}]
    model = Listed()
    rows = verify(
        samples,
        claims(("s", "c"), ("s", None), ("t", "c"), ("s", "d"), ("unknown", "c")),
        model,
        against="reference",
    )
    assert model.asked == [[Pair("first", "c"), Pair("first", "d")]]
    expected = [content_key("claim", sample, n) for n, sample in ((0, "s"), (2, "t"), (3, "s"))]
    assert [row["claim_id"] for row in rows] == expected


def test_a_pair_without_a_judgement_is_a_failed_row() -> None:
    (row,) = verify(
        [{"sample_id": "s", "reference": "first"}],
        claims(("s", "c")),
        Listed(None),
        against="reference",
    )
    assert (row["verdict"], row["status"], row["support"]) == (None, "failed", None)
    assert row["reason"] == "the model gave no judgement"


def test_required_fields_and_wiring() -> None:
    assert VerifyClaims(against="response").required_fields() == {"response"}
    assert set(VerifyClaims.inputs) == {"samples", "claims", "citations"}
    assert list(VerifyClaims.tools) == ["model", "llm"]


def test_only_the_model_that_judges_is_needed() -> None:
    assert VerifyClaims(against="response").ignores() == {"llm", "citations"}
    assert VerifyClaims(against="response", prompt=PROMPT).ignores() == {"model", "citations"}
    cited = VerifyClaims(**CITED)
    assert cited.ignores() == {"llm"}
    assert (cited.premise, VerifyClaims(against="response").premise) == (None, "response")


def cited_rows(
    cites: Mapping[int, Sequence[int | None]], contexts: list[str], model: Listed | Opinionated
) -> list[dict[str, Any]]:
    """Verdicts of three claims on the contexts that they cite, by their place."""
    made = claims(("s", "first"), ("s", "second"), ("s", "third"))
    rows = [
        {"claim_id": made["claim_id"][claim], "sample_id": "s", "marker": f"[{n}]"}
        | {"passage": passage, "start": 0, "end": 1}
        for claim, passages in cites.items()
        for n, passage in enumerate(passages)
    ]
    by_llm = isinstance(model, Opinionated)
    stage = VerifyClaims(**({"prompt": PROMPT} if by_llm else {}), **CITED)
    samples = build(Sample, [{"sample_id": "s", "retrieved_contexts": contexts}])
    tables = {"samples": samples, "claims": made, "citations": build(Citation, rows)}
    found = stage.make(tables, {"llm" if by_llm else "model": model}).rows(named=True)
    place = {claim_id: n for n, claim_id in enumerate(made["claim_id"])}
    return [row | {"claim": place[row["claim_id"]]} for row in found]


@pytest.mark.parametrize("model", [Listed(), Opinionated(opinion("entailed", "b"))])
def test_cited_contexts_are_joined_and_left_out_one_by_one(model: Any) -> None:
    rows = cited_rows({0: [2, 0], 2: [3, 1, 0]}, ["a", "b", "c", "d"], model)
    places = [(row["claim"], row["passage"]) for row in rows]
    assert places == [(0, None), (2, None), (2, 0), (2, 1), (2, 3)]
    asked = [one.premise for batch in model.asked for one in batch]
    assert sorted(asked) == sorted(["a\nc", "a\nb\nd", "b\nd", "a\nd", "a\nb"])
    if isinstance(model, Opinionated):
        evidence = {row["passage"]: row["evidence_passage"] for row in rows if row["claim"] == 2}
        assert evidence == {None: 1, 0: 1, 1: None, 3: 1}


def test_evidence_in_cited_contexts_has_the_number_of_its_context() -> None:
    model = Listed(Judgement(0.9, 0.05, 0.05, 2, 4))
    (row,) = cited_rows({1: [3, 1]}, ["aa", "bb", "cc", "dd"], model)
    assert (row["evidence"], row["evidence_passage"]) == ("d", 3)
    (row,) = cited_rows({1: [3]}, ["aa", "bb", "cc", "dddd"], model)
    assert (row["passage"], row["evidence"], row["evidence_passage"]) == (None, "dd", 3)


def test_citations_that_point_to_no_context_entail_nothing() -> None:
    model = Listed()
    (row,) = cited_rows({0: [None, None]}, ["a"], model)
    assert (row["verdict"], row["reason"], model.asked) == ("neutral", "the premise is empty", [])
    assert cited_rows({}, ["a"], model) == []


def test_only_contexts_are_cited_and_citations_are_needed() -> None:
    with pytest.raises(ValidationError, match="only retrieved contexts are cited"):
        VerifyClaims(against="reference", premises="cited")
    with pytest.raises(ValueError, match="premises: cited needs citations"):
        verify([{"sample_id": "s"}], claims(("s", "c")), Listed(), **CITED)


def test_settings_of_earlier_releases_have_their_fingerprints() -> None:
    stage = VerifyClaims(against="retrieved_contexts", premises="each")
    assert (stage.version, stage.fingerprint_settings()) == (
        6,
        {
            "against": "retrieved_contexts",
            "premises": "each",
            "threshold": 0.5,
            "contradiction_threshold": 0.4,
            "prompt": None,
            "claims_per_call": 8,
            "votes": 1,
            "cascade": None,
            "context": "question",
        },
    )


@settings(max_examples=60)
@given(st.lists(st.text("a\n😀", max_size=6), min_size=1, max_size=5), st.data())
def test_evidence_is_a_part_of_its_passage_and_of_the_span(
    contexts: list[str], data: st.DataObject
) -> None:
    joined = "\n".join(contexts)
    start = data.draw(st.integers(0, len(joined)))
    end = data.draw(st.integers(start, len(joined)))
    (row,) = verify(
        [{"sample_id": "s", "retrieved_contexts": contexts}],
        claims(("s", "c")),
        Listed(Judgement(1.0, 0.0, 0.0, start, end)),
        against="retrieved_contexts",
    )
    if row["evidence"] is None:
        assert start == end or not joined.strip()
    else:
        passage = contexts[row["evidence_passage"]]
        assert row["evidence"] == passage[row["evidence_start"] : row["evidence_end"]]
        assert row["evidence"] in joined[start:end]


def ask(llm: Opinionated, *made: str, **settings: Any) -> list[dict[str, Any]]:
    """Verdicts of a language model on claims held against one sample's contexts."""
    contexts = settings.pop("contexts", ["Ann left.", "Bob ran “off”.\nHe fell."])
    return verify(
        [{"sample_id": "s", "retrieved_contexts": contexts}],
        claims(*[("s", claim) for claim in made]),
        llm,
        against="retrieved_contexts",
        **settings,
    )


def test_a_verdict_of_a_language_model() -> None:
    (row,) = ask(Opinionated(opinion("entailed", "Bob ran", "It is said.")), "c")
    assert row == {
        "claim_id": content_key("claim", "s", 0),
        "against": "retrieved_contexts",
        "passage": None,
        "verdict": "entailed",
        "status": "judged",
        "failure": None,
        "support": None,
        "p_entailed": None,
        "p_contradicted": None,
        "p_neutral": None,
        "evidence": "Bob ran",
        "evidence_passage": 1,
        "evidence_start": 0,
        "evidence_end": 7,
        "reason": "It is said.",
        "call_id": CALL,
        "agreement": None,
        "ballot": None,
        "judged_by": None,
        "model_verdict": None,
    }


@pytest.mark.parametrize(
    ("quoted", "evidence", "place"),
    [
        ("He fell.", "He fell.", (1, 15, 23)),
        ('bob ran "off". he FELL', "Bob ran “off”.\nHe fell", (1, 0, 22)),
        ("left. Bob ran", "Bob ran", (1, 0, 7)),
        (" Bob walked. ", "Bob walked.", (None, None, None)),
        ("", None, (None, None, None)),
        (None, None, (None, None, None)),
    ],
)
def test_evidence_is_quoted_from_its_passage(
    quoted: str | None, evidence: str | None, place: tuple[int | None, ...]
) -> None:
    (row,) = ask(Opinionated(opinion("contradicted", quoted)), "c")
    assert row["evidence"] == evidence
    assert (row["evidence_passage"], row["evidence_start"], row["evidence_end"]) == place


def test_an_empty_reason_is_null() -> None:
    (row,) = ask(Opinionated(opinion("neutral", None, None)), "c")
    assert (row["verdict"], row["reason"]) == ("neutral", None)


def test_a_language_model_is_asked_about_each_context_that_is_not_empty() -> None:
    llm = Opinionated(opinion("entailed", "ran"))
    rows = ask(llm, "c", premises="each", contexts=["Ann left.", " ", "Bob ran."])
    assert llm.asked == [[Question("c", "Ann left."), Question("c", "Bob ran.")]]
    columns = ("passage", "verdict", "evidence_passage", "evidence_start", "reason", "support")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (0, "entailed", None, None, "so", None),
        (1, "neutral", None, None, "the premise is empty", 0.0),
        (2, "entailed", 2, 4, "so", None),
    ]


def test_a_language_model_is_not_asked_without_a_premise() -> None:
    llm = Opinionated(opinion("entailed"))
    (row,) = ask(llm, "c", contexts=[])
    assert (row["verdict"], row["status"], row["call_id"]) == ("neutral", "judged", None)
    assert llm.asked == []


def test_a_language_model_is_asked_about_each_pair_once() -> None:
    llm = Opinionated(opinion("neutral"))
    assert len(ask(llm, "c", "d", "c")) == 3
    premise = "Ann left.\nBob ran “off”.\nHe fell."
    assert llm.asked == [[Question("c", premise), Question("d", premise)]]


def test_a_failure_of_the_language_model_is_a_failed_row() -> None:
    refused, unasked = Failure("refused", "no", CALL), Failure("not_asked", "spent")
    rows = ask(Opinionated(opinion("entailed"), c=refused, d=unasked), "c", "d", "e")
    columns = ("verdict", "status", "failure", "reason", "call_id", "evidence", "support")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (None, "failed", "refused", "no", CALL, None, None),
        (None, "failed", "not_asked", "spent", None, None, None),
        ("entailed", "judged", None, "so", CALL, None, None),
    ]


def test_contexts_too_long_for_the_language_model_are_judged_in_parts() -> None:
    contexts = ["Ann left.", "Bob ran.", "Cy sat.", "Di sang.", "Ed slept. Flo fell."]

    class Small(Opinionated):
        def reply(self, question: Question) -> Reply | Failure:
            fits = len(question.premise) < len("\n".join(contexts))
            return super().reply(question) if fits else Failure("too_long", "does not fit")

    llm = Small(opinion("entailed", "flo fell"))
    (row,) = ask(llm, "c", contexts=contexts)
    assert len(llm.asked) == 2
    assert (row["verdict"], row["evidence"]) == ("entailed", "Flo fell")
    assert (row["evidence_passage"], row["evidence_start"], row["evidence_end"]) == (4, 10, 18)


def test_the_form() -> None:
    llm = Opinionated(opinion("neutral"))
    ask(llm, "c", claims_per_call=3)
    assert llm.forms == [Form(PROMPT, "claims", Opinion, 3, keep_part=True)]
    assert VerifyClaims(against="response", prompt=PROMPT).form().per_call == 8
    for wrong in (0, 101):
        with pytest.raises(ValidationError, match="claims_per_call"):
            VerifyClaims(against="response", prompt=PROMPT, claims_per_call=wrong)


SHORT = {"sample_id": "s", "user_input": "Is tin a metal?", "response": "Tin is a metal."}


@pytest.mark.parametrize(
    ("context", "premise"),
    [("question", "Tin is a metal."), ("conversation", "Tin is a metal."), ("none", "Yes")],
)
def test_a_short_answer_is_a_premise_as_the_statement_that_it_makes(
    context: str, premise: str
) -> None:
    samples = build(Sample, [SHORT | {"reference": "Yes"}])
    claims = build(Claim, [claim_row("s", "response", "Tin is a metal.", (0, 15))])
    stage = VerifyClaims.model_validate({"against": "reference", "context": context})
    model = Listed()
    rows = stage.make({"samples": samples, "claims": claims}, {"model": model})
    assert model.asked == [[Pair(premise, "Tin is a metal.")]]
    if context != "none":
        row = rows.row(0, named=True)
        assert (row["evidence_start"], row["evidence_end"]) == (None, None)


def test_no_passage_is_completed() -> None:
    samples = build(Sample, [SHORT | {"retrieved_contexts": ["Yes", "No"]}])
    claims = build(Claim, [claim_row("s", "response", "Tin is a metal.", (0, 15))])
    model = Listed()
    VerifyClaims(against="retrieved_contexts").make(
        {"samples": samples, "claims": claims}, {"model": model}
    )
    assert model.asked == [[Pair("Yes\nNo", "Tin is a metal.")]]


def test_the_embedded_model_compares_phrases_and_a_language_model_statements() -> None:
    sample = {"sample_id": "s", "user_input": "Where is it?", "response": "Oslo."}
    samples = build(Sample, [sample | {"reference": "Bergen"}])
    claims = build(Claim, [claim_row("s", "response", "It is in Oslo.", (0, 5))])
    tables = {"samples": samples, "claims": claims}
    model, llm = Listed(), Opinionated(opinion("neutral"))
    VerifyClaims(against="reference").make(tables, {"model": model})
    assert model.asked == [[Pair("Bergen", "Oslo.")]]
    VerifyClaims(against="reference", prompt=PROMPT).make(tables, {"llm": llm})
    assert llm.asked == [[Question("It is in Oslo.", "It is in Bergen.")]]
    # One of the two says more than a phrase: then both are statements.
    samples = build(Sample, [sample | {"reference": "Bergen. It rains there."}])
    model = Listed()
    VerifyClaims(against="reference").make(tables | {"samples": samples}, {"model": model})
    assert model.asked == [[Pair("It is in Bergen. It rains there.", "It is in Oslo.")]]
