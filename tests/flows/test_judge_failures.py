"""What becomes of a sample when its judge fails: the whole table of failures, in one run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.endpoint import faults
from tests.endpoint.fault import Rule
from tests.endpoint.record import Recorded
from tests.endpoint.server import serve
from tests.flows.judged import CLAIMS, LABELS, Judged, about, sample, together

pytestmark = pytest.mark.filterwarnings(
    # litellm may be stopped between making a coroutine and awaiting it.
    "ignore:coroutine '.*' was never awaited:RuntimeWarning"
)

THIRD = 3
"""The id of the last claim, which the faults of one entry strike."""

BROKEN: dict[str, tuple[Rule, str]] = {
    "500": (faults.status(500), "server_error"),
    "502": (faults.status(502), "server_error"),
    "503": (faults.status(503, message="The service is down."), "server_error"),
    "409": (faults.status(409), "server_error"),
    "reset": (faults.reset(), "server_error"),
    "midway": (faults.reset(midway=True), "server_error"),
    "close": (faults.close(), "server_error"),
    "html": (faults.html(), "server_error"),
    "half": (faults.not_json(), "server_error"),
    "no choices": (faults.no_choices(), "server_error"),
}
"""Asked again until the call's time or its attempts are over, and by the next run."""

TURNED_DOWN: dict[str, tuple[Rule, str]] = {
    "400": (faults.status(400), "bad_request"),
    "413": (faults.status(413, body='{"error": {"message": "No."}}'), "bad_request"),
    "422": (faults.status(422), "bad_request"),
}
"""Asked once, and by the next run."""

DECLINED: dict[str, tuple[Rule, str]] = {
    "refusal": (faults.refused(), "refused"),
    "filter": (faults.filtered(), "refused"),
    "policy": (faults.policy(), "refused"),
}
"""Asked once and never again."""

WRONG: dict[str, tuple[Rule, list[str]]] = {
    "malformed": (faults.malformed(), ["unparseable"] * 3),
    "prose": (faults.prose(), ["unparseable"] * 3),
    "empty": (faults.empty(), ["empty"] * 3),
    "schema": (faults.wrong_schema(), ["invalid"] * 3),
    "missing": (faults.missing(THIRD), [*LABELS[:2], "missing"]),
    "no such id": (faults.entries(lambda found: [{**e, "id": 9} for e in found]), ["missing"] * 3),
    "label": (faults.outside_label(id=THIRD), [*LABELS[:2], "invalid"]),
    "lacking": (faults.lacking("verdict", THIRD), [*LABELS[:2], "invalid"]),
    "conflict": (faults.conflicting(THIRD), [*LABELS[:2], "conflict"]),
}
"""Asked for what is open once more, and by the next run."""

TAKEN: dict[str, tuple[Rule | None, str]] = {
    "good": (None, "ok"),
    "no usage": (faults.no_usage(), "ok"),
    "fence": (faults.fenced(), "repaired"),
    "text": (faults.surrounded(), "repaired"),
    "draft": (faults.drafted(), "repaired"),
    "order": (faults.other_order(), "repaired"),
    "twice": (faults.duplicated(), "repaired"),
    "stranger": (faults.unknown_id(), "repaired"),
    "bare": (faults.bare_list(), "repaired"),
}
"""Asked once."""

ONCE = ("500", "409", "midway", "close", "html", "no choices")
"""Those of `BROKEN` that come true a second time, as "first NAME", are overcome."""


class Happened(NamedTuple):
    """What a run left: exit codes, and the requests of the first and of the second run."""

    judged: Judged
    codes: tuple[int, int]
    first: list[Recorded]
    second: list[Recorded]
    before: dict[str, list[str | None]]
    scores: dict[str, tuple[str, float | None, str | None]]
    after: dict[str, list[str | None]]

    def hits(self, name: str) -> int:
        return sum(about(name)(one.body) for one in self.first)

    def hits_later(self, name: str) -> int:
        return sum(about(name)(one.body) for one in self.second)


def rules() -> dict[str, Rule | None]:
    firsts = {f"first {name}": faults.first(1, BROKEN[name][0]) for name in ONCE}
    tables = (BROKEN, TURNED_DOWN, DECLINED, WRONG, TAKEN)
    # With fewer calls those of BROKEN, the last to end, would be a tenth of all in a row.
    fine: dict[str, Rule | None] = {f"fine {number}": None for number in range(80)}
    return {name: rule for table in tables for name, (rule, _) in table.items()} | firsts | fine


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Happened]:
    """A run in which every sample meets another fault, and one after the endpoint is well."""
    known = rules()
    strikes = [faults.where(about(name), rule) for name, rule in known.items() if rule]
    with serve(fault=faults.either(*strikes)) as endpoint:
        judged = Judged(tmp_path_factory.mktemp("failures"), endpoint)
        judged.write(known, max_concurrency=100)
        code = judged.command()
        first, before, scores = endpoint.requests, judged.verdicts(), judged.scores()
        endpoint.behaviour.fault = None
        codes = (code, judged.command())
        yield Happened(judged, codes, first, endpoint.requests, before, scores, judged.verdicts())


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_is_asked_again_and_then_a_row(happened: Happened, name: str) -> None:
    kind = BROKEN[name][1]
    assert happened.before[name] == [kind] * 3
    # Where the connection was reset, litellm asks hosted_vllm once more by itself.
    attempts = (4, 8) if name == "reset" else (4,)
    assert happened.hits(name) in range(4, attempts[-1] + 1)
    assert happened.hits_later(name) == 1
    (call,) = happened.judged.calls(
        "outcome, attempts, error, reply, prompt_tokens",
        f"prompt LIKE '%Case {name}.%' AND outcome = '{kind}'",
    )
    assert call[:2] == (kind, 4)
    assert call[2]
    assert call[3:] == (None, None)


@pytest.mark.parametrize("name", ONCE)
def test_what_breaks_once_is_overcome(happened: Happened, name: str) -> None:
    name = f"first {name}"
    assert happened.before[name] == LABELS
    assert happened.hits(name) == 2
    assert happened.judged.calls("outcome, attempts", f"prompt LIKE '%Case {name}.%'") == [
        ("ok", 2)
    ]


@pytest.mark.parametrize("name", TURNED_DOWN)
def test_bad_requests_are_rows_at_once(happened: Happened, name: str) -> None:
    assert happened.before[name] == ["bad_request"] * 3
    assert (happened.hits(name), happened.hits_later(name)) == (1, 1)


@pytest.mark.parametrize("name", DECLINED)
def test_what_is_declined_is_never_asked_again(happened: Happened, name: str) -> None:
    assert happened.before[name] == happened.after[name] == ["refused"] * 3
    assert (happened.hits(name), happened.hits_later(name)) == (1, 0)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_asked_for_once_more(happened: Happened, name: str) -> None:
    assert happened.before[name] == WRONG[name][1]
    first, second = (one.body["messages"] for one in happened.first if about(name)(one.body))
    assert second[: len(first)] == first
    roles = [message["role"] for message in second[len(first) :]]
    assert roles == ["assistant", "user"]
    open_ids = [place for place, answer in enumerate(WRONG[name][1], 1) if answer not in LABELS]
    listed = ", ".join(map(str, open_ids))
    assert f"Answer again for the ids {listed} only" in second[-1]["content"]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_replies_are_recorded_unchanged(happened: Happened, name: str) -> None:
    calls = happened.judged.calls(
        "reply, outcome, repeats IS NOT NULL, open",
        f"prompt LIKE '%Case {name}.%' AND outcome NOT IN ('ok', 'repaired')",
    )
    kind = WRONG[name][1][-1]
    assert [call[1] for call in calls] == ["partial" if LABELS[0] in WRONG[name][1] else kind, kind]
    assert [call[2] for call in calls] == [False, True]
    assert not any(call[3] for call in calls)
    assert all(isinstance(call[0], str) for call in calls)
    if name == "malformed":
        assert calls[0][0].startswith('{"claims" [{"id": 1')


@pytest.mark.parametrize("name", TAKEN)
def test_what_can_be_read_is_taken_from_one_call(happened: Happened, name: str) -> None:
    assert happened.before[name] == LABELS
    assert (happened.hits(name), happened.hits_later(name)) == (1, 0)
    text = happened.judged.calls("outcome", f"prompt LIKE '%Case {name}.%'")
    assert text == [(TAKEN[name][1],)]


def test_unreported_tokens_are_null(happened: Happened) -> None:
    columns = "prompt_tokens, cached_tokens, completion_tokens, cost"
    assert happened.judged.calls(columns, "prompt LIKE '%Case no usage.%'") == [(None,) * 4]
    (good,) = happened.judged.calls(columns, "prompt LIKE '%Case good.%'")
    assert good[0] > 500
    assert good[2] > 10


def test_good_samples_keep_their_scores_and_bad_ones_say_why(happened: Happened) -> None:
    well = {*TAKEN, *(f"first {name}" for name in ONCE)}
    assert happened.scores.keys() == rules().keys()
    for name, (status, score, reason) in happened.scores.items():
        if name in well or name.startswith("fine "):
            assert (status, score, reason) == ("scored", 1 / 3, None), name
            continue
        lost = [answer for answer in happened.before[name] if answer not in LABELS]
        why = f"{len(lost)} of 3 claims of the response have no verdict ({lost[0]})"
        assert (status, score, reason) == ("failed", None, why), name


def test_failed_rows_have_the_message_of_the_endpoint(happened: Happened) -> None:
    text = dict(
        happened.judged.ask(
            "SELECT DISTINCT sample_id, v.reason FROM claims JOIN verdicts v "
            "USING (run_id, claim_id) WHERE v.status = 'failed'"
        )
    )
    assert text["500"] == "The server had an error while processing your request."
    assert text["502"] == "502: Bad gateway."
    assert text["400"] == "400: The request is not valid."
    assert text["refusal"] == "I'm sorry, but I cannot assist with that."
    assert "verdict must be 'entailed', 'contradicted' or 'neutral'" in text["label"]


def test_the_run_is_done_with_failures_and_the_next_one_asks_for_what_is_missing(
    happened: Happened,
) -> None:
    assert happened.codes == (1, 1)
    asked_again = {name for name in rules() if happened.hits_later(name)}
    assert asked_again == {*BROKEN, *TURNED_DOWN, *WRONG}
    assert len(happened.second) == len(asked_again)
    for name, verdicts in happened.after.items():
        assert verdicts == (["refused"] * 3 if name in DECLINED else LABELS), name


def test_only_open_claims_are_asked_again(happened: Happened) -> None:
    (again,) = (one.body for one in happened.second if about("missing")(one.body))
    asked = again["messages"][-1]["content"]
    assert [f">\n{claim}\n<" in asked for claim in CLAIMS] == [False, False, True]


def test_no_number_is_none(happened: Happened) -> None:
    assert happened.judged.holds_nan() == []


def test_a_call_has_its_time_and_not_more(tmp_path: Path) -> None:
    slow = {
        "hang": faults.hang(),
        "drip": faults.drip(pause=0.1, size=16),
        "408": faults.status(408),
        "504": faults.status(504),
    }
    struck = [faults.where(about(name), fault) for name, fault in slow.items()]
    with serve(fault=faults.either(*struck)) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(slow, timeout=0.4)
        judged.run()
        assert judged.verdicts() == dict.fromkeys(slow, ["timeout"] * 3)
        assert len(slow) < endpoint.hits <= 4 * len(slow)
        assert all(one.gone for one in endpoint.requests if one.fault == "hang")
        endpoint.behaviour.fault = None
        judged.write(slow, timeout=10)
        judged.run()
        assert judged.verdicts() == dict.fromkeys(slow, LABELS)
    (text,) = judged.calls("error", "prompt LIKE '%Case drip.%' AND outcome = 'timeout'")
    assert text[0].startswith("no whole reply within ")
    seconds = judged.calls("seconds", "outcome = 'timeout'")
    assert all(taken < 4 for (taken,) in seconds)


def test_a_wave_of_refusals_cuts_the_concurrency_once_and_holds_everyone(tmp_path: Path) -> None:
    wave = [
        faults.status(429, retry_after=0.6),
        faults.status(503, retry_after=0.6),
        faults.status(529),
        faults.status(503, message="The engine is currently overloaded."),
    ] * 2
    with serve(fault=faults.in_turn(*wave), latency=0.25) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write([str(number) for number in range(12)])
        judged.run()
        assert set(map(tuple, judged.verdicts().values())) == {tuple(LABELS)}
        refused, served = endpoint.requests[:8], endpoint.requests[8:]
    assert len(served) == 12
    opened = min(one.arrived for one in served)
    text = min(one.replied for one in refused if one.fault == "status 429" and one.replied)
    assert opened - text > 0.55
    # 8 at first, cut to 0.6 of it; once for each refusal would leave one at a time.
    assert 3 <= together(served) <= 6


def test_what_breaks_leaves_the_concurrency_alone(tmp_path: Path) -> None:
    with serve(fault=faults.in_turn(*[faults.status(500)] * 8), latency=1.5) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write([str(number) for number in range(8)])
        judged.run()
        assert set(map(tuple, judged.verdicts().values())) == {tuple(LABELS)}
        assert together(endpoint.requests[8:]) >= 6


def test_who_is_sent_away_until_the_end_is_rate_limited(tmp_path: Path) -> None:
    sent_away = faults.either(
        faults.where(about("a"), faults.status(429)),
        faults.where(about("b"), faults.status(429, retry_after=90)),
    )
    with serve(fault=sent_away) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a", "b", "c"], timeout=0.3)
        judged.run()
        verdicts, scores = judged.verdicts(), judged.scores()
        endpoint.behaviour.fault = None
        judged.run()
        assert judged.verdicts() == dict.fromkeys("abc", LABELS)
    assert verdicts["b"] == ["rate_limited"] * 3
    assert scores["b"][2] == "3 of 3 claims of the response have no verdict (rate_limited)"


def test_a_premise_that_is_too_long_is_judged_in_parts(tmp_path: Path) -> None:
    filler = "This sentence is about nothing at all. " * 30
    premise = f"Case long. The tower stands in Paris. {filler}The tower opened in 1889."

    def long(body: object) -> bool:
        return json.dumps(body).count("about nothing") > 12

    with serve(fault=faults.where(long, faults.too_long())) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["short", sample("long", reference=premise)])
        judged.run()
        assert judged.verdicts() == {"short": LABELS, "long": LABELS}
        hits = endpoint.hits
        judged.run()
        assert (hits > 3, endpoint.hits) == (True, 0)
    evidence = judged.ask(
        "SELECT evidence, evidence_start, evidence_end FROM latest.claims JOIN latest.verdicts v "
        "USING (claim_id) WHERE sample_id = 'long' AND v.verdict = 'contradicted'"
    )
    start = premise.index("The tower opened in 1889.")
    assert evidence == [("The tower opened in 1889.", start, start + 25)]
