"""A cascade at the real endpoint: who is asked, what is remembered, what is told of it.

The entailment model is a tiny one: it is sure that the first of the three claims of a sample is
entailed and that the third is not, and unsure of the second.
"""

import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.judge.estimate import CascadeEstimate, Estimate
from claimflow.flows.models.loading import load_entailment_model
from claimflow.flows.pipeline.model_settings import EntailmentSource
from claimflow.flows.quality.cascades import cascade_results
from claimflow.flows.quality.distributions import clopper_pearson
from claimflow.flows.report.markdown import run_markdown
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.runner.estimate import EntailmentEstimate, estimate
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.tools import Pair
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import LABELS, STEPS, VERIFY, Judged

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = Path(__file__).parents[1] / "data" / "tiny_cross_encoder"
SURE = {"audit": 0}

WHO = """
SELECT claim, verdict, model_verdict, judged_by, round(p_entailed, 3)
FROM latest.verdicts JOIN latest.claims USING (claim_id) WHERE sample_id = 'a' ORDER BY start
"""


def write(judged: Judged, cascade: dict[str, Any], *names: str, **verify: Any) -> None:
    """The usual pipeline with a cascade and one claim a call."""
    more = {"entailment": {"model": str(TINY)}, **verify.pop("more", {})}
    step = VERIFY | {"claims_per_call": 1} | verify | {"cascade": cascade}
    judged.write(names or ["a", "b"], steps=STEPS | {"response_in_reference": step}, more=more)


def planned(judged: Judged) -> Estimate:
    prepared = prepare(judged.path)
    return estimate(prepared, judged.store, plan(prepared, judged.store))["response_in_reference"]


def asked(endpoint: Endpoint) -> list[str]:
    """The claims that the judge was asked about: Paris, 1890 or Cheese, a word for each."""
    message = [str(request.body["messages"][-1]) for request in endpoint.requests]
    claims = [text.partition("<claim")[2] for text in message]
    return sorted(word for text in claims for word in ("Paris", "1890", "Cheese") if word in text)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture
def judged(tmp_path: Path, endpoint: Endpoint) -> Judged:
    return Judged(tmp_path, endpoint)


def test_uncertain_claims_are_referred_to_the_judge(judged: Judged, endpoint: Endpoint) -> None:
    write(judged, SURE)
    before = planned(judged)
    assert (before.calls, before.about) == (2, False)
    assert before.cascade == CascadeEstimate(settled=4, referred=2, audited=0, calls_saved=4)
    judged.run()
    assert asked(endpoint) == ["1890", "1890"]
    assert judged.ask(WHO) == [
        ("The tower stands in Paris.", "entailed", "entailed", "embedded", 0.965),
        ("The tower opened in 1890.", "contradicted", "neutral", "judge", 0.333),
        ("Cheese comes from milk.", "neutral", "neutral", "embedded", 0.018),
    ]
    assert judged.ask("SELECT * EXCLUDE (run_id) FROM cascades") == [
        ("response_in_reference", 6, 4, 2, 0, 0, 0, 0, 4)
    ]
    # All of it is on file: the table itself, or made again, what both models said.
    judged.run()
    assert endpoint.hits == 0
    assert judged.command("--again", "response_in_reference") == 0
    assert endpoint.hits == 0
    assert judged.command("--again", "response_in_reference", "--fresh") == 0
    assert asked(endpoint) == ["1890", "1890"]


def test_a_change_asks_only_about_additional_claims(judged: Judged, endpoint: Endpoint) -> None:
    write(judged, SURE)
    judged.run()
    write(judged, {"audit": 0, "between": [0.01, 0.9]})
    assert (planned(judged).calls, planned(judged).answers) == (2, 2)
    judged.run()
    assert asked(endpoint) == ["Cheese", "Cheese"]
    write(judged, {"audit": 1})
    judged.run()
    assert asked(endpoint) == ["Paris", "Paris"]
    assert judged.ask("SELECT DISTINCT judged_by FROM latest.verdicts ORDER BY 1") == [
        ("audit",),
        ("judge",),
    ]


def test_an_edited_prompt_is_asked_only_for_referred_claims(
    judged: Judged, endpoint: Endpoint
) -> None:
    write(judged, SURE)
    judged.run()
    text = (CONFIGS / "prompts/verify.md").read_text("utf-8")
    judged.path.with_name("mine.md").write_text("Be strict.\n" + text, "utf-8")
    write(judged, SURE, prompt="mine.md")
    assert planned(judged).calls == 2
    judged.run()
    assert asked(endpoint) == ["1890", "1890"]
    write(judged, SURE, "a", "b", "c", prompt="mine.md")
    judged.run()
    assert asked(endpoint) == ["1890"]


def test_the_audit_estimates_the_disagreement(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.behaviour.fault = faults.entries(
        lambda found: [{**one, "verdict": "entailed"} for one in found]
    )
    write(judged, {"audit": 1})
    assert judged.command() == 0
    printed = capsys.readouterr().out
    for line in (
        "cascade of response_in_reference: 0 of 6 verdicts settled by the embedded model, up to "
        "0 calls saved; 2 referred to the judge, 4 audited by it",
        "  where the embedded model was sure the judge disagrees in 2 of 4 on whether the claim "
        "is entailed (50.0%, 95 % interval 6.8% to 93.2%), in 2 on the verdict",
    ):
        assert line in printed.splitlines()
    (run_id,) = judged.ask("SELECT run_id FROM audit.runs")[0]
    (account,) = cascade_results(judged.store, run_id)
    assert (account.disagreed, account.audited, account.relabelled) == (2, 4, 2)
    assert "judge disagrees in 2 of 4 on whether the claim" in run_markdown(
        RunDocument(judged.store, run_id)
    )
    readme = (CONFIGS.parent / "flows/guides/sql.md").read_text("utf-8")
    query = readme.partition("### `cascades`")[2].partition("```sql\n")[2].partition("```")[0]
    assert [row[1:5] for row in judged.ask(query)] == [
        ("a", "Cheese comes from milk.", "entailed", "neutral"),
        ("b", "Cheese comes from milk.", "entailed", "neutral"),
    ]


def test_relabelled_and_disagreed_are_counted_apart(judged: Judged, endpoint: Endpoint) -> None:
    endpoint.behaviour.fault = faults.entries(
        lambda found: [{**one, "verdict": "contradicted"} for one in found]
    )
    write(judged, {"audit": 1, "between": [0.1, 0.96]}, threshold=0.96)
    judged.run()
    counts = "SELECT audited, disagreed, relabelled FROM cascades"
    assert judged.ask(counts) == [(4, 2, 4)]


def test_without_an_audit_the_disagreement_is_unknown(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    write(judged, SURE)
    assert judged.command() == 0
    with chdir(judged.path.parent):
        assert main(["explain", "a"]) == 0
    printed = capsys.readouterr().out
    assert "nothing was audited: how often the judge would disagree is unknown\n" in printed
    assert "response_in_reference: entailed (p_entailed 0.96)\n" in printed
    assert "contradicted (the embedded model: neutral, p_neutral 0.33); The premise has" in printed


def test_a_plan_estimates_referred_claims(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    write(judged, {"audit": 0.5}, *(f"s{number}" for number in range(9)))
    with chdir(judged.path.parent):
        assert main(["plan", "p.yaml"]) == 0
    printed = capsys.readouterr().out
    judged.run()
    ((settled, audited, calls_saved),) = judged.ask(
        "SELECT settled, audited, calls_saved FROM cascades"
    )
    assert settled + audited == 18
    assert 0 < audited < 18
    assert endpoint.hits == 27 - settled == 27 - calls_saved
    assert (
        f"cascade of response_in_reference: {settled} of 27 verdicts settled by the embedded "
        f"model, 9 by the judge, {audited} audited by it; up to {calls_saved} calls saved\n"
    ) in printed


def test_a_plan_writes_nothing(judged: Judged) -> None:
    write(judged, SURE)
    assert planned(judged).calls == 2
    assert not judged.store.path.exists()


def test_calls_that_several_claims_share_are_saved_only_whole(
    judged: Judged, endpoint: Endpoint
) -> None:
    write(judged, SURE, claims_per_call=2)
    assert planned(judged).cascade == CascadeEstimate(4, 2, 0, calls_saved=2)
    judged.run()
    assert endpoint.hits == 2
    assert judged.ask("SELECT calls_saved FROM cascades") == [(2,)]


def test_referred_claims_are_voted_on(judged: Judged, endpoint: Endpoint) -> None:
    second = {"judges": {"second": judged.judge(model="hosted_vllm/second")}}
    write(judged, SURE | {"judge": ["judge", "second"]}, more=second)
    assert (planned(judged).calls, planned(judged).who) == (4, "judge and second")
    judged.run()
    assert asked(endpoint) == ["1890"] * 4
    models = sorted(request.body["model"] for request in endpoint.requests)
    assert models == ["fake", "fake", "second", "second"]
    assert judged.ask("SELECT count(agreement), count(*) FROM latest.verdicts") == [(2, 6)]
    assert judged.ask("SELECT calls_saved FROM cascades") == [(8,)]


def test_a_cascade_chooses_its_judge(judged: Judged, endpoint: Endpoint) -> None:
    second = {"judges": {"second": judged.judge(model="hosted_vllm/second")}}
    write(judged, SURE | {"judge": "second"}, more=second)
    judged.run()
    assert {request.body["model"] for request in endpoint.requests} == {"second"}


def test_only_failed_rows_are_asked_again(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.behaviour.fault = faults.prose()
    write(judged, SURE)
    assert judged.command() == 1
    assert "2 referred to the judge, 0 audited by it, 2 failed\n" in capsys.readouterr().out
    assert judged.ask("SELECT count(*), count(p_entailed) FROM latest.verdicts") == [(6, 6)]
    endpoint.behaviour.fault = None
    assert judged.command() == 0
    assert asked(endpoint) == ["1890", "1890"]
    assert judged.verdicts() == {"a": LABELS, "b": LABELS}


def test_noise_repeats_only_the_judge(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    write(judged, SURE)
    with chdir(judged.path.parent):
        assert main(["noise", "p.yaml", "--repeats", "3"]) == 0
    assert "6 calls" in capsys.readouterr().err
    assert endpoint.hits == 6


def test_scores_are_the_same_by_either_model(judged: Judged) -> None:
    write(judged, SURE)
    judged.run()
    alone = judged.scores()
    judged.write(["a", "b"])
    judged.run()
    assert judged.scores() == alone
    # A score may count their support, which single replies of the judge do not have.
    assert judged.ask(
        "SELECT count(DISTINCT digest), count(DISTINCT artifact_id) FROM audit.artifacts "
        "WHERE kind = 'verdicts'"
    ) == [(2, 2)]
    assert set(judged.ask("SELECT support IS NULL, judged_by FROM verdicts")) == {
        (False, "embedded"),
        (True, "judge"),
        (True, None),
    }


def test_the_entailment_model_is_part_of_the_fingerprint(
    judged: Judged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = Path(shutil.copytree(TINY, tmp_path / "mine"))
    own = {"entailment": {"model": "mine"}}
    steps = STEPS | {"response_in_reference": VERIFY | {"judge": "embedded"}}
    judged.write(["a"], steps=steps, more=own)
    judged.run()
    assert judged.verdicts() == {"a": ["entailed", "neutral", "neutral"]}
    assert judged.command() == 0
    assert "0 steps made" in capsys.readouterr().out
    (mine / "tokenizer.json").write_text((mine / "tokenizer.json").read_text("utf-8") + "\n")
    assert judged.command() == 0
    assert "1 step made" in capsys.readouterr().out
    (mine / "tokenizer.json").unlink()
    assert judged.command() == 2
    message = "tokenizer.json: no such file; put the model's tokenizer there\n"
    assert capsys.readouterr().err.endswith(message)


def test_a_plan_judges_some_pairs_and_extrapolates(tmp_path: Path) -> None:
    model = load_entailment_model(EntailmentSource(TINY))
    pairs = [Pair("One.", claim) for claim in ("Paris", "cheese", "x", "y", "z")]
    foreseen = EntailmentEstimate(model, Ledger(Store(tmp_path / "s.duckdb")), most=2)
    first = foreseen.judge(pairs[:2])
    assert not foreseen.guessed
    assert first == model.judge(pairs[:2])
    assert foreseen.judge(pairs[:2]) == first
    assert not foreseen.guessed
    later = foreseen.judge(pairs)
    assert foreseen.guessed
    assert [later[pair].entailed for pair in pairs] == [0.965, 0.018, 0.965, 0.018, 0.965]


@pytest.mark.parametrize(
    ("hits", "of", "bounds"),
    [
        (0, 3, (0.0, 0.7076)),
        (1, 12, (0.0021, 0.3848)),
        (5, 10, (0.1871, 0.8129)),
        (7, 7, (0.5904, 1.0)),
    ],
)
def test_the_interval_is_that_of_clopper_and_pearson(
    hits: int, of: int, bounds: tuple[float, float]
) -> None:
    assert clopper_pearson(hits, of) == pytest.approx(bounds, abs=5e-5)


def test_the_interval_of_zero_trials_is_undefined() -> None:
    assert clopper_pearson(0, 0) == (None, None)


def test_the_bundled_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(CONFIGS, tmp_path / "configs")
    with serve() as endpoint, chdir(tmp_path):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-cascade")
        monkeypatch.setenv("OPENAI_API_BASE", endpoint.api_base)
        assert main(["run", "configs/llm/cascade.yaml", "--limit", "8"]) == 0
        with Store(tmp_path / "cascade.duckdb").reading() as connection:
            rows = connection.sql(
                "SELECT step, verdicts, settled + referred + audited FROM cascades"
            ).fetchall()
    assert [(step, whole == parts) for step, whole, parts in rows] == [
        ("response_in_contexts", True)
    ]
    assert "cascade of response_in_contexts: " in capsys.readouterr().out
