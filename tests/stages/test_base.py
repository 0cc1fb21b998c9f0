import re
from collections.abc import Mapping
from inspect import cleandoc
from textwrap import dedent
from typing import Any, Protocol

import polars as pl
import pytest

from claimflow.stages.base import Input, Stage
from claimflow.stages.rows import Claim, Sample, Score
from claimflow.stages.tables import Claims, Samples, Scores, TableError, build
from claimflow.stages.tools import Embedder

SCORED = pl.lit("scored")


class Speaker(Protocol):
    def say(self) -> str: ...


class Example(Stage):
    use = "example"
    per_sample = False
    word: str = "a"

    def run(
        self,
        samples: Samples,
        claims: Claims | None = None,
        *,
        scores: Mapping[str, Scores],
        speaker: Speaker,
        embedder: Embedder,
    ) -> Scores:
        answer = self.word + speaker.say()
        return samples.select(
            "sample_id", metric=pl.lit(answer), score=0.5, status=pl.lit("scored")
        )


class Hello:
    def say(self) -> str:
        return "!"


def test_wiring_is_read_from_the_signature() -> None:
    assert Example.inputs == {
        "samples": Input(Sample),
        "claims": Input(Claim),
        "scores": Input(Score, every=True),
    }
    assert Example.tools == {"speaker": Speaker, "embedder": Embedder}
    assert Example.makes is Score


def test_optional_inputs_and_tools_are_wired_like_others() -> None:
    class Choosy(Stage):
        use = "choosy"
        loud: bool = False

        def ignores(self) -> frozenset[str]:
            return frozenset() if self.loud else frozenset({"speaker", "claims"})

        def run(
            self,
            samples: Samples,
            claims: Claims | None = None,
            scores: Mapping[str, Scores] | None = None,
            *,
            speaker: Speaker | None = None,
        ) -> Scores:
            score = 0.0 if speaker is None else 1.0
            return samples.select("sample_id", metric=pl.lit("m"), score=score, status=SCORED)

    assert Choosy.inputs == {
        "samples": Input(Sample),
        "claims": Input(Claim),
        "scores": Input(Score, every=True),
    }
    assert Choosy.tools == {"speaker": Speaker}
    assert Choosy().ignores() == {"speaker", "claims"}
    assert Choosy(loud=True).ignores() == frozenset()
    tables = {"samples": build(Sample, [{"sample_id": "s"}])}
    assert Choosy().make(tables, {})["score"].to_list() == [0.0]
    assert Choosy(loud=True).make(tables, {"speaker": Hello()})["score"].to_list() == [1.0]


def test_make_runs_the_stage_and_checks_its_table() -> None:
    samples = build(Sample, [{"sample_id": "s"}])
    tools = {"speaker": Hello(), "embedder": None}
    table = Example().make({"samples": samples, "scores": {}}, tools)
    assert table.rows() == [("s", "a!", 0.5, "scored", None, None, None, "{}")]
    twice = pl.concat([samples, samples])
    with pytest.raises(TableError, match=r"1 rows repeat a key \(sample_id, metric\)"):
        Example().make({"samples": twice, "scores": {}}, tools)


def test_a_subclass_keeps_the_wiring() -> None:
    class Special(Example):
        word: str = "b"

    assert Special.inputs == Example.inputs


def test_a_stage_that_returns_no_table_fails_when_defined() -> None:
    with pytest.raises(TypeError, match=r"Silent\.run must be annotated with the table it returns"):

        class Silent(Stage):
            use = "silent"

            def run(self, samples: Samples) -> pl.DataFrame:
                return samples


def test_a_stage_with_an_unknown_parameter_fails_when_defined() -> None:
    message = "Odd.run: parameter 'factor' is neither a table nor a tool protocol"
    with pytest.raises(TypeError, match=message):

        class Odd(Stage):
            use = "odd"

            def run(self, samples: Samples, factor: float) -> Scores:
                return samples

    message = message.replace("Odd", "Either")
    with pytest.raises(TypeError, match=message):

        class Either(Stage):
            use = "either"

            def run(self, samples: Samples, factor: Claims | Scores | None) -> Scores:
                return samples


def test_a_name_is_a_setting_or_an_input() -> None:
    message = "Both: 'claims' is both a setting and a parameter of run"
    with pytest.raises(TypeError, match=message):

        class Both(Stage):
            use = "both"
            claims: str

            def run(self, samples: Samples, claims: Claims) -> Scores:
                return samples


def test_a_stage_that_runs_by_sample_takes_samples() -> None:
    message = "Blind.run must take samples, or say per_sample = False"
    with pytest.raises(TypeError, match=message):

        class Blind(Stage):
            use = "blind"

            def run(self, claims: Claims) -> Scores:
                return claims


def test_the_example_in_the_docstring_is_a_stage() -> None:
    text = cleandoc(Stage.__doc__ or "")
    blocks = re.findall(r"^    class .*?(?=^\S)", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec("from typing import *\nimport polars as pl\nfrom pydantic import Field", names)
    exec("from claimflow.stages.base import *\nfrom claimflow.stages.tables import *", names)
    exec(dedent(blocks[0]), names)
    stage = names["ResponseLength"](limit=3)
    samples = build(Sample, [{"sample_id": "a", "response": "Paris"}, {"sample_id": "b"}])
    rows = stage.make({"samples": samples}, {}).select("sample_id", "score", "status", "reason")
    assert rows.rows() == [
        ("a", 3.0, "scored", None),
        ("b", None, "undefined", "missing: response"),
    ]
