"""A limit that runs share, as one run sees it: every request passes, and nothing remembers it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.judge.rate_limit import SetRate
from claimflow.flows.runner.prepare import prepare
from tests.endpoint.server import serve
from tests.flows.judged import Judged


class Counting:
    """A turnstile that counts who passes."""

    def __init__(self, name: str, set_rate: SetRate) -> None:
        self.name = name
        self.passed = self.inside = 0
        self.closed = False
        set_rate(6000)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        self.passed += 1
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    async def close(self) -> None:
        self.closed = True


def test_every_request_passes_and_the_turnstile_is_closed(tmp_path: Path) -> None:
    opened: list[Counting] = []

    def sharing(name: str, set_rate: SetRate) -> Counting:
        opened.append(Counting(name, set_rate))
        return opened[-1]

    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a", "b", "c"], shared_limit="pool")
        run_pipeline(prepare(judged.path), judged.store, open_shared_limiter=sharing)
        assert endpoint.hits == 3
    assert [(one.name, one.passed, one.inside, one.closed) for one in opened] == [
        ("pool", 3, 0, True)
    ]


def test_it_is_in_no_fingerprint_and_no_key_of_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a", "b"], shared_limit="pool")
        assert judged.command() == 0
        assert endpoint.hits == 2
        place = "p.yaml:9 judge.shared_limit"
        assert capsys.readouterr().err.splitlines()[1] == (
            f"{place}: pool is shared by runs that Prefect tracks; this one keeps to its own pace "
            "(set PREFECT_API_URL to share it)"
        )
        judged.write(["a", "b"], shared_limit="another")
        assert judged.command() == 0
        assert "0 steps made, 4 reused" in capsys.readouterr().out
        judged.write(["a", "b"])
        assert judged.command("--again", "response_in_reference") == 0
        assert endpoint.hits == 0
        assert "shared" not in capsys.readouterr().err
