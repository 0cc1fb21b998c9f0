"""What `import claimflow` gives, and that it loads nothing before it is used."""

import importlib
import subprocess
import sys

import pytest

import claimflow
import claimflow.testing


@pytest.mark.parametrize("module", ["claimflow", "claimflow.testing"])
def test_every_public_name_is_there(module: str) -> None:
    public = importlib.import_module(module)
    assert [name for name in public.__all__ if not hasattr(public, name)] == []


def test_names_that_are_loaded_late_are_public() -> None:
    late = {name for names in claimflow._MODULES.values() for name in names}
    assert late == set(claimflow.__all__)
    assert set(claimflow.__all__) <= set(dir(claimflow))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'claimflow' has no attribute 'evaluation'"):
        claimflow.evaluation  # noqa: B018


def test_importing_claimflow_loads_no_library() -> None:
    code = (
        "import claimflow, sys\n"
        "packages = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(*sorted(name for name in packages if not name.startswith('_')))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["claimflow"]
