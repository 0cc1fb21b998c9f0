"""Batches: half the price, one submission of each call whatever happens, failures as rows."""

import asyncio
import json
import random
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, PendingError
from claimflow.flows.judge.cloud_batches import BedrockBatches, BedrockCall
from claimflow.flows.runner.prepare import SHARD
from claimflow.flows.store.pruning import Retention, prune
from tests.endpoint import faults
from tests.endpoint.clouds import BUCKET
from tests.endpoint.server import Endpoint, serve
from tests.flows.forks import Forks
from tests.flows.judged import DECOMPOSE, EMBEDDED, LABELS, STEPS, Judged, about, sample

CONFIGS = Path(__file__).parents[2] / "configs"
PRICE = {"input": 1.0, "output": 10.0}
BY_JUDGE = {**STEPS, "response_claims": DECOMPOSE}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    # Quick looks at batches that take moments here and hours elsewhere.
    monkeypatch.setattr("claimflow.flows.judge.batches._FIRST_PAUSE", 0.05)
    monkeypatch.setattr("claimflow.flows.judge.batches._QUIET_SECONDS", 0.1)
    with serve() as served:
        yield served


@pytest.fixture
def judged(tmp_path: Path, endpoint: Endpoint) -> Judged:
    return Judged(tmp_path, endpoint)


CLAUDE = "anthropic/claude-sonnet-4-5"


class ByClaude(Judged):
    """The same with a judge that speaks Anthropic's protocol."""

    def judge(self, **settings: Any) -> dict[str, Any]:
        address = self._endpoint.url
        return super().judge(**({"model": CLAUDE, "api_base": address} | settings))


GEMINI = "vertex_ai/gemini-2.5-flash"


class ByGemini(Judged):
    """The same with a judge at Vertex AI."""

    def judge(self, **settings: Any) -> dict[str, Any]:
        address = self._endpoint.url
        return super().judge(**({"model": GEMINI, "api_base": address} | settings))


NOVA = "bedrock/amazon.nova-lite-v1:0"


class ByNova(Judged):
    """The same with a judge at Bedrock."""

    def judge(self, **settings: Any) -> dict[str, Any]:
        address = self._endpoint.url
        return super().judge(**({"model": NOVA, "api_base": address} | settings))


PROTOCOLS = {None: Judged, CLAUDE: ByClaude, GEMINI: ByGemini, NOVA: ByNova}


@pytest.fixture
def clouds(tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts of all providers, whose addresses are the endpoint."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "key",
        "private_key": key.decode(),
        "client_email": "tests@project.iam.gserviceaccount.com",
        "token_uri": f"{endpoint.url}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    variables = {
        "ANTHROPIC_API_KEY": "none",
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "account.json"),
        "VERTEXAI_PROJECT": "project",
        "VERTEXAI_LOCATION": "us-central1",
        "GCS_BUCKET_NAME": BUCKET,
        "STORAGE_EMULATOR_HOST": endpoint.url,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_REGION_NAME": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint.url,
        "AWS_S3_BUCKET_NAME": BUCKET,
        "AWS_BATCH_ROLE_ARN": "arn:aws:iam::123456789012:role/batches",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("claimflow.flows.judge.cloud_batches._AMAZON_FEWEST", 1)


@pytest.fixture(params=PROTOCOLS)
def either(
    request: pytest.FixtureRequest, tmp_path: Path, endpoint: Endpoint, clouds: None
) -> Judged:
    """A judge that speaks one of the protocols."""
    return PROTOCOLS[request.param](tmp_path, endpoint)


def chats(endpoint: Endpoint) -> int:
    """The requests that were sent one by one."""
    paths = ("/v1/chat/completions", "/v1/messages", ":generateContent", "/converse")
    return sum(one.path.endswith(paths) for one in endpoint.requests)


def sizes(endpoint: Endpoint) -> list[int]:
    """The number of calls of each batch."""
    return [len(endpoint.batches.lines(one)) for one in endpoint.batches.batches]


def corrects(body: dict[str, Any]) -> bool:
    """Whether a request shows the model a reply of its own."""
    turns = body.get("messages") or body["contents"]
    return any(turn["role"] in ("assistant", "model") for turn in turns)


def submitted(endpoint: Endpoint) -> Counter[str]:
    """How often each request was submitted in a batch."""
    return Counter(json.dumps(body) for body in endpoint.batches.submitted())


@pytest.mark.parametrize("model", ["openai/fake", "hosted_vllm/fake", CLAUDE, GEMINI, NOVA])
def test_a_run_in_batches_gives_what_a_run_without_gives(
    judged: Judged,
    endpoint: Endpoint,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clouds: None,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    address = endpoint.url if model in PROTOCOLS else endpoint.api_base
    here: dict[str, Any] = {"price": PRICE, "model": model, "api_base": address}
    judged.write("abc", steps=BY_JUDGE, batch=True, **here)
    judged.run()
    assert chats(endpoint) == 0
    # A batch for each level of the pipeline: their responses are the same.
    assert sizes(endpoint) == [1, 3]
    assert judged.verdicts() == dict.fromkeys("abc", LABELS)
    (tmp_path / "other").mkdir()
    other = Judged(tmp_path / "other", endpoint)
    other.write("abc", steps=BY_JUDGE, **here)
    other.run()
    assert other.scores() == judged.scores()
    texts = "system, prompt, reply, prompt_tokens, completion_tokens, 2 * cost"
    query = "SELECT {} FROM audit.calls ORDER BY ALL"
    assert judged.ask(query.format(texts)) == other.ask(query.format(texts.replace("2 * ", "")))
    judged.run()
    assert endpoint.hits == 0


def test_batches_and_their_calls_are_in_the_store(judged: Judged, endpoint: Endpoint) -> None:
    judged.write("ab", batch=True)
    judged.run()
    columns = "judge, model, provider_batch, ended_at IS NOT NULL, message"
    assert judged.ask(f"SELECT {columns} FROM audit.batches") == [
        ("judge", "hosted_vllm/fake", "batch_1", True, None)
    ]
    (metadata,) = [one.metadata for one in endpoint.batches.batches]
    assert judged.ask("SELECT batch_id FROM audit.batches")[0][0] == metadata["claimflow"]
    assert judged.ask(
        "SELECT count(*) FROM audit.batch_calls SEMI JOIN audit.calls USING (call_id)"
    ) == [(2,)]


def test_a_run_ends_as_pending_and_the_next_one_collects(
    either: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.behaviour.batches.seconds = 4.0
    either.write("abc")
    assert either.command("--batch", "--batch-wait", "1") == 9
    printed = capsys.readouterr().err
    assert "judge: a batch of 3 calls is submitted" in printed
    assert "batch_1 has not ended (0 calls done); run again to collect" in printed
    assert either.ask("SELECT status FROM audit.runs") == [("pending",)]
    assert either.command("--batch") == 0
    assert "waiting for the batch " in capsys.readouterr().err
    assert either.verdicts() == dict.fromkeys("abc", LABELS)
    assert set(submitted(endpoint).values()) == {1}
    assert chats(endpoint) == 0


def test_a_run_that_does_not_wait_submits_all_of_its_batches(
    judged: Judged,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two judges, and more calls of each than a batch takes; a refusal on the way is no reason."""
    monkeypatch.setattr("claimflow.flows.judge.batches._MOST_CALLS", 2)
    monkeypatch.setattr("claimflow.flows.judge.worker_pool._GRACE_SECONDS", 0.1)
    endpoint.behaviour.batches.seconds = 600
    verify = STEPS["response_in_reference"]
    second = {"second": judged.judge(model="hosted_vllm/second")}
    steps = STEPS | {"by_second": verify | {"judge": "second"}}
    judged.write("abcde", steps=steps, more={"judges": second})
    busy = iter([False, True, True, True])

    def instead(method: str, path: str) -> tuple[int, Any] | None:
        refused = method == "POST" and path == "/v1/batches" and next(busy, False)
        return (503, {"error": {"message": "busy"}}) if refused else None

    endpoint.behaviour.batches.instead = instead
    assert judged.command("--batch", "--batch-wait", "0") == 9
    assert sorted(sizes(endpoint)) == [1, 1, 2, 2, 2, 2]
    assert "run again to collect its replies" in capsys.readouterr().err
    assert judged.ask("SELECT status FROM audit.runs") == [("pending",)]
    # The next run looks once, and collects what has ended.
    endpoint.behaviour.batches.seconds = 0
    assert judged.command("--batch", "--batch-wait", "0") == 0
    assert set(submitted(endpoint).values()) == {1}
    assert judged.ask("SELECT count(*) FROM verdicts WHERE verdict NOT NULL") == [(30,)]


def test_steps_that_need_no_batch_are_made_before_a_run_ends_as_pending(
    judged: Judged, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimflow.flows.judge.worker_pool._GRACE_SECONDS", 0.1)
    endpoint.behaviour.batches.seconds = 600
    endpoint.behaviour.latency = 3.0
    verify = STEPS["response_in_reference"]
    second = {"second": judged.judge(model="hosted_vllm/second")}
    steps = STEPS | {"at_once": verify | {"judge": "second"}}
    judged.write("ab", steps=steps, more={"judges": second}, batch=True)
    assert judged.command("--batch-wait", "0") == 9
    assert judged.ask("SELECT step, count(*) FROM verdicts GROUP BY ALL") == [("at_once", 6)]


def pending(judged: Judged, endpoint: Endpoint) -> None:
    """Run until a batch is submitted, and let it end after that."""
    endpoint.behaviour.batches.seconds = 600
    assert judged.command("--batch", "--batch-wait", "1") == 9
    endpoint.behaviour.batches.seconds = 0


def test_a_batch_that_is_collected_in_part_is_collected_further(
    judged: Judged, endpoint: Endpoint
) -> None:
    """What is left would be put into calls in another way than it was submitted."""
    verify = STEPS["response_in_reference"] | {"premises_per_call": 2}
    steps = STEPS | {"response_in_reference": verify}
    long = sample("b")["reference"] + " It is long." * 480
    samples = [sample("a"), sample("b", reference=long), sample("c")]
    judged.write(samples, steps=steps)
    pending(judged, endpoint)
    assert sizes(endpoint) == [3]
    judged.write(samples[1:2], steps=steps, batch=True)
    judged.run()
    assert judged.verdicts() == {"b": LABELS}
    assert judged.ask("SELECT count(*) FROM audit.batches WHERE ended_at IS NULL") == [(1,)]
    judged.write(samples, steps=steps, batch=True)
    judged.run()
    assert judged.verdicts() == dict.fromkeys("abc", LABELS)
    assert sizes(endpoint) == [3]
    assert judged.ask("SELECT count(*) FROM audit.batches WHERE ended_at IS NULL") == [(0,)]


@pytest.mark.parametrize("reached", [True, False], ids=["reached", "did not reach"])
def test_a_run_killed_while_it_submitted(judged: Judged, endpoint: Endpoint, reached: bool) -> None:
    """It may have ended before the batch reached the provider, or before it noted that it had."""
    judged.write("abc", batch=True)
    pending(judged, endpoint)
    with judged.store.writing() as connection:
        connection.execute("UPDATE audit.batches SET provider_batch = NULL")
    if not reached:
        endpoint.batches.batches.clear()
    judged.run()
    assert judged.verdicts() == dict.fromkeys("abc", LABELS)
    assert sizes(endpoint) == [3]
    ended = judged.ask("SELECT message FROM audit.batches WHERE ended_at IS NOT NULL ORDER BY ALL")
    assert ended == ([(None,)] if reached else [("not submitted",), (None,)])


def test_new_samples_go_into_a_batch_of_their_own(either: Judged, endpoint: Endpoint) -> None:
    endpoint.behaviour.batches.seconds = 4.0
    either.write("abc", batch=True)
    assert either.command("--batch-wait", "1") == 9
    either.write("abcd", batch=True)
    either.run()
    assert sizes(endpoint) == [3, 1]
    assert set(submitted(endpoint).values()) == {1}


def test_a_batch_whose_submission_got_no_reply_is_found(either: Judged, endpoint: Endpoint) -> None:
    endpoint.behaviour.batches.lost = 1
    either.write("abc", batch=True)
    either.run()
    assert len(endpoint.batches.batches) == 1
    assert either.verdicts() == dict.fromkeys("abc", LABELS)


def test_a_batch_of_anthropic_is_told_from_others_when_they_have_ended(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no name. Others of as many requests may be ours until they end."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    judged, other = ByClaude(tmp_path / "a", endpoint), ByClaude(tmp_path / "b", endpoint)
    batches = endpoint.behaviour.batches
    for one in (judged, other):
        one.path.parent.mkdir()
        one.write("abc", batch=True)
    batches.seconds = 600
    batches.lost = 1
    # Its reply is lost, and it goes on.
    assert judged.command("--batch-wait", "3") == 9
    assert other.command("--batch-wait", "1") == 9
    assert sizes(endpoint) == [3, 3]
    assert judged.command("--batch-wait", "3") == 9
    assert sizes(endpoint) == [3, 3]
    batches.seconds = 0
    judged.run()
    other.run()
    assert sizes(endpoint) == [3, 3]
    for one in (judged, other):
        assert one.verdicts() == dict.fromkeys("abc", LABELS)


def test_a_provider_that_cannot_be_reached_loses_no_batch(
    either: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    either.write("abc")
    pending(either, endpoint)
    endpoint.refuse()
    capsys.readouterr()
    assert either.command("--batch", "--batch-wait", "2") == 9
    printed = capsys.readouterr().err
    assert "judge: its batches cannot be read (" in printed
    assert printed.rstrip().endswith("; run again to collect")
    assert either.ask("SELECT count(*) FROM audit.calls") == [(0,)]
    endpoint.accept()
    assert either.command("--batch") == 0
    assert sizes(endpoint) == [3]


def test_what_is_in_a_batch_is_neither_planned_nor_asked_again(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without batches collects it as well: it is paid for."""
    judged.write("abc")
    pending(judged, endpoint)
    judged.write("abcd")
    capsys.readouterr()
    assert main(["plan", str(judged.path)]) == 0
    printed = capsys.readouterr().out
    assert "\n1 call, about " in printed
    assert "3 calls more are in batches that have not ended, which a run waits for\n" in printed
    judged.run()
    assert judged.verdicts() == dict.fromkeys("abcd", LABELS)
    assert (sizes(endpoint), chats(endpoint)) == ([3], 1)


def test_what_is_reserved_for_a_batch_is_said_until_it_is_collected(
    judged: Judged,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = ["--store", str(judged.store.path)]

    def said(*arguments: str) -> str:
        capsys.readouterr()
        assert main([*arguments]) in (0, 1)
        return capsys.readouterr().out

    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            said("runs", *store, "--batches", "--format", "json")
        )
        return found

    judged.write("abc", price=PRICE)
    pending(judged, endpoint)
    (run,) = judged.ask("SELECT run_id FROM audit.runs")[0]
    endpoint.clear()
    (batch,) = listed()
    reserved = batch["reserved"]
    assert 0 < reserved < 0.1
    facts = {
        "run_id": run,
        "step": "response_in_reference",
        "provider": "hosted_vllm",
        "batch": "batch_1",
        "state": "open",
        "requests": 3,
        "answered": 0,
        "failed": 0,
        "cost": 0.0,
    }
    assert facts.items() <= batch.items()
    begun, ends = (datetime.fromisoformat(batch[name]) for name in ("submitted_at", "expires_at"))
    assert ends - begun == timedelta(days=1)
    (listed_run,) = json.loads(said("runs", *store, "--format", "json"))
    assert listed_run["reserved"] == pytest.approx(reserved)
    assert f"{reserved:.4g}" in said("runs", *store)
    told = f"3 calls are in batches that have not ended, about {reserved:.2g} USD reserved; run"
    assert told in said("show", *store)
    assert "which a run waits for, for about 0.0" in said("plan", str(judged.path))
    monkeypatch.setenv("COLUMNS", "80")
    table = said("runs", *store, "--batches")
    rows, _, note = table.partition("\ncolumns left out at 80: ")
    assert all(len(line) <= 80 for line in rows.splitlines())
    assert "failed, step;" in note
    assert {"batch_1", "open", run} <= set(table.split())
    assert endpoint.hits == 0
    batches = endpoint.behaviour.batches
    batches.expired = lambda line: "Case c." in json.dumps(line)
    judged.run()
    (batch,) = listed()
    counts = [batch[name] for name in ("state", "requests", "answered", "failed", "reserved")]
    assert counts == ["collected", 3, 2, 1, 0.0]
    ((cost,),) = judged.ask("SELECT sum(cost)::DOUBLE FROM audit.calls")
    assert batch["cost"] == pytest.approx(cost)
    assert "in batches that have not ended" not in said("show", *store)
    assert all(
        one["reserved"] is None for one in json.loads(said("runs", *store, "--format", "json"))
    )


def test_failures_are_rows_of_their_own(either: Judged, endpoint: Endpoint) -> None:
    endpoint.behaviour.fault = faults.either(
        faults.where(about("declined"), faults.refused("No.")),
        faults.where(about("bad"), faults.status(400)),
        faults.where(
            lambda body: "Case prose." in json.dumps(body) and not corrects(body), faults.prose()
        ),
    )
    batches = endpoint.behaviour.batches
    batches.expired = lambda line: "Case late." in json.dumps(line)
    names = ["good", "declined", "bad", "prose", "late"]
    either.write(names, batch=True)
    either.run()
    found = {
        "good": LABELS,
        "declined": ["refused"] * 3,
        "bad": ["bad_request"] * 3,
        "prose": LABELS,
        # At Vertex AI the job expires, not one of its requests.
        "late": ["server_error" if isinstance(either, ByGemini) else "timeout"] * 3,
    }
    assert either.verdicts() == found
    # What a reply lacks is asked at once: it has taken the hours of a batch already.
    assert chats(endpoint) == 1
    late = "failure IN ('timeout', 'server_error')"
    ((reason,),) = either.ask(f"SELECT DISTINCT reason FROM verdicts WHERE {late}")
    assert reason.startswith("the batch expired")
    batches.expired = lambda _: False
    either.run()
    assert either.verdicts() == found | {"late": LABELS}
    assert either.ask("SELECT count(*) FROM audit.batches WHERE ended_at IS NULL") == [(0,)]


def test_replies_are_checked_like_those_of_single_calls(judged: Judged, endpoint: Endpoint) -> None:
    quoted = "Not this: Case quoted. The tower stands in Paris. The tower opened in 1889."
    endpoint.behaviour.fault = faults.either(
        faults.where(about("usage"), faults.usage("-1000000")),
        faults.where(about("quoted"), faults.status(400, message=quoted)),
    )
    judged.write(["usage", "quoted"], batch=True, price=PRICE)
    judged.run()
    assert judged.verdicts() == {"usage": LABELS, "quoted": ["bad_request"] * 3}
    columns = "prompt_tokens, completion_tokens, cost"
    assert judged.calls(columns, "outcome = 'ok'") == [(None,) * 3]
    ((reason,),) = judged.ask("SELECT DISTINCT reason FROM verdicts WHERE reason LIKE '400%'")
    assert "Not this" in reason
    assert "opened in 1889" not in reason


def test_headers_that_a_file_cannot_hold_end_the_run(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    judged.write("a", batch=True, extra={"extra_headers": {"X-Team": "blue"}})
    assert judged.command() == 2
    assert "in batches; remove extra_headers: a batch cannot hold it" in capsys.readouterr().err
    assert sizes(endpoint) == []


def test_a_batch_that_fails_says_why(either: Judged, endpoint: Endpoint) -> None:
    if isinstance(either, ByClaude):
        return  # Anthropic's batches do not fail as a whole.
    endpoint.behaviour.batches.failed = "the enqueued token limit is reached"
    either.write("ab", batch=True)
    either.run()
    reasons = either.ask("SELECT DISTINCT failure, reason FROM verdicts")
    why = "the batch failed: the enqueued token limit is reached"
    assert reasons == [("server_error", why)]
    endpoint.behaviour.batches.failed = None
    either.run()
    assert either.verdicts() == dict.fromkeys("ab", LABELS)


def test_fewer_calls_than_a_batch_takes_are_sent_at_once(
    tmp_path: Path,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    clouds: None,
) -> None:
    monkeypatch.setattr("claimflow.flows.judge.cloud_batches._AMAZON_FEWEST", 100)
    judged = ByNova(tmp_path, endpoint)
    judged.write("abc", price=PRICE, api_base=None)
    assert main(["plan", str(judged.path)]) == 0
    told = "a batch of judge has at least 100 calls: --batch sends fewer at once"
    assert told in capsys.readouterr().out
    judged.write("abc", price=PRICE)
    assert judged.command("--batch") == 0
    told = f"3 calls are sent at once, at the full price: a batch of {NOVA} has at least 100\n"
    assert told in capsys.readouterr().err
    assert (sizes(endpoint), chats(endpoint)) == ([], 3)
    full = "cost = (prompt_tokens + 10 * completion_tokens) / 1000000"
    assert judged.ask(f"SELECT DISTINCT {full} FROM audit.calls") == [(True,)]


@pytest.mark.parametrize(
    ("made", "variable", "hint"),
    [
        (ByGemini, "GCS_BUCKET_NAME", "set GCS_BUCKET_NAME to a bucket of Google Cloud Storage"),
        (ByNova, "AWS_BATCH_ROLE_ARN", "set AWS_BATCH_ROLE_ARN to the ARN of a role that reads"),
    ],
)
def test_what_batches_of_a_cloud_lack_is_said_before_the_run(
    tmp_path: Path,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    clouds: None,
    made: type[Judged],
    variable: str,
    hint: str,
) -> None:
    monkeypatch.delenv(variable)
    judged = made(tmp_path, endpoint)
    judged.write("a", batch=True)
    with pytest.raises(InputError) as raised:
        judged.run()
    (line,) = str(raised.value).splitlines()
    assert f"{judged.judge()['model']} cannot be asked in batches; {hint}" in line
    assert endpoint.hits == 0


def test_the_bundled_pipeline_of_a_cloud(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, clouds: None
) -> None:
    shutil.copytree(CONFIGS, tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_BEDROCK_RUNTIME_ENDPOINT", endpoint.url)
    guide = (CONFIGS / "guides/judges.md").read_text("utf-8")
    assert "claimflow run configs/llm/batch.yaml --batch-wait 0\n" in guide
    assert main(["check", "configs/llm/batch.yaml"]) == 0
    command = ["run", "configs/llm/batch.yaml", "--limit", "4", "--batch-wait", "0"]
    endpoint.behaviour.batches.seconds = 600
    assert main(command) == 9
    endpoint.behaviour.batches.seconds = 0
    assert main(command) == 0
    assert (len(sizes(endpoint)), chats(endpoint)) == (1, 0)


@pytest.mark.parametrize(
    ("made", "bucket", "hint"),
    [
        (ByGemini, "GCS_BUCKET_NAME", "set GCS_BUCKET_NAME to a bucket of Google Cloud Storage"),
        (ByNova, "AWS_S3_BUCKET_NAME", "set AWS_S3_BUCKET_NAME to a bucket of S3 for its files"),
    ],
)
def test_plan_and_doctor_say_what_batches_of_a_cloud_lack(
    tmp_path: Path,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    clouds: None,
    made: type[Judged],
    bucket: str,
    hint: str,
) -> None:
    judged = made(tmp_path, endpoint)
    path, model = str(judged.path), judged.judge()["model"]
    lacks = f"{model} cannot be asked in batches"

    def said(command: str, *options: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([command, path, *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    judged.write("a", price=PRICE, batch=True)
    assert "  batches        nothing is missing\n" in said("doctor")[1]
    monkeypatch.setenv(bucket, "other-bucket")
    # The doctor looks into the bucket; a plan asks nothing.
    code, out, err = said("doctor")
    assert f"  batches        no: {bucket}: other-bucket cannot be read: " in out
    assert (code, f"judge cannot be used: {lacks}: {bucket}: other-" in err) == (6, True)
    monkeypatch.delenv(bucket)
    code, out, err = said("doctor")
    assert f"  batches        no: {hint}" in out
    assert (code, f"judge cannot be used: {lacks}: {hint}" in err) == (6, True)
    judged.write("a", price=PRICE)
    code, out, _ = said("doctor")
    assert (code, f"  batches        no: {hint}" in out) == (0, True)
    judged.write("a", price=PRICE, batch=True)
    endpoint.clear()
    assert f"\njudge: {lacks}: {hint}" in said("plan")[1]
    judged.write("a", price=PRICE)
    assert f"\njudge: {lacks}: {hint}" in said("plan", "--batch")[1]
    assert lacks not in said("plan")[1]
    judged.write("a", price=PRICE, api_base=None)
    out = said("plan")[1]
    assert f"\n--batch cannot be used for judge: {hint}" in out
    assert "with --batch: " not in out
    assert endpoint.hits == 0


CORRUPT = [
    b"",
    b"[]",
    b"null",
    b"{",
    b'{"request": 5}',
    b'{"recordId": 5}',
    b"\xff",
    b"[" * 100_000,
]


@pytest.mark.parametrize("made", [ByGemini, ByNova])
def test_lines_of_a_cloud_that_are_no_replies_are_left_out(
    tmp_path: Path, endpoint: Endpoint, clouds: None, made: type[Judged]
) -> None:
    endpoint.behaviour.batches.noise = b"\n".join([*CORRUPT, b""])
    judged = made(tmp_path, endpoint)
    judged.write("ab", batch=True)
    judged.run()
    assert judged.verdicts() == dict.fromkeys("ab", LABELS)


def test_the_budget_is_kept_at_the_price_of_batches(judged: Judged, endpoint: Endpoint) -> None:
    judged.write("abcdefgh", batch=True, price={"input": 1, "output": 2}, budget_usd=0.003)
    judged.run()
    (spent,) = judged.ask("SELECT sum(cost) FROM audit.calls")[0]
    assert 0.001 < spent <= 0.003
    (not_asked,) = judged.ask("SELECT count(*) FROM verdicts WHERE failure = 'not_asked'")[0]
    assert 0 < not_asked < 24


def test_a_model_without_batches_is_refused(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    judged.write("a", batch=True, model="ollama_chat/fake")
    assert judged.command() == 2
    wrong = "p.yaml:5 judge: batch: true, and ollama_chat/fake takes no batches; remove it"
    assert wrong in capsys.readouterr().err


def test_batches_for_a_pipeline_without_a_judge_are_refused(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    judged.write("a", steps={"response_claims": EMBEDDED}, model="fake")
    assert judged.command("--batch") == 2
    wrong = "--batch: no step asks a judge behind an endpoint"
    assert wrong in capsys.readouterr().err


def test_a_run_that_waits_can_be_stopped_and_goes_on(judged: Judged, endpoint: Endpoint) -> None:
    endpoint.behaviour.batches.seconds = 600
    judged.write("abc", batch=True)
    with pytest.raises(PendingError):
        from claimflow.flows.api import run_pipeline
        from claimflow.flows.runner.prepare import prepare

        run_pipeline(prepare(judged.path), judged.store, batch_wait=timedelta(seconds=0.5))
    endpoint.behaviour.batches.seconds = 0
    judged.run()
    assert set(submitted(endpoint).values()) == {1}


def test_a_fresh_run_goes_on_with_what_a_pending_one_asked(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its claims are in the ledger when the second run begins, its verdicts in an open batch."""
    judged.write("ab", steps=BY_JUDGE, batch=True)
    judged.run()
    endpoint.behaviour.batches.seconds = 3600
    assert judged.command("--fresh", "--batch-wait", "1") == 9
    endpoint.batches.batches[2].created -= 7200
    assert judged.command("--fresh", "--batch-wait", "1") == 9
    endpoint.behaviour.batches.seconds = 0
    # A run in between that asks nothing anew changes nothing.
    assert judged.command("--limit", "1", "--only", "response_claims") == 0
    capsys.readouterr()
    assert main(["plan", str(judged.path), "--fresh"]) == 0
    waiting = "2 calls more are in batches that have not ended, which a run waits for"
    assert waiting in capsys.readouterr().out
    assert judged.command("--fresh") == 0
    assert set(submitted(endpoint).values()) == {2}
    # This one begins after a run that ended: it asks anew.
    assert judged.command("--fresh") == 0
    assert set(submitted(endpoint).values()) == {3}


def refused(status: int, message: str, method: str = "GET") -> Any:
    """What `instead` of a batch answers to each request of a method but uploads and tokens."""
    said = {"type": "invalid_request_error", "message": message}
    error = {"type": "error", "error": said, "message": message}

    def instead(by: str, path: str) -> tuple[int, Any] | None:
        other = path == "/token" or "/files" in path or path.startswith("/upload/")
        return (status, error) if by == method and not other else None

    return instead


def test_a_submission_that_cannot_be_looked_up_stays_open(
    either: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    either.write("abc", batch=True)
    endpoint.behaviour.batches.lost = 1
    endpoint.behaviour.batches.instead = refused(403, "this key was revoked")
    assert either.command() == 6
    assert "cannot be known whether a batch was submitted: 403" in capsys.readouterr().err
    endpoint.behaviour.batches.instead = lambda *_: None
    either.run()
    assert sizes(endpoint) == [3]
    assert either.verdicts() == dict.fromkeys("abc", LABELS)


@pytest.mark.parametrize("status", [400, 403])
def test_a_batch_that_cannot_be_read_is_no_answer_of_its_calls(
    either: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    either.write("abc", batch=True)
    endpoint.behaviour.batches.instead = refused(status, "the prompt is too long")
    assert either.command() == 6
    printed = capsys.readouterr().err
    assert "batch_1 cannot be read: " in printed
    assert "run again to collect its replies" in printed
    endpoint.behaviour.batches.instead = lambda *_: None
    either.run()
    assert (sizes(endpoint), chats(endpoint)) == ([3], 0)
    assert either.verdicts() == dict.fromkeys("abc", LABELS)


def test_a_batch_that_is_not_accepted_is_no_answer_of_its_calls(
    either: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    either.write("abc", batch=True)
    endpoint.behaviour.batches.instead = refused(400, "flagged by the content policy", "POST")
    assert either.command() == 6
    printed = capsys.readouterr().err
    assert "the batch was not accepted: 400: " in printed
    assert "flagged by the content policy" in printed
    endpoint.behaviour.batches.instead = lambda *_: None
    either.run()
    assert (sizes(endpoint), chats(endpoint)) == ([3], 0)
    assert either.verdicts() == dict.fromkeys("abc", LABELS)


def test_a_batch_that_is_gone_is_asked_anew_by_the_next_run(
    either: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    either.write("abc")
    pending(either, endpoint)
    endpoint.behaviour.batches.instead = refused(404, "no such batch")
    assert either.command("--batch") == 6
    assert "run again to ask its calls anew" in capsys.readouterr().err
    endpoint.behaviour.batches.instead = lambda *_: None
    assert either.command("--batch") == 0
    assert sizes(endpoint) == [3, 3]


def test_a_submission_whose_reply_has_no_id_is_looked_up(
    judged: Judged, endpoint: Endpoint
) -> None:
    answered: list[str] = []

    def instead(method: str, path: str) -> tuple[int, Any] | None:
        if method == "POST" and path == "/v1/batches" and not answered:
            answered.append(path)
            return 200, {}
        return None

    endpoint.behaviour.batches.instead = instead
    judged.write("abc", batch=True)
    judged.run()
    assert sizes(endpoint) == [3]
    assert judged.verdicts() == dict.fromkeys("abc", LABELS)


def test_votes_of_claude_which_takes_no_seed(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    judged = ByClaude(tmp_path, endpoint)
    verify = STEPS["response_in_reference"] | {"votes": 3}
    judged.write("ab", steps=STEPS | {"response_in_reference": verify}, batch=True)
    judged.run()
    assert judged.verdicts() == dict.fromkeys("ab", LABELS)
    assert chats(endpoint) == 0


def test_calls_that_are_paid_for_are_collected_beyond_the_budget(
    judged: Judged, endpoint: Endpoint
) -> None:
    judged.write("abc")
    pending(judged, endpoint)
    judged.write("abc", budget_calls=1, batch=True)
    judged.run()
    assert judged.verdicts() == dict.fromkeys("abc", LABELS)


def test_a_run_that_waited_for_another_collects_what_that_submitted(
    tmp_path: Path, forks: Forks
) -> None:
    with serve() as endpoint:
        endpoint.behaviour.batches.seconds = 3600
        judged = Judged(tmp_path, endpoint)
        judged.write("abc", batch=True)
        options = ("run", "p.yaml", "--batch-wait")
        first = forks.run(tmp_path, *options, "6")
        second = forks.run(tmp_path, *options, "8")
        assert (first.code(), second.code()) == (9, 9)
        assert set(submitted(endpoint).values()) == {1}


def test_the_votes_of_a_judge_share_a_batch(judged: Judged, endpoint: Endpoint) -> None:
    steps: dict[str, Any] = STEPS | {
        "response_in_reference": STEPS["response_in_reference"] | {"votes": 3}
    }
    judged.write("ab", steps=steps, batch=True)
    judged.run()
    assert sizes(endpoint) == [6]
    judged.run()
    assert endpoint.hits == 0


@pytest.mark.parametrize(("seed", "kind"), [(0, Judged), (1, Judged), (2, ByClaude), (3, ByClaude)])
def test_a_run_killed_at_any_moment_submits_nothing_twice(
    tmp_path: Path, seed: int, kind: type[Judged], forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    drawn = random.Random(seed)
    with serve() as endpoint:
        endpoint.behaviour.batches.seconds = 0.5
        judged = kind(tmp_path, endpoint)
        judged.write([f"case {n}" for n in range(8)], steps=BY_JUDGE, batch=True)
        kills = 0
        for _ in range(5):
            going = forks.run(tmp_path, "run", "p.yaml", environment={"ANTHROPIC_API_KEY": "none"})
            time.sleep(drawn.uniform(0.3, 4.5))
            going.send(signal.SIGKILL)
            kills += going.code() != 0
        judged.run()
        assert judged.verdicts() == {f"case {n}": LABELS for n in range(8)}
        assert set(submitted(endpoint).values()) == {1}
        assert chats(endpoint) == 0
    assert kills


def test_pruning_removes_batches_that_have_ended(judged: Judged, endpoint: Endpoint) -> None:
    judged.write("ab", batch=True)
    judged.run()
    judged.write("c", batch=True)
    pending(judged, endpoint)
    judged.write("d")
    judged.run()
    prune(judged.store, Retention(runs=1))
    assert judged.ask("SELECT provider_batch, ended_at FROM audit.batches") == [("batch_2", None)]
    judged.write("c", batch=True)
    judged.run()
    assert sizes(endpoint) == [2, 1]
    assert judged.verdicts() == {"c": LABELS}


def test_all_parts_of_the_samples_wait_at_the_same_time(judged: Judged, endpoint: Endpoint) -> None:
    """Their batches would take hours after hours else."""
    endpoint.behaviour.batches.seconds = 10.0
    verify = {"use": "verify_claims", "claims": "response_claims"}
    steps = {
        "response_claims": STEPS["response_claims"],
        "in_reference": verify | {"against": "reference"},
        "in_contexts": verify | {"against": "retrieved_contexts"},
    }
    samples = [
        {"sample_id": f"s{n}", "response": "Tin melts.", "reference": f"Tin {n} melts."}
        | {"retrieved_contexts": [f"Tin {n} is old."]}
        for n in range(2 * SHARD + 10)
    ]
    judged.write(samples, steps=steps, batch=True)
    judged.run()
    created = [one.created for one in endpoint.batches.batches]
    assert max(created) - min(created) < endpoint.behaviour.batches.seconds
    assert sum(sizes(endpoint)) == len(samples)
    rows = judged.ask("SELECT verdict, count(*) FROM verdicts GROUP BY ALL ORDER BY ALL")
    assert rows == [("entailed", len(samples)), ("neutral", len(samples))]


def test_where_an_account_is_cannot_be_a_parameter(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str], clouds: None
) -> None:
    """A later run would look for the batch elsewhere, and submit it again."""
    judged = ByGemini(tmp_path, endpoint)
    judged.write("a", batch=True, extra={"vertex_location": "europe-west1"})
    assert judged.command() == 2
    told = "set VERTEXAI_LOCATION in the environment instead of vertex_location"
    assert f"cannot be asked in batches; {told}" in capsys.readouterr().err
    assert sizes(endpoint) == []


@pytest.mark.parametrize(
    ("made", "variable", "told"),
    [
        (ByGemini, "VERTEXAI_LOCATION", "it is in us-central1, not in eu-west-1: set VERTEXAI"),
        (ByNova, "AWS_REGION_NAME", "it is in us-east-1, not in eu-west-1: set AWS_REGION_NAME"),
    ],
)
def test_a_batch_in_another_region_stays_open(
    tmp_path: Path,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    clouds: None,
    made: type[Judged],
    variable: str,
    told: str,
) -> None:
    judged = made(tmp_path, endpoint)
    judged.write("ab", batch=True)
    pending(judged, endpoint)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv(variable, "eu-west-1")
        assert judged.command() == 6
    assert told in capsys.readouterr().err
    judged.run()
    assert sizes(endpoint) == [2]
    assert judged.verdicts() == dict.fromkeys("ab", LABELS)


MORE: dict[str, Any] = {"items": [], "nextPageToken": "1"}


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ((404, {"error": {"code": 404, "message": "no such bucket"}}), "no such bucket"),
        ((403, {"error": {"code": 403, "message": "not yours"}}), "403: not yours"),
        ((200, {}), "there are no replies in gs://claims-bucket/claimflow/"),
        ((200, MORE), "the list of its files has more than 1,000 pages"),
    ],
)
def test_a_batch_whose_files_cannot_be_read_stays_open(
    tmp_path: Path,
    endpoint: Endpoint,
    capsys: pytest.CaptureFixture[str],
    clouds: None,
    listed: tuple[int, Any],
    told: str,
) -> None:
    judged = ByGemini(tmp_path, endpoint)
    judged.write("ab", batch=True)
    endpoint.behaviour.batches.instead = lambda _, path: (
        listed if path.startswith("/storage/v1/") else None
    )
    assert judged.command() == 6
    printed = capsys.readouterr().err
    assert "batch_1 cannot be read: " in printed
    assert told in printed
    endpoint.behaviour.batches.instead = lambda *_: None
    judged.run()
    assert sizes(endpoint) == [2]
    assert judged.verdicts() == dict.fromkeys("ab", LABELS)


def test_an_account_that_gives_no_token_ends_the_run(
    tmp_path: Path,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    clouds: None,
) -> None:
    """Nothing is looked for at the provider: nothing can have been sent."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    # litellm keeps the account of a project for the whole process.
    monkeypatch.setenv("VERTEXAI_PROJECT", "no-account")
    judged = ByGemini(tmp_path, endpoint)
    judged.write("a", batch=True)
    assert judged.command() == 6
    printed = capsys.readouterr().err
    assert "the batch was not accepted: no request can be written: " in printed
    assert "none.json" in printed
    assert sizes(endpoint) == []


def test_a_run_that_waits_for_a_silent_service_can_be_stopped(
    tmp_path: Path, clouds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 blocks the thread that it is called in."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        batches = BedrockBatches(BedrockCall("us-east-1", "amazon.nova-lite-v1:0", "Converse"), 600)

        async def wait() -> None:
            async with asyncio.timeout(1):
                await batches.state("us-east-1:batch")

        with pytest.raises(TimeoutError):
            asyncio.run(wait())
