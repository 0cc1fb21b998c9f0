"""`claimflow prompt check`, and the prompts that come along."""

import json
import re
from argparse import Namespace
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.plan import check_prompt_file
from claimflow.flows.errors import InputError
from claimflow.stages.claim_rules.decompose import decompose
from claimflow.stages.prompts import split_prompt
from tests.stages.parsing import PARSER

OURS = Path(__file__).parents[2] / "configs/prompts"

VERIFY = """\
Say in JSON of each of the claims its id, reason, evidence and verdict: entailed,
contradicted or neutral.

{{premise}}

{{claims}}
"""

DECOMPOSE = """\
Give JSON: texts, each with its id, its claims and what is unclear,
atomicity {{atomicity}}, coverage {{coverage}}.
{{context}}
{{texts}}
"""

WHICH = (
    "a prompt that decomposes has {{contexts}} or {{texts}}, one that verifies has {{premises}} or "
    "{{premise}} and {{claims}}, one of a rubric has {{sample}} and {{checks}}"
)

Check = Callable[[str], list[str]]


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Checks a prompt and returns the lines printed."""

    def checked(text: str) -> list[str]:
        path = tmp_path / "prompt.md"
        path.write_text(text, "utf-8")
        assert check_prompt_file(Namespace(file=path)) == 0
        return capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()

    return checked


def warnings(lines: list[str]) -> list[str]:
    return [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]


def test_a_prompt_is_shown_as_it_is_sent(check: Check) -> None:
    lines = check(VERIFY)
    assert lines[:6] == [
        "prompt.md: a prompt for verify_claims",
        "",
        "--- system message, the same in every call: about 27 tokens ---",
        "",
        "Say in JSON of each of the claims its id, reason, evidence and verdict: entailed,",
        "contradicted or neutral.",
    ]
    user = next(n for n, line in enumerate(lines) if line.startswith("--- user message"))
    assert re.fullmatch(r"--- user message, with an example: about \d\d tokens ---", lines[user])
    assert lines[-1] == "prompt.md: OK, no warnings"
    assert re.fullmatch(
        r"\n<premise-(.{8})>\nThe Eiffel Tower .*\n</premise-\1>\n\n"
        r'<claim-(.{8}) id="1">\nThe .*\n</claim-\2>\n\n<claim-\2 id="2">\nThe .*\n</claim-\2>',
        "\n".join(lines[user + 1 : -2]),
    )


def test_settings_are_filled_in(check: Check) -> None:
    lines = check(DECOMPOSE)
    assert lines[0] == "prompt.md: a prompt for decompose_claims"
    assert lines[5].endswith("atomicity low, coverage low.")
    assert any(line.startswith("<text-") for line in lines)
    assert warnings(lines) == []


def test_long_lines_are_not_wrapped_and_control_characters_are_replaced(check: Check) -> None:
    lines = check("x" * 500 + "\x1b[2J\n" + VERIFY)
    assert "x" * 500 + "␛[2J" in lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            VERIFY.replace("evidence", "evidences").replace("neutral", "open"),
            [
                "prompt.md: does not name 'evidence'; say what it means: the reply has it",
                "prompt.md: does not name 'neutral'; say what it means: the reply has it",
            ],
        ),
        (
            DECOMPOSE.replace(", coverage {{coverage}}", ""),
            [
                "prompt.md: has no blank {{coverage}}; put {{coverage}} where it should be, "
                "or the setting changes nothing"
            ],
        ),
        (
            VERIFY.replace("premise", "x").replace("claims}}", "premise}}").replace("x", "claims"),
            [
                "prompt.md:6: {{premise}} stands below {{claims}}; put {{premise}} first: "
                "calls on one premise then begin alike and cost less"
            ],
        ),
        (
            "{{context}} {{texts}} "
            + DECOMPOSE.replace("{{context}}", "").replace(
                "{{texts}}", "Add nothing, omit nothing."
            ),
            [
                "prompt.md:1: about 31 tokens that never change stand beside or below the texts; "
                "put them above: providers reuse only what comes before the first text"
            ],
        ),
        (VERIFY.replace("{{premise}}", "Premise:\n{{premise}}\nClaims:\n"), []),
    ],
)
def test_warnings(check: Check, text: str, expected: list[str]) -> None:
    assert warnings(check(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Judge.\n{{premise}}\n{{clams}}",
            [
                "prompt.md:3: unknown blank {{clams}}; did you mean 'claims'?",
                f"prompt.md: has no blank for the texts; {WHICH}",
            ],
        ),
        (
            "{{texts}}\n{{claims}}",
            [f"prompt.md: has {{{{texts}}}} and {{{{claims}}}}; {WHICH}"],
        ),
        (
            "{{texts}}\n\n{{atomicty}} {{premise}}",
            [
                "prompt.md:3: unknown blank {{atomicty}}; did you mean 'atomicity'?",
                "prompt.md:3: unknown blank {{premise}}; known are atomicity, context, contexts, "
                "coverage, texts",
            ],
        ),
        ("{{claims}}", ["prompt.md: has no blank {{premise}}; put one above {{claims}}"]),
        (" \n", ["prompt.md: is empty; write a prompt, or name another file"]),
    ],
)
def test_faults(check: Check, tmp_path: Path, text: str, expected: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        check(text)
    assert [str(fault).replace(f"{tmp_path}/", "") for fault in caught.value.faults] == expected


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        check_prompt_file(Namespace(file=tmp_path / "none.md"))
    (tmp_path / "latin.md").write_bytes(b"\xe9{{texts}}")
    with pytest.raises(InputError, match="no UTF-8"):
        check_prompt_file(Namespace(file=tmp_path / "latin.md"))


@pytest.mark.parametrize("name", ["decompose", "verify"])
def test_the_bundled_prompts_have_no_fault_and_no_warning(check: Check, name: str) -> None:
    lines = check((OURS / f"{name}.md").read_text("utf-8"))
    assert lines[0] == f"prompt.md: a prompt for {name}_claims"
    assert warnings(lines) == []


@pytest.mark.parametrize(
    ("name", "blank"), [("decompose", "contexts"), ("verify", "premises"), ("rubric", "sample")]
)
def test_the_bundled_prompts_are_short_and_all_of_them_can_be_cached(name: str, blank: str) -> None:
    prompt = (OURS / f"{name}.md").read_text("utf-8")
    for setting in ("atomicity", "coverage", "verdicts"):
        prompt = prompt.replace(f"{{{{{setting}}}}}", "low")
    static, varying = split_prompt(prompt, [blank, "checks"])
    assert len(static) / 4 <= 700
    assert varying.startswith(f"{{{{{blank}}}}}")


def test_the_examples_of_verification_are_right() -> None:
    prompt = (OURS / "verify.md").read_text("utf-8")
    example = prompt.partition("# Example\n")[2].partition("\n# ")[0]
    premise = example.partition("Premise: ")[2].partition("\n")[0]
    judged = re.findall(
        r"^Claim: .+ Reason: .+ Evidence: (.+)\. Verdict: (\w+)$", example, re.MULTILINE
    )
    assert [verdict for _, verdict in judged] == ["entailed", "contradicted", "neutral"]
    assert all(evidence in premise or evidence == "none" for evidence, _ in judged)


def test_the_examples_of_decomposition_match_the_rules() -> None:
    prompt = (OURS / "decompose.md").read_text("utf-8")
    ((text, examples),) = re.findall(r"^Text: (.*)((?:\natomicity .*)+)", prompt, re.MULTILINE)
    lines = re.findall(r"^atomicity (\w+), coverage (\w+): (\[.*\])$", examples, re.MULTILINE)
    assert {line[:2] for line in lines} == set(product(["low", "high"], repeat=2))
    for atomicity, coverage, claims in lines:
        assert json.loads(claims) == rule_claims(text, atomicity, coverage)


def rule_claims(text: str, atomicity: Any, coverage: Any) -> list[str]:
    found = decompose(text, atomicity=atomicity, coverage=coverage, parser=PARSER)
    return [claim.claim for claim in found]
