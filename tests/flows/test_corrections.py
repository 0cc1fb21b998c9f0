"""Claims and verdicts corrected by hand: exported, edited, imported, used by every later run."""

import csv
import getpass
import io
import json
from collections.abc import Iterator
from contextlib import chdir
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.edits import Edit, save_edits, text_key
from claimflow.stages.rows import content_key
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import CLAIMS, DECOMPOSE, STEPS, Judged, sample
from tests.flows.sheets import Row, read_sheet, save_sheet

BY_JUDGE = STEPS | {"response_claims": DECOMPOSE}
SAMPLES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def served() -> Iterator[Endpoint]:
    with serve() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def finished(served: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A pipeline run once, with three samples of three claims: four calls."""
    pipeline = Judged(tmp_path_factory.mktemp("finished"), served)
    pipeline.write(SAMPLES, steps=BY_JUDGE)
    pipeline.run()
    assert served.hits == 4
    return pipeline


@pytest.fixture
def endpoint(served: Endpoint) -> Endpoint:
    served.clear()
    return served


@pytest.fixture
def judged(finished: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """That pipeline in a copy of its folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    return finished.copied(tmp_path)


def claimflow(*words: str) -> int:
    return main([*words, *([] if words[0] in ("run", "plan") else ["--store", "s.duckdb"])])


def exported(what: str, *options: str) -> list[Row]:
    assert claimflow("export", what, "--format", "csv", "-o", "sheet.csv", *options) == 0
    return read_sheet()


def imported(*options: str, why: str = "the town is wrong") -> int:
    return claimflow("import", "sheet.csv", "--why", why, "--who", "ann", *options)


def out(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def of(rows: list[Row], sample_id: str, claim: str) -> Row:
    (row,) = [r for r in rows if (r["sample_id"], r["claim"]) == (sample_id, claim)]
    return row


def claims_of(judged: Judged, sample_id: str) -> dict[str, str | None]:
    """The claims of a sample in the newest run, each with its reason."""
    query = "SELECT claim, reason FROM latest.claims WHERE sample_id = $sample"
    rows = judged.ask(query, sample=sample_id)
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def test_an_edited_claim_costs_only_its_own_verification(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    before = judged.ask("SELECT * FROM claims ORDER BY ALL")
    rows = exported("claims")
    of(rows, "two", CLAIMS[0])["claim"] = "The tower stands in Case two."
    save_sheet(rows)
    capsys.readouterr()
    assert imported() == 0
    changed, uses, back = out(capsys)
    assert changed == "1 claim changed in 1 sample of step response_claims"
    assert uses == "the next run uses them; nothing in the store is overwritten"
    assert back.startswith("to undo this: claimflow edits --undo ")

    assert claimflow("plan", "p.yaml") == 0
    planned = [" ".join(line.split()) for line in out(capsys)]
    assert planned[4].startswith("response_claims decompose_claims reuse 9 rows, edited by hand 0")
    assert planned[5].startswith("response_in_reference verify_claims make 1 ")
    assert planned[-1].startswith("1 call, ")

    judged.run()
    assert endpoint.hits == 1
    (request,) = endpoint.requests
    asked = json.dumps(request.body)
    assert "The tower stands in Case two." in asked
    assert CLAIMS[1] not in asked
    assert claims_of(judged, "two") == {
        "The tower stands in Case two.": "edited by ann: the town is wrong",
        CLAIMS[1]: None,
        CLAIMS[2]: None,
    }
    assert judged.scores()["one"] == ("scored", 1 / 3, None)
    kept = judged.ask("SELECT * FROM claims WHERE run_id = $run ORDER BY ALL", run=rows[0]["run"])
    assert kept == before

    judged.run()
    assert endpoint.hits == 0
    assert judged.ask(
        "SELECT DISTINCT reused FROM audit.run_steps WHERE run_id = "
        "(SELECT arg_max(run_id, started_at) FROM audit.runs)"
    ) == [(True,)]


def test_importing_twice_changes_nothing_and_explain_shows_what_was_changed(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = exported("claims")
    of(rows, "two", CLAIMS[0])["claim"] = "The tower stands near Paris."
    save_sheet(rows)
    assert imported() == 0
    edits = judged.ask("FROM audit.edits")
    (run,) = {row["run"] for row in rows}
    nothing = f"nothing in sheet.csv is new to run {run} and the edits on record"
    capsys.readouterr()
    assert imported(why="again") == 0
    assert out(capsys) == [nothing]
    judged.run()
    assert imported(why="after a run") == 0
    assert out(capsys) == [nothing]
    assert judged.ask("FROM audit.edits") == edits
    exported("claims")
    assert imported(why="the sheet of the edited run") == 0
    assert judged.ask("FROM audit.edits") == edits
    _explained(judged, capsys)


def _explained(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    ((edit, at),) = judged.ask(
        "SELECT left(edit_id::VARCHAR, 8), strftime(edited_at, '%Y-%m-%d %H:%M:%S') "
        "FROM audit.edits"
    )
    capsys.readouterr()
    assert claimflow("explain", "two") == 0
    printed = [line.strip("│├└─ \xa0") for line in out(capsys)]
    assert "The tower stands near Paris. (edited by ann: the town is wrong)" in printed
    place = printed.index("by hand")
    assert printed[place + 1 : place + 4] == [
        f"response_claims: corrected on {at} (edit {edit} by ann: the town is wrong)",
        f"- {CLAIMS[0]}",
        "+ The tower stands near Paris.",
    ]
    assert claimflow("explain", "one") == 0
    assert "by hand" not in capsys.readouterr().out


def test_claims_are_added_and_removed(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    rows = exported("claims")
    rows.remove(of(rows, "one", CLAIMS[1]))
    of(rows, "one", CLAIMS[2])["claim"] = ""
    more = {"sample_id": "one", "step": "response_claims", "claim": " It is tall. "}
    rows.append(dict.fromkeys(rows[0], "") | more)
    of(rows, "two", CLAIMS[2])["claim"] = "Cheese is made of milk."
    # A sample that is left out altogether is left as it is.
    rows = [row for row in rows if row["sample_id"] != "three"]
    save_sheet(rows)
    capsys.readouterr()
    assert imported() == 0
    printed = "1 claim changed, 1 added, 2 removed in 2 samples of step response_claims"
    assert out(capsys)[0] == printed
    edits = judged.ask("SELECT sample_id, rows->>'$[*].claim' FROM audit.edits ORDER BY ALL")
    assert edits == [
        ("one", [CLAIMS[0], "It is tall."]),
        ("two", [*CLAIMS[:2], "Cheese is made of milk."]),
    ]


def test_an_edit_records_who_when_why_and_what(judged: Judged) -> None:
    rows = exported("claims")
    of(rows, "two", CLAIMS[0])["claim"] = "The tower stands near Paris."
    save_sheet(rows)
    assert claimflow("import", "sheet.csv", "--why", " it moved ") == 0
    ((kind, pipeline, step, sample_id, field, who, why, after, before, undoes),) = judged.ask(
        "SELECT kind, pipeline, step, sample_id, field, who, why, rows::VARCHAR, "
        "replaced::VARCHAR, undoes FROM audit.edits"
    )
    assert (kind, pipeline, step) == ("claims", "p", "response_claims")
    assert (sample_id, field, undoes) == ("two", "response,user_input", None)
    assert (who, why) == (getpass.getuser(), "it moved")
    assert [row["claim"] for row in json.loads(before)] == list(CLAIMS)
    assert [row["claim"] for row in json.loads(after)] == [
        "The tower stands near Paris.",
        *CLAIMS[1:],
    ]
    assert judged.ask("SELECT edited_at <= now()::TIMESTAMP + INTERVAL 1 DAY FROM audit.edits")


def test_a_corrected_verdict_needs_no_call(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = exported("verdicts")
    assert list(rows[0]) == [
        "run",
        "sample_id",
        "step",
        "claim_id",
        "claim",
        "against",
        "passage",
        "verdict",
        "status",
        "evidence",
        "reason",
    ]
    of(rows, "one", CLAIMS[1])["verdict"] = "entailed"
    save_sheet(rows)
    capsys.readouterr()
    assert imported(why="1889 is near enough") == 0
    assert out(capsys)[0] == "1 verdict changed in 1 sample of step response_in_reference"
    judged.run()
    assert endpoint.hits == 0
    assert judged.verdicts()["one"] == ["entailed", "entailed", "neutral"]
    assert judged.verdicts()["two"] == ["entailed", "contradicted", "neutral"]
    assert judged.scores()["one"] == ("scored", 2 / 3, None)
    assert judged.ask(
        "SELECT reason, evidence, call_id FROM latest.verdicts WHERE starts_with(reason, 'edited')"
    ) == [("edited by ann: 1889 is near enough", None, None)]
    assert imported() == 0
    assert judged.ask("SELECT count(*) FROM audit.edits") == [(1,)]


def test_an_edit_no_longer_applies_when_its_text_has_changed(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = exported("claims")
    of(rows, "two", CLAIMS[0])["claim"] = "The tower stands near Paris."
    save_sheet(rows)
    assert imported() == 0
    ((edit,),) = judged.ask("SELECT left(edit_id::VARCHAR, 8) FROM audit.edits")
    other = sample("two", response="The tower stands in Paris. Snow is cold.")
    judged.write(["one", other, "three"], steps=BY_JUDGE)
    capsys.readouterr()
    assert judged.command() == 0
    printed = out(capsys)
    place = printed.index("1 edit by hand no longer applies:")
    assert printed[place + 1] == (
        "  two, step response_claims: the sample has another response or user_input now "
        f"(edit {edit} by ann: the town is wrong)"
    )
    assert set(claims_of(judged, "two")) == {CLAIMS[0], "Snow is cold."}
    judged.write(SAMPLES, steps=BY_JUDGE)
    assert judged.command() == 0
    assert "no longer" not in capsys.readouterr().out
    assert set(claims_of(judged, "two")) == {"The tower stands near Paris.", *CLAIMS[1:]}


def test_an_edit_applies_while_its_question_is_the_same(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = sample("two", user_input="Where is the tower?")
    judged.write(["one", asked], steps=BY_JUDGE)
    judged.run()
    rows = exported("claims")
    of(rows, "two", CLAIMS[0])["claim"] = "The tower stands near Paris."
    save_sheet(rows)
    assert imported() == 0
    rows = exported("verdicts")
    of(rows, "two", CLAIMS[2])["verdict"] = "contradicted"
    save_sheet(rows)
    assert imported() == 0

    def applies() -> list[str]:
        capsys.readouterr()
        assert judged.command() == 0
        steps = [line for line in out(capsys) if "now (edit" in line]
        return sorted(line.split(",")[1].split(":")[0].strip() for line in steps)

    assert applies() == []
    judged.write(["one", asked | {"user_input": "Where was the tower?"}], steps=BY_JUDGE)
    assert applies() == ["step response_claims", "step response_in_reference"]
    # With the earlier question both apply again; a history is not read here.
    judged.write(["one", asked | {"history": []}], steps=BY_JUDGE)
    assert applies() == []


def test_an_edit_of_an_earlier_release_names_no_question(judged: Judged) -> None:
    text = " ".join(CLAIMS)
    old = Edit(
        edit_id=content_key("edit", 1),
        kind="claims",
        pipeline="p",
        step="response_claims",
        sample_id="two",
        field="response",
        text=text_key({"response": text}, "response"),
        rows=[{"claim_id": content_key("claim", "x"), "claim": "The tower stands near Paris."}],
        replaced=[],
        who="ann",
        why="so",
        edited_at=datetime(2026, 1, 1),
    )
    save_edits(judged.store, [old])
    judged.write(["one", sample("two", user_input="Where is the tower?")], steps=BY_JUDGE)
    judged.run()
    assert set(claims_of(judged, "two")) == {"The tower stands near Paris."}


def test_an_edited_verdict_on_a_removed_claim_is_reported(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = exported("verdicts")
    of(rows, "one", CLAIMS[1])["verdict"] = "entailed"
    save_sheet(rows)
    assert imported() == 0
    rows = exported("claims")
    of(rows, "one", CLAIMS[1])["claim"] = "The tower opened in 1889."
    save_sheet(rows)
    assert imported() == 0
    capsys.readouterr()
    assert judged.command() == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "one, step response_in_reference: the sample has other claims now (edit " in printed
    assert judged.verdicts()["one"] == ["entailed", "entailed", "neutral"]


def test_edits_are_listed_and_taken_back(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert claimflow("edits") == 0
    assert out(capsys) == [f"no edits in {judged.store.path}"]
    rows = exported("claims")
    of(rows, "two", CLAIMS[0])["claim"] = "The tower stands near Paris."
    save_sheet(rows)
    assert imported() == 0
    judged.run()
    ((edit,),) = judged.ask("SELECT left(edit_id::VARCHAR, 8) FROM audit.edits")
    capsys.readouterr()
    assert claimflow("edits", "--undo", edit, "--why", "it was right", "--who", "bob") == 0
    assert out(capsys) == [
        f"edit {edit} of 1 sample of step response_claims is undone; the next run will not use it"
    ]
    judged.run()
    assert endpoint.hits == 0
    assert claims_of(judged, "two") == dict.fromkeys(CLAIMS)
    ((back,),) = judged.ask(
        "SELECT left(edit_id::VARCHAR, 8) FROM audit.edits WHERE undoes IS NOT NULL"
    )
    capsys.readouterr()
    for name, wrong in [
        (edit, f"edit {edit} was undone by bob: it was right; there is nothing to do"),
        (back, f"edit {back} undoes edit {edit}; import the sheet again"),
    ]:
        assert claimflow("edits", "--undo", name, "--why", "again") == 2
        assert capsys.readouterr().err == f"claimflow: --undo: {wrong}\n"
    assert claimflow("edits") == 0
    table = [" ".join(line.split()) for line in out(capsys)]
    assert table[1] == "edit kind pipeline step samples who when state why"
    assert table[3].startswith(f"{edit} claims p response_claims 1 ann 20")
    assert table[3].endswith("undone the town is wrong")
    assert table[4].endswith(f"undoes {edit} it was right")
    assert imported(why="no, it was not") == 0
    assert out(capsys)[0] == "1 claim changed in 1 sample of step response_claims"


def test_a_partial_run_applies_edits_and_pruning_keeps_their_base_tables(
    judged: Judged, endpoint: Endpoint
) -> None:
    rows = exported("claims")
    of(rows, "two", CLAIMS[0])["claim"] = "The tower stands near Paris."
    save_sheet(rows)
    assert imported() == 0
    assert judged.command("--from", "response_in_reference") == 0
    assert endpoint.hits == 1
    assert set(claims_of(judged, "two")) == {"The tower stands near Paris.", *CLAIMS[1:]}
    assert claimflow("prune", "--keep-runs", "1") == 0
    assert judged.ask("SELECT count(*) FROM audit.runs") == [(1,)]
    below = "SELECT inputs->>'base' FROM audit.artifacts WHERE stage = 'edits'"
    assert judged.ask(
        f"SELECT stage, row_count FROM audit.artifacts WHERE artifact_id::VARCHAR IN ({below})"
    ) == [("decompose_claims", 9)]
    assert claimflow("verify") == 0


def test_without_a_login_name_who_is_required(
    judged: Judged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    exported("claims")
    capsys.readouterr()
    assert claimflow("import", "sheet.csv", "--why", "x") == 2
    assert capsys.readouterr().err == (
        "claimflow: --who: there is no login name; name the author\n"
    )


def test_a_sheet_is_compared_with_its_own_run(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = exported("claims")
    (first,) = {row["run"] for row in rows}
    judged.command("--again", "response_claims")
    capsys.readouterr()
    ((second,),) = judged.ask("SELECT arg_max(run_id, started_at) FROM audit.runs")
    assert imported() == 0
    assert out(capsys) == [f"nothing in sheet.csv is new to run {first} and the edits on record"]
    assert imported("--run", first[:-1]) == 0
    assert imported("--run", second) == 2
    assert capsys.readouterr().err == (
        f"claimflow: --run: sheet.csv is of run {first}; leave --run out, or export that run\n"
    )
    save_sheet([row | {"run": ""} for row in rows])
    assert imported("--run", first) == 0
    save_sheet([row | {"run": "19700101-000000-abcd"} for row in rows])
    assert imported() == 2
    assert capsys.readouterr().err.startswith(
        f"claimflow: {judged.store.path}: there is no run '19700101-000000-abcd'; "
    )


def test_formulas_in_claims_are_escaped_and_restored(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [
        '=HYPERLINK("http://evil";"x")',
        "'=1+1",
        '-5 degrees,\r\nat "night"',
        "@a\tb",
        "＝1",
        "🗼 stands; 'tis true",
    ]
    monkeypatch.chdir(tmp_path)
    pipeline = Judged(tmp_path, endpoint)
    supplied = {"response_claims": {"use": "supplied_claims", "of": "response"}}
    hostile = sample("=cmd|' /C calc'!A0", response_claims=claims)
    pipeline.write([hostile], steps=supplied)
    pipeline.run()
    assert claimflow("export", "claims", "--format", "csv", "-o", "sheet.csv") == 0
    text = Path("sheet.csv").read_bytes().decode("utf-8-sig")
    for cells in csv.reader(io.StringIO(text, newline=""), strict=True):
        assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "＝")) for cell in cells)
    assert imported() == 0
    # As a spreadsheet might save it: other line ends, other borders between the cells.
    rows = list(csv.reader(io.StringIO(text, newline="")))
    with Path("sheet.csv").open("w", newline="", encoding="utf-8") as file:
        saved = [[cell.replace("\r\n", "\n") for cell in row] for row in rows]
        csv.writer(file, delimiter=";", lineterminator="\n").writerows(saved)
    assert imported() == 0
    assert pipeline.ask("FROM audit.edits") == []
    sheet = exported("claims")
    assert {row["claim"] for row in sheet} == set(claims)
    sheet[0]["claim"] = "=1"
    save_sheet(sheet)
    assert imported() == 0
    pipeline.run()
    assert claims_of(pipeline, "=cmd|' /C calc'!A0")["=1"] == "edited by ann: the town is wrong"


def test_supplied_claims_are_taken_and_the_rest_decomposed(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Judged(tmp_path, endpoint)
    brings = sample("one", response_claims=["The tower stands in Paris.", "Pigs fly."])
    other = sample("two", response="Snow is cold.")
    pipeline.write([brings, other], steps={"response_claims": DECOMPOSE})
    with chdir(tmp_path):
        assert claimflow("plan", "p.yaml") == 0
    assert out(capsys)[-1].startswith("1 call, ")
    pipeline.run()
    assert endpoint.hits == 1
    assert set(claims_of(pipeline, "one")) == {"The tower stands in Paris.", "Pigs fly."}
    assert set(claims_of(pipeline, "two")) == {"Snow is cold."}


def test_supplied_claims_that_no_sample_has(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Judged(tmp_path, endpoint)
    steps: dict[str, Any] = {"response_claims": {"use": "supplied_claims", "of": "response"}}
    pipeline.write(["one"], steps=steps)
    with chdir(tmp_path):
        assert claimflow("plan", "p.yaml") == 2
    assert capsys.readouterr().err == (
        "claimflow: p.yaml:2 samples: no sample has 'response_claims', which is needed by "
        "response_claims (columns found: reference, response, sample_id; "
        "recognised: sample_id, response, reference); "
        "name the column that holds it, as in rename: {COLUMN: response_claims}, "
        "or remove these steps\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["edits", "--undo", "zz", "--why", "x"], "--undo: there is no edit 'zz'; known are none"),
        (["edits", "--undo", "zz"], "--undo: needs a reason; add --why TEXT"),
        (["edits", "--why", "x"], "--why: gives the reason of an undo; add --undo EDIT"),
        (["import", "s.csv", "--why", " "], "--why: is blank; say why it was edited"),
        (
            ["import", "s.csv", "--why", "x", "--who", ""],
            "--who: is blank; name the author",
        ),
        (
            ["import", "s.csv", "--why", "x"],
            "s.csv: cannot be read (No such file or directory); name a sheet that was exported",
        ),
        (
            ["export", "claims", "--format", "csv", "--step", "precision"],
            "--step: no step 'precision' of run {run} makes claims; known are response_claims",
        ),
        (
            ["export", "claims", "--format", "csv", "-o", "no/where.csv"],
            "no/where.csv: cannot be written (No such file or directory); "
            "name a file in a folder that you can write to",
        ),
    ],
)
def test_wrong_options_and_files(
    judged: Judged, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ((run,),) = judged.ask("SELECT run_id FROM audit.runs")
    assert claimflow(*words) == 2
    printed = capsys.readouterr().err.splitlines()[-1]
    assert printed == f"claimflow: {message.format(run=run)}"
    assert judged.ask("FROM audit.edits") == []
