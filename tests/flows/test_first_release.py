"""The first release's demo pipelines on a store of it: no model is asked again.

Tables are reused but for those of `REMADE`.

That release did not record an address that came from the environment. So its replies count as those
of the provider's own address.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.store import Store
from tests.endpoint.server import Endpoint, serve

ROOT = Path(__file__).parents[2]
FIRST = ROOT / "tests/data/first_release/demo.duckdb.gz"
CONFIGS = ROOT / "tests/data/first_release/configs"
VERIFY = {
    "response_in_reference", "reference_in_response", "response_in_contexts",
    "reference_in_contexts",
}  # fmt: skip
CLAIMS = {"response_claims", "reference_claims"}
MATCHES = {"context_matches", "reference_matches"}
REMADE = {
    "quickstart.yaml": {
        *VERIFY, *CLAIMS, *MATCHES, "similarity", "factual_correctness", "answer_correctness",
        "semantic_similarity", "faithfulness", "context_recall", "summary",
    },
    "llm/quickstart.yaml": {
        *VERIFY, *CLAIMS, *MATCHES, "similarity", "factual_correctness", "answer_correctness",
        "semantic_similarity", "faithfulness", "context_recall", "summary",
    },
    "llm/nightly.yaml": {
        "response_in_contexts", "reference_in_contexts", *CLAIMS,
        "faithfulness", "context_recall", "summary",
    },
}  # fmt: skip
"""The steps of each pipeline whose tables are made again.

`verify_claims` since version 6: verdicts have their support, which is a column of the digest also
where a single reply of a language model leaves it empty, so that the scores are made again: those
of refusals are undefined, and details have both counts. `embedding_similarity` since version 2:
cosines differ in the eighth digit. `decompose_claims` since version 7: sentences that claim nothing
have rows, and rules resolve more pronouns. `lexical_match` since version 5, because sentences have
other ends; not in these samples, so its rows are the same. The others are made of these. The
pipelines name the prompts of the first release, since the shipped ones are others now.
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A copy of the store that the first release made of the demo pipelines."""
    path = tmp_path / "demo.duckdb"
    path.write_bytes(gzip.decompress(FIRST.read_bytes()))
    store = Store(path)
    with store.writing():
        pass  # A store of an older schema version cannot be read before it is migrated.
    return store


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serve() as endpoint:
        monkeypatch.delenv("OPENAI_API_BASE", raising=False)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield endpoint


def rows(store: Store, sql: str) -> set[tuple[object, ...]]:
    with store.reading() as connection:
        return set(connection.execute(sql).fetchall())


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """The steps whose tables differ."""
    assert before.keys() == after.keys()
    return {step for step in before if before[step] != after[step]}


def changed_steps(name: str) -> set[str]:
    """The steps of a pipeline whose tables have other rows than in the first release."""
    return REMADE[name] - MATCHES - ({"reference_claims"} if name.startswith("llm/") else set())


def tables(store: Store, pipeline: str) -> dict[str, tuple[object, ...]]:
    """What is in the table of each step in the newest run of a pipeline."""
    latest = """
        SELECT step, digest, row_count, failures FROM audit.run_steps
        JOIN audit.artifacts USING (artifact_id) JOIN audit.runs ON runs.run_id = run_steps.run_id
        WHERE config_path LIKE '%/configs/' || $pipeline
        QUALIFY dense_rank() OVER (ORDER BY started_at DESC) = 1
    """
    with store.reading() as connection:
        found = connection.execute(latest, {"pipeline": pipeline}).fetchall()
    return {step: rest for step, *rest in found}


@pytest.mark.parametrize("name", REMADE)
def test_tables_are_reused_and_replies_too(store: Store, endpoint: Endpoint, name: str) -> None:
    before = tables(store, name)
    ran = run_pipeline(prepare(CONFIGS / name), store)
    assert {step for step, result in ran.steps.items() if not result.reused} == REMADE[name]
    assert changed(before, tables(store, name)) == changed_steps(name)
    assert endpoint.requests == []
    assert check_store(store).faults == []


@pytest.mark.parametrize("name", REMADE)
def test_without_the_tables_the_replies_give_the_same_tables(
    store: Store, endpoint: Endpoint, name: str
) -> None:
    # The embedded entailment model reads sentences: its judgements are of another model now.
    replies = "SELECT key, reply, made_at FROM audit.replies WHERE tool <> 'entailment'"
    before, known = tables(store, name), rows(store, replies)
    with store.writing() as connection:
        connection.execute("DELETE FROM audit.artifacts")
    run_pipeline(prepare(CONFIGS / name), store)
    assert changed(before, tables(store, name)) == changed_steps(name)
    assert rows(store, replies) == known
    assert endpoint.requests == []


@pytest.mark.parametrize("name", ["llm/quickstart.yaml", "llm/nightly.yaml"])
def test_with_an_address_in_the_environment_only_what_judges_made_is_made_again(
    store: Store, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = tables(store, name)
    monkeypatch.setenv("OPENAI_API_BASE", endpoint.api_base)
    prepared = prepare(CONFIGS / name)
    ran = run_pipeline(prepared, store)
    judged = {step.name for step in prepared.pipeline.steps if step.judges}
    assert {step for step, made in ran.steps.items() if not made.reused} == REMADE[name] | judged
    assert changed(before, tables(store, name)) == changed_steps(name)
    assert endpoint.hits > 50
    addresses = rows(store, "SELECT DISTINCT api_base FROM audit.calls")
    assert addresses == {(None,), (endpoint.api_base,)}
