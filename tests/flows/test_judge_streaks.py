"""An endpoint that is down, hangs or answers nonsense stops a run, and soon."""

import asyncio
import re
import time
from pathlib import Path

import pytest

from claimflow.flows.errors import JudgeError
from claimflow.flows.judge.embedding import EndpointEmbedder
from claimflow.flows.judge.provider import ProviderError
from claimflow.flows.judge.rate_limit import RateLimiter
from claimflow.flows.judge.retry import FailureStreak, longest_call, send_with_retries
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Judge
from claimflow.stages.tools import Question
from tests import virtual_time
from tests.endpoint import faults
from tests.endpoint.fault import Rule
from tests.endpoint.server import serve
from tests.flows.judged import FORM, LABELS, Judged, about, judge_of, label_of, session

pytestmark = pytest.mark.filterwarnings(
    # litellm may be stopped between making a coroutine and awaiting it, or while it connects.
    "ignore:coroutine '.*' was never awaited:RuntimeWarning",
    "ignore:unclosed <socket:ResourceWarning",
)


def questions(count: int) -> list[Question]:
    """One call each, since every one has a premise of its own."""
    return [Question("The tower stands.", f"The tower stands {n}.") for n in range(count)]


def grown(streak: FailureStreak, failures: int) -> list[str | None]:
    return [streak.grow() for _ in range(failures)]


class TestFailureStreak:
    """How many failed calls in a row are enough."""

    @pytest.mark.parametrize(
        ("planned", "enough"), [(0, 10), (30, 10), (109, 10), (500, 50), (5_000, 200)]
    )
    def test_a_tenth_of_the_planned_calls_but_10_to_200(self, planned: int, enough: int) -> None:
        streak = FailureStreak(fewest=10, longest=240, clock=lambda: 0.0)
        streak.planned = planned
        assert grown(streak, enough) == [None] * (enough - 1) + [f"{enough} calls in a row failed"]

    def test_a_call_that_does_not_fail_ends_it(self) -> None:
        streak = FailureStreak(fewest=10, longest=240, clock=lambda: 0.0)
        assert grown(streak, 9) == [None] * 9
        streak.end()
        assert grown(streak, 9) == [None] * 9

    def test_five_are_enough_when_there_was_no_reply_for_two_calls(self) -> None:
        now = 0.0
        streak = FailureStreak(fewest=10, longest=240, clock=lambda: now)
        streak.planned = 10_000
        now = 1_000.0
        # The first began 240 seconds before it failed.
        assert streak.grow(240) is None
        assert grown(streak, 3) == [None] * 3
        now += 239
        assert streak.grow(240) is None
        now += 1
        found = streak.grow(240)
        assert found == "6 calls in a row failed, without a reply for 480 seconds"

    def test_a_pause_before_the_first_failure_does_not_count(self) -> None:
        now = 0.0
        streak = FailureStreak(fewest=10, longest=240, clock=lambda: now)
        streak.planned = 10_000
        now = 50_000
        assert grown(streak, 20) == [None] * 20


@pytest.mark.parametrize(
    "fault",
    [faults.refuse(seconds=60), faults.close(), faults.status(429), faults.html()],
    ids=["refuse", "close", "429", "html"],
)
def test_an_endpoint_that_is_down_stops_a_run_of_120_calls_after_12(
    tmp_path: Path, fault: Rule
) -> None:
    """Fewer where they took long."""
    counts = r"([5-9]|1[0-6])"
    with (
        serve(fault=fault) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", timeout=0.5) as judge,
        pytest.raises(
            JudgeError, match=rf"judge \(hosted_vllm/fake\): {counts} calls in a row failed"
        ),
    ):
        judge.ask(questions(120), FORM, step="a")


@pytest.mark.parametrize("fault", [faults.hang(), faults.drip(0.1, 1)], ids=["hang", "drip"])
def test_an_endpoint_that_never_replies_holds_a_run_for_two_calls_and_one_attempt(
    tmp_path: Path, fault: Rule
) -> None:
    """A call takes four times its timeout; the guide gives this bound for the default of 60 s."""
    with (
        serve(fault=fault) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", timeout=0.5) as judge,
    ):
        judge.ask([], FORM, step="a")
        began = time.monotonic()
        with pytest.raises(JudgeError, match=r"in a row failed"):
            judge.ask(questions(4_000), FORM, step="a")
        assert time.monotonic() - began < 60


@pytest.mark.parametrize(("most", "minutes"), [(16, 9), (4, 8), (1, 20)])
def test_how_long_an_endpoint_that_hangs_holds_a_run_with_the_default_timeout(
    most: int, minutes: float
) -> None:
    """In virtual time; the guide has these figures."""
    timeout = Judge.model_fields["timeout"].default

    async def held() -> float:
        clock = asyncio.get_running_loop().time
        limiter = RateLimiter(most, clock=clock)
        streak = FailureStreak(fewest=10, longest=longest_call(timeout), clock=clock)
        streak.planned = 10_000
        down = asyncio.Event()

        async def hang(seconds: float) -> str:
            await asyncio.sleep(seconds)
            raise ProviderError("timeout", "no reply")

        async def ask() -> None:
            while not down.is_set():
                with pytest.raises(ProviderError) as raised:
                    await send_with_retries(hang, limiter=limiter, tokens=1, timeout=timeout)
                if streak.grow(raised.value.seconds):
                    down.set()

        workers = [asyncio.create_task(ask()) for _ in range(most)]
        began = clock()
        await down.wait()
        seconds = clock() - began
        for worker in workers:
            worker.cancel()
        return seconds

    assert virtual_time.run(held) == pytest.approx(60 * minutes, rel=0.05)


def test_bad_requests_in_a_row_stop_a_run_although_some_were_answered(tmp_path: Path) -> None:
    fault = faults.where(lambda body: "Case fine" not in str(body), faults.status(400))
    with (
        serve(fault=fault) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", max_concurrency=1) as judge,
    ):
        answers = judge.ask([Question("Any.", "Case fine."), *questions(49)], FORM, step="a")
        assert [label_of(one) for one in answers.values()][1:] == ["bad_request"] * 49
        with pytest.raises(JudgeError, match="50 calls in a row failed: 400"):
            judge.ask(questions(200), FORM, step="b")


def test_replies_that_cannot_be_read_stop_a_run(tmp_path: Path) -> None:
    with (
        serve(fault=faults.malformed()) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb") as judge,
        pytest.raises(JudgeError, match=r"5\d calls in a row failed: unparseable: "),
    ):
        judge.ask(questions(200), FORM, step="a")


def test_one_readable_reply_in_ten_goes_on(tmp_path: Path) -> None:
    fault = faults.where(
        lambda body: not re.search(r"stands \d*0\.", str(body)), faults.malformed()
    )
    with (
        serve(fault=fault) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", max_concurrency=1) as judge,
    ):
        found = [label_of(one) for one in judge.ask(questions(120), FORM, step="a").values()]
        assert found.count("unparseable") > 80


def test_an_embeddings_endpoint_that_is_down(tmp_path: Path) -> None:
    settings = {"model": "hosted_vllm/fake", "provider": "litellm", "timeout": 0.2}
    with serve(fault=faults.status(500)) as endpoint, session(tmp_path / "s.duckdb") as opened:
        model = EmbeddingEndpoint(api_base=endpoint.api_base, texts_per_call=1, **settings)
        with pytest.raises(JudgeError, match=r"embedder .*: ([5-9]|1[0-6]) calls in a row failed"):
            EndpointEmbedder(model, opened).embed([f"Text {n}." for n in range(120)], step="a")


def test_finished_work_is_kept_and_the_next_run_continues(tmp_path: Path) -> None:
    down = faults.where(lambda body: not about("s00")(body), faults.close())
    with serve(fault=down) as endpoint:
        judged = Judged(tmp_path, endpoint)
        names = [f"s{number:02}" for number in range(20)]
        judged.write(names)
        assert judged.command() == 6
        [(status, reason)] = judged.ask("SELECT status, reason FROM audit.runs")
        assert status == "failed"
        assert re.search("1[0-9] calls in a row failed", reason)
        assert "\n" not in reason
        endpoint.behaviour.fault = None
        assert judged.command() == 0
        assert 10 <= endpoint.hits <= 19
    assert judged.verdicts() == dict.fromkeys(names, LABELS)
