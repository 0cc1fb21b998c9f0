"""What `import claimflow` gives, and that it loads nothing before it is used."""

import importlib
import inspect
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


def test_signatures_change_on_purpose_only() -> None:
    """What callers write. A change that breaks them belongs into the changelog."""
    functions = {
        "claimflow.evaluate": claimflow.evaluate,
        "claimflow.connect": claimflow.connect,
        "claimflow.metric": claimflow.metric,
        "claimflow.prepare": claimflow.prepare,
        "claimflow.run_pipeline": claimflow.run_pipeline,
        "claimflow.testing.assert_scores": claimflow.testing.assert_scores,
        "claimflow.testing.ScriptedJudge": claimflow.testing.ScriptedJudge,
    }
    found = {
        name: ", ".join(
            ("*" if one.kind is one.KEYWORD_ONLY else "") + one.name
            for one in inspect.signature(function).parameters.values()
        )
        for name, function in functions.items()
    }
    assert found == SIGNATURES
    kinds = (claimflow.Result, claimflow.Diff, claimflow.SampleTrace, claimflow.StoredRuns)
    members = {
        kind.__name__: " ".join(name for name in vars(kind) if not name.startswith("_"))
        for kind in kinds
    }
    assert members == MEMBERS


SIGNATURES = {
    "claimflow.connect": "store",
    "claimflow.evaluate": "answers, *metrics, *pipeline, *judge, *store, *limit, *budget_usd, "
    "*gates, *baseline, *rename, *contexts_separator, *earlier_turns, *slices, *name, "
    "*skip_unusable, *progress",
    "claimflow.metric": "function, *name, *version, *lower_is_better, *metric_range, "
    "*required_fields",
    "claimflow.prepare": "config, *answers, *limit, *rerun, *store, *warn",
    "claimflow.run_pipeline": "prepared, store, *rerun, *redact, *timeout, *call_timeout, "
    "*observer, *open_shared_limiter, *stop, *batch_wait",
    "claimflow.testing.ScriptedJudge": "answers, *claims, *verdict, *check, *name",
    "claimflow.testing.assert_scores": "result, *pipeline, *run, *store, *limit, *at_least, "
    "*at_most, *failed_rows",
}
MEMBERS = {
    "Diff": "metrics scores verdicts samples plot",
    "Result": "store open_store scores summary claims verdicts samples table to_pandas failures "
    "calls gates passed failed partial warnings cost_usd mean sql sample diff report "
    "plot",
    "SampleTrace": "rows",
    "StoredRuns": "runs result sql compare",
}


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
