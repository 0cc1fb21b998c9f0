"""The doctor says what works, of every judge, in three small calls each."""

import os
import re
from collections import Counter
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml

from claimflow.flows.cli.main import main
from claimflow.flows.judge.doctor import reply_timeout
from claimflow.flows.pipeline.model_settings import Judge
from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.server import Endpoint, serve

KEYS = ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "ANTHROPIC_API_KEY")
PRICE = {"input": 0.15, "output": 0.6}
SENTENCE = re.compile("Write one sentence")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


class Told:
    """What `claimflow doctor` said: its exit code, the blocks by name, standard error."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.err = code, err
        self.blocks: dict[str, dict[str, str]] = {}
        for block in out.strip().split("\n\n"):
            head, *lines = block.splitlines()
            found = (re.split(r"  +", line.strip(), maxsplit=1) for line in lines)
            self.blocks[head.split(": ")[0]] = dict(found)


def doctor(folder: Path, capsys: pytest.CaptureFixture[str], **parts: Any) -> Told:
    """What is said of a pipeline with these `parts`; its samples are nowhere."""
    steps = {"response_claims": {"use": "decompose_claims", "of": "response"}}
    pipeline = {"name": "p", "samples": {"path": "none.jsonl"}, "store": "s.duckdb"}
    text = yaml.safe_dump({**pipeline, **parts, "steps": steps}, sort_keys=False)
    (folder / "p.yaml").write_text(text, "utf-8")
    with chdir(folder):
        code = main(["doctor", "p.yaml"])
    assert [path.name for path in folder.iterdir()] == ["p.yaml"]
    printed = capsys.readouterr()
    return Told(code, printed.out, printed.err)


def judge(endpoint: Endpoint, **settings: Any) -> dict[str, Any]:
    return {"model": "hosted_vllm/fake", "api_base": endpoint.api_base, "timeout": 5} | settings


def test_a_judge_that_works_is_asked_three_small_things(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        printed = doctor(
            tmp_path, capsys, judge=judge(endpoint, price=PRICE, max_tokens=50, seed=3)
        )
        verification, *same = [one.body for one in endpoint.requests]
    assert (printed.code, printed.err) == (0, "")
    found = printed.blocks["judge"]
    latency = found.pop("latency")
    assert re.fullmatch(r"\d+\.\d\d, \d+\.\d\d, \d+\.\d\d seconds", latency)
    tokens = found.pop("tokens")
    assert re.fullmatch(r"reported \(\d+ in, \d+ out for the first call\)", tokens)
    assert found == {
        "reachable": "yes",
        "replies": "JSON by a schema (format 1 of 4: schema)",
        "read": "yes, as entailed",
        "seed honoured": "yes: two replies with seed 3 and temperature 1 are equal",
        "key": "HOSTED_VLLM_API_KEY is not set, which that address may not need",
        "price": "0.15 in, 0.6 out: USD per million tokens, by this file",
    }
    assert verification["response_format"]["type"] == "json_schema"
    assert verification["temperature"] == 0
    assert same[0] == same[1]
    assert {"temperature": 1, "max_tokens": 50, "seed": 3}.items() <= same[0].items()
    assert "response_format" not in same[0]
    assert len(str(verification["messages"])) < 1_000


@pytest.mark.parametrize(
    ("refuses", "response_format"),
    [({"json_schema"}, "tool"), ({"json_schema", "tools"}, "object")],
)
def test_it_goes_down_the_ladder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refuses: set[str], response_format: str
) -> None:
    with serve(refuses=refuses) as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint))
        assert endpoint.hits == len(refuses) + 3
    assert printed.code == 0
    assert f": {response_format})" in printed.blocks["judge"]["replies"]
    assert printed.blocks["judge"]["read"] == "yes, as entailed"


@pytest.mark.parametrize(
    ("refuses", "settings", "words", "hits"),
    [
        ({"seed"}, {}, "not supported: 400: Unsupported parameter: 'seed'", 5),
        (set(), {"temperature": 0.5}, "yes: two replies with seed 7 and temperature 0.5", 3),
        (set(), {"temperature": None}, "yes: two replies with seed 7 and temperature 1", 3),
    ],
)
def test_seeds_are_tried_with_what_the_endpoint_takes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    refuses: set[str],
    settings: dict[str, Any],
    words: str,
    hits: int,
) -> None:
    with serve(refuses=refuses) as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint, **settings))
        assert endpoint.hits == hits
    assert printed.code == 0
    assert printed.blocks["judge"]["seed honoured"].startswith(words)


def test_the_keys_of_a_cloud_are_those_that_litellm_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in os.environ if one.startswith(("AWS_", "GOOGLE_", "VERTEX"))]:
        monkeypatch.delenv(name)
    nova = {"model": "bedrock/amazon.nova-lite-v1:0", "timeout": 5}
    with serve() as endpoint:
        monkeypatch.setenv("AWS_BEDROCK_RUNTIME_ENDPOINT", endpoint.url)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        printed = doctor(tmp_path, capsys, judge=nova)
        keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are"
        told = f"{keys} not set; a file or a role of this machine may give it"
        assert printed.blocks["judge"]["key"] == told
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
        printed = doctor(tmp_path, capsys, judge=nova)
    assert printed.blocks["judge"]["key"] == f"{keys} set"
    assert printed.blocks["judge"]["reachable"] == "yes"


def free(number: int) -> Any:
    """Applies to free text from the `number`th such request on."""
    seen = Counter[str]()

    def applies(body: Any) -> bool:
        seen["all"] += bool(SENTENCE.search(str(body)))
        return bool(SENTENCE.search(str(body))) and seen["all"] >= number

    return applies


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            faults.content(lambda text: f"{text} Or not."),
            "no: two replies with seed 7",
        ),
        (faults.empty(), "unknown: the reply to a request with"),
        (faults.status(429), "unknown: 429: Rate limit reached"),
    ],
    ids=["other", "empty", "429"],
)
def test_a_seed_that_is_not_honoured_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: Fault, words: str
) -> None:
    with serve(fault=faults.where(free(2), fault)) as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint))
        assert endpoint.hits == 3
    assert printed.code == 0
    assert printed.blocks["judge"]["seed honoured"].startswith(words)


def test_equal_replies_at_temperature_0_show_nothing_about_a_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warm = faults.where(
        lambda body: body.get("temperature") == 1, faults.unsupported_parameter("temperature")
    )
    with serve(fault=warm) as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint))
    words = "unknown: two replies with seed 7 and temperature 0 are equal"
    assert printed.blocks["judge"]["seed honoured"].startswith(words)


@pytest.mark.parametrize(
    ("fault", "timeout", "reachable"),
    [
        (faults.wrong_key(), 10, "yes, but: 401: Incorrect API key provided: ***"),
        (faults.no_such_model(), 10, "yes, but: 404: The model `fake` does not exist"),
        (faults.status(500), 10, "yes, but: The server had an error"),
        (faults.status(429, retry_after=30), 10, "yes, but: 429: Rate limit reached"),
        (faults.hang(), 0.5, "no: no whole reply within 0.5 seconds"),
    ],
    ids=["401", "404", "500", "429", "hang"],
)
def test_a_judge_that_cannot_be_used_is_reported_at_once(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fault: Fault,
    timeout: float,
    reachable: str,
) -> None:
    with serve(fault=fault) as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint, timeout=timeout))
        assert endpoint.hits == 1
    assert printed.code == 6
    assert printed.blocks["judge"]["reachable"].startswith(reachable)
    why = printed.blocks["judge"]["reachable"].split(": ", 1)[1]
    assert printed.err == f"claimflow: judge cannot be used: {why}\n"


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        (faults.prose(), "the reply holds no JSON object"),
        (faults.outside_label(), "verdict must be 'entailed', 'contradicted' or 'neutral'"),
        (faults.refused(), "the model declined"),
    ],
    ids=["prose", "label", "refused"],
)
def test_a_reply_that_cannot_be_read_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: Fault, wrong: str
) -> None:
    with serve(fault=fault) as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint))
    assert printed.code == 6
    assert printed.blocks["judge"]["reachable"] == "yes"
    assert wrong in printed.blocks["judge"]["read"]
    assert "judge cannot be used: its reply to a verification cannot be used" in printed.err


def test_every_judge_is_checked_even_if_others_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint, serve() as gone:
        gone.refuse()
        printed = doctor(
            tmp_path,
            capsys,
            judges={
                "gone": judge(gone, timeout=600),
                "keyless": {"model": "anthropic/claude-sonnet-4-5"},
                "unpriced": judge(endpoint, budget_usd=1),
            },
            judge=judge(endpoint),
            embedder={"provider": "litellm", **judge(endpoint), "price": {"input": 0.02}},
        )
        assert endpoint.stats()["by_path"] == {"/v1/chat/completions": 6, "/v1/embeddings": 1}
    assert printed.code == 6
    names = ["judge", "judge gone", "judge keyless", "judge unpriced", "embedder"]
    assert list(printed.blocks) == names
    assert printed.blocks["judge gone"]["reachable"].startswith(
        "no: the endpoint cannot be reached"
    )
    assert printed.blocks["judge keyless"]["key"] == "ANTHROPIC_API_KEY is not set"
    assert printed.blocks["judge keyless"]["reachable"] == "not tested"
    assert printed.blocks["judge keyless"]["price"].endswith("by litellm's table")
    assert printed.blocks["judge"]["price"].startswith("unknown; write price")
    assert printed.blocks["embedder"]["replies"] == "vectors of 384 numbers"
    (line,) = printed.err.splitlines()
    assert "judge gone cannot be used: the endpoint cannot be reached" in line
    assert "judge keyless cannot be used: set ANTHROPIC_API_KEY in the environment" in line
    assert "judge unpriced cannot be used: the price of hosted_vllm/fake is unknown" in line


def test_keys_are_named_and_never_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1234567890")
    with serve(api_key="sk-other") as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint, model="openai/fake"))
    assert printed.code == 6
    assert printed.blocks["judge"]["key"] == "OPENAI_API_KEY is set"
    assert "sk-secret" not in str(printed.blocks) + printed.err


def test_unreported_tokens_are_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(fault=faults.no_usage()) as endpoint:
        printed = doctor(tmp_path, capsys, judge=judge(endpoint))
    assert printed.blocks["judge"]["tokens"].startswith("not reported")


def test_a_pipeline_without_endpoints_needs_no_doctor(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(small)]) == 0
    assert capsys.readouterr().out.startswith("this pipeline asks no endpoint")


def test_no_call_waits_longer_than_twenty_seconds() -> None:
    assert reply_timeout(Judge(model="m", timeout=600)) == 20
    assert reply_timeout(Judge(model="m", timeout=3)) == 3


def test_a_mistake_in_the_file_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text("name: p\n")
    assert main(["doctor", str(tmp_path / "p.yaml")]) == 2
    assert "samples" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [float("nan"), "empty"])
def test_vectors_that_are_no_embeddings_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: float | str
) -> None:
    def change(made: list[Any]) -> list[Any]:
        return [each[:0] if wrong == "empty" else each * wrong for each in made]

    with serve(fault=faults.vectors(change), dimension=8) as endpoint:
        settings = {"provider": "litellm", "model": "hosted_vllm/fake"}
        printed = doctor(tmp_path, capsys, embedder=settings | {"api_base": endpoint.api_base})
    assert printed.code != 0
    assert "lists of equally many finite numbers" in printed.blocks["embedder"]["reachable"]
