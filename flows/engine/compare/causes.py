"""Step by step: what was done otherwise in the second run, as the store has it on record."""

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import duckdb

from claimflow.flows.engine.compare.pairs import Runs

Cause = Literal["judge", "prompt", "settings", "version", "stage"]
"""What differs between the two makings of a step's table: the model that was asked or its
parameters, the prompt's text, other settings, the version of the stage, the stage itself."""

EDITS: Final = "edits"
"""The stage of a table in which people corrected rows of another one by hand."""


class Making(NamedTuple):
    """How the table of a step came about; `edits` are those laid over it afterwards."""

    artifact_id: str
    kind: str
    stage: str
    version: int
    settings: Mapping[str, Any]
    tools: Mapping[str, Any]
    edits: frozenset[str]
    inputs: Mapping[str, Any]


class StepChange(NamedTuple):
    """A step of both runs.

    `same` says that both used one table. `causes` are what differs in how it was made, of
    which `settings` names the settings; none where the same was asked again. `edits` are the
    imports of corrections by hand that count in one of the runs alone.
    """

    step: str
    kind: str
    same: bool
    causes: tuple[Cause, ...]
    settings: tuple[str, ...]
    edits: frozenset[str]


def step_changes(connection: duckdb.DuckDBPyConnection, runs: Runs) -> list[StepChange]:
    """Every step that both runs have with the same kind of table, in the order of the second."""
    a, b = (makings(connection, run) for run in runs)
    return [
        _change(step, a[step], making)
        for step, making in b.items()
        if step in a and a[step].kind == making.kind
    ]


def steps_in_one_run(
    connection: duckdb.DuckDBPyConnection, runs: Runs
) -> tuple[list[str], list[str]]:
    """The steps that only the first, and only the second run has."""
    a, b = (makings(connection, run) for run in runs)
    return [step for step in a if step not in b], [step for step in b if step not in a]


def _change(step: str, a: Making, b: Making) -> StepChange:
    settings = _settings(a, b)
    causes = tuple(causes_between(a, b))
    same = a.artifact_id == b.artifact_id
    return StepChange(step, b.kind, same, causes, settings, a.edits ^ b.edits)


def _settings(a: Making, b: Making) -> tuple[str, ...]:
    names = sorted({*a.settings, *b.settings})
    return tuple(name for name in names if a.settings.get(name) != b.settings.get(name))


def causes_between(a: Making, b: Making) -> list[Cause]:
    """What differs between two makings; none where the same was asked again."""
    settings = _settings(a, b)
    if a.stage != b.stage:
        return ["stage"]
    found: list[Cause] = []
    if a.tools != b.tools:
        found.append("judge")
    # A prompt that came or went with the language model is no cause of its own.
    if "prompt" in settings and a.tools.keys() == b.tools.keys():
        found.append("prompt")
    if set(settings) - {"prompt"}:
        found.append("settings")
    if a.version != b.version:
        found.append("version")
    return found


def makings(connection: duckdb.DuckDBPyConnection, run: str) -> dict[str, Making]:
    """How the table of each step of a run was made, in their order."""
    rows = connection.execute(
        "SELECT step, artifact_id::VARCHAR FROM audit.run_steps WHERE run_id = $run "
        "ORDER BY position",
        {"run": run},
    ).fetchall()
    return {step: _making(connection, artifact) for step, artifact in rows}


def _making(connection: duckdb.DuckDBPyConnection, artifact: str) -> Making:
    """Of a table with corrections laid over it, the making of the one below."""
    kind, stage, version, *texts = connection.execute(
        "SELECT kind, stage, version, settings, tools, inputs FROM audit.artifacts "
        "WHERE artifact_id = $id",
        {"id": artifact},
    ).fetchall()[0]
    settings, tools, inputs = map(json.loads, texts)
    if stage != EDITS:
        return Making(artifact, kind, stage, version, settings, tools, frozenset(), inputs)
    below = _making(connection, inputs["base"])
    return below._replace(artifact_id=artifact, edits=frozenset(settings["edits"]))
