"""`claimflow run answers.jsonl`: a data file evaluated without a pipeline file."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import duckdb
import pytest
import yaml

from claimflow.flows.cli.main import main
from tests.endpoint.server import serve

ANSWERS = [
    {
        "question": "Where is the Louvre?",
        "answer": "The Louvre is in Paris. It opened in 1793.",
        "ground_truth": "The Louvre is a museum in Paris.",
        "contexts": ["The Louvre is a museum in Paris, France. It opened in 1793."],
    },
    {
        "question": "Who wrote Faust?",
        "answer": "Schiller wrote Faust.",
        "ground_truth": "Goethe wrote Faust.",
        "contexts": ["Faust is a play by Johann Wolfgang von Goethe."],
    },
]

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a command in a folder with answers.jsonl; returns its exit code and what it prints."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "answers.jsonl")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def write(path: Path, **renamed: str) -> None:
    rows = [{renamed.get(name, name): value for name, value in row.items()} for row in ANSWERS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row), "utf-8")


def shown_pipeline(err: str) -> dict[str, object]:
    """The pipeline that a command said it runs."""
    text = re.search(
        r"as this pipeline, which `claimflow run --save FILE` writes:\n((?:  .*\n)+)", err
    )
    assert text is not None, err
    value: dict[str, object] = yaml.safe_load(dedent(text[1]))
    return value


def test_a_data_file_is_evaluated_and_the_second_run_reuses_all(
    command: Command, tmp_path: Path
) -> None:
    code, out, err = command("run", "answers.jsonl")
    assert code == 0, err
    found = "user_input from question, response from answer, reference from ground_truth"
    assert f"answers.jsonl: 2 samples with {found}, retrieved_contexts from contexts\n" in err
    assert "(more by --metrics: citations, noise_sensitivity, rag_checker)" in err
    assert "faithfulness " in out
    assert f"store: {tmp_path / 'evaluations.duckdb'}\n" in out
    assert out.rstrip().endswith("claimflow plan answers.jsonl")

    _, again, _ = command("run", "answers.jsonl")
    assert "2 samples, 0 steps made, 18 reused" in again
    written = tmp_path / "written.yaml"
    written.write_text(yaml.safe_dump(shown_pipeline(err)), "utf-8")
    _, by_file, _ = command("run", "written.yaml")
    assert "2 samples, 0 steps made, 18 reused" in by_file
    with duckdb.connect(tmp_path / "evaluations.read.duckdb", read_only=True) as connection:
        assert connection.sql("SELECT DISTINCT pipeline FROM audit.runs").fetchall() == [
            ("answers",)
        ]


def test_only_the_metrics_that_are_named_are_computed(command: Command) -> None:
    code, out, err = command("run", "--metrics", "rouge_l_f1", "answers.jsonl")
    assert code == 0, err
    assert list(shown_pipeline(err)["steps"]) == [  # type: ignore[call-overload]
        "reference_matches",
        "deterministic_correctness",
        "summary",
    ]
    assert out.rstrip().endswith("claimflow plan answers.jsonl --metrics rouge_l_f1")


def test_columns_are_renamed_and_metrics_without_fields_left_out(
    command: Command, tmp_path: Path
) -> None:
    write(tmp_path / "deutsch.jsonl", answer="antwort", contexts="quellen")
    code, _, err = command("plan", "deutsch.jsonl", "--rename", "antwort=response")
    assert code == 0, err
    left_out = "faithfulness, context_recall, deterministic_faithfulness"
    assert f"left out: {left_out} (no sample has retrieved_contexts)\n" in err
    shown = shown_pipeline(err)
    assert shown["samples"] == {"path": "deutsch.jsonl", "rename": {"antwort": "response"}}
    both = ["antwort=response", "quellen=retrieved_contexts"]
    _, _, err = command("plan", "--rename", *both, "deutsch.jsonl")
    assert "left out" not in err
    assert not [*tmp_path.glob("*.duckdb")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["answers.json"], "answers.json: no such file; did you mean 'answers.jsonl'?"),
        (["*.csv"], "*.csv: no file matches; "),
        (["answers.tsv"], "answers.tsv: no such file; did you mean 'answers.jsonl'?"),
        (
            ["answers.jsonl", "--metrics", "faithfulnes"],
            "--metrics: there is no metric 'faithfulnes'; did you mean 'faithfulness'?",
        ),
        (
            ["bare.jsonl"],
            "bare.jsonl: no metric can be computed: no sample has response or reference or "
            "retrieved_contexts (columns found: a, b; recognised: none); "
            "name the column that holds it by --rename COLUMN=response",
        ),
        (
            ["bare.jsonl", "--metrics", "faithfulness", "--rename", "a=response"],
            "bare.jsonl: no sample has 'retrieved_contexts', which is needed by faithfulness "
            "(columns found: a, b; recognised: a as response); "
            "name the column that holds it by --rename COLUMN=retrieved_contexts",
        ),
        (
            ["misspelt.jsonl", "--metrics", "rouge_l_f1"],
            "needed by deterministic_correctness (columns found: answer, refrence; "
            "recognised: answer as response); if the column 'refrence' holds it, "
            "write --rename refrence=reference",
        ),
        (
            ["answers.jsonl", "--rename", "antwort=response"],
            "--rename antwort: no sample has 'antwort'; ",
        ),
        (
            ["answers.jsonl", "--rename", "answer=respons"],
            "--rename answer: 'respons' is not a field of a sample; did you mean 'response'?",
        ),
        (
            ["answers.jsonl", "--judge", "openai/gpt-4o-mini"],
            "--judge: openai/gpt-4o-mini cannot be asked; set OPENAI_API_KEY in the environment",
        ),
        (
            ["answers.jsonl", "--again", "faithfulnes"],
            "--again: there is no step 'faithfulnes'; did you mean 'faithfulness'?",
        ),
        (
            ["answers.jsonl", "--prefect"],
            "--prefect: Prefect runs pipeline files, and answers.jsonl is a data file; add --save",
        ),
        (["answers.jsonl", "--save", "bare.jsonl"], "--save bare.jsonl: exists already; name a"),
        (
            ["p.yaml", "--metrics", "faithfulness", "--judge", "m"],
            "--metrics: is for a data file, and p.yaml is a pipeline file; change the file instead",
        ),
    ],
)
def test_errors_speak_of_options(
    arguments: list[str],
    message: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "bare.jsonl").write_text('{"a": "A.", "b": "B."}\n', "utf-8")
    (tmp_path / "misspelt.jsonl").write_text('{"answer": "A.", "refrence": "B."}\n', "utf-8")
    code, _, err = command("run", *arguments)
    assert code == 2
    assert message in err.partition("claimflow: ")[2]
    assert "pipeline." not in err.partition("claimflow: ")[2]


TRACES = Path(__file__).parent.parent / "data/traces"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("otlp_document.json", "otlp"),
        ("otlp.jsonl", "otlp"),
        ("otlp.binpb", "otlp"),
        ("phoenix.parquet", "openinference"),
        ("langfuse_traces.jsonl", "langfuse"),
        ("langfuse_observations.jsonl", "langfuse"),
        ("langsmith.jsonl", "langsmith"),
        ("mlflow.jsonl", "mlflow"),
    ],
)
def test_files_of_traces_are_told_how_to_be_read(
    name: str, known: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes((TRACES / name).read_bytes())
    told = f"claimflow: {name}: looks like traces ({known}); write samples: {{traces: {name}}} into"
    with_metric = ["--metrics", "faithfulness"]
    for arguments in (["run", name], ["plan", name, *with_metric], ["init", "new", "--data", name]):
        code, _, err = command(*arguments)
        assert code == 2
        assert err.startswith(told), arguments
        assert f"`claimflow traces {name}` shows what is read" in err
        assert len(err.splitlines()) == 1


def test_a_pipeline_whose_samples_are_traces_is_told_so(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes((TRACES / "otlp_document.json").read_bytes())
    steps = "{claims: {use: decompose_claims, of: response}}"
    text = f"name: p\nsamples: {{path: t.json}}\nstore: p.duckdb\nsteps: {steps}\n"
    (tmp_path / "p.yaml").write_text(text, "utf-8")
    code, _, err = command("plan", "p.yaml")
    assert code == 2
    told = (
        "p.yaml:2 samples.path: t.json: looks like traces (otlp); write samples: {traces: t.json}"
    )
    assert err.startswith(f"claimflow: {told}")


def test_samples_that_could_be_traces_keep_their_faults(command: Command, tmp_path: Path) -> None:
    rows = [{"id": 1, "input": "Tin?", "output": "Yes."}, {"id": 2, "input": 1, "output": "No."}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    _, _, err = command("run", "rows.jsonl")
    assert err.startswith("claimflow: rows.jsonl:2: 'input' is a number; write it as text")


def test_a_pipeline_is_saved_with_paths_relative_to_it(command: Command, tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    saved = tmp_path / "evals" / "answers.yaml"
    arguments = ["run", "*.jsonl", "--metrics", "chrf", "--save", "evals/answers.yaml"]
    code, out, err = command(*arguments)
    assert code == 0, err
    assert yaml.safe_load(saved.read_text("utf-8")) == {
        "name": "answers",
        "samples": {"path": "../*.jsonl"},
        "store": "../evaluations.duckdb",
        "steps": {
            "reference_matches": {"use": "lexical_match", "against": "reference", "unit": "text"},
            "deterministic_correctness": {"use": "deterministic_correctness"},
            "summary": {"use": "summarize_scores"},
        },
    }
    assert "claimflow plan evals/answers.yaml" in out
    _, out, _ = command("run", "evals/answers.yaml")
    assert "0 steps made, 4 reused" in out
    before = saved.read_bytes()
    assert command(*arguments)[0] == 2
    assert saved.read_bytes() == before


def test_contexts_in_one_text_are_split_and_unusable_samples_left_out(
    command: Command, tmp_path: Path
) -> None:
    rows = ["answer,contexts", '"Ann swims.","Bob runs.', "", 'Ann swims."', ",", ""]
    (tmp_path / "cells.csv").write_text("\n".join(rows), "utf-8")
    arguments = ["cells.csv", "--metrics", "faithfulness", "--contexts-separator", r"\n\n"]
    code, out, err = command("run", *arguments, "--save", "saved.yaml")
    assert code == 0, err
    assert shown_pipeline(command("plan", *arguments)[2])["samples"] == {
        "path": "cells.csv",
        "contexts_separator": "\n\n",
    }
    with duckdb.connect(tmp_path / "evaluations.read.duckdb", read_only=True) as connection:
        found = connection.sql("SELECT retrieved_contexts FROM samples").fetchall()
        assert (["Bob runs.", "Ann swims."],) in found
    assert "0 steps made, 5 reused" in command("run", "saved.yaml")[1]

    (tmp_path / "some.jsonl").write_text(
        '{"answer": "A.", "reference": "A."}\n{"answer": 3, "reference": "A."}\n', "utf-8"
    )
    arguments = ["some.jsonl", "--metrics", "chrf", "--skip-unusable"]
    code, out, err = command("run", *arguments)
    assert (code, "1 of 2 samples" in out) == (0, True)


def test_a_pipeline_is_saved_beside_the_modules_of_its_metrics(
    command: Command, tmp_path: Path
) -> None:
    text = "import claimflow\n\n\n@claimflow.metric\ndef one(sample: claimflow.Sample) -> float:\n"
    (tmp_path / "own_one.py").write_text(f"{text}    return 1.0\n", "utf-8")
    (tmp_path / "evals").mkdir()
    saving = ["run", "answers.jsonl", "--metrics", "own_one:one", "--save"]
    code, _, err = command(*saving, "evals/one.yaml")
    assert (code, (tmp_path / "evals/one.yaml").exists()) == (2, False)
    assert "--metrics: own_one:one is in this folder, and the pipeline in evals would" in err
    assert command(*saving, "one.yaml")[0] == 0
    assert "0 steps made, 3 reused" in command("run", "one.yaml")[1]


def test_nothing_is_saved_where_the_data_is_wrong(command: Command, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text('{"answer": 3}\n', "utf-8")
    code, _, err = command("run", "answers.jsonl", "--save", "saved.yaml")
    assert (code, (tmp_path / "saved.yaml").exists()) == (2, False)
    assert "answers.jsonl:1: 'answer' is a number; write it as text" in err


def test_a_model_judges_a_data_file(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as endpoint:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_API_BASE", endpoint.api_base)
        arguments = ["answers.jsonl", "--metrics", "faithfulness", "--judge", "openai/gpt-4o-mini"]
        code, out, err = command("run", *arguments)
        assert code == 0, err
        asked = endpoint.hits
        assert asked > 0
        assert shown_pipeline(err)["judge"] == {"model": "openai/gpt-4o-mini"}
        command("run", *arguments)
        assert endpoint.hits == asked
    assert "judge openai/gpt-4o-mini: " in out


def test_a_run_without_a_file_is_not_tracked_in_prefect(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    code, _, err = command("run", "answers.jsonl", "--metrics", "chrf")
    assert code == 0, err
    assert "this run is not tracked in Prefect, which needs a file: add --save FILE\n" in err


def test_only_what_changed_is_asked_wherever_the_file_is(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` says what the next run asks, and the run asks just that."""
    with serve() as endpoint:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_API_BASE", endpoint.api_base)

        def asked(file: str) -> int:
            arguments = (file, "--metrics", "faithfulness", "--judge", "openai/gpt-4o-mini")
            code, planned, err = command("plan", *arguments)
            assert code == 0, err
            before = endpoint.hits
            assert command("run", *arguments)[0] == 0
            calls = endpoint.hits - before
            said = re.search(r"([\d,]+) (?:judge )?calls?\b", planned)
            assert int(said[1].replace(",", "") if said else 0) == calls, planned
            return calls

        whole = asked("answers.jsonl")
        assert whole > 0
        assert asked("answers.jsonl") == 0
        (tmp_path / "answers.jsonl").rename(tmp_path / "renamed.jsonl")
        assert asked("renamed.jsonl") == 0
        (tmp_path / "other").mkdir()
        write(tmp_path / "other" / "renamed.jsonl", ground_truth="note")
        assert asked("other/renamed.jsonl") == 0
        text = (tmp_path / "renamed.jsonl").read_text("utf-8")
        changed = text.replace("Schiller wrote", "Lessing wrote")
        (tmp_path / "renamed.jsonl").write_text(changed, "utf-8")
        # The two samples share calls: one of them takes as many.
        assert asked("renamed.jsonl") == whole == 2
    with duckdb.connect(tmp_path / "evaluations.read.duckdb", read_only=True) as connection:
        runs = connection.sql("SELECT pipeline, count(*) FROM audit.runs GROUP BY ALL ORDER BY ALL")
        assert runs.fetchall() == [("answers", 2), ("renamed", 3)]


def test_a_saved_pipeline_reads_the_store_of_its_run(command: Command, tmp_path: Path) -> None:
    arguments = ("run", "answers.jsonl", "--metrics", "chrf", "--store", "mine.duckdb")
    _, _, err = command(*arguments)
    assert shown_pipeline(err)["store"] == "mine.duckdb"
    assert (
        "with chrf come 10 more of deterministic_correctness, which computes them together" in err
    )
    _, _, err = command("run", "answers.jsonl", "--metrics", "faithfulness")
    assert "which computes them together" not in err
    (tmp_path / "below").mkdir()
    command(*arguments, "--save", "below/p.yaml")
    _, out, _ = command("run", "below/p.yaml")
    assert "0 steps made, 4 reused" in out
