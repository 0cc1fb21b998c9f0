"""Two runs with literal rows: texts in several scripts, and hostile texts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key
from tests.flows.recorded_runs import Table, claim_id, put_run

EVIL = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    "<!-- <a href='javascript:window.hacked = 3'>\"'`{{ 7 * 7 }} \u202etxet\u202c \x1b[31m"
)
LONG = "A very long answer says much. " * 35_000 + "Its end is here."

TEXTS: dict[str, dict[str, Any]] = {
    "tower": {
        "user_input": "Where does the tower stand?",
        "response": "😀😀 The tower stands in Paris. Der Turm wächst größer.",
        "reference": "👩‍👩‍👧 The tower stands in Paris. It has one top.",
        "retrieved_contexts": ["Nothing here.", "😀 Paris has the tower.", EVIL],
        "metadata": '{"topic": "Paris", "level": 3}',
    },
    "برج": {
        "user_input": "أين البرج؟",
        "response": "البرج في باريس. إنه كبير.",
        "reference": "البرج في باريس.",
        "metadata": '{"topic": "Paris"}',
    },
    EVIL: {
        "user_input": EVIL,
        "response": EVIL + " Cheese is milk.",
        "reference": EVIL,
        "retrieved_contexts": [EVIL],
        "other_references": [EVIL],
        "metadata": '{"<b>topic</b>": "</script><script>window.hacked = 4</script>"}',
    },
    "long": {
        "user_input": "Much?",
        "response": LONG,
        "reference": "",
        "metadata": '{"topic": "Rome"}',
    },
    "silent": {"user_input": None, "response": None, "metadata": "{}"},
}


def of_claim(sample: str, text: str, claim: str | None = None) -> dict[str, Any]:
    """A claim quoted from the response."""
    start = TEXTS[sample]["response"].index(text)
    claim = claim or text
    return {
        "claim_id": claim_id(sample, claim),
        "sample_id": sample,
        "of": "response",
        "claim": claim,
        "start": start,
        "end": start + len(text),
        "call_id": content_key("call", "decompose"),
    }


CLAIMS = [
    of_claim("tower", "The tower stands in Paris."),
    of_claim("tower", "Der Turm wächst größer."),
    of_claim("برج", "البرج في باريس."),
    of_claim(EVIL, EVIL),
    of_claim("long", "Its end is here."),
]


def of_verdict(sample: str, claim: str, verdict: str | None, **more: Any) -> dict[str, Any]:
    usual = {"claim_id": claim_id(sample, claim), "against": "reference", "passage": None}
    return usual | {"verdict": verdict, "call_id": content_key("call", "verify")} | more


BALLOT = [
    {
        "judge": "judge",
        "verdict": "neutral",
        "reason": EVIL,
        "call_id": content_key("call", "verify"),
    },
    {"judge": "other", "verdict": "entailed", "call_id": content_key("call", "vote")},
    {"judge": "third", "failure": "timeout", "reason": "late", "call_id": None},
]


def verdicts(tower: str) -> list[dict[str, Any]]:
    """Verdicts against the references; `tower` is that of the first claim."""
    reference = TEXTS["tower"]["reference"]
    start = reference.index("The tower")
    evidence = {"evidence": "The tower stands in Paris.", "evidence_start": start}
    return [
        of_verdict(
            "tower",
            "The tower stands in Paris.",
            tower,
            **evidence,
            evidence_end=start + 26,
            reason=f"it is {tower} {EVIL}",
        ),
        of_verdict(
            "tower", "Der Turm wächst größer.", "neutral", agreement=0.5, ballot=json.dumps(BALLOT)
        ),
        of_verdict("برج", "البرج في باريس.", "entailed", p_entailed=0.9, p_contradicted=0.04),
        of_verdict(EVIL, EVIL, None, status="failed", failure="timeout", reason=EVIL),
        of_verdict(
            "long",
            "Its end is here.",
            "contradicted",
            p_entailed=0.97,
            p_contradicted=0.01,
            p_neutral=0.02,
            judged_by="audit",
            model_verdict="entailed",
        ),
    ]


IN_CONTEXTS = [
    of_verdict(
        "tower",
        "The tower stands in Paris.",
        "contradicted",
        against="retrieved_contexts",
        passage=1,
        evidence="Paris has the tower.",
        evidence_passage=1,
        evidence_start=2,
        evidence_end=22,
    )
]

SENTENCES = [
    {
        "sample_id": "tower",
        "against": "reference",
        "source": 0,
        "position": 0,
        "sentence": "The tower stands in Paris.",
        "start": 3,
        "end": 29,
        "bleu": 0.25,
        "chrf": None,
    }
    | {
        f"{measure}_{what}": 0.5
        for measure in ("rouge_l", "token_overlap")
        for what in ("precision", "recall", "f1")
    }
]


def score(sample: str, value: float | None, status: str = "scored", **more: Any) -> dict[str, Any]:
    return {"sample_id": sample, "metric": "precision", "score": value, "status": status} | more


def summary(mean: float, field: str | None = None, value: str | None = None) -> dict[str, Any]:
    counts = {"n": 5, "n_scored": 3, "n_undefined": 1, "n_failed": 1}
    means = {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, "micro_mean": mean}
    spread = {"minimum": 0.0, "median": mean, "maximum": 1.0}
    of = {"scores": "precision", "metric": "precision", "slice_field": field, "slice_value": value}
    return of | counts | means | spread


def steps(tower: str) -> Mapping[str, Table]:
    """The tables of a run in which the claim about the tower is `tower`."""
    half = 0.5 if tower == "entailed" else 0.0
    return {
        "samples": Table("samples", [{"sample_id": name} | one for name, one in TEXTS.items()]),
        "response_claims": Table("claims", CLAIMS),
        "in_reference": Table("verdicts", verdicts(tower)),
        "in_contexts": Table("verdicts", IN_CONTEXTS),
        "matches": Table("sentence_matches", SENTENCES),
        "precision": Table(
            "scores",
            [
                score("tower", half, details='{"entailed": 1, "<i>": "</script>"}'),
                score("برج", 1.0),
                score(EVIL, None, "failed", reason=EVIL),
                score("long", 0.25),
                score("silent", None, "undefined", reason="no claims"),
            ],
        ),
        "summary": Table(
            "summaries",
            [summary(0.5 + half / 4), summary(half, "topic", "Paris"), summary(0, "<b>", EVIL)],
        ),
    }


def put_runs(folder: Path) -> tuple[Store, str, str]:
    """A store with two runs: the claim about the tower is entailed in A and contradicted in B."""
    store = Store(folder / "reported.duckdb")
    a = put_run(store, steps("entailed"), pipeline="<b>p</b>")
    b = put_run(store, steps("contradicted"), pipeline="<b>p</b>")
    with store.writing() as connection:
        for name, reply in (("decompose", '{"claims": []}'), ("verify", EVIL), ("vote", "Yes.")):
            connection.execute(
                """
                INSERT INTO audit.calls BY NAME
                SELECT $id::UUID AS call_id, $run AS run_id, $step AS step, 'judge' AS judge,
                       'any/<model>' AS model, $id::UUID AS request, 'You judge.' AS system,
                       $prompt AS prompt, $reply AS reply, 'ok' AS outcome, 100 AS prompt_tokens,
                       20 AS completion_tokens, 0.0005 AS cost, 1.5 AS seconds, 1 AS attempts,
                       now()::TIMESTAMP AS asked_at, false AS open
                """,
                {
                    "id": content_key("call", name),
                    "run": b,
                    "step": "response_claims" if name == "decompose" else "in_reference",
                    "prompt": f"Judge this: {EVIL}",
                    "reply": reply,
                },
            )
    return store, a, b


def samples_of(metric: str, values: Mapping[str, float]) -> Mapping[str, Table]:
    """The tables of a run that has nothing but samples with these scores."""
    return {
        "samples": Table("samples", [{"sample_id": name, "response": name} for name in values]),
        metric: Table(
            "scores",
            [
                {"sample_id": name, "metric": metric, "score": value, "status": "scored"}
                for name, value in values.items()
            ],
        ),
    }
