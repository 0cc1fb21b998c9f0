"""The fake endpoint goes wrong as told, and records all of it."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.endpoint import faults
from tests.endpoint.fault import Fault, Rule
from tests.endpoint.raw import LABELS, asked, choice, judged, send, text
from tests.endpoint.server import serve
from tests.endpoint.throttle import Throttle

RIGHT = dict(enumerate(LABELS, 1))


@pytest.mark.parametrize(
    ("fault", "status", "report"),
    [
        (faults.status(429), 429, {"type": "rate_limit_exceeded"}),
        (faults.status(529), 529, {"message": "Overloaded"}),
        (faults.status(418, message="I am a teapot"), 418, {"message": "I am a teapot"}),
        (faults.unsupported_format(), 400, {"param": "response_format"}),
        (faults.unsupported_format("tools"), 400, {"param": "tools"}),
        (faults.unsupported_parameter(), 400, {"code": "unsupported_parameter", "param": "seed"}),
        (faults.too_long(), 400, {"code": "context_length_exceeded"}),
        (faults.policy(), 400, {"code": "content_policy_violation"}),
        (faults.out_of_quota(), 429, {"code": "insufficient_quota"}),
        (faults.wrong_key(), 401, {"code": "invalid_api_key"}),
        (faults.no_such_model(), 404, {"code": "model_not_found"}),
    ],
)
def test_refusals(fault: Fault, status: int, report: dict[str, str]) -> None:
    with serve(fault=fault) as endpoint:
        found, _, body = send(endpoint, asked())
        assert found == status == endpoint.requests[0].status
        assert json.loads(body)["error"].items() >= report.items()
        words = json.loads(body)["error"]["message"]
        assert json.loads(send(endpoint, asked(), "/api/chat")[2]) == {"error": words}
        spoken = json.loads(send(endpoint, asked(), "/v1/messages")[2])
        assert (spoken["type"], spoken["error"]["message"]) == ("error", words)


def test_headers_and_bodies_of_refusals() -> None:
    fault = faults.status(503, retry_after=1.5, headers={"x-more": "1"}, body="<p>no</p>")
    with serve(fault=fault) as endpoint:
        status, headers, body = send(endpoint, asked())
    assert (status, headers["retry-after"], headers["x-more"], body) == (
        503,
        "1.5",
        "1",
        b"<p>no</p>",
    )


@pytest.mark.parametrize("fault", [faults.html(), faults.not_json()])
def test_pages_that_are_no_reply(fault: Fault) -> None:
    with serve(fault=fault) as endpoint:
        status, _, body = send(endpoint, asked())
    assert status == 200
    with pytest.raises(ValueError, match="line 1"):
        json.loads(body)


def unreadable(reply: str) -> bool:
    try:
        json.loads(reply)
    except ValueError:
        return True
    return False


def entries(reply: str) -> list[dict[str, Any]]:
    found = json.loads(reply)["claims"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("fault", "shows"),
    [
        (faults.content(str.upper), str.isupper),
        (faults.malformed(), unreadable),
        (faults.prose(), lambda reply: "{" not in reply),
        (faults.empty(), lambda reply: reply == ""),
        (faults.fenced(), lambda reply: judged(reply[8:-4]) == RIGHT),
        (faults.surrounded(), lambda reply: judged(reply.split("\n\n")[1]) == RIGHT),
        (faults.drafted(), lambda reply: judged(reply.split("\n")[-1]) == RIGHT),
        (faults.drafted(), lambda reply: judged(reply.split("\n")[1]) != RIGHT),
        (faults.thinking(), lambda reply: judged(reply.split("</think>\n")[1]) == RIGHT),
        (faults.thinking(), lambda reply: '{"claims"' in reply.split("</think>")[0]),
        (faults.bare_list(), lambda reply: [e["id"] for e in json.loads(reply)] == [1, 2, 3]),
        (faults.other_order(), lambda reply: judged(reply) == RIGHT),
        (faults.other_order(), lambda reply: next(iter(entries(reply)[0])) == "verdict"),
        (faults.duplicated(), lambda reply: entries(reply)[0] == entries(reply)[3]),
        (faults.missing(), lambda reply: list(judged(reply)) == [1, 2]),
        (faults.missing(2), lambda reply: list(judged(reply)) == [1, 3]),
        (faults.unknown_id(), lambda reply: list(judged(reply)) == [1, 2, 3, 999]),
        (faults.outside_label(), lambda reply: judged(reply)[3] == "mostly true"),
        (faults.lacking("reason", 1), lambda reply: "reason" not in entries(reply)[0]),
        (faults.conflicting(1), lambda reply: entries(reply)[3]["verdict"] == "contradicted"),
        (faults.wrong_schema(), lambda reply: list(json.loads(reply)) == ["answers"]),
        (faults.nan(), lambda reply: "NaN" in reply and len(entries(reply)) == 3),
        (faults.cut_off(), unreadable),
    ],
)
def test_contents(fault: Fault, shows: Callable[[str], bool]) -> None:
    with serve(fault=fault) as endpoint:
        assert shows(text(endpoint, asked()))


def test_the_rest_of_a_reply() -> None:
    with serve(fault=faults.cut_off()) as endpoint:
        assert choice(endpoint, asked())["finish_reason"] == "length"
        endpoint.behaviour.fault = faults.refused("No.")
        assert choice(endpoint, asked())["message"]["refusal"] == "No."
        assert choice(endpoint, asked())["message"]["content"] is None
        endpoint.behaviour.fault = faults.filtered()
        assert choice(endpoint, asked())["finish_reason"] == "content_filter"
        endpoint.behaviour.fault = faults.no_choices()
        assert json.loads(send(endpoint, asked())[2])["choices"] == []
        endpoint.behaviour.fault = faults.no_usage()
        assert "usage" not in json.loads(send(endpoint, asked())[2])


def test_vectors_can_be_wrong() -> None:
    with serve(fault=faults.vectors(lambda made: [each * np.nan for each in made[1:]])) as endpoint:
        rows = json.loads(send(endpoint, {"input": ["a", "b"]}, "/v1/embeddings")[2])["data"]
    assert len(rows) == 1
    assert np.isnan(rows[0]["embedding"]).all()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.reset(), ConnectionResetError),
        (faults.reset(midway=True), ConnectionResetError),
        (faults.close(), http.client.RemoteDisconnected),
        (faults.hang(), TimeoutError),
        (faults.slow(30), TimeoutError),
    ],
)
def test_connections_break(fault: Fault, error: type[Exception]) -> None:
    with serve(fault=fault) as endpoint:
        with pytest.raises(error):
            send(endpoint, asked(), timeout=0.3)
        (noted,) = endpoint.requests
        assert (noted.status, noted.fault) == (None, fault.name)
        endpoint.behaviour.fault = None
        assert judged(text(endpoint, asked())) == RIGHT
        assert (noted.gone, endpoint.stats()["active"]) == (error is TimeoutError, 0)


def test_a_connection_refused_for_a_while() -> None:
    with serve(fault=faults.refuse()) as endpoint:
        with pytest.raises(ConnectionResetError):
            send(endpoint, asked())
        with pytest.raises(ConnectionRefusedError):
            send(endpoint, asked())
        endpoint.behaviour.fault = None
        endpoint.accept()
        assert send(endpoint, asked())[0] == 200
        endpoint.refuse()
        with pytest.raises(ConnectionRefusedError):
            send(endpoint, asked())


def test_bytes_drip() -> None:
    with serve(fault=faults.drip(pause=0.02, size=200)) as endpoint:
        began = time.monotonic()
        body = send(endpoint, asked())[2]
        assert time.monotonic() - began >= 0.02 * (len(body) // 200)
    assert judged(json.loads(body)["choices"][0]["message"]["content"]) == RIGHT


@pytest.mark.parametrize(
    ("rule", "statuses"),
    [
        (faults.status(500), [500, 500, 500, 500]),
        (faults.first(1, faults.status(500)), [500, 200, 500, 200]),
        (faults.in_turn(None, faults.status(500), faults.status(503)), [200, 500, 503, 200]),
        (faults.where(lambda body: body["seed"] == 2, faults.status(500)), [200, 200, 500, 500]),
        (
            faults.either(
                faults.first(1, faults.status(429)),
                faults.where(lambda body: body["seed"] == 1, faults.status(500)),
            ),
            [429, 500, 429, 200],
        ),
        (
            lambda number, body, key: faults.status(500) if number == 4 else None,
            [200, 200, 200, 500],
        ),
    ],
)
def test_rules(rule: Rule, statuses: list[int]) -> None:
    with serve(fault=rule) as endpoint:
        assert [send(endpoint, asked(seed=seed))[0] for seed in (1, 1, 2, 2)] == statuses


def test_shares_are_of_requests_and_the_same_each_time() -> None:
    rule = faults.share(0.25, faults.status(500), faults.status(503))
    struck = [rule(number, {}, f"{number:032x}") for number in range(4000)]
    assert struck == [rule(1, {}, f"{number:032x}") for number in range(4000)]
    counts = Counter(fault.name for fault in struck if fault is not None)
    assert all(420 < counts[name] < 580 for name in ("status 500", "status 503"))
    assert struck != [faults.share(0.25, rule, salt="b")(1, {}, f"{n:032x}") for n in range(4000)]


def test_chaos_meets_every_fault() -> None:
    rule = faults.chaos(0.5)
    names = Counter(fault.name for n in range(4000) if (fault := rule(n, {}, str(n))) is not None)
    assert 1800 < names.total() < 2200
    assert {"reset", "html", "conflicting", "refused", "cut off", "status 529"} <= set(names)
    assert len(names) > 25
    assert "hang" not in names


def in_parallel(count: int, call: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_throttles_refuse_more_at_once() -> None:
    with serve(latency=1.0, throttle=Throttle(concurrent=2, retry_after=1)) as endpoint:
        in_parallel(6, lambda number: send(endpoint, asked(seed=number)))
        statuses = Counter(one.status for one in endpoint.requests)
        assert (statuses, endpoint.highest) == ({200: 2, 429: 4}, 2)
        kept = [one.replied - one.arrived for one in endpoint.requests if one.replied]
        assert sum(seconds >= 0.99 for seconds in kept) == 2


def test_throttles_refuse_more_per_second() -> None:
    with serve(throttle=Throttle(per_second=0.01, burst=2, retry_after=7)) as endpoint:
        replies = [send(endpoint, asked()) for _ in range(3)]
    assert [reply[0] for reply in replies] == [200, 200, 429]
    assert replies[2][1]["retry-after"] == "7"
    throttle = Throttle(per_second=10)
    admitted = [throttle.check(0, 100 + step / 100) is None for step in range(300)]
    assert sum(admitted) in (39, 40)
