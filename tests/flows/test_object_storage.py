"""Samples read from S3 and tables exported to it, with a real server on loopback."""

import gzip
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import polars as pl
import pytest

from claimflow.flows import object_storage
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.object_storage import Address, Bucket, parse_address
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.store.export import check_place, export_to, publish_run, remove_published
from claimflow.flows.store.store import Store
from claimflow.flows.traces.reader import read_traces
from tests.flows.prefect_server import environment
from tests.flows.s3_server import KEYS, UNSET, Request, S3Proxy, make_bucket, s3_server

DATA = Path(__file__).parent.parent / "data"

SAMPLES = [
    {"sample_id": f"s{n}", "response": f"Answer {n}.", "reference": "It is so.", "topic": "a"}
    for n in range(6)
]


@pytest.fixture(scope="module")
def served() -> Iterator[S3Proxy]:
    with s3_server() as proxy:
        yield proxy


@pytest.fixture
def proxy(served: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    for name, value in served.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_storage, "_RETRIES", 2)
    yield served
    served.failure = lambda request: None


@pytest.fixture
def s3(proxy: S3Proxy, request: pytest.FixtureRequest) -> str:
    """The address of a bucket of the test's own."""
    name = request.node.name.partition("[")[0].replace("_", "-")[5:60].strip("-")
    make_bucket(proxy, name)
    return f"s3://{name}"


def put(place: str, content: bytes | Path) -> None:
    at = parse_address(place)
    Bucket(at).put(at.key, content)


def parquet(path: Path, samples: list[dict[str, str]]) -> Path:
    pl.DataFrame(samples).write_parquet(path)
    return path


def lines(samples: list[dict[str, str]]) -> bytes:
    return "\n".join(json.dumps(sample) for sample in samples).encode()


def read(place: str, folder: Path) -> SampleSource:
    return read_samples(place, base=folder, rename={})


def messages(place: str, folder: Path) -> list[str]:
    faults = [str(fault) for fault in read(place, folder).faults]
    assert not any(KEYS["AWS_SECRET_ACCESS_KEY"] in fault for fault in faults)
    return faults


def ids(source: SampleSource) -> list[str]:
    assert source.faults == ()
    return [name for table in source.shards(100) for name in table["sample_id"]]


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("s3://b", ("b", "")),
        ("s3://my.bucket-1/night/a b@2.parquet", ("my.bucket-1", "night/a b@2.parquet")),
        ("s3://b/night/", ("b", "night/")),
        ("s3://b/night-?/*.parquet", ("b", "night-?/*.parquet")),
    ],
)
def test_an_address_is_a_bucket_and_a_key(place: str, parts: tuple[str, str]) -> None:
    assert parse_address(place) == Address(*parts)


@pytest.mark.parametrize(
    "place",
    [
        "s3://AKIA:hush@b/x",
        "s3://AKIA:hu/sh@b/x",
        "s3://hush@b/x",
        "s3://b/x?aws_secret_access_key=hush",
        "https://b.example/x?X-Amz-Signature=hush",
    ],
)
def test_keys_in_an_address_are_refused_and_not_quoted(place: str, tmp_path: Path) -> None:
    right = "keys and endpoints belong in the environment, not into an address"
    scheme = place.partition(":")[0]
    assert messages(place, tmp_path) == [f"{scheme}://...: is not valid; {right}"]


@pytest.mark.parametrize(
    "place", ["https://b/x", "gs://b/x", "s3:///x", "s3://b//x", "s3://b/../x", "s3://b/.", "s3://"]
)
def test_other_addresses_are_refused(place: str, tmp_path: Path) -> None:
    right = "write a path, or an address as s3://bucket/key"
    assert messages(place, tmp_path) == [f"{place.partition(':')[0]}://...: is not valid; {right}"]


def test_the_same_samples_have_one_digest_wherever_they_are(s3: str, tmp_path: Path) -> None:
    local = parquet(tmp_path / "a.parquet", SAMPLES)
    (tmp_path / "a.jsonl").write_bytes(lines(SAMPLES))
    pl.DataFrame(SAMPLES).write_csv(tmp_path / "a.csv")
    (tmp_path / "a.json").write_text(json.dumps(SAMPLES))
    for ending in ("parquet", "jsonl", "csv", "json"):
        put(f"{s3}/deep/ö a.{ending}", (tmp_path / f"a.{ending}").read_bytes())
    known = read(local.name, tmp_path)
    assert known.count == 6
    for ending in ("parquet", "jsonl", "csv", "json"):
        source = read(f"{s3}/deep/ö a.{ending}", tmp_path)
        assert (source.digest, source.faults) == (known.digest, ()), ending


def test_traces_are_read_from_objects(s3: str, tmp_path: Path) -> None:
    exported = (DATA / "traces/otlp.jsonl").read_bytes()
    put(f"{s3}/traces/a.json.gz", gzip.compress(exported))
    put(f"{s3}/traces/b.parquet", DATA / "traces/phoenix.parquet")
    local = [str(DATA / "traces" / name) for name in ("otlp.jsonl", "phoenix.parquet")]
    here = read_traces(local, base=tmp_path).samples
    there = read_traces([f"{s3}/traces/*"], base=tmp_path).samples
    assert there.digest == here.digest
    assert ids(there) == ids(here) != []


def test_a_glob_reads_objects_in_the_order_of_names(s3: str, tmp_path: Path) -> None:
    for n, name in enumerate(["b.parquet", "a.parquet", "c.parquet"]):
        (tmp_path / "night").mkdir(exist_ok=True)
        put(f"{s3}/night/{name}", parquet(tmp_path / "night" / name, SAMPLES[2 * n : 2 * n + 2]))
    for other in ("night/.d.parquet", "night/deep/e.parquet", "nights/f.parquet", "night/g.jsonl"):
        put(f"{s3}/{other}", b"not asked for")
    order = ["s2", "s3", "s0", "s1", "s4", "s5"]
    source = read(f"{s3}/night/*.parquet", tmp_path)
    assert ids(source) == order
    assert source.digest == read("night/*.parquet", tmp_path).digest
    assert ids(read(f"{s3}/n*t/[ab].parquet", tmp_path)) == order[:4]
    assert ids(read(f"{s3}/**/c.parquet", tmp_path)) == order[4:]
    assert messages(f"{s3}/night/*.csv", tmp_path) == [
        f"{s3}/night/*.csv: no object matches; the folder searched is {s3}/night"
    ]


def test_an_object_is_fetched_in_blocks_and_no_file_is_left(
    proxy: S3Proxy, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "_BLOCK", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    put(f"{s3}/a.jsonl", lines([s | {"x": "y" * 300} for s in SAMPLES]))
    proxy.requests.clear()
    assert len(ids(read(f"{s3}/a.jsonl", tmp_path))) == 6
    spans = [request.span for request in proxy.requests]
    assert spans == [None, "bytes=0-999", "bytes=1000-1999", "bytes=2000-2362"]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_lost_connection_is_retried_a_limited_number_of_times(
    proxy: S3Proxy, s3: str, tmp_path: Path
) -> None:
    put(f"{s3}/a.jsonl", lines(SAMPLES))
    proxy.requests.clear()
    proxy.failure = lambda request: "cut" if len(proxy.requests) == 1 else None
    assert len(ids(read(f"{s3}/a.jsonl", tmp_path))) == 6
    assert [request.span is None for request in proxy.requests] == [True, False]
    proxy.requests.clear()
    proxy.failure = lambda request: "cut"
    lost = f"{s3}/a.jsonl: the connection to {proxy.host} was lost; run again"
    assert messages(f"{s3}/a.jsonl", tmp_path) == [lost]
    assert len(proxy.requests) == 3
    proxy.requests.clear()
    proxy.failure = lambda request: 503
    busy = f"{s3}/a.jsonl: {proxy.host} answers 503; run again later"
    assert messages(f"{s3}/a.jsonl", tmp_path) == [busy]
    assert len(proxy.requests) == 3


@pytest.mark.parametrize("when", [1, 2, 3])
def test_an_object_that_changes_while_it_is_read(
    proxy: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    make_bucket(proxy, f"changing-{when}")
    monkeypatch.setattr(object_storage, "_BLOCK", 200)
    place = f"s3://changing-{when}/a.jsonl"
    put(place, lines(SAMPLES))
    proxy.requests.clear()

    def change(request: Request) -> None:
        if request.method == "GET" and len(proxy.requests) == when + 1:
            put(place, lines(SAMPLES).replace(b"Answer", b"Retort"))

    proxy.failure = change
    faults = [f"{place}: changed while it was read; run again when it is no longer being written"]
    assert messages(place.replace("a.", "?."), tmp_path) == faults


def test_missing_objects_and_buckets(proxy: S3Proxy, s3: str, tmp_path: Path) -> None:
    put(f"{s3}/night/answers.jsonl", lines(SAMPLES))
    put(f"{s3}/night/answers.txt", b"")
    assert messages(f"{s3}/night/answer.jsonl", tmp_path) == [
        f"{s3}/night/answer.jsonl: no such object; did you mean 'answers.jsonl'?"
    ]
    assert messages(f"{s3}/x/zz.jsonl", tmp_path) == [
        f"{s3}/x/zz.jsonl: no such object; the bucket looked in is at {proxy.host}"
    ]
    assert messages(f"{s3}/night/answers.txt", tmp_path) == [
        f"{s3}/night/answers.txt: unknown ending '.txt'; "
        "known are .jsonl, .ndjson, .json, .csv, .parquet; all but .parquet may also end in .gz"
    ]
    assert messages(f"{s3}/night/", tmp_path) == [
        f"{s3}/night/: a folder; name its objects, such as {s3}/night/*.parquet"
    ]
    missing = f"there is no bucket 'nowhere' at {proxy.host}; make it, or correct the name"
    for key in ("a.jsonl", "*.jsonl"):
        at = "s3://nowhere/" + key.replace("*.jsonl", "")
        assert messages(f"s3://nowhere/{key}", tmp_path) == [f"{at}: {missing}"]


def test_a_malformed_line_is_reported_by_its_address(s3: str, tmp_path: Path) -> None:
    put(f"{s3}/a.jsonl", lines(SAMPLES) + b"\n{]")
    (fault,) = messages(f"{s3}/a.jsonl", tmp_path)
    assert fault.startswith(f"{s3}/a.jsonl:7: broken JSON")


def test_missing_permissions_and_wrong_credentials(
    proxy: S3Proxy, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{s3}/a.jsonl"
    put(place, lines(SAMPLES))
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    with pytest.raises(InputError) as refused:
        put(place, b"")
    assert str(refused.value) == (
        f"{place}: no permission; grant it to the keys in the environment"
    )
    monkeypatch.delenv("AWS_SKIP_SIGNATURE")
    correct = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    with proxy.guarded():
        assert messages(place, tmp_path) == [
            f"{place}: {proxy.host} refuses the credentials (InvalidAccessKeyId); correct {correct}"
        ]
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    lacking = [f"{place}: there are no credentials; set {correct} in the environment"]
    assert messages(place, tmp_path) == lacking
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    assert messages(place, tmp_path) == lacking


def test_endpoints_that_do_not_answer_or_are_invalid(
    proxy: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    right = "start it, or correct AWS_ENDPOINT_URL"
    assert messages("s3://b/a.jsonl", tmp_path) == [
        f"s3://b/a.jsonl: no server answers at 127.0.0.1:9; {right}"
    ]
    for wrong in ("", "127.0.0.1:9", f"http://me:{KEYS['AWS_SECRET_ACCESS_KEY']}@127.0.0.1:9"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", wrong)
        assert messages("s3://b/a.jsonl", tmp_path) == [
            "AWS_ENDPOINT_URL: is not the URL of a server; "
            "write one as https://storage.example:9000, or none for AWS"
        ]


def test_an_object_may_be_the_beginning_of_a_trace(s3: str, tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Is tin a metal?"}], "response": "Yes."}
    put(f"{s3}/good.jsonl", json.dumps(chat).encode())
    put(f"{s3}/quiet.jsonl", b'{"messages": [{"ro')
    source = read_traces([f"{s3}/*.jsonl"], base=tmp_path).samples
    assert (source.count, source.faults) == (1, ())
    (told,) = source.warnings
    assert told[:2] == (f"{s3}/quiet.jsonl", "left out: damaged records 1")


def test_no_disk_space_for_a_copy(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f"{s3}/a.jsonl", lines(SAMPLES))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        (fault,) = messages(f"{s3}/a.jsonl", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    start = f"{s3}/a.jsonl: cannot be copied to {tmp_path}/claimflow-"
    assert fault.startswith(start)
    assert fault.endswith(" (File too large); make room, or set TMPDIR")


def test_without_obstore_the_message_says_how_to_install_it(
    proxy: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert messages("s3://b/a.jsonl", tmp_path) == [
        "s3://b/a.jsonl: obstore is not installed; run: pip install 'claimflow[s3]'"
    ]


def run_ids(store: Store) -> list[str]:
    with store.reading() as connection:
        found = connection.execute("SELECT run_id FROM audit.runs ORDER BY started_at").fetchall()
    return [run_id for (run_id,) in found]


def fetched(place: str, folder: Path) -> dict[str, Path]:
    at = parse_address(place)
    found = Bucket(at)
    copies = {key: folder / key.replace("/", "_") for key in found.versions(at.key)}
    for key, path in copies.items():
        found.fetch(key, path)
    return {key.rpartition("/")[2]: path for key, path in copies.items()}


def test_export_puts_tables_and_then_the_manifest(
    proxy: S3Proxy, s3: str, small_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.requests.clear()
    options = ["--store", str(small_store.path), "--to", f"{s3}/deep/tables"]
    assert main(["export", "scores", "claims", *options]) == 0
    name = s3.removeprefix("s3:/")
    assert [(request.method, request.path) for request in proxy.requests] == [
        ("POST", f"{name}?delete"),
        ("PUT", f"{name}/deep/tables/claims.parquet"),
        ("PUT", f"{name}/deep/tables/scores.parquet"),
        ("PUT", f"{name}/deep/tables/manifest.json"),
    ]
    assert capsys.readouterr().out == (
        f"{s3}/deep/tables/claims.parquet: 6 rows\n{s3}/deep/tables/scores.parquet: 12 rows\n"
    )
    found = fetched(f"{s3}/deep/tables", tmp_path)
    list(export_to(small_store, str(tmp_path / "local"), tables=["scores", "claims"]))
    for table in ("scores", "claims"):
        local = pl.read_parquet(tmp_path / "local" / f"{table}.parquet")
        assert pl.read_parquet(found[f"{table}.parquet"]).equals(local)
    printed = json.loads(found["manifest.json"].read_bytes())
    assert printed["run_id"] is None
    assert printed["tables"]["scores"] == {
        "file": "scores.parquet",
        "rows": 12,
        "bytes": found["scores.parquet"].stat().st_size,
    }


def test_an_incomplete_export_has_no_manifest(
    proxy: S3Proxy, s3: str, small_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--store", str(small_store.path), "--to", s3]
    assert main(["export", "scores", "claims", *options]) == 0
    assert set(fetched(s3, tmp_path)) == {"scores.parquet", "claims.parquet", "manifest.json"}
    proxy.failure = lambda request: 500 if "scores" in request.path else None
    capsys.readouterr()
    assert main(["export", "scores", "claims", *options]) == 2
    assert capsys.readouterr().err == (
        f"claimflow: {s3}/scores.parquet: {proxy.host} answers 500; run again later\n"
    )
    proxy.failure = lambda request: None
    assert set(fetched(s3, tmp_path)) == {"scores.parquet", "claims.parquet"}


def test_a_run_is_published_below_its_id(s3: str, small_store: Store, tmp_path: Path) -> None:
    run_id = run_ids(small_store)[0]
    check_place(f"{s3}/nights")
    assert publish_run(small_store, run_id, f"{s3}/nights/") == f"{s3}/nights/{run_id}"
    found = fetched(f"{s3}/nights/{run_id}", tmp_path)
    printed = json.loads(found.pop("manifest.json").read_bytes())
    assert printed["run_id"] == run_id
    assert {one["file"] for one in printed["tables"].values()} == set(found)
    assert pl.read_parquet(found["claims.parquet"])["run_id"].unique().to_list() == [run_id]
    put(f"{s3}/nights/{run_id}/mine.parquet", b"not of the run")
    assert remove_published(run_id, f"{s3}/nights") == len(found) + 1
    left = fetched(f"{s3}/nights/{run_id}", tmp_path)
    assert {name: path.read_bytes() for name, path in left.items()} == {
        "mine.parquet": b"not of the run"
    }
    assert remove_published(run_id, f"{s3}/nights") == 0


def test_the_target_is_checked_before_the_run(proxy: S3Proxy) -> None:
    with pytest.raises(InputError, match="there is no bucket 'nowhere'"):
        check_place("s3://nowhere/nights")
    check_place("a/folder")


def test_tables_are_reused_when_the_samples_move_to_s3(s3: str, small_store: Store) -> None:
    folder = small_store.path.parent
    written = (folder / "samples.jsonl").read_text("utf-8").splitlines()
    samples = [json.loads(line) for line in written]
    put(f"{s3}/in/a.parquet", parquet(folder / "a.parquet", samples[:2]))
    put(f"{s3}/in/b.parquet", parquet(folder / "b.parquet", samples[2:]))
    pipeline = (folder / "small.yaml").read_text("utf-8")
    moved = pipeline.replace("samples.jsonl", f'"{s3}/in/*.parquet"')
    (folder / "moved.yaml").write_text(moved, "utf-8")
    with chdir(folder):
        assert main(["run", "moved.yaml"]) == 0
    with small_store.reading() as connection:
        query = "SELECT run_id, bool_and(reused) FROM audit.run_steps GROUP BY run_id"
        reused = dict(connection.execute(query).fetchall())
    first, second = run_ids(small_store)
    assert reused == {first: False, second: True}


def test_a_run_that_cannot_be_published_does_not_start(
    server: str, proxy: S3Proxy, small: Path, tmp_path: Path
) -> None:
    night = (
        "import sys; from claimflow.flows.orchestration.flow import evaluate; "
        "evaluate(sys.argv[1], publish='s3://no')"
    )
    done = subprocess.run(
        [sys.executable, "-c", night, str(small)],
        env=environment(tmp_path / "home", PREFECT_API_URL=server, **proxy.environment()),
        capture_output=True,
        text=True,
        check=False,
    )
    missing = f"there is no bucket 'no' at {proxy.host}; make it, or correct the name"
    assert f"s3://no/.claimflow: {missing}" in done.stderr
    assert done.returncode == 1
    assert not small.with_suffix(".duckdb").exists()
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in done.stderr
