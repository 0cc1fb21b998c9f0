"""The wheel: what is in it, and that it runs beside packages of the same names as its folders."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import claimflow
from tests.endpoint.server import serve

ROOT = Path(__file__).parent.parent
SOURCE_HASH = """
import claimflow
from claimflow.flows.runner.workers.dask import source_hash

print(claimflow.__file__, source_hash("claimflow"))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def core(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with the wheel and what it needs without extras."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for path in installed.iterdir():
        (site / path.name).symlink_to(path)
    for name in requirements(metadata(installed).get_all("Requires-Dist", [])):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(found.locate_file(top)))
    return folder / "bin/python"


def metadata(installed: Path) -> Message:
    (folder,) = installed.glob("*.dist-info")
    return HeaderParser().parsestr((folder / "METADATA").read_text("utf-8"))


def requirements(lines: list[str]) -> set[str]:
    """The distributions that the requirements come to, without extras that none asks for."""
    found: set[tuple[str, str]] = set()
    left = [(Requirement(line), "") for line in lines]
    while left:
        wanted, extra = left.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        for wanted_extra in {"", *wanted.extras}:
            if (name, wanted_extra) not in found:
                found.add((name, wanted_extra))
                needs = distribution(name).requires or ()
                left += [(Requirement(line), wanted_extra) for line in needs]
    return {name for name, _ in found}


def test_the_metadata_describe_the_project(installed: Path) -> None:
    found = metadata(installed)
    assert found["Version"] == claimflow.__version__
    assert found["Author"]
    assert found["Keywords"]
    kinds = found.get_all("Classifier", [])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= {*kinds}
    extras = {"calibrate", "charts", "dask", "mlflow", "otlp", "s3", "test", "train"}
    assert set(found.get_all("Provides-Extra", [])) == extras
    guide = (ROOT / "configs/guides/start.md").read_text("utf-8")
    assert set(re.findall(r"^\| `claimflow\[(.+)\]`", guide, re.MULTILINE)) == extras - {"test"}


def test_without_extras_the_readme_holds_and_what_is_missing_is_named(
    core: Path, tmp_path: Path
) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [core, "-m", "claimflow", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    for name in ("scipy", "sklearn", "vl_convert", "krippendorff", "obstore", "distributed"):
        done = subprocess.run([core, "-c", f"import {name}"], capture_output=True, check=False)
        assert done.returncode == 1, name
    pipeline = str(ROOT / "configs/quickstart.yaml")
    store = ("--store", "s.duckdb")
    for _ in range(2):
        assert "faithfulness" in run("run", pipeline, *store)
    assert "claims" in run("explain", "demo-qafb-384", *store)
    assert "faithfulness" in run("diff", "previous", "latest", *store)
    run("report", "-o", "report.html", *store)
    assert (tmp_path / "report.html").read_text("utf-8").count("data-chart=") > 10
    run("plot", "faithfulness", "-o", "f.vl.json", *store)
    assert run("plot", "faithfulness", "-o", "f.png", *store, code=2) == (
        "claimflow: plot: SVG and PNG plots need claimflow[charts]; "
        "run: pip install 'claimflow[charts]', or name a file that ends in .json\n"
    )
    assert "run: pip install 'claimflow[calibrate]'" in run("calibrate", *store, code=2)
    no_s3 = "obstore is not installed; run: pip install 'claimflow[s3]'\n"
    for command in (["run", "s3://b/a.jsonl"], ["export", "--to", "s3://b/a.jsonl", *store]):
        told = run(*command, code=2)
        assert told.endswith(f"s3://b/a.jsonl: {no_s3}")
        assert told.count("\n") == 1
    cluster = {
        "name": "cluster",
        "samples": {"path": str(ROOT / "configs/demo.jsonl")},
        "store": "s.duckdb",
        "workers": {"engine": "dask", "address": "tcp://127.0.0.1:9"},
        "steps": {"matches": {"use": "lexical_match", "against": "reference"}},
    }
    (tmp_path / "cluster.yaml").write_text(json.dumps(cluster), "utf-8")
    told = run("run", "cluster.yaml", code=2)
    assert told.endswith("Dask is not installed; run: pip install 'claimflow[dask]'\n")
    assert told.count("claimflow: ") == 1


OWN_METRIC = """
import claimflow
from claimflow import Claim, Sample


@claimflow.metric
def claim_density(sample: Sample, response_claims: list[Claim]) -> float | None:
    words = len((sample.response or "").split())
    return len(response_claims) / words if words else None
"""

IN_PYTHON = """
import claimflow
from own_metrics import claim_density

result = claimflow.evaluate(
    "mine.jsonl", metrics=["faithfulness", claim_density], store="python.duckdb"
)
print(result.mean("claim_density").scored, result.claims.height)
assert "faithfulness" in result._repr_html_()
result.report("python.html")
"""


def test_a_project_starts_in_an_empty_folder(core: Path, tmp_path: Path) -> None:
    world = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: str, code: int = 0, program: tuple[str, ...] = ("-m", "claimflow")) -> str:
        done = subprocess.run(
            [core, *program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=world,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "claimflow run pipeline.yaml" in run("init")
    assert "5 samples, 18 steps made" in run("run", "pipeline.yaml")
    assert "faithfulness" in run("show")
    run("report", "-o", "report.html")
    assert "data-chart=" in (tmp_path / "report.html").read_text("utf-8")

    row = {"question": "Who swims?", "answer": "Ann swims.", "contexts": ["Ann swims daily."]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    (tmp_path / "own_metrics.py").write_text(OWN_METRIC, "utf-8")
    own = ("mine.jsonl", "--metrics", "own_metrics:claim_density", "faithfulness")
    assert "claim_density" in run("run", *own, "--save", "mine.yaml")
    assert "0 steps made, 6 reused" in run("run", "mine.yaml")
    (tmp_path / "script.py").write_text(IN_PYTHON, "utf-8")
    assert run(program=("script.py",)) == "1 1\n"
    assert (tmp_path / "python.html").stat().st_size > 0

    with serve() as endpoint:
        world |= {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": endpoint.api_base}
        tone = {"use": "rubric", "criterion": "The response is polite."}
        rubric = {
            "name": "tone",
            "samples": {"path": "answers.jsonl"},
            "store": "evaluations.duckdb",
            "judge": {"model": "openai/gpt-4o-mini"},
            "steps": {"tone": tone, "summary": {"use": "summarize_scores"}},
        }
        (tmp_path / "tone.yaml").write_text(json.dumps(rubric), "utf-8")
        assert "5 samples, 3 steps made, 1 reused" in run("run", "tone.yaml")
        asked = endpoint.hits
        assert asked >= 5
        assert "0 steps made, 4 reused" in run("run", "tone.yaml")
        assert endpoint.hits == asked

    with subprocess.Popen(
        [core, "-m", "claimflow", "view", "--port", "0"],
        cwd=tmp_path,
        env=world | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as viewing:
        try:
            assert viewing.stdout is not None
            words = (word for line in viewing.stdout for word in line.split())
            address = next(word for word in words if "http://" in word).rstrip(",;.")
            # The page sets a cookie from the address and redirects.
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(address, timeout=60) as page:
                assert "tone" in page.read().decode()
        finally:
            viewing.kill()


def test_the_wheel_holds_one_package_with_its_data(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"claimflow"}
    package = installed / "claimflow"
    for name in (
        "py.typed",
        "configs/quickstart.yaml",
        "configs/demo.jsonl",
        "configs/prompts/verify.md",
        "configs/pipeline.schema.json",
        *(f"configs/init/{path.name}" for path in (ROOT / "configs/init").iterdir()),
        "flows/store/store.sql",
        "flows/report/libraries/charts.js",
        "flows/report/libraries/tables.js",
        "flows/report/libraries/LICENSES",
        "flows/models/weights/entailment/model.onnx",
        "flows/models/weights/parser/model.onnx",
    ):
        assert (package / name).is_file(), name
    # What pages are made of, and nothing of what it is built with.
    assert not list(package.rglob("node_modules"))
    pages = [path for path in package.rglob("*") if path.suffix in (".js", ".css", ".j2")]
    assert sum(path.stat().st_size for path in pages) < 1_500_000


def test_a_wheel_from_the_source_archive_is_the_same(installed: Path, tmp_path: Path) -> None:
    """The archive holds files where a checkout has links."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path), "-t"]
    subprocess.run([*build, "sdist"], check=True, cwd=ROOT, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    source = tmp_path / archive.name.removesuffix(".tar.gz")
    assert not any(path.is_symlink() for path in source.rglob("*"))
    subprocess.run([*build, "wheel"], check=True, cwd=source, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        made = {item.filename: item.file_size for item in file.infolist()}
    assert made == {
        path.relative_to(installed).as_posix(): path.stat().st_size
        for path in installed.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_the_container_runs_the_demo_without_rights(core: Path, tmp_path: Path) -> None:
    """Its instructions, read and followed here: what they copy is there, and the demo runs."""
    text = (ROOT / "configs/Dockerfile").read_text("utf-8").replace("\\\n", " ")
    steps = [line.split(None, 1) for line in text.splitlines() if line and line[0] not in "# "]
    stages = [rest.split() for word, rest in steps if word == "FROM"]
    assert [stage[1:] for stage in stages] == [["AS", "build"], []]
    assert all(re.fullmatch(r"python:3\.\d+-slim", image) for image, *_ in stages)
    assert all("--no-cache-dir" in rest for word, rest in steps if word == "RUN" and "pip" in rest)
    ignore = (ROOT / "configs/Dockerfile.dockerignore").read_text("utf-8").splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    for word, rest in steps:
        if word == "COPY":
            *sources, _ = [part for part in rest.split() if not part.startswith("--")]
            assert all((ROOT / source).exists() for source in sources)
            assert set(sources) <= allowed

    last = max(at for at, (word, _) in enumerate(steps) if word == "FROM")
    second = {word: (at, rest) for at, (word, rest) in enumerate(steps[last:])}
    assert second["USER"][1] not in ("root", "0")
    assert second["RUN"][0] < second["USER"][0]
    assert shlex.split(second["COPY"][1]) == ["--chown=claimflow", "configs", "configs"]
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    program, *command = json.loads(second["ENTRYPOINT"][1]) + json.loads(second["CMD"][1])
    assert program == "claimflow"
    assert f"claimflow {shlex.join(command)}" in (ROOT / "README.md").read_text("utf-8")
    done = subprocess.run(
        [core, "-m", program, *command],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "no home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "faithfulness" in done.stdout


def test_a_worker_with_the_wheel_has_the_sources_of_the_checkout(installed: Path) -> None:
    """A Dask cluster may have the wheel, and its coordinator a checkout."""
    found = [
        subprocess.run(
            [sys.executable, "-c", SOURCE_HASH],
            capture_output=True,
            text=True,
            check=True,
            cwd=path,
            env=os.environ | {"PYTHONPATH": str(path)},
        ).stdout.split()
        for path in (installed, ROOT / ".package")
    ]
    assert [Path(place).parent.parent for place, _ in found] == [installed, ROOT / ".package"]
    assert found[0][1] == found[1][1]


def test_the_demo_runs_beside_foreign_packages(installed: Path, tmp_path: Path) -> None:
    for name in ("flows", "stages"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('foreign')\n", "utf-8")
    pipeline = installed / "claimflow/configs/faithfulness.yaml"
    command = [sys.executable, "-m", "claimflow", "run", str(pipeline), "--limit", "3"]
    done = subprocess.run(
        [*command, "--store", "demo.duckdb"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), str(tmp_path)])},
    )
    assert done.returncode == 0, done.stderr
    assert "faithfulness" in done.stdout
    assert (tmp_path / "demo.duckdb").exists()
