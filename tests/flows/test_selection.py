"""Which samples a pipeline selects: conditions, shares and strata, in any order of the samples."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.sample_choice import Selection
from claimflow.flows.samples import condition
from claimflow.flows.samples.condition import Condition
from claimflow.flows.samples.memory import samples_from
from claimflow.flows.samples.selection import Chosen, choose_samples
from claimflow.flows.store.runs import process_alive
from tests.flows.forks import children

MODELS = st.sampled_from(["a", "b", "c", None])
SAMPLES = st.lists(st.tuples(st.integers(0, 30), MODELS), min_size=1, max_size=60).map(
    lambda drawn: [
        {"id": f"s{number}", "input": f"Question {text}?", "answer": "Yes."}
        | ({"model": model} if model else {"other": 1})
        for number, (text, model) in enumerate(drawn)
    ]
)
FIVE = [
    {"id": f"s{n}", "input": f"{n}?", "answer": "Yes.", "model": "xy"[n % 2], "latency_ms": n * 500}
    | {"contexts": ["c"] * n, "Mixed": n or "none", "a/b": n, "start_time": f"2026-01-0{n + 1}"}
    for n in range(5)
]


def place(setting: str) -> str:
    return f"p.yaml:1 {setting}"


def choose(samples: Sequence[dict[str, Any]], **wanted: Any) -> Chosen:
    source = samples_from(samples)
    assert not source.faults
    return choose_samples(source, Selection(**wanted), place=place)


def ids(chosen: Chosen) -> set[str]:
    return {row for table in chosen.samples.shards(7) for row in table["sample_id"]}


def where(text: str) -> set[str]:
    return ids(choose(FIVE, where=text))


@settings(deadline=None, max_examples=60)
@given(SAMPLES, st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_order_of_samples_does_not_decide(
    samples: list[dict[str, Any]], order: random.Random, seed: int
) -> None:
    wanted: dict[str, Any] = {"distinct": True, "share": 0.7, "at_most": 5, "seed": seed}
    if any("model" in one for one in samples):
        wanted["by"] = "model"
    shuffled = order.sample(samples, len(samples))
    first, second = choose(samples, **wanted), choose(shuffled, **wanted)
    assert ids(first) == ids(second)
    assert first.left_out == second.left_out
    assert {*first.keys} == {*second.keys}
    assert first.samples.count + sum(first.left_out.values()) == len(samples)


@settings(deadline=None, max_examples=60)
@given(SAMPLES, st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_share_holds_every_smaller_one(
    samples: list[dict[str, Any]], one: float, other: float
) -> None:
    small, large = sorted([one, other])
    assert ids(choose(samples, share=small)) <= ids(choose(samples, share=large))
    assert ids(choose(samples, share=1)) == {sample["id"] for sample in samples}


@settings(deadline=None, max_examples=60)
@given(SAMPLES, st.integers(1, 40))
def test_at_most_is_divided_evenly(samples: list[dict[str, Any]], most: int) -> None:
    samples[0]["model"] = "a"
    chosen = ids(choose(samples, at_most=most, by="model"))
    assert len(chosen) == min(most, len(samples))
    all_of = Counter(one.get("model") for one in samples)
    taken = Counter(one.get("model") for one in samples if one["id"] in chosen)
    # A value has fewer than the others only where it has no more, or by the one that is left over.
    for model, count in all_of.items():
        if taken[model] < count:
            assert taken[model] >= max(taken.values()) - 1


def test_a_share_is_about_as_large_as_it_says_and_the_seed_draws_others() -> None:
    samples = [{"id": str(n), "input": f"{n}?", "answer": "Yes."} for n in range(2_000)]
    first, second = (ids(choose(samples, share=0.2, seed=seed)) for seed in (0, 1))
    assert 320 < len(first) < 480
    assert 40 < len(first & second) < 130


def test_distinct_compares_question_answer_contexts_and_history() -> None:
    same = {"input": "Why?", "answer": "So.", "contexts": ["c"]}
    asked = [{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": "Yes."}]
    samples = [
        same | {"id": "1"},
        same | {"id": "2", "model": "x"},
        same | {"id": "3", "contexts": ["d"]},
        same | {"id": "4", "answer": "Thus."},
        same | {"id": "5", "conversation_id": "k", "turn": 2, "history": asked},
    ]
    found = choose(samples, distinct=True)
    assert ids(found) - {"1", "2"} == {"3", "4", "5"}
    assert found.left_out == {"distinct": 1}
    assert found.text() == "4 of 5 samples; left out: distinct 1"


def test_a_time_selects_the_samples_after_it() -> None:
    samples = [*FIVE, FIVE[0] | {"id": "never", "start_time": "yesterday"}]
    found = choose(samples, since="2026-01-03")
    assert ids(found) == {"s2", "s3", "s4"}
    assert found.left_out == {"without start_time": 1, "since": 2}
    assert ids(choose(FIVE, since="2026-01-03T00:30:00+01:00")) == {"s2", "s3", "s4"}
    assert ids(choose([one | {"t": 2**33} for one in FIVE], since="7d", time_field="t")) == ids(
        choose(FIVE)
    )
    assert ids(choose(FIVE, since="7d")) == set()


def test_conditions_read_fields_and_metadata() -> None:
    assert where("model = 'x' AND latency_ms > 500") == {"s2", "s4"}
    assert where("len(retrieved_contexts) >= 3 OR sample_id = 's0'") == {"s0", "s3", "s4"}
    assert where('"a/b" % 2 = 1 AND MODEL IS NOT NULL') == {"s1", "s3"}
    # Numbers and texts in one field are texts.
    assert where("mixed = 'none' OR mixed = '2'") == {"s0", "s2"}
    assert where("list_filter(retrieved_contexts, lambda x: x = 'c') != [] -- some") == {
        *("s1", "s2", "s3", "s4")
    }
    assert where("(metadata->>'latency_ms')::INT = 2000") == {"s4"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("modl = 'x'", "column 1: no sample has 'modl'; did you mean 'model'?"),
        ("model = 'x') OR (1 = 1", "column 12: syntax error"),
        ("true; DROP TABLE x", "is more than one SQL condition"),
        ("true UNION SELECT true", "is more than one SQL condition"),
        ("true FROM 'secret.csv'", "is more than one SQL condition"),
        ("latency_ms > (SELECT 1)", "column 14: holds a query"),
        ("EXISTS (FROM 'secret.csv')", "holds a query"),
        ("latency_ms > ?", "column 14: holds a parameter"),
        ("random() > 0.5", "column 1: random() chooses others in each run"),
        ("row_number() OVER () = 1", "column 1: looks at other samples"),
        ("count(*) > 1", "cannot contain aggregates"),
        ("latency_ms = 'fast'", "Could not convert string 'fast'"),
        ("read_text('secret.csv') = ''", "table function"),
        ("_row = 0", "_row"),
        ("error(chr(10) || chr(10) || 'so')", "so"),
        ("CASE WHEN true THEN " * 330 + "true" + " END" * 330, "is nested too deeply"),
    ],
)
def test_a_condition_that_cannot_be_used_is_an_error(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        where(text)
    [fault] = raised.value.faults
    assert fault.place.startswith("p.yaml:1 where")
    assert told in str(fault)


def test_a_condition_has_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "_SECONDS", 0.2)
    one, other = (f"replace('{'x' * 100}', 'x', '{letter * 100}')" for letter in "ab")
    slow = " OR ".join(f"levenshtein(model || {one}, {other}) = {n}" for n in range(20))
    with pytest.raises(InputError, match=r"takes more than 0\.2 s"):
        where(slow)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("length(repeat(model, 4000000000)) > 1", None),
        ("len(range(4000000000)) > 1", None),
        # These take too long before they take too much.
        ("length(LPAD(model, 2000000000, 'x')) > 1", 3),
        ("damerau_levenshtein(repeat(model, 200000), repeat(model, 200001)) > 1", 3),
        ("length(" + "replace(" * 8 + "'x'" + f", 'x', '{'x' * 60}')" * 8 + ") > 1", 3),
        ("length(regexp_replace(repeat('x', 99999), 'x', repeat('x', 99999), 'g')) > 1", 3),
    ],
    ids=["repeat", "range", "lpad", "damerau", "replace", "regexp"],
)
def test_a_condition_has_little_memory(
    text: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seconds is not None:
        monkeypatch.setattr(condition, "_SECONDS", seconds)
    before = getrusage(RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(InputError, match=r"memory|takes more than 3 s") as raised:
        where(text)
    assert raised.value.faults[0].place == "p.yaml:1 where"
    # In KB. DuckDB itself counts half of that.
    assert getrusage(RUSAGE_CHILDREN).ru_maxrss < max(before + 1, 1_200_000)


def test_samples_are_asked_about_in_parts_of_a_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    send = condition.LimitedProcess.send

    def noted(process: Any, message: Any) -> None:
        asked.append(len(repr(message)))
        send(process, message)

    monkeypatch.setattr(condition, "_SENT_BYTES", 50_000)
    monkeypatch.setattr(condition.LimitedProcess, "send", noted)
    samples = [{"id": f"s{n}", "answer": "x" * (n % 3 * 10_000), "n": n} for n in range(60)]
    chosen = choose(samples, where="length(response) > 10000 AND n < 30")
    assert ids(chosen) == {f"s{n}" for n in range(30) if n % 3 == 2}
    assert len(asked) > 10
    assert max(asked) < 100_000


def test_the_process_of_a_condition_ends_with_it() -> None:
    before = children(os.getpid())
    with closing(Condition("model = 'x'", "p", ["model"])):
        assert len(children(os.getpid()) - before) == 1
    with pytest.raises(InputError):
        Condition("model = ", "p", ["model"])
    assert children(os.getpid()) <= before


def test_the_process_of_a_condition_does_not_outlive_a_killed_run() -> None:
    code = (
        "import polars as pl; from claimflow.flows.samples.condition import Condition; "
        "one = Condition('pg_sleep(60) IS NULL', 'p', []); print(one._process._process.pid); "
        "import sys; sys.stdout.flush(); one.holds(pl.DataFrame({'sample_id': ['s']}))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        asked = int(run.stdout.readline())
        time.sleep(0.5)
        run.kill()
    deadline = time.monotonic() + 20
    while process_alive(asked):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_conditions_see_integers_beyond_64_bits() -> None:
    for values, expected in (
        ([2**63, 5, 2**64 - 1, -1], {"s0", "s2"}),
        ([2**63, 5, 0.5, -1], {"s0"}),
    ):
        samples = [{"id": f"s{n}", "answer": "a", "span": value} for n, value in enumerate(values)]
        assert ids(choose(samples, where="span > 9000000000000000000")) == expected
        assert len(ids(choose(samples, where="span IS NOT NULL"))) == 4
    # Functions of times take no wider integers.
    times = [{"id": "s0", "answer": "a", "t": 10**12}, {"id": "s1", "answer": "a", "t": -1}]
    assert ids(choose(times, where="epoch_ms(t) > TIMESTAMP '2000-01-01'")) == {"s0"}


def test_a_field_that_no_sample_has_is_an_error() -> None:
    with pytest.raises(InputError, match=r"by: no sample has 'modl'; did you mean 'model'\?"):
        choose(FIVE, at_most=2, by="modl")
    with pytest.raises(InputError, match="time_field: no sample has 'end'"):
        choose(FIVE, since="7d", time_field="end")


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"by": "model"}, "by belongs to at_most"),
        ({"seed": 3}, "seed belongs to share and at_most"),
        ({"time_field": "t"}, "time_field belongs to since"),
        ({"since": "yesterday"}, "write last_run, a length such as 7d, or a date"),
        ({"share": 0}, "greater than 0"),
        ({"share": 1.1}, "less than or equal to 1"),
        ({"at_most": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_do_not_fit_are_errors(wanted: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Selection(**wanted)


def test_the_order_of_the_samples_stays() -> None:
    chosen = choose(FIVE, at_most=3)
    found = [row for table in chosen.samples.shards(2) for row in table["sample_id"]]
    assert found == sorted(found)
    assert json.loads(json.dumps(chosen.left_out)) == {"at_most": 2}
