"""What the end of a run says of rows that failed."""

from pathlib import Path

import pytest

from tests.endpoint import faults, serve
from tests.flows.judged import Judged, about


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], "3 rows failed"),
        (["prose"], "6 rows failed; run again to ask for 3 of them"),
    ],
)
def test_only_what_would_be_asked_again_is_worth_another_run(
    others: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = faults.either(
        faults.where(about("declined"), faults.refused()),
        faults.where(about("prose"), faults.prose()),
    )
    with serve(fault=rule) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["good", "declined", *others])
        assert judged.command() == 1
    assert said in capsys.readouterr().out.splitlines()
