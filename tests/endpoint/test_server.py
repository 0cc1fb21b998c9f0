"""The fake endpoint as a server: what it refuses, records, keeps open and leaves behind."""

import gc
import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.raw import CHAT, asked, send
from tests.endpoint.server import serve

SCHEMA = {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}}
TOOL = {"type": "function", "function": {"name": "answer", "parameters": {}}}


@pytest.mark.parametrize(
    ("refused", "more"),
    [
        ("json_schema", {"response_format": SCHEMA}),
        ("json_object", {"response_format": {"type": "json_object"}}),
        ("tools", {"tools": [TOOL]}),
        ("seed", {"seed": 1}),
    ],
)
def test_it_refuses_formats_and_parameters(refused: str, more: dict[str, Any]) -> None:
    with serve(refuses={refused}) as endpoint:
        assert send(endpoint, asked(**more))[0] == 400
        assert send(endpoint, asked())[0] == 200


def test_it_refuses_other_keys() -> None:
    with serve(api_key="sk-right") as endpoint:
        status, _, body = send(endpoint, asked(), headers={"authorization": "Bearer sk-wrong"})
        assert status == 401
        assert b"sk-wrong" in body
        assert send(endpoint, asked(), headers={"authorization": "Bearer sk-right"})[0] == 200
        assert send(endpoint, asked(), "/v1/messages", headers={"x-api-key": "sk-right"})[0] == 200


def test_it_records_requests_without_their_keys() -> None:
    with serve() as endpoint:
        send(endpoint, asked(seed=1), headers={"authorization": "Bearer sk-1"})
        send(endpoint, asked(seed=1))
        send(endpoint, asked(seed=2))
        first, second, _ = endpoint.requests
        assert (first.body, first.path, first.method) == (asked(seed=1), CHAT, "POST")
        assert (first.authorized, second.authorized) == (True, False)
        assert "sk-1" not in repr(first)
        assert "content-length" in first.headers
        assert first.replied is not None
        assert first.arrived <= first.replied <= second.arrived
        assert (endpoint.hits, sorted(endpoint.hits_by_key.values())) == (3, [1, 2])
        assert endpoint.hits_by_key[first.key] == 2
        assert endpoint.stats()["by_status"] == {"200": 3}
        endpoint.clear()
        assert endpoint.requests == []


def test_it_can_do_without_bodies() -> None:
    with serve(keep_bodies=False) as endpoint:
        send(endpoint, asked())
        (noted,) = endpoint.requests
    assert (noted.body, noted.headers, len(noted.key)) == (None, {}, 32)


def test_a_connection_is_kept() -> None:
    with serve() as endpoint:
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
        for path in (CHAT, "/v1/embeddings", CHAT):
            connection.request("POST", path, json.dumps(asked(input="a")))
            with connection.getresponse() as reply:
                assert reply.status == 200
                reply.read()
            assert endpoint.connections == 1
        connection.close()


def test_latency_grows_with_the_reply() -> None:
    with serve(latency=0.01, per_token=0.0005) as endpoint:
        reply = json.loads(send(endpoint, asked())[2])
        (noted,) = endpoint.requests
    assert noted.replied is not None
    expected = 0.01 + 0.0005 * reply["usage"]["completion_tokens"]
    assert noted.replied - noted.arrived >= 0.9 * expected


def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    with serve() as endpoint:
        send(endpoint, asked())
        assert len(set(threading.enumerate()) - before) == 1
    endpoint.stop()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        send(endpoint, asked())


def test_connections_that_are_made_while_it_refuses_are_broken() -> None:
    """asyncio drops, with a warning, a connection whose server closes before it is set up."""
    with serve(fault=faults.refuse(seconds=60)) as endpoint:
        asking = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
        asking.connect()
        time.sleep(0.05)
        busy = threading.Event()
        endpoint._loop.call_soon_threadsafe(busy.wait)
        made = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(8)]
        asking.request("POST", CHAT, body=json.dumps(asked()))
        time.sleep(0.05)
        busy.set()
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            asking.getresponse()
        for connection in made:
            connection.settimeout(10)
            with connection, suppress(ConnectionError):
                assert connection.recv(1) == b""
        asking.close()
        gc.collect()
        assert endpoint.connections == 0


def test_a_broken_rule_is_reported() -> None:
    def broken(number: int, body: Any, key: str) -> Fault | None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), serve(fault=broken) as endpoint:
        assert send(endpoint, asked())[0] == 500
