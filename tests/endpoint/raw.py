"""Requests to the endpoint without a client library, for the tests of the endpoint itself."""

import http.client
import json
from typing import Any

from tests.endpoint.server import Endpoint

CHAT = "/v1/chat/completions"
SYSTEM = 'Reply with {"claims": [{"id": 1, "reason": "", "evidence": "", "verdict": ""}]}.'
DECOMPOSE = 'Reply with {"texts": [{"id": 1, "claims": [""]}]}.'
PREMISE = "The tower stands in Paris. It was built in 1889."
CLAIMS = ("The tower stands in Paris.", "It was built in 1890.", "Cheese comes from milk.")
LABELS = ["entailed", "contradicted", "neutral"]


def user(texts: dict[int, str], premise: str | None = PREMISE, name: str = "claim") -> str:
    blocks = [] if premise is None else [f"<premise-0123abcd>\n{premise}\n</premise-0123abcd>"]
    for id, text in texts.items():
        blocks.append(f'<{name}-deadbeef id="{id}">\n{text}\n</{name}-deadbeef>')
    return "\n\n".join(blocks)


def asked(*turns: str, system: str = SYSTEM, **more: Any) -> dict[str, Any]:
    """A request with these turns of the user, and an answer before each later one."""
    messages = [{"role": "system", "content": system}]
    for turn in turns or (user(dict(enumerate(CLAIMS, 1))),):
        if len(messages) > 1:
            messages.append({"role": "assistant", "content": "..."})
        messages.append({"role": "user", "content": turn})
    return {"model": "x", "messages": messages, **more}


def send(
    endpoint: Endpoint,
    body: Any,
    path: str = CHAT,
    timeout: float = 10,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the reply, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body), headers or {})
        with connection.getresponse() as reply:
            heads = {name.lower(): value for name, value in reply.headers.items()}
            return reply.status, heads, reply.read()
    finally:
        connection.close()


def choice(endpoint: Endpoint, body: Any) -> dict[str, Any]:
    found = json.loads(send(endpoint, body)[2])["choices"][0]
    assert isinstance(found, dict)
    return found


def text(endpoint: Endpoint, body: Any) -> str:
    return str(choice(endpoint, body)["message"]["content"])


def judged(reply: str) -> dict[int, str]:
    return {entry["id"]: entry["verdict"] for entry in json.loads(reply)["claims"]}
