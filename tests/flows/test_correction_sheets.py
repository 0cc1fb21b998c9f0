"""Correction sheets: their form, and faults with file and line."""

import csv
import io
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.quality.correction_sheets import (
    LAYOUTS,
    find_corrections,
    run_of_sheet,
    sheet_rows,
)
from claimflow.flows.quality.csv_sheets import read_sheet, to_csv
from claimflow.flows.store.edits import Kind
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import Store

COLUMNS = {layout.kind: layout.columns for layout in LAYOUTS}
TOWER = "The Eiffel Tower is located in Paris."


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, write_small: Callable[[Path], Path]) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    path = write_small(folder)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["run", str(path)]) == 0
    return folder / "small.duckdb"


@pytest.fixture
def store(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    shutil.copy(finished, tmp_path)
    monkeypatch.chdir(tmp_path)
    return Store(tmp_path / "small.duckdb")


@pytest.fixture
def run_id(store: Store) -> str:
    return chosen_run(store, None)


def rows_of(store: Store, run_id: str, kind: Kind) -> list[dict[str, str]]:
    rows = sheet_rows(store, run_id, kind).iter_rows(named=True)
    return [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in rows]


def faults_of(store: Store, run_id: str, rows: list[dict[str, str]]) -> list[str]:
    path = Path("sheet.csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.DictWriter(file, list(rows[0]))
        sheet.writeheader()
        sheet.writerows(rows)
    with pytest.raises(InputError) as caught:
        find_corrections(read_sheet(path, LAYOUTS), store, run_id, who="ann", why="because")
    return str(caught.value).splitlines()


def test_a_sheet_of_claims(store: Store, run_id: str) -> None:
    rows = rows_of(store, run_id, "claims")
    first = rows[0]
    assert tuple(first) == COLUMNS["claims"]
    claims = [(row["step"], row["sample_id"], row["claim"], row["status"]) for row in rows]
    assert claims == [
        ("response_claims", "birth", "Einstein was born in 1879.", "made"),
        ("response_claims", "tower", TOWER, "made"),
        ("reference_claims", "birth", "Einstein was born in 1905.", "made"),
        ("reference_claims", "silence", "Paris is large.", "made"),
        ("reference_claims", "tower", TOWER, "made"),
        ("reference_claims", "tower", "The Eiffel Tower has a height of 1000ft.", "made"),
    ]
    assert (first["run"], first["of"], first["text"]) == (run_id, "response", first["claim"])
    of_one = sheet_rows(store, run_id, "claims", "reference_claims")
    assert of_one["step"].unique().to_list() == ["reference_claims"]


def test_a_sheet_is_csv_in_utf_8_with_a_byte_order_mark(store: Store, run_id: str) -> None:
    content = to_csv(sheet_rows(store, run_id, "claims"))
    header, first, *_ = content.split(b"\r\n")
    assert header == b"\xef\xbb\xbf" + ",".join(COLUMNS["claims"]).encode()
    assert first.decode().startswith(f"{run_id},birth,response_claims,response,")


def test_all_faults_of_claims_are_reported_at_once(store: Store, run_id: str) -> None:
    rows = rows_of(store, run_id, "claims")
    blank = dict.fromkeys(rows[0], "")
    stranger = "00000000-0000-0000-0000-000000000000"
    wrong: list[dict[str, Any]] = [
        {"step": "respons_claims", "sample_id": "tower", "claim": "x"},
        {"step": "response_claims", "sample_id": "towers", "claim": "x"},
        {"step": "response_claims", "sample_id": "silence", "claim": "x"},
        {"step": "response_claims", "sample_id": "tower", "claim_id": stranger, "claim": "x"},
        {"step": "response_claims", "sample_id": "tower", "claim": f" {TOWER}"},
        rows[0],
    ]
    key = rows[0]["claim_id"]
    assert faults_of(store, run_id, [*rows, *(blank | row for row in wrong)]) == [
        f"sheet.csv:8: no step 'respons_claims' of run {run_id} makes claims; "
        "did you mean 'response_claims'?",
        f"sheet.csv:9: run {run_id} has no sample 'towers'; keep sample_id as it was exported",
        "sheet.csv:10: sample 'silence' has no claims in step response_claims; delete the row",
        f"sheet.csv:11: '{stranger}' is not a claim of sample 'tower' in that run; "
        "leave claim_id empty to add a claim, or say which run it is of by --run",
        "sheet.csv:12: the same claim is already on line 3; delete one of them",
        f"sheet.csv:13: claim_id '{key}' is already on line 2; leave claim_id empty to add a claim",
    ]


def test_all_faults_of_verdicts_are_reported_at_once(store: Store, run_id: str) -> None:
    rows = rows_of(store, run_id, "verdicts")
    assert [row["sample_id"] for row in rows] == ["birth", "tower"]
    key = rows[1]["claim_id"]
    wrong = [
        rows[0] | {"verdict": "entailled"},
        rows[1] | {"verdict": ""},
        rows[1] | {"verdict": "neutral"},
        rows[1] | {"passage": "0"},
        rows[1] | {"step": "response_claims"},
    ]
    assert faults_of(store, run_id, wrong) == [
        "sheet.csv:2: 'entailled' is not a verdict; did you mean 'entailed'?",
        "sheet.csv:3: has no verdict; write one of entailed, contradicted, neutral",
        "sheet.csv:4: the same verdict is already on line 3; delete one of them",
        f"sheet.csv:5: no verdict by passage 0 on claim '{key}' in that run; "
        "keep claim_id and passage as they were exported",
        f"sheet.csv:6: no step 'response_claims' of run {run_id} makes verdicts; "
        "known are response_in_reference",
    ]


def test_a_changed_claim_in_a_sheet_of_verdicts_is_a_fault(store: Store, run_id: str) -> None:
    rows = rows_of(store, run_id, "verdicts")
    rows[1] |= {"claim": "Another one.", "verdict": "neutral"}
    assert faults_of(store, run_id, rows) == [
        "sheet.csv:3: the claim was changed; change it in a sheet of claims"
    ]


def test_rows_of_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("run,sample_id,step,claim_id,claim\na,,,,x\n,,,,x\nb,,,,x\n")
    with pytest.raises(InputError) as caught:
        run_of_sheet(read_sheet(path, LAYOUTS))
    assert str(caught.value) == f"{path}:4: is of run b, the rows above of a; keep one run"
    path.write_text("sample_id,step,claim_id,claim\na,b,,x\n")
    assert run_of_sheet(read_sheet(path, LAYOUTS)) is None


NO_HEADER = (
    "is not the header of a sheet of checks, verdicts or claims; keep the header that was exported"
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"sample_id,claim\na,b\n",
            ":1: has no column step, claim_id; keep the header that was exported: "
            "run,sample_id,step,of,claim_id,claim,status,text",
        ),
        (
            b"sample_id,step,verdict\n",
            ":1: has no column claim_id, claim, passage; keep the header that was exported: "
            "run,sample_id,step,claim_id,claim,against,passage,verdict,status,evidence,reason",
        ),
        (b"", f":1: {NO_HEADER}"),
        (b"sep=;\r\n", f":1: {NO_HEADER}"),
        (b"a run;birth;a step\n", f":1: {NO_HEADER}"),
        (
            b"sep=;\r\nsample_id;step;verdict\n",
            ":2: has no column claim_id, claim, passage; keep the header that was exported: "
            "run,sample_id,step,claim_id,claim,against,passage,verdict,status,evidence,reason",
        ),
        (b"sample_id,step,claim_id,claim,claim\n", ":1: two columns are named 'claim'; keep one"),
        (b"sample_id,step\n\xff", ": is not UTF-8; save it as CSV in UTF-8"),
        (
            b'sample_id,step,claim_id,claim\na,b,c,"d"e\n',
            ": is broken CSV (',' expected after '\"'); save it as CSV in UTF-8",
        ),
    ],
)
def test_files_that_are_no_sheet(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_sheet(path, LAYOUTS)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("delimiter", [b",", b";", b"\t"])
def test_rows_know_their_lines(tmp_path: Path, mark: bytes, delimiter: bytes) -> None:
    path = tmp_path / "s.csv"
    text = b'sample_id,step,claim_id,claim,notes\r\na,s,,"x\r\ny",mine\r\n,,,,\r\n\r\nb,s,,z\r\n'
    path.write_bytes(mark + text.replace(b",", delimiter))
    sheet = read_sheet(path, LAYOUTS)
    rows = [(row.line, row.cell("sample_id"), row.cell("claim")) for row in sheet.rows]
    assert (sheet.kind, rows) == ("claims", [(2, "a", "x\r\ny"), (6, "b", "z")])
    assert sheet.rows[1].cell("notes") == ""


@pytest.mark.parametrize("line", [b"sep=;\r\n", b"SEP=;;;;\n", b"\xef\xbb\xbfsep=;\n"])
def test_the_line_of_excel_that_names_the_delimiter_is_left_out(
    tmp_path: Path, line: bytes
) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(
        line + b"sample_id;step;claim_id;claim\r\na;s;;one, two, three, four, five\r\n"
    )
    [row] = read_sheet(path, LAYOUTS).rows
    assert (row.line, row.cell("claim")) == (3, "one, two, three, four, five")


def test_a_large_cell_is_read_and_the_limit_of_other_readers_stays(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = tmp_path / "s.csv"
    path.write_text(f"sample_id,step,claim_id,claim\na,s,,{'x' * (before + 1)}\n", "utf-8")
    [row] = read_sheet(path, LAYOUTS).rows
    assert len(row.cell("claim")) == before + 1
    assert csv.field_size_limit() == before


def test_an_unchanged_sheet_has_no_corrections(store: Store, run_id: str) -> None:
    kinds: tuple[Kind, ...] = ("claims", "verdicts")
    for kind in kinds:
        path = Path(f"{kind}.csv")
        path.write_bytes(to_csv(sheet_rows(store, run_id, kind)))
        assert (
            find_corrections(read_sheet(path, LAYOUTS), store, run_id, who="ann", why="because")
            == []
        )
