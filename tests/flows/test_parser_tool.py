"""Stages that ask for the parser get it: in runs, on workers, in plans and from Python."""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

import claimflow
from claimflow.flows.errors import StoppedError, WorkersError
from claimflow.flows.models.parser import EmbeddedParser
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.runner import part_maker
from claimflow.flows.runner.embedded_models import make_with_parser
from claimflow.flows.runner.estimate import ParserEstimate, estimate
from claimflow.flows.runner.plan import choose, plan
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.tools import StoppableParser
from claimflow.stages.tools import Word
from tests.endpoint.server import Endpoint
from tests.flows.judged import Judged

MODULE = '''
"""A stage of another package that parses responses, sample by sample."""

import os
from typing import ClassVar

import polars as pl

from claimflow.stages.base import Stage
from claimflow.stages.rows import Claim, content_key
from claimflow.stages.tables import Claims, Samples, Scores, build
from claimflow.stages.tools import Parser


class Words(Stage):
    """The number of words of each response, and the process that counted them."""

    metrics: ClassVar[tuple[str, ...]] = ("words",)
    by_row: ClassVar[bool] = True
    columns: ClassVar = {"samples": ("sample_id", "response")}

    count: bool = True

    def required_fields(self) -> frozenset[str]:
        return frozenset({"response"})

    def ignores(self) -> frozenset[str]:
        return frozenset() if self.count else frozenset({"parser"})

    def run(self, samples: Samples, *, parser: Parser | None = None) -> Scores:
        texts = samples["response"].to_list()
        trees = parser.parse(texts) if parser else dict.fromkeys(texts, ())
        counts = pl.Series("score", [float(len(trees[text])) for text in texts], pl.Float64)
        process = pl.lit('{"process": %d}' % os.getpid()).alias("details")
        return samples.select(
            "sample_id", counts, process, metric=pl.lit("words"), status=pl.lit("scored")
        )


class Verbs(Stage):
    """A claim for each verb of a response, of English ones only."""

    by_row: ClassVar[bool] = True

    def languages(self) -> frozenset[str]:
        return frozenset({"English"})

    def run(self, samples: Samples, *, parser: Parser | None = None) -> Claims:
        trees = parser.parse(samples["response"].to_list())
        rows = [
            {
                "claim_id": content_key("claim", sample_id, word.start),
                "sample_id": sample_id,
                "of": "response",
                "claim": f"Something {text[word.start : word.end]}.",
                "status": "made",
            }
            for sample_id, text in samples.select("sample_id", "response").iter_rows()
            for word in trees[text]
            if word.tag.startswith("VB")
        ]
        return build(Claim, rows)
'''

SAMPLES = [{"sample_id": f"s{n}", "response": f"Person {n} was born in Paris."} for n in range(12)]


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "parsing_stages.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(folder)


def evaluate(
    folder: Path,
    samples: Sequence[Mapping[str, Any]] = SAMPLES,
    use: str = "parsing_stages:Words",
    **settings: Any,
) -> Any:
    steps = {"words": {"use": use, **settings}}
    pipeline = {"name": "p", "steps": steps}
    return claimflow.evaluate(samples, pipeline=pipeline, store=folder / "s.duckdb")


def test_a_stage_that_asks_for_the_parser_gets_it(tmp_path: Path) -> None:
    assert evaluate(tmp_path).scores["score"].to_list() == [7.0] * len(SAMPLES)


def test_a_stage_that_needs_none_gets_none(tmp_path: Path) -> None:
    assert set(evaluate(tmp_path, count=False).scores["score"]) == {0.0}


def test_tables_are_made_again_when_the_parser_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = (
        "SELECT reused, tools FROM audit.runs JOIN audit.run_steps USING (run_id) "
        "JOIN (SELECT artifact_id, tools FROM audit.artifacts) USING (artifact_id) "
        "WHERE step = 'words' ORDER BY started_at DESC LIMIT 1"
    )

    def made() -> tuple[bool, str]:
        return evaluate(tmp_path).sql(query).row(0)

    reused, tools = made()
    assert not reused
    assert json.loads(tools) == {"parser": EmbeddedParser().identity}
    assert made()[0]
    monkeypatch.setattr(EmbeddedParser, "identity", {"words": 0})
    assert not made()[0]


def test_rows_of_unchanged_samples_are_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate(tmp_path, SAMPLES[:8]).scores
    parsed: list[str] = []
    parse = StoppableParser.parse

    def recorded(self: StoppableParser, sentences: Sequence[str]) -> Any:
        parsed.extend(sentences)
        return parse(self, sentences)

    monkeypatch.setattr(StoppableParser, "parse", recorded)
    again = evaluate(tmp_path, [SAMPLES[11], *SAMPLES[:8]]).scores
    assert parsed == [SAMPLES[11]["response"]]
    assert again["score"].to_list()[1:] == first["score"].to_list()


def test_workers_parse_for_a_stage_that_asks_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_maker, "_PARSED", 2)
    monkeypatch.setattr("claimflow.flows.runner.workers.local.COUNT", 2)
    scores = evaluate(tmp_path).scores
    assert scores["sample_id"].to_list() == [one["sample_id"] for one in SAMPLES]
    assert set(scores["score"]) == {7.0}
    processes = {json.loads(details)["process"] for details in scores["details"]}
    assert os.getpid() not in processes


def test_a_worker_with_another_parser_is_refused() -> None:
    from parsing_stages import Words  # type: ignore[import-not-found]

    samples = pl.DataFrame({"sample_id": ["a"], "response": ["It is."]})
    identity = EmbeddedParser().identity
    made = make_with_parser(Words(), {"samples": samples}, {"parser": identity}, None)
    assert made["score"].to_list() == [3.0]
    with pytest.raises(WorkersError, match=r"^a worker has another parser than there is here$"):
        make_with_parser(Words(), {"samples": samples}, {"parser": {"words": 0}}, None)


def test_a_stopped_run_parses_no_more() -> None:
    stop = threading.Event()
    parser = StoppableParser(stop)
    assert len(parser.parse(["It is.", "It is."])["It is."]) == 3
    stop.set()
    with pytest.raises(StoppedError):
        parser.parse(["It is."])
    assert parser.parse([]) == {}


# Plans.


class Counted:
    """Words of one letter, and which sentences were parsed."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def parse(self, sentences: Sequence[str]) -> dict[str, tuple[Word, ...]]:
        self.asked += sentences
        return dict.fromkeys(sentences, (Word(0, 1, "NN", "root", -1),))


def test_a_plan_parses_so_many_sentences() -> None:
    counted = Counted()
    parser = ParserEstimate(counted, most=3)
    assert parser.parse(["a", "b", "a"]).keys() == {"a", "b"}
    assert not parser.guessed
    assert [len(tree) for tree in parser.parse(["b", "c", "d", "e"]).values()] == [1, 1, 0, 0]
    assert parser.guessed
    assert counted.asked == ["a", "b", "c"]


def judged(folder: Path) -> Judged:
    """A pipeline whose claims are verbs; its judge is never asked."""
    steps = {
        "verbs": {"use": "parsing_stages:Verbs"},
        "verdicts": {"use": "verify_claims", "claims": "verbs", "against": "reference"}
        | {"premises_per_call": 1},
    }
    pipeline = Judged(folder, cast("Endpoint", SimpleNamespace(api_base="http://127.0.0.1:9")))
    pipeline.write([one | {"reference": f"In {one['sample_id']}."} for one in SAMPLES], steps=steps)
    return pipeline


def test_a_plan_counts_claims_that_need_the_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = judged(tmp_path)
    prepared = prepare(pipeline.path)
    steps = plan(prepared, pipeline.store, choice=choose(prepared, pipeline.store, Rerun()))
    made = estimate(prepared, pipeline.store, steps)["verdicts"]
    assert (made.calls, made.about) == (len(SAMPLES), False)
    monkeypatch.setattr(ParserEstimate.__init__, "__kwdefaults__", {"most": 4})
    made = estimate(prepared, pipeline.store, steps)["verdicts"]
    assert (made.calls, made.about) == (4, True)


# Languages: a stage that says what it reads leaves other texts alone.


def test_texts_that_the_parser_was_not_taught_are_told_of(tmp_path: Path) -> None:
    german = "Der Turm ist in Paris und wurde 1889 gebaut, und zwar aus Eisen."
    samples = [*SAMPLES, {"sample_id": "de", "response": german}]
    readers = "SELECT DISTINCT reader FROM audit.readers"
    result = evaluate(tmp_path, samples)
    assert result.sql(readers)["reader"].to_list() == ["parser"]
    assert any("were not taught (German 1)" in warning for warning in result.warnings)
    (tmp_path / "other").mkdir()
    result = evaluate(tmp_path / "other", samples, "parsing_stages:Verbs")
    assert result.sql(readers)["reader"].to_list() == ["rules"]
