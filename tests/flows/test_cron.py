"""Times in the five fields of cron."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimflow.flows.pipeline.times import check_cron

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "line",
    [
        "0 2 * * *",
        "*/5 0-6,22 1 jan MON-fri",
        "05 00 31 12 7",
        "0 0 1-15/2 * sun",
        "0 0 29 2 *",
        "0 0 31 */2 *",
        "0 0 30-1 2 *",
        "0 0 31 4 mon",
        "0 0 31 jun,oct *",
    ],
)
def test_a_time_that_comes_is_accepted(line: str) -> None:
    assert check_cron(line) == line


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (
            "0 25 * *",
            "write five fields, as in '0 2 * * *' for two at night: minute, hour, day of the "
            "month, month, day of the week",
        ),
        ("0 25 * * *", "'25' is not a valid hour: write *, or 0 to 23"),
        ("0 1-x * * *", "'1-x' is not a valid hour: write *, or 0 to 23"),
        ("0 * * * *,", "'' is not a valid day of the week: write *, or 0 to 7 or sun to sat"),
        ("*/0 * * * *", "'*/0' is not a valid minute: write *, or 0 to 59"),
        ("0 0 31 4 *", "no month 4 has a day 31, so that time never comes"),
        ("0 0 30-31 feb *", "no month feb has a day 30-31, so that time never comes"),
        # The scheduler reads 31/3 as */3, which is not what was written.
        ("0 0 31/3 2 *", "no month 2 has a day 31/3, so that time never comes"),
        ("0 0 31 4-11/5,6 *", "no month 4-11/5,6 has a day 31, so that time never comes"),
    ],
)
def test_other_texts_are_refused(line: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(wrong)}$"):
        check_cron(line)


DAYS = ["*", "28", "29", "30", "31", "30-31", "31,30", "29-31/2", "*/16", "30/3"]
MONTHS = ["*", "1", "2", "02", "4", "feb", "feb,jun", "4-5", "4-9/5", "9/2", "11-12", "*/3"]


@settings(max_examples=40)
@given(days=st.sampled_from(DAYS), months=st.sampled_from(MONTHS))
def test_a_time_is_accepted_where_the_scheduler_finds_one(days: str, months: str) -> None:
    # Loading Prefect takes seconds, which every process that only collects tests would spend.
    from prefect.server.schemas.schedules import CronSchedule

    line = f"30 2 {days} {months} *"

    def comes() -> bool:
        return bool(asyncio.run(CronSchedule(cron=line).get_dates(1, start=NOW)))

    assert succeeds(lambda: bool(check_cron(line))) == succeeds(comes)


def succeeds(work: Callable[[], bool]) -> bool:
    try:
        return work()
    except ValueError:
        return False
