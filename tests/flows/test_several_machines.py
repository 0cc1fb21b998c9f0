"""Several machines that evaluate parts of the samples, and the store that has all of them."""

import json
from contextlib import chdir
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.judge.calls import Call
from claimflow.flows.judge.ledger_writer import Entry, Journal
from claimflow.flows.pipeline.rerun import Part
from claimflow.flows.samples.memory import samples_from
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.samples.subset import select_part
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import CLAIMS, Judged, sample

NAMES = [f"n{number}" for number in range(12)]
ROWS = [sample(name, response=" ".join([*CLAIMS, f"It is case {name}."])) for name in NAMES]


def machines(folder: Path, endpoint: Endpoint, *samples: list[dict[str, Any]]) -> list[Judged]:
    """A machine for each list of samples, with a folder and a store of its own."""
    found = [Judged(folder / str(number), endpoint) for number, _ in enumerate(samples, 1)]
    for machine, rows in zip(found, samples, strict=True):
        machine.path.parent.mkdir()
        machine.write(rows)
    return found


def merge(judged: Judged, *others: Judged) -> int:
    paths = [str(other.store.path) for other in others]
    return main(["merge", *paths, "--store", str(judged.store.path)])


def ids(samples: SampleSource) -> list[str]:
    return [one for table in samples.shards(5) for one in table["sample_id"]]


def parts_of(rows: list[dict[str, object]], of: int) -> list[list[str]]:
    samples = samples_from(rows, rename={})
    return [ids(select_part(samples, Part(number, of))) for number in range(1, of + 1)]


def test_machines_ask_once_in_all_and_one_store_has_every_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        *three, alone = machines(tmp_path, endpoint, ROWS, ROWS, ROWS, ROWS)
        asked = list[str]()
        for number, machine in enumerate(three, 1):
            with chdir(machine.path.parent):
                assert main(["plan", "p.yaml", "--part", f"{number}/3"]) == 0
            planned = capsys.readouterr().out
            assert machine.command("--part", f"{number}/3") == 0
            assert f"--part {number}/3" in capsys.readouterr().out
            assert f"{endpoint.hits} calls" in planned
            asked += [json.dumps(request.body) for request in endpoint.requests]
        assert len(asked) == len(set(asked)) == len(NAMES)

        first, *others = three
        [[before]] = first.ask("SELECT count(*) FROM audit.calls")
        assert merge(first, *others) == 0
        told = capsys.readouterr().out.splitlines()
        copied = len(NAMES) - before
        assert sum(int(line.split(": ")[1].split()[0]) for line in told) == copied

        # The whole run asks for nothing, and its rows lead to the calls of the other machines.
        assert first.command() == 0
        assert endpoint.hits == 0
        [[calls]] = first.ask(
            "SELECT count(DISTINCT call_id) FROM latest.verdicts JOIN audit.calls USING (call_id)"
        )
        assert calls == len(NAMES)
        assert main(["verify", "--store", str(first.store.path)]) == 0

        alone.run()
        assert first.scores() == alone.scores()

        # A second merge finds nothing new.
        capsys.readouterr()
        assert merge(first, *others) == 0
        for line, other in zip(capsys.readouterr().out.splitlines(), others, strict=True):
            [[count]] = other.ask("SELECT count(*) FROM audit.replies")
            assert line.endswith(f"0 calls and 0 replies copied, {count} were there already")


def test_a_merge_takes_the_newest_reply_and_failures_as_they_are(tmp_path: Path) -> None:
    broken = faults.where(lambda body: "Case n1." in json.dumps(body), faults.prose())
    with serve(fault=broken) as endpoint:
        one, two = machines(tmp_path, endpoint, ROWS[:2], ROWS[:2])
        one.command()
        assert [status for status, _, _ in one.scores().values()].count("scored") == 1
        endpoint.behaviour.fault = None
        two.run()
        assert merge(one, two) == 0
        assert one.command() == 0
        assert endpoint.hits == 0
    assert [status for status, _, _ in one.scores().values()] == ["scored"] * 2


def test_a_merge_reads_calls_that_a_killed_run_left_beside_its_store(tmp_path: Path) -> None:
    with serve() as endpoint:
        one, two = machines(tmp_path, endpoint, ROWS[:1], ROWS[1:2])
        one.run()
        two.run()
        [[key, reply]] = two.ask("SELECT key, hex(reply) FROM audit.replies LIMIT 1")
        [values] = two.calls(", ".join(Call._fields))
        # As if the process had been killed before it saved its journal.
        journal = Journal(two.store)
        journal.add(Entry(Call._make(values), {key: bytes.fromhex(reply)}, None))
        journal.keep()
        with two.store.writing() as connection:
            connection.execute("DELETE FROM audit.replies")
            connection.execute("DELETE FROM audit.calls")
        assert merge(one, two) == 0
        assert not list(two.store.path.parent.glob("*.journal"))
        found = "SELECT hex(reply) FROM audit.replies WHERE key = $key"
        assert one.ask(found, key=key) == [(reply,)]
        assert len(one.calls("*")) == 2


def test_a_merge_leaves_columns_that_someone_added(tmp_path: Path) -> None:
    with serve() as endpoint:
        one, two = machines(tmp_path, endpoint, ROWS[:1], ROWS[1:2])
        one.run()
        two.run()
        with two.store.writing() as connection:
            connection.execute("ALTER TABLE audit.calls ADD COLUMN note VARCHAR")
        with one.store.writing() as connection:
            connection.execute("ALTER TABLE audit.calls ADD COLUMN remark VARCHAR")
        assert merge(one, two) == 0
        assert len(one.calls("*")) == 2


def test_all_mistakes_of_a_merge_are_told_and_nothing_is_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        one, two = machines(tmp_path, endpoint, ROWS[:1], ROWS[1:2])
        one.run()
        two.run()
    text = tmp_path / "text.duckdb"
    text.write_text("no store", "utf-8")
    loop = tmp_path / "loop.duckdb"
    loop.symlink_to(loop)
    link = tmp_path / "link.duckdb"
    link.symlink_to(one.store.path)
    older = two.copied(tmp_path / "older")
    with older.store.writing() as connection:
        connection.execute("UPDATE audit.store SET schema_version = 13")
    named = [two.store.path, older.store.path, text, link, loop, tmp_path / "gone.duckdb"]
    assert main(["merge", *map(str, named), "--store", str(one.store.path)]) == 2
    told = capsys.readouterr().err
    assert "link.duckdb: is the store that replies are copied into" in told
    assert "gone.duckdb: there is no store here" in told
    assert "text.duckdb: " in told
    assert "holds schema version 13" in told
    assert one.ask("SELECT count(*) FROM audit.calls") == [(1,)]
    assert main(["merge", str(two.store.path), "--store", str(tmp_path / "new.duckdb")]) == 2
    assert not (tmp_path / "new.duckdb").exists()


@pytest.mark.parametrize("text", ["0/4", "5/4", "2/1001", "2", "/4", "1/2/3", "-1/4", "٢/٤", ""])
def test_a_part_that_is_none_is_an_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="write K/N, as in 2/4"):
        Part.named(text)
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a"])
        assert judged.command(f"--part={text}") == 2
        assert endpoint.hits == 0
    assert f"--part: {text!r} is no part" in capsys.readouterr().err
    assert not judged.store.path.exists()


def test_a_part_without_a_sample_is_no_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a"])
        codes = [judged.command("--part", f"{number}/2") for number in (1, 2)]
        assert codes == [0, 0]
        assert judged.ask("SELECT count(*) FROM audit.calls") == [(1,)]
    assert "nothing to evaluate: none of the 1 samples is in part" in capsys.readouterr().out


def test_answers_to_one_question_are_in_one_part() -> None:
    rows: list[dict[str, object]] = [
        {"sample_id": str(n), "user_input": f"q{n // 5}", "response": f"r{n}", **shared(n // 5)}
        for n in range(200)
    ]
    found = parts_of(rows, 4)
    assert sorted(chain.from_iterable(found)) == sorted(str(number) for number in range(200))
    for part in found:
        assert len(part) > 10
        assert all(
            str(other) in part
            for n in map(int, part)
            for other in range(n // 5 * 5, n // 5 * 5 + 5)
        )
    # What nearly all samples have in common keeps none together.
    common: list[dict[str, object]] = [
        {"sample_id": str(n), "user_input": "Summarise.", "response": "Yes.", **shared(n)}
        for n in range(200)
    ]
    assert all(len(part) > 10 for part in parts_of(common, 4))


def shared(number: int) -> dict[str, object]:
    if number % 2:
        return {"retrieved_contexts": [f"c{number}", "the same"]}
    return {"reference": f"r{number}"}


def test_a_part_of_what_is_new_since_the_last_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        chosen = {"samples": {"path": "s.jsonl", "select": {"since": "last_run"}}}
        judged.write(["a"], more=chosen)
        assert judged.command("--part", "1/2") == 2
    told = capsys.readouterr().err
    assert "a run of a part is no last run" in told
    assert "p.yaml" in told
    nights = tmp_path / "schedules.yaml"
    nights.write_text(
        "deployments:\n  night: {pipeline: p.yaml, cron: 0 2 * * *, parameters: {part: 1/2}}\n",
        "utf-8",
    )
    assert main(["check", str(nights)]) == 2
    told = capsys.readouterr().err
    assert "a run of a part is no last run" in told
    assert "schedules.yaml:2" in told


def test_a_call_that_was_copied_while_it_was_open_is_closed_by_the_next_merge(
    tmp_path: Path,
) -> None:
    with serve() as endpoint:
        one, two = machines(tmp_path, endpoint, ROWS[:1], ROWS[1:2])
        one.run()
        two.run()
    for is_open in ("true", "false"):
        with two.store.writing() as connection:
            connection.execute(f"UPDATE audit.calls SET open = {is_open}")
        assert merge(one, two) == 0
        [[count]] = one.ask("SELECT count(*) FROM audit.calls WHERE open")
        assert count == (is_open == "true")


def test_a_name_that_would_forge_a_line_is_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        one, two = machines(tmp_path, endpoint, ROWS[:1], ROWS[1:2])
        one.run()
        two.run()
        two = two.copied(tmp_path / "two\x1b[31m\nthree")
    capsys.readouterr()
    assert merge(one, two) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert len(told.splitlines()) == 1


@given(
    names=st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=30),
    of=st.integers(1, 5),
)
def test_parts_are_disjoint_and_do_not_depend_on_other_samples(names: set[str], of: int) -> None:
    rows: list[dict[str, object]] = [
        {"sample_id": f"s{name}", "response": f"Answer {name}."} for name in sorted(names)
    ]
    found = parts_of(rows, of)
    assert sorted(chain.from_iterable(found)) == sorted(str(row["sample_id"]) for row in rows)
    again = parts_of(rows[::-2], of)
    for many, few in zip(found, again, strict=True):
        assert set(few) == set(many) & {str(row["sample_id"]) for row in rows[::-2]}
