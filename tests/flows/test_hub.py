"""Entailment models named on the Hugging Face Hub, downloaded from a server on loopback."""

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, StoreFullError, WorkersError
from claimflow.flows.models.cross_encoder import CrossEncoder
from claimflow.flows.models.hub import fetch_model, find_cached
from claimflow.flows.models.loading import load_entailment_model
from claimflow.flows.pipeline.model_settings import EntailmentSource, HubModel, folder_or_hub_model
from claimflow.flows.pipeline.verifier_forms import Form
from claimflow.flows.runner.embedded_models import judgement_replies, worker_judgements
from claimflow.flows.runner.estimate import EntailmentEstimate
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.tools import Judgement, Pair
from tests.flows.hub_server import Hub, files_of, hub_settings, serve_hub

TINY = Path(__file__).parents[1] / "data" / "tiny_cross_encoder"
NAME = "someone/tiny-nli"
MODEL = HubModel(NAME)
FILES = files_of(TINY)
PAIR = Pair("It was proved.", "Paris")

SAMPLE = {
    "sample_id": "a",
    "response": "The tower stands in Paris. Cheese comes from milk.",
    "reference": "The tower is old.",
}
STEPS = {
    "response_claims": {"use": "decompose_claims", "of": "response"},
    "response_in_reference": {
        "use": "verify_claims",
        "claims": "response_claims",
        "against": "reference",
    },
}
PROBABILITIES = """
SELECT claim, round(p_entailed, 3) FROM latest.verdicts JOIN latest.claims USING (claim_id)
ORDER BY start
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub() as served:
        served.publish(NAME, FILES)
        yield served


@pytest.fixture
def home(tmp_path: Path, hub: Hub) -> Iterator[Path]:
    home = tmp_path / "home"
    with hub_settings(HF_ENDPOINT=f"http://{hub.host}", HF_HOME=str(home)):
        yield home


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "samples.jsonl").write_text(json.dumps(SAMPLE) + "\n")
    return write(tmp_path / "nightly.yaml", NAME)


def write(path: Path, model: str, **more: Any) -> Path:
    head = {"name": "nightly", "samples": {"path": "samples.jsonl"}, "store": "s.duckdb"}
    text = {**head, "entailment": {"model": model}, "steps": STEPS, **more}
    path.write_text(json.dumps(text, indent=1))
    return path


def fetch(model: HubModel = MODEL) -> Path:
    return fetch_model(model, Form(), "nightly.yaml:4 entailment.model", lambda message: None)


def refusal(model: HubModel = MODEL) -> str:
    with pytest.raises(InputError) as caught:
        fetch(model)
    place, _, message = str(caught.value).partition(": ")
    assert place == "nightly.yaml:4 entailment.model"
    return message


def test_a_run_fetches_the_model_once(
    pipeline: Path, hub: Hub, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = hub.revisions[NAME]["main"]
    assert main(["run", str(pipeline)]) == 0
    ready = f"entailment model {NAME}: main is commit {commit} (to stay: {NAME}@{commit})\n"
    fetching = f"entailment model {NAME}: fetching 0.0 MB from {hub.host}\n"
    assert fetching + ready in capsys.readouterr().err
    assert verdicts(pipeline) == [
        ("The tower stands in Paris.", 0.965),
        ("Cheese comes from milk.", 0.018),
    ]
    gets = [path for path in hub.requests if path.startswith("GET")]
    large = next(iter(hub.large))
    files = f"GET /{NAME}/resolve"
    assert gets == [
        f"GET /api/models/{NAME}/revision/main",
        f"{files}/main/config.json",
        f"{files}/{commit}/tokenizer.json",
        f"{files}/{commit}/README.md",
        f"GET {large}",
    ]
    # The user agent does not name the libraries that are installed.
    assert all("torch" not in agent and "agent/" not in agent for agent in hub.agents)
    hub.requests.clear()
    assert main(["run", str(pipeline), "--again", "response_in_reference"]) == 0
    assert hub.requests == []
    error = capsys.readouterr().err
    assert ready in error
    assert "fetching" not in error


def verdicts(pipeline: Path) -> list[tuple[str, float]]:
    with Store(pipeline.parent / "s.duckdb").reading() as connection:
        return connection.execute(PROBABILITIES).fetchall()


def test_a_model_in_the_cache_needs_no_network(pipeline: Path, hub: Hub, home: Path) -> None:
    fetch_model(MODEL, Form(), "here", lambda _: None)
    hub.requests.clear()
    with hub_settings(HF_HOME=str(home), HF_HUB_OFFLINE="1"):
        assert main(["run", str(pipeline)]) == 0
    assert verdicts(pipeline)[0] == ("The tower stands in Paris.", 0.965)
    assert hub.requests == []


def move_main(hub: Hub) -> str:
    """Make `main` another model, with the first two outputs swapped; returns its commit."""
    labels = {"0": "neutral", "1": "entailment", "2": "contradiction"}
    config = json.loads(FILES["config.json"]) | {"id2label": labels}
    return hub.publish(NAME, FILES | {"config.json": json.dumps(config).encode()})


def test_a_branch_that_moves_makes_new_rows(
    pipeline: Path, hub: Hub, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = hub.revisions[NAME]["main"]
    assert main(["run", str(pipeline)]) == 0
    second = move_main(hub)
    # What is in the cache stays as it was.
    capsys.readouterr()
    assert main(["run", str(pipeline)]) == 0
    out, error = capsys.readouterr()
    assert f"main is commit {first}" in error
    assert "0 steps made, 3 reused" in out
    # Another machine, or an emptied cache, has the new one.
    shutil.rmtree(home)
    assert main(["run", str(pipeline)]) == 0
    out, error = capsys.readouterr()
    assert f"main is commit {second}" in error
    assert "1 step made, 2 reused" in out
    assert verdicts(pipeline)[1] == ("Cheese comes from milk.", 0.965)
    # A pinned commit stays the old model, whose rows are stored, and needs no message.
    write(pipeline, f"{NAME}@{first}")
    assert main(["run", str(pipeline)]) == 0
    out, error = capsys.readouterr()
    assert "is commit" not in error
    assert "0 steps made, 3 reused" in out
    assert verdicts(pipeline)[0] == ("The tower stands in Paris.", 0.965)


def test_a_commit_that_changes_no_file_of_the_model_changes_no_row(hub: Hub, home: Path) -> None:
    before = fetch()
    hub.publish(NAME, FILES | {"README.md": b"Now with a picture."}, revision="v2")
    after = fetch(HubModel(NAME, "v2"))
    assert before.name != after.name
    identities = [CrossEncoder(folder, name=NAME).identity for folder in (before, after)]
    assert identities[0] == identities[1]
    assert identities[0] == CrossEncoder(TINY, name=NAME).identity


def test_a_plan_downloads_nothing_and_says_what_a_run_will(
    pipeline: Path, hub: Hub, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(pipeline)]) == 0
    line = (
        f"entailment model {NAME}: not on this machine, a run fetches it from {hub.host}; until "
        "then no step that asks it is known to be on file\n"
    )
    assert line in capsys.readouterr().out
    assert hub.requests == []
    assert main(["run", str(pipeline)]) == 0
    capsys.readouterr()
    assert main(["plan", str(pipeline)]) == 0
    out = capsys.readouterr().out
    assert "reuse 2 rows" in out.partition("response_in_reference")[2]
    assert "fetches" not in out


def test_the_plan_of_a_cascade_assumes_an_unfetched_model_to_be_unsure(
    tmp_path: Path, hub: Hub, home: Path
) -> None:
    model = load_entailment_model(EntailmentSource(MODEL))
    foreseen = EntailmentEstimate(model, Ledger(Store(tmp_path / "s.duckdb")))
    assert foreseen.judge([PAIR]) == {PAIR: Judgement(0.5, 0.25, 0.25, 0, 0)}
    assert foreseen.guessed
    assert hub.requests == []


def test_a_model_that_no_step_asks_is_not_fetched(pipeline: Path, hub: Hub, home: Path) -> None:
    write(pipeline, NAME, steps={"response_claims": STEPS["response_claims"]})
    assert main(["run", str(pipeline)]) == 0
    assert hub.requests == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (NAME, MODEL),
        (f"{NAME}@v1.0", HubModel(NAME, "v1.0")),
        (f"{NAME}@refs/pr/1", HubModel(NAME, "refs/pr/1")),
        (f"./{NAME}", Path(f"./{NAME}")),
        (f"../{NAME}", Path(f"../{NAME}")),
        ("a/b/c", Path("a/b/c")),
        ("tiny-nli", Path("tiny-nli")),
        ("/models/nli", Path("/models/nli")),
        (f"{NAME}@", Path(f"{NAME}@")),
    ],
)
def test_hub_names_and_folders(tmp_path: Path, written: str, meant: Path | HubModel) -> None:
    expected = tmp_path / meant if isinstance(meant, Path) else meant
    assert folder_or_hub_model(tmp_path, written) == expected


def test_a_folder_takes_precedence_over_a_model_of_that_name(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    assert folder_or_hub_model(tmp_path, NAME) == tmp_path / NAME


def test_a_run_whose_model_is_missing_writes_nothing(
    pipeline: Path, hub: Hub, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(pipeline, "someone/else")
    assert main(["run", str(pipeline)]) == 2
    assert capsys.readouterr().err == (
        f"claimflow: {pipeline}:8 entailment.model: someone/else is not a folder here, and no "
        f"model that {hub.host} shows; check the name; for a private model set HF_TOKEN\n"
    )
    write(pipeline, "./nowhere")
    assert main(["run", str(pipeline)]) == 2
    assert ": no such folder; name a folder with model.onnx" in capsys.readouterr().err
    write(pipeline, NAME, embedder={"model": "nowhere"})
    assert main(["run", str(pipeline)]) == 2
    assert "/nowhere/encoder.json: no such file" in capsys.readouterr().err
    assert not (pipeline.parent / "s.duckdb").exists()


def test_names_that_the_hub_does_not_know(hub: Hub, home: Path) -> None:
    right = "check the name; for a private model set HF_TOKEN"
    unknown = f"is not a folder here, and no model that {hub.host} shows; {right}"
    assert refusal(HubModel("no/such")) == f"no/such {unknown}"
    revision = f"names a revision that {hub.host} does not know"
    assert refusal(HubModel(NAME, "v9")) == (
        f"{NAME}@v9 {revision}; name a branch, a tag or a commit of {NAME}"
    )
    assert refusal(HubModel("so--me/one")) == (
        "so--me/one is not a folder here, and no name of a model; name one as owner/name"
    )
    hub.private.add(NAME)
    assert refusal() == f"{NAME} {unknown}"


def test_a_private_model_needs_the_token_which_no_other_host_gets(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.private.add(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert (fetch() / "model.onnx").read_bytes() == FILES["model.onnx"]
    assert refusal(HubModel("no/such")).startswith("no/such is not a folder here, and no model")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert refusal(HubModel(NAME, "v2")) == (
        f"{NAME}@v2 cannot be fetched: {hub.host} refuses the token; set HF_TOKEN to a valid one"
    )


def test_a_gated_model(hub: Hub, home: Path) -> None:
    hub.gated.add(NAME)
    assert refusal() == (
        f"{NAME} is gated by {hub.host}; ask for access at "
        f"https://{hub.host}/{NAME} and set HF_TOKEN"
    )


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "{} does not allow it; set HF_TOKEN to one that may read it"),
        (503, "{} answers 503; try again later"),
    ],
)
def test_other_statuses(hub: Hub, home: Path, status: int, message: str) -> None:
    hub.failure = status
    assert refusal() == f"{NAME} cannot be fetched: {message.format(hub.host)}"


def test_without_a_network(tmp_path: Path, home: Path) -> None:
    start = (
        f"{NAME} is not a folder here, not in the cache, and nowhere.invalid cannot be reached ("
    )
    with hub_settings(HF_ENDPOINT="https://ann:secret@nowhere.invalid", HF_HOME=str(tmp_path)):
        message = refusal()
    assert message.startswith(start)
    assert message.endswith("); a network is needed to fetch it once")
    assert "secret" not in message
    with hub_settings(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path)):
        assert refusal() == (
            f"{NAME} is not a folder here, not in the cache, and HF_HUB_OFFLINE is set; "
            "fetch it where there is a network, or unset HF_HUB_OFFLINE"
        )


def test_a_model_that_is_not_in_onnx_format(hub: Hub, home: Path) -> None:
    export = (
        "export it (optimum-cli export onnx --model {} --task text-classification FOLDER) and "
        "name that folder"
    )
    hub.publish("some/torch", {"config.json": FILES["config.json"], "model.safetensors": b"..."})
    assert refusal(HubModel("some/torch")) == (
        f"some/torch has no tokenizer.json, no model.onnx; {export.format('some/torch')}"
    )
    quantised = {name: FILES[name] for name in ("config.json", "tokenizer.json")}
    hub.publish("some/small", quantised | {"onnx/model_quantized.onnx": b"..."})
    assert refusal(HubModel("some/small")) == (
        f"some/small has no model.onnx; {export.format('some/small')}"
    )
    assert not any("resolve" in path for path in hub.requests)


def test_a_model_with_other_outputs_is_not_downloaded(hub: Hub, home: Path) -> None:
    right = (
        "take a model that names entailment and neutral, or not_entailment; or write its "
        "template, or what they mean: answer: {outputs: [entailed, neutral, contradicted]}"
    )
    config = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}
    hub.publish(NAME, FILES | {"config.json": json.dumps(config).encode()})
    found = "id2label names 'LABEL_0', 'LABEL_1'"
    assert refusal() == f"config.json of {NAME}: {found}; {right}"
    hub.publish(NAME, FILES | {"config.json": b"[]"})
    assert refusal() == f"config.json of {NAME}: it is no JSON object; {right}"
    assert not any("/large/" in path for path in hub.requests)
    # Nor is one in the cache used.
    hub.publish(NAME, FILES)
    folder = fetch()
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    assert refusal() == f"config.json of {NAME}: {found}; {right}"


def test_the_model_file_is_downloaded_last(hub: Hub, home: Path) -> None:
    files = {name: FILES[name] for name in ("config.json", "tokenizer.json")}
    settings = {"tokenizer_config.json": b'{"model_max_length": 12}'}
    weights = {"onnx/model.onnx_data": b"weights", "model.safetensors": b"not asked for"}
    hub.publish(NAME, files | settings | weights | {"onnx/model.onnx": FILES["model.onnx"]})
    folder = fetch()
    gets = [path.rpartition("/")[2] for path in hub.requests if path.startswith("GET /some")]
    assert gets == ["config.json", "tokenizer.json", "tokenizer_config.json", "model.onnx_data"]
    assert hub.requests[-1].startswith("GET /large/")
    identity = CrossEncoder(folder, name=NAME).identity
    assert identity["max_length"] == 12
    assert "model.onnx_data_sha256" in identity
    # An interrupted download is not a model in the cache, and is completed.
    (folder / "onnx" / "model.onnx").unlink()
    assert find_cached(MODEL) is None
    assert fetch() == folder
    assert find_cached(MODEL) == folder


def test_a_full_disk(hub: Hub, home: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        with pytest.raises(StoreFullError) as caught:
            fetch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == (
        f"nightly.yaml:4 entailment.model: no room for {NAME} in {home / 'hub'}: free some, or "
        "set HF_HOME to a folder elsewhere"
    )
    assert find_cached(MODEL) is None


def test_a_cache_that_cannot_be_written(hub: Hub, home: Path) -> None:
    home.mkdir()
    (home / "hub").write_text("a file")
    assert refusal() == (
        f"{NAME} cannot be put into {home / 'hub'} (Not a directory); "
        "set HF_HOME to a folder that you can write to"
    )


def test_workers_fetch_the_same_commit(hub: Hub, home: Path) -> None:
    commit = fetch().name
    pinned = HubModel(NAME, commit)
    here = load_entailment_model(EntailmentSource(pinned))
    replies, identity = judgement_replies(here, [PAIR]), here.identity
    move_main(hub)
    shutil.rmtree(home)
    assert worker_judgements(EntailmentSource(pinned), identity, [PAIR]) == replies
    assert any("/large/" in path for path in hub.requests)
    with pytest.raises(WorkersError, match=r"a worker has another entailment model in some.*@v2"):
        hub.publish(NAME, hub.commits[NAME][hub.revisions[NAME]["main"]], revision="v2")
        worker_judgements(EntailmentSource(HubModel(NAME, "v2")), identity, [PAIR])
    with pytest.raises(
        WorkersError, match=r"does not have the entailment model .*: no/such is not a folder"
    ):
        worker_judgements(EntailmentSource(HubModel("no/such")), {}, [PAIR])


def test_the_library_is_set_up_in_a_process_that_has_loaded_nothing_of_it() -> None:
    code = "from claimflow.flows.models.hub import _hub; _hub().hf_hub_download"
    subprocess.run([sys.executable, "-c", code], check=True)
