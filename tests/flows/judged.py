"""A small pipeline whose judge is the fake endpoint, with helpers to run it and query its store."""

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import yaml

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.judge.judge import EndpointJudge
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.judging.verdicts import Opinion
from claimflow.stages.tools import Failure, Form, Question, Reply
from tests.endpoint.record import Recorded
from tests.endpoint.server import Endpoint

MODEL = "hosted_vllm/fake"
CLAIMS = ("The tower stands in Paris.", "The tower opened in 1890.", "Cheese comes from milk.")
LABELS = ["entailed", "contradicted", "neutral"]

EMBEDDED = {"use": "decompose_claims", "of": "response", "judge": "embedded"}
ALONE = {"premises_per_call": 1}
VERIFY = {"use": "verify_claims", "claims": "response_claims", "against": "reference"} | ALONE
SCORE = {"use": "factual_correctness", "mode": "precision"}
STEPS = {"response_claims": EMBEDDED, "response_in_reference": VERIFY, "precision": SCORE}
"""Claims by rules, verdicts by the judge: one call for each sample."""

DECOMPOSE = {"use": "decompose_claims", "of": "response", "texts_per_call": 1}

PROMPT = 'Reply with {"claims": [{"id": 1, "verdict": "entailed"}]}.\n{{premise}}\n\n{{claims}}\n'
FORM = Form(PROMPT, "claims", Opinion, per_call=8, keep_part=True)
PREMISE = "The tower stands in Paris. The tower opened in 1889."
QUESTIONS = [Question(claim, PREMISE) for claim in CLAIMS]


def sample(name: str, **more: Any) -> dict[str, Any]:
    """A sample whose three claims have the three verdicts; its premise contains `name`."""
    reference = f"Case {name}. The tower stands in Paris. The tower opened in 1889."
    return {"sample_id": name, "response": " ".join(CLAIMS), "reference": reference} | more


def about(name: str) -> Callable[[Any], bool]:
    """Whether a request is about the sample of that name, for `faults.where`."""
    return lambda body: f"Case {name}." in json.dumps(body)


@contextmanager
def session(store: Path, stop: threading.Event | None = None) -> Iterator[Session]:
    """The session of a run "r" on a store."""
    opened = Session(Ledger(Store(store)), run_id="r", stop=stop or threading.Event())
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def judge_of(
    endpoint: Endpoint, store: Path, stop: threading.Event | None = None, **settings: Any
) -> Iterator[EndpointJudge]:
    """A judge that asks `endpoint`, in a session of its own."""
    usual: dict[str, Any] = {"model": MODEL, "api_base": endpoint.api_base, "timeout": 10}
    with session(store, stop) as opened:
        yield EndpointJudge("judge", Judge(**(usual | settings)), opened)


def label_of(answer: Reply | Failure) -> str:
    """The verdict, or the kind of failure."""
    if isinstance(answer, Failure):
        return answer.kind
    assert isinstance(answer.answer, Opinion)
    return answer.answer.verdict


class Judged:
    """A pipeline file in a folder, whose judge is `endpoint`."""

    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        self.path = folder / "p.yaml"
        self.store = Store(folder / "s.duckdb")
        self._endpoint = endpoint

    def copied(self, folder: Path) -> "Judged":
        """A copy in another folder, with all files of this one."""
        shutil.copytree(self.path.parent, folder, dirs_exist_ok=True)
        return Judged(folder, self._endpoint)

    def judge(self, **settings: Any) -> dict[str, Any]:
        """The settings of a judge, as a pipeline file has them."""
        usual = {"model": MODEL, "api_base": self._endpoint.api_base, "timeout": 10}
        return {name: value for name, value in (usual | settings).items() if value is not ...}

    def write(
        self,
        samples: Iterable[str | dict[str, Any]],
        *,
        steps: Mapping[str, Any] = STEPS,
        more: Mapping[str, Any] | None = None,
        **judge: Any,
    ) -> None:
        """Write the pipeline and its samples; a string stands for `sample(string)`."""
        written = [sample(one) if isinstance(one, str) else one for one in samples]
        lines = [json.dumps(one) + "\n" for one in written]
        self.path.with_name("s.jsonl").write_text("".join(lines), "utf-8")
        pipeline = {
            "name": "p",
            "samples": {"path": "s.jsonl"},
            "store": "s.duckdb",
            "judge": self.judge(**judge),
            # Most tests look at single rows; those of `fail_when` write their own.
            "fail_when": "never",
            **(more or {}),
            "steps": dict(steps),
        }
        self.path.write_text(yaml.safe_dump(pipeline, sort_keys=False), "utf-8")

    def run(self) -> None:
        """Run the pipeline, after deleting the endpoint's record of earlier requests."""
        self._endpoint.clear()
        run_pipeline(prepare(self.path), self.store)

    def command(self, *options: str) -> int:
        """As `run`, through the command line. Returns the exit code."""
        self._endpoint.clear()
        with chdir(self.path.parent):
            return main(["run", self.path.name, *options])

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query's result."""
        with self.store.reading() as connection:
            return read_table(connection, query, **values).rows()

    def scores(self) -> dict[str, tuple[str, float | None, str | None]]:
        """Status, score and reason of each sample in the newest finished run."""
        rows = self.ask("SELECT sample_id, status, score, reason FROM latest.scores")
        found = {name: (status, score, reason) for name, status, score, reason in rows}
        assert len(found) == len(rows), "a sample has several scores"
        return found

    def verdicts(self) -> dict[str, list[str | None]]:
        """The verdicts, or the kinds of failure, of each sample, in the order of its claims."""
        found: dict[str, list[str | None]] = {}
        for name, verdict in self.ask(
            "SELECT sample_id, coalesce(verdict, verdicts.failure) FROM latest.claims "
            "JOIN latest.verdicts USING (claim_id) ORDER BY sample_id, claims.start, claim, "
            "claims.step, verdicts.step, passage"
        ):
            found.setdefault(name, []).append(verdict)
        return found

    def calls(self, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        """Columns of `audit.calls`, in the order of the requests."""
        return self.ask(f"SELECT {columns} FROM audit.calls WHERE {where} ORDER BY asked_at")

    def everything(self) -> str:
        """The contents of all tables of the store, as text."""
        with self.store.reading() as connection:
            tables = connection.execute(f"SELECT DISTINCT place FROM ({_COLUMNS})").fetchall()
            rows = [connection.execute(f"FROM {table}").fetchall() for (table,) in tables]
        return "\n".join(repr(row) for table in rows for row in table)

    def holds_nan(self) -> list[str]:
        """The columns that contain NaN or infinity."""
        with self.store.reading() as connection:
            columns = connection.execute(
                f"SELECT place, column_name FROM ({_COLUMNS}) WHERE data_type = 'DOUBLE'"
            ).fetchall()
            assert len(columns) > 10
            return [
                f"{table}.{column}"
                for table, column in columns
                if connection.execute(
                    f'SELECT count(*) FROM {table} WHERE NOT isfinite("{column}")'
                ).fetchall()
                != [(0,)]
            ]


_COLUMNS = """
SELECT concat_ws('.', table_schema, table_name) AS place, column_name, data_type
FROM information_schema.columns JOIN information_schema.tables
USING (table_schema, table_name) WHERE table_type = 'BASE TABLE'
"""


def together(requests: Sequence[Recorded]) -> int:
    """The largest number of `requests` that were served at the same time."""
    ends = [one.replied or one.arrived for one in requests]
    return max(
        sum(other.arrived <= one.arrived < end for other, end in zip(requests, ends, strict=True))
        for one in requests
    )
