"""A limit that runs share, as tests see it on the Prefect server."""

import json
from pathlib import Path
from typing import Any

from tests.flows.prefect_server import ask


class Limit:
    """The limit of a name on the server at `url`; made where `rpm` is given."""

    def __init__(self, url: str, name: str, rpm: int | None = None, *, decay: float = 0.0) -> None:
        self._url = f"{url}/v2/concurrency_limits"
        self.name = name
        if rpm is not None:
            written = {"name": name, "limit": rpm, "slot_decay_per_second": decay}
            ask(f"{self._url}/", written)

    def read(self) -> Any:
        """As the server has it."""
        return ask(f"{self._url}/{self.name}")

    def places(self) -> int:
        """Among how many the rate is divided."""
        return int(self.read()["active_slots"])

    def take(self) -> None:
        """Take a place, for good."""
        ask(f"{self._url}/increment", {"names": [self.name], "slots": 1, "mode": "concurrency"})


def expire(leases: Path, flow_run: str) -> None:
    """Have the lease of a run expire now: the server takes none of less than a minute."""
    past = "2026-01-01T00:00:00+00:00"
    index = leases / "expirations.json"
    found = 0
    for path in leases.glob("*-*.json"):
        lease = json.loads(path.read_text("utf-8"))
        if lease["metadata"]["holder"] == {"type": "flow_run", "id": flow_run}:
            found += 1
            path.write_text(json.dumps(lease | {"expiration": past}), "utf-8")
            known = json.loads(index.read_text("utf-8")) | {lease["id"]: past}
            index.write_text(json.dumps(known), "utf-8")
    assert found
