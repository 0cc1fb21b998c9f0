"""Schedules files, and the messages for mistakes in them."""

import json
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.schedules import Parameters, read_schedules, schedules_schema
from claimflow.flows.pipeline.yaml_source import load_yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "configs/schedules.yaml"

PLAIN = "{pipeline: small.yaml, every: 1d}"


def written(small: Path, *lines: str) -> Path:
    path = small.with_name("s.yaml")
    path.write_text("\n".join(["deployments:", *(f"  {line}" for line in lines), ""]), "utf-8")
    return path


def faults(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_schedules(path)
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


def test_the_example_is_valid_here_and_by_the_json_schema() -> None:
    nightly, hourly = read_schedules(EXAMPLE).scheduled
    assert nightly.parameters == {
        "config": str(ROOT / "configs/quickstart.yaml"),
        "publish": str(ROOT / "published"),
    }
    assert nightly.deployment.timezone == "Europe/Berlin"
    assert hourly.parameters == {
        "config": str(ROOT / "configs/quickstart.yaml"),
        "limit": 5,
        "store": str(ROOT / "hourly.duckdb"),
    }
    jsonschema.validate(load_yaml(EXAMPLE).value, schedules_schema())


def test_the_json_schema_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--schedules"]) == 0
    printed = capsys.readouterr().out
    wanted = "run: claimflow schema --schedules > configs/schedules.schema.json"
    assert (ROOT / "configs/schedules.schema.json").read_text("utf-8") == printed, wanted
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"deployments": {"a": {"pipelin": "x"}}}, json.loads(printed))


def test_the_parameters_are_those_of_the_flow() -> None:
    # Prefect takes seconds to import: the flow's source says what it takes.
    source = (ROOT / "flows/orchestration/flow.py").read_text("utf-8")
    signature = source.partition("def evaluate(")[2].partition(") -> ")[0]
    taken = {line.split(":")[0].strip() for line in signature.splitlines() if ":" in line}
    assert set(Parameters.model_fields) == taken - {
        "config",
        "publish",
        "report",
        "send",
        "keep_runs",
        "keep_days",
        "timeout",
        "call_timeout",
        "batch_wait",
    }
    assert "limit" in taken


PLACES = "publish: out, report: pages"


def test_parameters_have_absolute_paths_and_no_defaults(small: Path) -> None:
    small.with_name("ids").write_text("tower\n", "utf-8")
    asked = "{again: [summary], samples: ids, store: x.duckdb, redact: true, fresh: false}"
    sql = f"SELECT 'tower' AS sample_id, {'x' * 300!r} AS longer_than_the_name_of_a_file"
    query = f"{{samples: {json.dumps(sql)}}}"
    path = written(
        small,
        f"one: {{pipeline: small.yaml, every: 90, parameters: {asked}, {PLACES}}}",
        f"two: {{pipeline: small.yaml, every: 15m, parameters: {query}}}",
    )
    one, two = read_schedules(path).scheduled
    folder = small.parent
    assert one.parameters == {
        "config": str(small),
        "store": str(folder / "x.duckdb"),
        "again": ["summary"],
        "samples": str(folder / "ids"),
        "redact": True,
        "publish": str(folder / "out"),
        "report": str(folder / "pages"),
    }
    assert one.deployment.interval == timedelta(seconds=90)
    assert two.parameters == {"config": str(small), "samples": sql}
    assert two.deployment.interval == timedelta(minutes=15)
    assert (two.deployment.overlap, two.deployment.missed) == ("skip", "run")


def test_all_mistakes_are_reported_together(small: Path) -> None:
    path = written(
        small,
        f"a b: {PLAIN}",
        'one: {pipeline: small.yml, cron: "0 25 * *", timezone: Europe/Berlim, overlap: q, '
        "paramaters: {}}",
        'two: {pipeline: small.yaml, cron: "0 25 * * *", every: 6w, missed: never}',
        'three: {pipeline: small.yaml, cron: "0 2 * * fry", timezone: Nowhere}',
        "four: {every: true}",
        "five: {pipeline: small.yaml, every: 5, timezone: UTC}",
        "six: {pipeline: small.yaml}",
        "seven:",
        "eight: {pipeline: small.yaml, every: 0, "
        "parameters: {limt: 3, limit: 0, again: a, redact: 1}}",
    )
    every = "is not valid; write seconds, or a number with s, m, h or d, as in 6h"
    assert faults(path) == [
        "s.yaml:2 deployments.a b: 'a b' is not a valid name; use letters, digits, - and _",
        "s.yaml:3 deployments.one.cron: is not valid; write five fields, as in '0 2 * * *' for "
        "two at night: minute, hour, day of the month, month, day of the week",
        "s.yaml:3 deployments.one.timezone: is not valid; there is no time zone 'Europe/Berlim'; "
        "did you mean 'Europe/Berlin'?",
        "s.yaml:3 deployments.one.overlap: 'q' is not allowed; write 'wait' or 'skip'",
        "s.yaml:3 deployments.one.paramaters: unknown key 'paramaters'; did you mean 'parameters'?",
        "s.yaml:3 deployments.one.pipeline: there is no file 'small.yml'; did you mean "
        "'small.yaml'?",
        "s.yaml:4 deployments.two.cron: is not valid; '25' is not a valid hour: write *, or 0 to "
        "23",
        f"s.yaml:4 deployments.two.every: {every}",
        "s.yaml:4 deployments.two.missed: 'never' is not allowed; write 'run' or 'skip'",
        "s.yaml:5 deployments.three.cron: is not valid; 'fry' is not a valid day of the week: "
        "write *, or 0 to 7 or sun to sat",
        "s.yaml:5 deployments.three.timezone: is not valid; there is no time zone 'Nowhere'; "
        "write one as in Europe/Berlin",
        "s.yaml:6 deployments.four.pipeline: is missing; write pipeline: FILE.yaml",
        f"s.yaml:6 deployments.four.every: {every}",
        "s.yaml:7 deployments.five: is not valid; timezone belongs to cron",
        "s.yaml:8 deployments.six: is not valid; write one of cron and every",
        "s.yaml:9 deployments.seven: is empty; its keys are batch_wait, call_timeout, cron, "
        "every, keep, "
        "missed, overlap, parameters, pipeline, publish, report, send, timeout, timezone",
        f"s.yaml:10 deployments.eight.every: {every}",
        "s.yaml:10 deployments.eight.parameters.limit: 0 is out of range; write 1 or more",
        "s.yaml:10 deployments.eight.parameters.again: 'a' is text; write a list",
        "s.yaml:10 deployments.eight.parameters.redact: 1 is a number; write true or false",
        "s.yaml:10 deployments.eight.parameters.limt: unknown key 'limt'; did you mean 'limit'?",
    ]


def test_only_a_wait_for_batches_may_be_none_at_all(small: Path) -> None:
    usual = "pipeline: small.yaml, every: 1d"
    path = written(small, f"one: {{{usual}, batch_wait: 0}}")
    (found,) = read_schedules(path).scheduled
    assert found.parameters["batch_wait"] == 0
    wrong = written(small, f"one: {{{usual}, batch_wait: -1}}", f"two: {{{usual}, timeout: 0}}")
    told = "is not valid; write seconds, or a number with s, m, h or d, as in 6h"
    assert faults(wrong) == [
        f"s.yaml:2 deployments.one.batch_wait: {told}",
        f"s.yaml:3 deployments.two.timeout: {told}",
    ]


def test_very_long_durations_are_refused(small: Path) -> None:
    path = written(
        small,
        "one: {pipeline: small.yaml, every: 36500d}",
        "two: {pipeline: small.yaml, every: 36501d}",
        "three: {pipeline: small.yaml, every: 3153600001}",
        f"four: {{pipeline: {'x' * 300}, every: 1d}}",
        f"five: {{pipeline: {'x' * 300}/small.yaml, every: 1d}}",
    )
    longer = "is not valid; write no more than 36500d"
    assert faults(path) == [
        f"s.yaml:3 deployments.two.every: {longer}",
        f"s.yaml:4 deployments.three.every: {longer}",
        f"s.yaml:5 deployments.four.pipeline: there is no file {'x' * 300!r}; "
        "known are s.yaml, small.yaml",
        f"s.yaml:6 deployments.five.pipeline: there is no file '{'x' * 300}/small.yaml'; "
        "known are none",
    ]


def test_parameters_must_fit_the_pipeline(small: Path) -> None:
    bad = small.with_name("bad.yaml")
    bad.write_text("name: bad\nsamples: {path: samples.jsonl}\nstore: b\nsteps: {}\n", "utf-8")
    asks = "{pipeline: small.yaml, every: 5, parameters: "
    path = written(
        small,
        "one: {pipeline: smal.yaml, every: 5}",
        f"two: {asks}{{only: [sumary], from_step: precision, failed: true}}}}",
        f"three: {asks}{{only: [sumary], again: [precisio]}}}}",
        f"four: {asks}{{only: [summary], again: [precision]}}}}",
        f"five: {asks}{{limit: 1, samples: ids}}}}",
        "six: {pipeline: bad.yaml, every: 5}",
        "seven: {pipeline: bad.yaml, every: 6}",
    )
    makes = "both select the steps to make; choose one of them"
    assert faults(path) == [
        "bad.yaml:4 steps: is empty; write at least one",
        "s.yaml:2 deployments.one.pipeline: there is no file 'smal.yaml'; did you mean "
        "'small.yaml'?",
        f"s.yaml:3 deployments.two.parameters: only and from_step: {makes}",
        f"s.yaml:3 deployments.two.parameters: only and failed: {makes}",
        f"s.yaml:3 deployments.two.parameters: from_step and failed: {makes}",
        "s.yaml:4 deployments.three.parameters.again: there is no step 'precisio'; did you mean "
        "'precision'?",
        "s.yaml:4 deployments.three.parameters.only: there is no step 'sumary'; did you mean "
        "'summary'?",
        "s.yaml:5 deployments.four.parameters.again: 'precision' is not made in a run only "
        "summary; leave out again precision or only",
        "s.yaml:6 deployments.five.parameters: limit and samples: both select the samples; "
        "choose one of them",
    ]


def test_reports_are_written_to_a_folder(small: Path) -> None:
    path = written(small, "one: {pipeline: small.yaml, every: 90, report: 's3://bucket/pages'}")
    assert faults(path) == [
        "s.yaml:2 deployments.one.report: is not valid; name a folder: reports cannot be "
        "written to object storage"
    ]


def test_limits_that_runs_share(small: Path) -> None:
    path = written(small, f"one: {PLAIN}")
    text = path.read_text("utf-8")
    path.write_text(text + "limits: {judge-pool: {rpm: 1200}}\n", "utf-8")
    assert {name: one.rpm for name, one in read_schedules(path).limits.items()} == {
        "judge-pool": 1200
    }
    path.write_text(text + "limits: {a b: {rpm: 1}, pool: {rps: 20, rpm: 0}, none: {}}\n", "utf-8")
    assert faults(path) == [
        "s.yaml:3 limits.a b: 'a b' is not a valid name; use letters, digits, - and _",
        "s.yaml:3 limits.pool.rpm: 0 is out of range; write 1 or more",
        "s.yaml:3 limits.pool.rps: unknown key 'rps'; did you mean 'rpm'?",
        "s.yaml:3 limits.none.rpm: is missing; write rpm: requests a minute",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: is empty; its keys are deployments, limits, notify"),
        ("deployments: {}\n", ":1 deployments: is empty; write at least one"),
        ("deployments: [a]\n", ":1 deployments: is not a mapping; write NAME: ..."),
        (
            "deployment: {}\n",
            ":1 deployment: unknown key 'deployment'; did you mean 'deployments'?",
        ),
        (
            f"deployments:\n  a: {PLAIN}\n  a: {PLAIN}\n",
            ":3 deployments.a: 'a' is written twice; the first is on line 2; rename or remove one",
        ),
    ],
)
def test_mistakes_of_the_whole_file(small: Path, text: str, message: str) -> None:
    path = small.with_name("s.yaml")
    path.write_text(text, "utf-8")
    assert f"s.yaml{message}" in faults(path)


def test_without_a_server_nothing_is_deployed(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(small.parent))
    assert main(["deploy", str(written(small, f"one: {PLAIN}"))]) == 2
    assert capsys.readouterr().err == (
        "claimflow: PREFECT_API_URL: no Prefect API is configured, and workers need one that "
        "stays; run `prefect server start` and set it to http://127.0.0.1:4200/api\n"
    )


def test_keep_and_notify_are_checked(small: Path) -> None:
    path = written(
        small,
        f"one: {PLAIN[:-1]}, keep: {{runs: 30, days: 90}}}}",
        f"two: {PLAIN[:-1]}, keep: {{days: 1}}}}",
    )
    with path.open("a", encoding="utf-8") as file:
        file.write("notify: {block: slack-webhook/nights}\n")
    read = read_schedules(path)
    kept = [
        {name: value for name, value in one.parameters.items() if name.startswith("keep")}
        for one in read.scheduled
    ]
    assert kept == [{"keep_runs": 30, "keep_days": 90}, {"keep_days": 1}]
    assert read.block == "slack-webhook/nights"

    path = written(
        small,
        f"one: {PLAIN[:-1]}, keep: {{}}}}",
        f"two: {PLAIN[:-1]}, keep: {{runs: 0, dais: 1}}}}",
        f"Two: {PLAIN[:-1]}, keep: {{days: 40000}}}}",
    )
    with path.open("a", encoding="utf-8") as file:
        file.write("notify: {block: nights}\n")
    assert faults(path) == [
        "s.yaml:2 deployments.one.keep: is not valid; write runs, days or both",
        "s.yaml:3 deployments.two.keep.runs: 0 is out of range; write 1 or more",
        "s.yaml:3 deployments.two.keep.dais: unknown key 'dais'; did you mean 'days'?",
        "s.yaml:4 deployments.Two.keep.days: 40000 is out of range; write 36500 or less",
        "s.yaml:4 deployments.Two: differs from two only by upper and lower case; "
        "choose another name",
        "s.yaml:5 notify.block: is not valid; write the type and the name of a block, as in "
        "slack-webhook/nights",
    ]


def test_scores_are_sent_to_targets_by_name_or_with_settings(small: Path) -> None:
    path = written(
        small, "one: {pipeline: small.yaml, every: 1d, send: [otlp, {langfuse: {metrics: [a]}}]}"
    )
    jsonschema.validate(load_yaml(path).value, schedules_schema())
    (one,) = read_schedules(path).scheduled
    assert one.parameters["send"] == [
        {"to": "otlp", "metrics": []},
        {"to": "langfuse", "metrics": ["a"]},
    ]
    wrong = "one: {pipeline: small.yaml, every: 1d, send: [otlq, {phoenix: {metrix: [a]}}, 3]}"
    found = faults(written(small, wrong))
    assert len(found) == 3
    assert "there is no target 'otlq'; did you mean 'otlp'?" in found[0]
    assert "unknown key 'metrix'; did you mean 'metrics'?" in found[1]
