"""Judgements of the shipped entailment model on pairs whose label is obvious."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest

from claimflow.flows.models.entailment.features import (
    LEXICAL_FEATURES,
    NETWORK_FEATURES,
    SHARED_FEATURES,
    measure_pairs,
)
from claimflow.flows.models.entailment.model import (
    MODEL_FILE,
    SHIPPED,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    EmbeddedEntailment,
    read_weights,
    rounded_judgement,
)
from claimflow.flows.models.entailment.texts import numbers_as_in, spelled_out
from claimflow.stages.tools import Judgement, Pair
from claimflow.stages.verify import VerifyClaims

TOWER = "The Eiffel Tower is located in Paris. It has a height of 1000ft."
BORN = "Albert Einstein was born in Spain in 1879."


@pytest.fixture(name="model", scope="module")
def _model() -> EmbeddedEntailment:
    return EmbeddedEntailment()


def judge(model: EmbeddedEntailment, premise: str, claim: str) -> Judgement:
    return model.judge([Pair(premise, claim)])[Pair(premise, claim)]


def label(judgement: Judgement) -> str:
    if judgement.entailed >= 0.5:
        return "entailed"
    return "contradicted" if judgement.contradicted > judgement.neutral else "neutral"


@pytest.mark.parametrize(
    ("premise", "claim", "expected"),
    [
        (BORN, "Albert Einstein was born in Germany.", "contradicted"),
        (BORN, "Albert Einstein was born in 1879.", "entailed"),
        ("Einstein was born in 1879 in Germany.", "Einstein was born in Spain.", "contradicted"),
        (TOWER, "The Eiffel Tower is located in Paris.", "entailed"),
        (TOWER, "It has a height of 1000ft.", "entailed"),
        (TOWER, "The Eiffel Tower has a height of 1000ft.", "entailed"),
        ("It employs 2,300 people in Lyon.", "It employs 5,100 people in Lyon.", "contradicted"),
        ("It employs 2,300 people in Lyon.", "It employs 2300 people in Lyon.", "entailed"),
        ("It opened on 12 May 1931.", "It opened on 12 June 1931.", "contradicted"),
        ("The minister approved the law.", "The minister did not approve the law.", "contradicted"),
        ("The drug does not cure the disease.", "The drug cures the disease.", "contradicted"),
        ("Revenue increased by 5 % in 2020.", "Revenue decreased by 5 % in 2020.", "contradicted"),
        ("Bananas are rich in potassium.", "The parliament of Norway has 169 members.", "neutral"),
        ("Die Brücke wurde 1931 eröffnet. Lang.", "Die Brücke wurde 1931 eröffnet.", "entailed"),
        ("Лев Толстой родился в 1828 году. Да.", "Лев Толстой родился в 1828 году.", "entailed"),
        ("Лев Толстой родился в 1828 году.", "Лев Толстой родился в 1835 году.", "contradicted"),
        ("北京是中国的首都。它有两千多万人口。", "北京是中国的首都。", "entailed"),
        ("北京是中国的首都。", "北京不是中国的首都。", "contradicted"),
        ("القاهرة هي عاصمة مصر. يعيش فيها ملايين الناس.", "القاهرة هي عاصمة مصر.", "entailed"),
    ],
)  # fmt: skip
def test_label(model: EmbeddedEntailment, premise: str, claim: str, expected: str) -> None:
    judgement = judge(model, premise, claim)
    assert label(judgement) == expected
    assert sum(judgement[:3]) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("premise", "claim"),
    [
        (TOWER[:37], "The Eiffel Tower has a height of 1000ft."),
        ("Oil prices will rise next year.", "Oil prices will fall next year."),
    ],
)
def test_what_the_premise_does_not_say_is_not_entailed(
    model: EmbeddedEntailment, premise: str, claim: str
) -> None:
    """Whether such a claim is contradicted or neutral is close."""
    assert label(judge(model, premise, claim)) != "entailed"


@pytest.mark.parametrize(
    ("premise", "claim", "read"),
    [
        ("It employs 2,300 people.", "2300 people work there.", "2,300 people work there."),
        ("It employs 2300 people.", "2,300 people work there.", "2300 people work there."),
        ("It had 2,300, now it has 2300.", "2300 or 2,300", "2300 or 2,300"),
        ("In 2019 it had 1,200.5 km.", "In 2,019 and 1200", "In 2019 and 1200"),
        ("1,000", "9" * 5_000, "9" * 5_000),
    ],
)
def test_numbers_are_read_as_the_premise_writes_them(premise: str, claim: str, read: str) -> None:
    assert numbers_as_in(premise, claim) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "It made $310m, £4.2 bn and 5tn yen.",
            "It made $310 million, £4.2 billion and 5 trillion yen.",
        ),
        ("It is 310 m long, 5 k run, $3 a kilo.", "It is 310 m long, 5 k run, $3 a kilo."),
        ("$1,200K", "$1,200 thousand"),
    ],
)
def test_short_scales_are_spelled_out(text: str, read: str) -> None:
    assert spelled_out(text) == read


@pytest.mark.parametrize("text", [TOWER, BORN, "Вода кипит.", "水は百度で沸騰する。", "Yes."])
def test_a_text_entails_itself(model: EmbeddedEntailment, text: str) -> None:
    assert judge(model, text, text).entailed > 0.8


def test_evidence_is_the_sentence_that_decides(model: EmbeddedEntailment) -> None:
    premise = "Bananas are yellow. Norway has a parliament. " * 3 + TOWER + " It rains often." * 4
    judgement = judge(model, premise, "The Eiffel Tower is located in Paris.")
    assert premise[judgement.start : judgement.end].startswith("The Eiffel Tower is located in P")


@pytest.mark.parametrize(
    ("premise", "claim"), [("", "A claim."), (" \n", "A claim."), ("…!", "A claim."), (BORN, "?!")]
)
def test_texts_without_words_are_neutral(premise: str, claim: str, tmp_path: Path) -> None:
    copyfile(SHIPPED / WEIGHTS_FILE, tmp_path / WEIGHTS_FILE)
    # This folder has no network, and none is loaded.
    assert judge(EmbeddedEntailment(tmp_path), premise, claim) == (0, 0, 1, 0, 0)


def test_a_judgement_depends_on_its_pair_alone(model: EmbeddedEntailment) -> None:
    pairs = [Pair(p, c) for p in (TOWER, BORN, TOWER + " " + BORN) for c in (TOWER, BORN, "Rain.")]
    together = model.judge(pairs + pairs[::-1])
    assert list(together) == pairs
    for pair in pairs:
        assert model.judge([pair])[pair] == together[pair]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(model.judge, [pairs] * 4)) == [together] * 4


def test_the_identity_has_weights_features_and_files() -> None:
    identity = EmbeddedEntailment().identity
    assert set(identity) == {"weights", "features", MODEL_FILE, TOKENIZER_FILE}
    assert identity["weights"] == read_weights(SHIPPED)[1]


def test_the_shipped_weights_match_the_features(
    model: EmbeddedEntailment,
) -> None:
    weights, _ = read_weights(SHIPPED)
    pair = Pair("Paris is large.", "Paris is old.")
    names = list(measure_pairs([pair], model.logits)[pair].features)
    assert list(weights.centre) == list(weights.spread) == names
    assert names == [*NETWORK_FEATURES, *LEXICAL_FEATURES]
    assert list(weights.read.entailed.coefficients) == [*NETWORK_FEATURES, *SHARED_FEATURES]
    assert list(weights.counted.entailed.coefficients) == list(LEXICAL_FEATURES)
    assert all(spread > 0 for spread in weights.spread.values())


@pytest.mark.parametrize("unit", ["Towns have mayors. ", "mayor ", "x", "! ", "市", "7"])
def test_long_texts_are_judged_in_linear_time(model: EmbeddedEntailment, unit: str) -> None:
    long, longer = (unit * (size // len(unit)) for size in (40_000, 200_000))
    started = time.process_time()
    judged = model.judge([Pair(longer + " " + TOWER, BORN), Pair(BORN, long), Pair(long, long)])
    assert time.process_time() - started < 4
    assert all(sum(judgement[:3]) == pytest.approx(1) for judgement in judged.values())


def test_the_end_of_a_long_premise_counts(model: EmbeddedEntailment) -> None:
    for filler in ("Towns have mayors and halls. ", "and towns have mayors "):
        judgement = judge(model, filler * 2_000 + TOWER, "The Eiffel Tower is located in Paris.")
        assert judgement.entailed > 0.5
        assert judgement.start > len(filler) * 1_900


@pytest.mark.parametrize("threshold", [number / 20 for number in range(1, 21)])
def test_a_probability_in_32_bits_reaches_the_threshold_it_equals(threshold: float) -> None:
    """Most such numbers are slightly off in 32 bits: 0.7 is 0.69999999."""
    judgement = rounded_judgement(float(np.float32(threshold)), 0.0, 0, 0)
    stage = VerifyClaims(against="reference", threshold=threshold)
    assert stage.verdict_of(judgement) == "entailed"
    below = rounded_judgement(threshold - 0.001, 0.0, 0, 0)
    assert stage.verdict_of(below) == "neutral"
