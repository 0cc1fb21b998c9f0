"""The record of calls: complete, and without keys; without texts where they are redacted."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.judge.calls import Call, call_table, chat_call
from claimflow.flows.judge.provider import Request
from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.store import Store
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.endpoint.statuses import wrong_key
from tests.flows.judged import DECOMPOSE, STEPS, VERIFY, Judged, about

SECRET = "sk-proj-0123456789abcdefSECRET"
LLM_STEPS = {**STEPS, "response_claims": DECOMPOSE}
RULES = faults.either(
    faults.where(about("broken"), faults.status(400, message="What of Case broken. The tower?")),
    faults.where(about("prose"), faults.prose()),
    faults.where(about("label"), faults.outside_label("Cheese comes from milk.")),
    faults.where(about("declined"), faults.refused("I cannot say that the tower stands in Paris.")),
)
CASES = ["good", "broken", "prose", "label", "declined"]


def run(folder: Path, *options: str) -> Judged:
    with serve(fault=RULES) as endpoint:
        judged = Judged(folder, endpoint)
        judged.write(CASES, steps=LLM_STEPS)
        assert judged.command(*options) == 1
    return judged


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Judged, Judged]:
    make = tmp_path_factory.mktemp
    return run(make("open")), run(make("redacted"), "--redact")


def test_no_text_is_in_the_record_of_calls(both: tuple[Judged, Judged]) -> None:
    words = ("tower", "Paris", "Cheese", "Case", "verdict", "premise", "supported", "entailed")
    shown, hidden = (repr(judged.ask("FROM audit.calls")) for judged in both)
    assert all(word in shown for word in words)
    assert not [word for word in words if word in hidden]


def test_hashes_stand_in_their_place(both: tuple[Judged, Judged]) -> None:
    query = "system, prompt, reply, outcome, finish_reason, attempts, rung, open"
    shown, hidden = (judged.calls(query) for judged in both)
    assert len(shown) == len(hidden) == 1 + 5 + 2
    assert sorted(call[3] for call in shown) == sorted(call[3] for call in hidden)
    texts = {text for call in hidden for text in call[:3] if text is not None}
    assert all(len(text) == 36 for text in texts)
    # Two system messages, and a prompt for each call.
    assert len({call[0] for call in hidden}) == 2
    assert len({call[1] for call in hidden}) == 8
    assert not any(call[7] for call in hidden)


def test_the_results_are_the_same(both: tuple[Judged, Judged]) -> None:
    shown, hidden = both
    assert shown.scores() == hidden.scores()
    assert shown.verdicts() == hidden.verdicts()
    assert len(set(map(str, shown.verdicts().values()))) > 3


@pytest.mark.parametrize("model", ["openai/fake", "hosted_vllm/fake"])
def test_keys_are_in_no_table_and_no_output(
    tmp_path: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", SECRET)
    caplog.set_level("DEBUG")
    known = faults.either(
        faults.where(about("b"), faults.status(400, message=f"Not with the key {SECRET}!")),
        faults.where(about("c"), wrong_key(SECRET)),
    )
    with serve(fault=known) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abc", model=model, max_concurrency=1)
        assert judged.command() == 6
        assert endpoint.hits == 3
        assert all(one.authorized for one in endpoint.requests)
    captured = capfd.readouterr()
    assert "401" in captured.err
    printed = judged.everything()
    assert "Not with the key ***" in printed
    for text in (printed, captured.out, captured.err, caplog.text):
        assert "SECRET" not in text
        assert "0123456789abcdef" not in text
        assert "tower stands" not in caplog.text
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


def test_the_runs_of_a_store_have_their_calls_and_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("ab", price={"input": 1000, "output": 1000})
        judged.run()
        judged.run()
        judged.write("abc")
        judged.run()
    ((cost,),) = judged.ask("SELECT sum(cost)::DOUBLE FROM audit.calls")
    named = ["--store", str(judged.store.path), "--live"]
    capsys.readouterr()
    assert main(["runs", *named, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["calls"], one["cost"], one["unpriced"]) for one in found] == [
        (1, None, 1),
        (None, None, None),
        (2, pytest.approx(cost), None),
    ]
    assert main(["runs", *named]) == 0
    assert f" {cost:.4g} " in capsys.readouterr().out


def test_a_call_says_all_about_itself(tmp_path: Path) -> None:
    price = {"input": 2.5, "cached_input": 1.25, "output": 10}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        # Long enough to be cached from the second call on.
        prompt = "Judge. " * 600 + "\n{{premise}}\n\n{{claims}}\n"
        (tmp_path / "long.md").write_text(prompt, "utf-8")
        steps = STEPS | {"response_in_reference": VERIFY | {"prompt": "long.md"}}
        judged.write("ab", price=price, max_concurrency=1, steps=steps)
        judged.run()
        request = endpoint.requests[0].body
    (call, other) = judged.ask("FROM audit.calls ORDER BY asked_at")
    names = [name for (name,) in judged.ask("SELECT column_name FROM (DESCRIBE audit.calls)")]
    row: dict[str, Any] = dict(zip(names, call, strict=True))
    (run_id,) = judged.ask("SELECT run_id FROM audit.runs")[0]
    assert row["system"] == request["messages"][0]["content"]
    assert row["prompt"] == request["messages"][1]["content"]
    assert json.loads(row["reply"])["claims"][0]["verdict"] == "entailed"
    assert {name: row[name] for name in ("run_id", "step", "judge", "model", "rung")} == {
        "run_id": run_id,
        "step": "response_in_reference",
        "judge": "judge",
        "model": "hosted_vllm/fake",
        "rung": "schema",
    }
    assert (row["outcome"], row["finish_reason"], row["attempts"]) == ("ok", "stop", 1)
    assert (row["error"], row["repeats"], row["open"]) == (None, None, False)
    assert row["seconds"] > 0
    cached = dict(zip(names, other, strict=True))
    assert cached["cached_tokens"] > 1000
    fresh = cached["prompt_tokens"] - cached["cached_tokens"]
    micro = 2.5 * fresh + 1.25 * cached["cached_tokens"] + 10 * cached["completion_tokens"]
    assert float(cached["cost"]) == pytest.approx(micro / 1_000_000)
    used = judged.ask("SELECT DISTINCT call_id FROM verdicts")
    assert {call_id for (call_id,) in used} == {row["call_id"], cached["call_id"]}


def made(messages: list[dict[str, str]], **parameters: Any) -> Call:
    request = Request("openai/m", messages, parameters, None)
    made_by = {"run_id": "r", "step": "s", "judge": "judge", "provider": "litellm"}
    return chat_call(request, answered_by={}, **made_by, rung="text", repeats=None)


def test_equal_requests_have_equal_hashes() -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    one, two = made(messages, temperature=0), made(messages, temperature=0)
    assert one.request == two.request
    assert one.call_id != two.call_id
    assert made(messages, temperature=1).request != one.request
    assert made(messages[1:], temperature=0).request != one.request
    assert (one.system, one.prompt) == ("S", "U")


def test_several_messages_stand_under_their_roles() -> None:
    turns = [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "V"},
    ]
    call = made(turns)
    assert (call.system, call.prompt) == (None, "[user]\nU\n\n[assistant]\nA\n\n[user]\nV")


def test_calls_fit_their_table(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    call = made([{"role": "user", "content": "U \U0001f600"}])
    with store.writing() as connection:
        insert(connection, "audit.calls", call_table([call, call.redacted()]))
    with store.reading() as connection:
        rows = read_table(connection, "SELECT prompt, asked_at, cost, seconds FROM audit.calls")
    assert rows.row(0) == ("U \U0001f600", call.asked_at, None, 0.0)
    assert len(rows.row(1)[0]) == 36


@pytest.mark.parametrize(
    ("cost", "stored"),
    [
        ("1E-400", "0"),
        ("0.12345678901234567890123", "0.123456789"),
        ("999999999.9999999999", "999999999.999999999"),
        ("1E+999999999", None),
        ("-1e-30", None),
        ("sNaN", None),
    ],
)
def test_a_cost_with_any_number_of_decimal_places_is_stored(cost: str, stored: str | None) -> None:
    call = made([{"role": "user", "content": "U"}])._replace(cost=Decimal(cost))
    [found] = call_table([call])["cost"]
    assert found == (None if stored is None else Decimal(stored))
