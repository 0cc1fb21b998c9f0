"""The wheel: what is in it, and that it runs beside packages of the same names as its folders."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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
        "flows/store/store.sql",
        "flows/models/weights/entailment/model.onnx",
    ):
        assert (package / name).is_file(), name


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
