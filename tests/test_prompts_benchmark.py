"""The benchmark of the prompts runs against any endpoint."""

import pytest

from tests.benchmarks.prompts import main
from tests.endpoint.server import serve


def test_it_prints_a_line_for_each_set_and_what_a_row_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serve() as endpoint:
        main([f"{{model: hosted_vllm/fake, api_base: '{endpoint.api_base}'}}", "--rows", "1"])
        assert endpoint.hits
    printed = capsys.readouterr().out
    for name in ("wice_claim", "all", "factscore_atomic", "hsplit"):
        assert f"\n{name} " in printed
    assert printed.count("failed; a row took ") == 2
