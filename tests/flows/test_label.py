"""`claimflow label`: sheets drawn, exported blind, filled and imported, with their faults."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.quality.labels import current_labels
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import CLAIMS, STEPS, Judged, sample
from tests.flows.sheets import Row, read_sheet, save_sheet

SAMPLES = ["one", "two", "three"]
MORE = STEPS | {"against_contexts": STEPS["response_in_reference"] | {"against": "response"}}
TRUTH = dict(zip(CLAIMS, ("entailed", "contradicted", "neutral"), strict=True))


@pytest.fixture(scope="module")
def served() -> Iterator[Endpoint]:
    with serve() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def finished(served: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A pipeline run once, with nine verdicts of a language model."""
    pipeline = Judged(tmp_path_factory.mktemp("finished"), served)
    pipeline.write(SAMPLES)
    pipeline.run()
    return pipeline


@pytest.fixture
def judged(finished: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    monkeypatch.chdir(tmp_path)
    return finished.copied(tmp_path)


def label(*words: str) -> int:
    return main(["label", *words, "--store", "s.duckdb"])


def exported(*options: str) -> list[Row]:
    assert label("export", *options, "-o", "sheet.csv") == 0
    return read_sheet()


def labelled(rows: list[Row]) -> list[Row]:
    """The rows with the true label of each claim."""
    return [row | {"label": TRUTH[row["claim"]]} for row in rows]


def test_a_sheet_of_verdicts_is_blind_and_in_a_random_order(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = exported("--sample", "4")
    ((run,),) = judged.ask("SELECT run_id FROM audit.runs")
    assert capsys.readouterr().err == (
        f"4 rows in sheet.csv: random 4 of 9, seed 0 from step response_in_reference of run {run}\n"
    )
    names = (
        "run step draw sample_id claim_id against passage user_input premise claim label comment"
    )
    assert list(rows[0]) == names.split()
    assert {row["label"] for row in rows} == {""}
    assert all(f"Case {row['sample_id']}." in row["premise"] for row in rows)
    assert exported("--sample", "4") == rows
    assert exported("--sample", "4", "--seed", "1") != rows
    every = exported()
    assert len(every) == 9
    assert [row["claim_id"] for row in every[:4]] == [row["claim_id"] for row in rows]
    assert [row["sample_id"] for row in every] != sorted(row["sample_id"] for row in every)
    # What the judge said, why and how sure it was stands nowhere.
    answers = judged.ask("SELECT verdict, reason FROM verdicts")
    cells = {cell for row in every for cell in row.values()}
    assert not cells & {word for row in answers for word in row}


def test_a_sheet_as_an_html_form(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    assert label("export", "-o", "form.html") == 0
    assert capsys.readouterr().err.startswith("9 rows in form.html: random 9 of 9, seed 0 from ")
    page = Path("form.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert all(page.count(f'"{claim}"') == 3 for claim in CLAIMS)
    assert '"verdict"' not in page


def test_labels_are_recorded_with_annotator_and_draw(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = labelled(exported("--sample", "6"))
    save_sheet([*rows[:5], rows[5] | {"label": " "}])
    capsys.readouterr()
    assert label("import", "sheet.csv", "--who", " ann ") == 0
    assert capsys.readouterr().out == "5 labels of verdicts by ann; 1 row without a label\n"
    assert label("import", "sheet.csv", "--who", "ann") == 0
    assert capsys.readouterr().out == (
        "0 labels of verdicts by ann, 5 more were imported before; 1 row without a label\n"
    )
    assert label("import", "sheet.csv", "--who", "bob") == 0
    found = judged.ask(
        "SELECT claim_id, kind, step, claim, label, rating, file, draw, round(probability, 4), "
        "count(DISTINCT import_id), list(annotator ORDER BY annotator) "
        "FROM audit.labels GROUP BY ALL"
    )
    assert len(found) == 5
    for _, kind, step, claim, answers, rating, *rest in found:
        assert (kind, step, answers, rating) == (
            "verdicts",
            "response_in_reference",
            TRUTH[claim],
            None,
        )
        assert rest == ["sheet.csv", "random 6 of 9, seed 0", 0.6667, 2, ["ann", "bob"]]
    # A change of mind is one label more; the newest counts.
    save_sheet([rows[0] | {"label": "neutral" if rows[0]["label"] != "neutral" else "entailed"}])
    capsys.readouterr()
    assert label("import", "sheet.csv", "--who", "ann") == 0
    assert capsys.readouterr().out == "1 label of verdicts by ann\n"


def test_claims_and_samples(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    claims = exported("--of", "claims")
    assert (
        list(claims[0])
        == "run step draw sample_id claim_id user_input text claim label comment".split()
    )
    save_sheet([row | {"label": "good"} for row in claims])
    assert label("import", "sheet.csv", "--who", "ann") == 0
    samples = exported("--of", "samples")
    names = "run step draw sample_id metric user_input response reference retrieved_contexts"
    assert list(samples[0]) == [*names.split(), "label", "comment"]
    save_sheet([row | {"label": "0.5"} for row in samples])
    assert label("import", "sheet.csv", "--who", "ann") == 0
    assert judged.ask(
        "SELECT kind, metric, label, rating, count(*) FROM audit.labels GROUP BY ALL ORDER BY ALL"
    ) == [
        ("claims", None, "good", None, 9),
        ("samples", "factual_correctness", None, 0.5, 3),
    ]


def test_a_short_answer_is_labelled_with_its_question(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = {"a": "Is Rome in Italy?", "b": "Is Rome in Spain?", "c": "Is Rome in Italy?"}
    text = "Rome was a republic."
    short = [
        {"sample_id": name, "user_input": asked, "response": text, "reference": "Yes"}
        for name, asked in questions.items()
    ]
    long = [
        {"sample_id": name, "user_input": asked, "response": text, "reference": "Rome is old."}
        for name, asked in zip("de", questions.values(), strict=False)
    ]
    judged.write([*short, *long])
    judged.run()
    rows = {row["sample_id"]: row for row in exported()}
    assert rows["b"]["user_input"] == "Is Rome in Spain?"
    assert rows["d"]["user_input"] == "Is Rome in Italy?"
    assert {row["claim"] for row in rows.values()} == {text}
    # What "Yes" says depends on the question, what a sentence says does not.
    save_sheet(
        [
            rows["a"] | {"label": "neutral"},
            rows["b"] | {"label": "contradicted"},
            rows["d"] | {"label": "entailed"},
            rows["e"] | {"label": "entailed"},
        ]
    )
    assert label("import", "sheet.csv", "--who", "ann") == 0
    assert judged.ask(
        "SELECT list(sample_id ORDER BY sample_id), label FROM audit.labels "
        "GROUP BY subject, label ORDER BY 1"
    ) == [(["a"], "neutral"), (["b"], "contradicted"), (["d", "e"], "entailed")]
    capsys.readouterr()
    save_sheet([rows["a"] | {"label": "neutral"}, rows["c"] | {"label": "entailed"}])
    assert label("import", "sheet.csv", "--who", "bob") == 2
    assert "the same texts are labelled 'neutral' on line 2" in capsys.readouterr().err


def test_a_sheet_shows_the_conversation_that_was_read(judged: Judged) -> None:
    turns = [
        {"role": "user", "content": "Who was Curie?"},
        {"role": "assistant", "content": "A physicist."},
    ]
    read = {"context": "conversation"}
    steps = STEPS | {"response_claims": STEPS["response_claims"] | read}
    steps["response_in_reference"] = STEPS["response_in_reference"] | {"context": "none"}
    asked = sample("one", user_input="When did she die?", history=turns)
    judged.write([asked], steps=steps)
    judged.run()
    assert {row["user_input"] for row in exported("--of", "claims")} == {
        "user: Who was Curie?\n\nassistant: A physicist.\n\nuser: When did she die?"
    }
    assert {row["user_input"] for row in exported()} == {""}


def test_all_faults_of_a_sheet_are_reported_at_once(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = labelled(exported("--sample", "7"))
    ((run,),) = judged.ask("SELECT run_id FROM audit.runs")
    wrong = [
        rows[0] | {"label": "entails"},
        rows[1] | {"premise": "Another."},
        rows[2] | {"claim": "Another."},
        rows[3] | {"claim_id": rows[3]["claim_id"][::-1]},
        rows[4] | {"draw": "my favourites"},
        rows[5] | {"step": "response_in_referense"},
        rows[6],
        rows[6],
    ]
    save_sheet(wrong)
    capsys.readouterr()
    assert label("import", "sheet.csv", "--who", "ann") == 2
    assert capsys.readouterr().err == (
        "claimflow: sheet.csv:2: 'entails' is not a label; did you mean 'entailed'?\n"
        "sheet.csv:3: its premise was changed; keep the exported text\n"
        "sheet.csv:4: its claim was changed; keep the exported text\n"
        "sheet.csv:5: is not a row of the draw; "
        "keep the columns before the texts as they were exported\n"
        f"sheet.csv:6: 'my favourites' is not a draw from run {run}; "
        "keep draw as it was exported\n"
        f"sheet.csv:7: no step 'response_in_referense' of run {run} makes verdicts; "
        "did you mean 'response_in_reference'?\n"
        "sheet.csv:9: the same row is already on line 8; delete one of them\n"
    )
    save_sheet(
        [
            row | {"label": cell}
            for row, cell in zip(exported("--of", "samples"), ("1.1", "good", "nan"), strict=True)
        ]
    )
    capsys.readouterr()
    assert label("import", "sheet.csv", "--who", "ann") == 2
    assert capsys.readouterr().err == (
        "claimflow: sheet.csv:2: 1.1 is not from 0 to 1; write a number from 0 to 1, as 0.5\n"
        "sheet.csv:3: 'good' is not a number; write a number from 0 to 1, as 0.5\n"
        "sheet.csv:4: nan is not from 0 to 1; write a number from 0 to 1, as 0.5\n"
    )
    assert judged.ask("FROM audit.labels") == []


def test_unsure_and_a_comment_are_recorded(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = exported()
    odd = {"label": "unsure", "comment": "=the premise is odd"}
    save_sheet([first | odd, second | {"label": "entailed"}])
    capsys.readouterr()
    assert label("import", "sheet.csv", "--who", "ann") == 0
    assert capsys.readouterr().out == "2 labels of verdicts by ann, 1 of them unsure\n"
    found = judged.ask("SELECT label, unsure, comment, seen FROM audit.labels ORDER BY ALL")
    assert found == [
        ("entailed", False, None, False),
        (None, True, "=the premise is odd", False),
    ]
    # The newest counts: who is unsure now has no label any more.
    save_sheet([second | {"label": "unsure"}])
    assert label("import", "sheet.csv", "--who", "ann") == 0
    with judged.store.reading() as connection:
        assert current_labels(connection, "verdicts").is_empty()


def run_twins(folder: Path, served: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of two samples with the same texts, in the working folder."""
    monkeypatch.chdir(folder)
    pipeline = Judged(folder, served)
    pipeline.write([sample("one"), sample("one") | {"sample_id": "again"}])
    pipeline.run()


def test_a_row_with_the_texts_of_a_drawn_one_is_no_further_evidence(
    tmp_path: Path, served: Endpoint, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run_twins(tmp_path, served, monkeypatch)
    save_sheet(labelled(exported("--sample", "1")))
    assert label("import", "sheet.csv", "--who", "ann") == 0
    capsys.readouterr()
    assert main(["calibrate", "--format", "json", "--store", "s.duckdb"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["found"]
    assert (found["rows"], found["labelled"], found["texts"]) == (6, 2, 1)
    assert found["agreement"]["n"] == 1
    assert main(["calibrate", "--store", "s.duckdb"]) == 0
    assert "2 of 6 rows labelled by labels of 1 text\n" in capsys.readouterr().out


def test_the_same_texts_have_one_label_in_a_sheet(
    tmp_path: Path, served: Endpoint, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run_twins(tmp_path, served, monkeypatch)
    rows = [row for row in exported() if row["claim"] == CLAIMS[0]]
    save_sheet([rows[0] | {"label": "entailed"}, rows[1] | {"label": "neutral"}])
    capsys.readouterr()
    assert label("import", "sheet.csv", "--who", "ann") == 2
    assert capsys.readouterr().err == (
        "claimflow: sheet.csv:3: the same texts are labelled 'entailed' on line 2; "
        "give both one label\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "--by", "uncertainty"],
         "--by uncertainty: nothing says how sure step response_in_reference was: "
         "no probabilities, no votes; write --by random"),
        (["export", "--step", "precison"],
         "--step: run {run} has no step 'precison' of verdicts; known are response_in_reference"),
        (["export", "--metric", "m"],
         "--metric: applies to samples, and these are verdicts; "
         "leave it out, or write --of samples"),
        (["export", "--of", "samples", "--metric", "faithfulnes"],
         "--metric: run {run} has no metric 'faithfulnes' of scores; "
         "known are factual_correctness"),
        (["export", "-o", "no/where.csv"],
         "no/where.csv: cannot be written (No such file or directory); "
         "name a file in a folder that you can write to"),
        (["import", "no.csv", "--who", " "], "--who: is blank; name the annotator"),
        (["import", "absent.csv", "--who", "ann"],
         "absent.csv: cannot be read (No such file or directory); name a sheet that was exported"),
        (["import", "odd.csv", "--who", "ann"],
         "odd.csv:1: has no column run, step, draw, passage, label; keep the header that was "
         "exported: "
         "run,step,draw,sample_id,claim_id,against,passage,user_input,premise,claim,label,comment"),
        (["import", "empty.csv", "--who", "ann"],
         "empty.csv: has no rows; keep those that were exported"),
        (["import", "runs.csv", "--who", "ann"],
         "runs.csv:3: is of another run than the rows above; "
         "keep the column run as it was exported"),
        (["import", "none.csv", "--who", "ann"],
         "none.csv:2: names no run; keep the column run as it was exported"),
    ],
)  # fmt: skip
def test_wrong_options_and_files(
    judged: Judged, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ((run,),) = judged.ask("SELECT run_id FROM audit.runs")
    Path("odd.csv").write_text("sample_id,claim_id,premise,claim\n", "utf-8")
    header = "run,step,draw,sample_id,claim_id,text,claim,label\n"
    Path("empty.csv").write_text(header, "utf-8")
    Path("runs.csv").write_text(f"{header}a,,,,,,,\nb,,,,,,,\n", "utf-8")
    Path("none.csv").write_text(f"{header},step,,,,,,\n", "utf-8")
    assert label(*words) == 2
    printed = capsys.readouterr().err.splitlines()[-1]
    assert printed == f"claimflow: {message.format(run=run)}"
    assert judged.ask("FROM audit.labels") == []


def test_one_of_several_steps_must_be_named(
    tmp_path: Path, served: Endpoint, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pipeline = Judged(tmp_path, served)
    pipeline.write(["one"], steps=MORE)
    pipeline.run()
    ((run,),) = pipeline.ask("SELECT run_id FROM audit.runs")
    assert label("export") == 2
    assert capsys.readouterr().err == (
        f"claimflow: --step: run {run} has several; "
        "choose one of response_in_reference, against_contexts\n"
    )
    assert label("export", "--step", "against_contexts", "-o", "sheet.csv") == 0
    assert label("export", "--of", "claims", "--metric", "m") == 2


def test_labels_outlive_runs_that_are_pruned(judged: Judged) -> None:
    save_sheet(labelled(exported()))
    assert label("import", "sheet.csv", "--who", "ann") == 0
    judged.command("--fresh")
    judged.command("--fresh")
    quiet = io.StringIO()
    with redirect_stdout(quiet), redirect_stderr(quiet):
        assert main(["prune", "--keep-runs", "1", "--store", "s.duckdb"]) == 0
        assert main(["verify", "--store", "s.duckdb"]) == 0
    assert judged.ask("SELECT count(*) FROM audit.labels") == [(9,)]
    assert judged.ask("SELECT count(*) FROM audit.runs") == [(1,)]
