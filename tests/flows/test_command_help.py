"""What the command line offers to find one's way: examples, nearest names, shell completion."""

import argparse
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimflow.flows.cli.main import command_line, main
from claimflow.flows.cli.options import file_first

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
_shtab_claimflow claimflow "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for command in group.choices.values():
            yield from parsers(command)


@pytest.mark.parametrize("command", list(parsers(command_line())), ids=lambda one: str(one.prog))
def test_the_help_of_a_command_ends_with_an_example(command: argparse.ArgumentParser) -> None:
    example = command.format_help().splitlines()[-1].strip()
    assert example.startswith(command.prog)
    words = shlex.split(example.partition(" > ")[0].partition(" < ")[0])[1:]
    options = command_line().parse_args(file_first(words))
    assert options.parser.prog == command.prog


@pytest.mark.parametrize(
    ("words", "option", "values"),
    [
        (["run", "a.jsonl", "--metrics", "a", "b", "--metrics", "c"], "metrics", ["a", "b", "c"]),
        (["plan", "--metrics", "a", "--metrics", "b", "a.jsonl"], "metrics", ["a", "b"]),
        (["plan", "--only", "a", "--limit", "3", "--only", "b", "p.yaml"], "only", ["a", "b"]),
        (["init", "--rename", "a=b", "--rename", "c=d"], "rename", [("a", "b"), ("c", "d")]),
        (["run", "a.jsonl"], "metrics", []),
    ],
)
def test_the_values_of_a_repeated_option_add_up(
    words: list[str], option: str, values: list[object]
) -> None:
    for _ in range(2):
        assert getattr(command_line().parse_args(file_first(words)), option) == values


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rn", "p.yaml"], "unknown 'rn'; did you mean 'run'?"),
        (["label", "exprot"], "unknown 'exprot'; did you mean 'export'?"),
        (["run", "p.yaml", "--limt", "3"], "--limt 3; did you mean '--limit'?"),
        (["init", "--ci", "gitlap"], "unknown 'gitlap'; did you mean 'gitlab'?"),
        (["run", "p.yaml", "--qqqqqq"], "unrecognized arguments: --qqqqqq\n"),
    ],
)  # fmt: skip
def test_a_misspelt_word_is_answered_with_the_nearest_one(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["ru"], {"run", "runs"}),
        (["init", "--ci", "g"], {"github", "gitlab"}),
        (["label", "ex"], {"export"}),
        (["run", "p.yaml", "--lim"], {"--limit"}),
        (["run", "answ"], {"answers.jsonl"}),
    ],
)
def test_bash_completes_commands_options_choices_and_files(
    words: list[str], proposed: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "claimflow.bash"
    script.write_text(capsys.readouterr().out, "utf-8")
    (tmp_path / "answers.jsonl").write_text("", "utf-8")
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", script, "claimflow", *words],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) == proposed


@pytest.mark.parametrize(
    ("shell", "mark"), [("zsh", "#compdef claimflow"), ("fish", "complete -c")]
)
def test_other_shells_get_a_script_too(
    shell: str, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert mark in capsys.readouterr().out
