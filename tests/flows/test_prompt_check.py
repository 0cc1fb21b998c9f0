"""`claimflow prompt check`, and the prompts that come along."""

import json
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.plan import check_prompt_file
from claimflow.flows.errors import InputError
from claimflow.stages.claim_rules.decompose import decompose
from claimflow.stages.claim_rules.questions import Context
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.prompts import split_prompt
from claimflow.stages.verify import VerifyClaims
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
            VERIFY.replace("JSON", "XML"),
            [
                "prompt.md: lacks the word JSON; "
                "some providers refuse to be asked for JSON without it"
            ],
        ),
        (
            VERIFY.replace(" of each of the claims its id", ""),
            [
                "prompt.md: does not name 'claims'; the reply is read by that name",
                "prompt.md: does not name 'id'; the reply is read by that name",
            ],
        ),
        (
            VERIFY.replace("evidence", "evidences").replace("neutral", "open"),
            [
                "prompt.md: does not name 'evidence'; the reply is read by that name",
                "prompt.md: does not name 'neutral'; the reply is read by that name",
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
                "prompt.md: has none of {{texts}}, {{claims}} and {{checks}}; a prompt that "
                "decomposes has {{texts}}, one that verifies has {{claims}}, one of a rubric has "
                "{{checks}}",
            ],
        ),
        (
            "{{texts}}\n{{claims}}",
            [
                "prompt.md: has {{texts}} and {{claims}}; a prompt that decomposes has "
                "{{texts}}, one that verifies has {{claims}}, one of a rubric has "
                "{{checks}}"
            ],
        ),
        (
            "{{texts}}\n\n{{atomicty}} {{premise}}",
            [
                "prompt.md:3: unknown blank {{atomicty}}; did you mean 'atomicity'?",
                "prompt.md:3: unknown blank {{premise}}; known are atomicity, context, coverage, "
                "texts",
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
    ("name", "order"), [("decompose", ["context", "texts"]), ("verify", ["premise", "claims"])]
)
def test_the_bundled_prompts_are_long_enough_for_caches(name: str, order: list[str]) -> None:
    prompt = (OURS / f"{name}.md").read_text("utf-8")
    for setting in ("atomicity", "coverage"):
        prompt = prompt.replace(f"{{{{{setting}}}}}", "low")
    static, varying = split_prompt(prompt, order)
    assert 1_100 <= len(static) / 4 <= 1_600
    assert varying.split() == [f"{{{{{blank}}}}}" for blank in order]


def replies(prompt: str) -> list[tuple[str, dict[str, Any]]]:
    """What stands before each whole reply of a prompt's examples, and the reply."""
    examples = prompt.partition("# Examples")[2].partition("\n# ")[0]
    parts = re.split(r"^(\{.*\})$", examples, flags=re.MULTILINE)
    return [(parts[n], json.loads(parts[n + 1])) for n in range(0, len(parts) - 1, 2)]


def test_the_examples_of_verification_are_right() -> None:
    prompt = (OURS / "verify.md").read_text("utf-8")
    opinion = VerifyClaims(against="reference", prompt=prompt).form().answer
    verdicts = set()
    for asked, reply in replies(prompt):
        premise = asked.partition("Premise: ")[2].partition("\n")[0]
        ids = re.findall(r"^Claim (\d+): ", asked, re.MULTILINE)
        assert [str(entry.pop("id")) for entry in reply["claims"]] == ids != []
        for entry in reply["claims"]:
            assert list(entry) == list(opinion.model_fields)
            opinion.model_validate(entry)
            assert entry["evidence"] in premise
            assert entry["evidence"] or entry["verdict"] == "neutral"
            verdicts.add(entry["verdict"])
    assert verdicts == {"entailed", "contradicted", "neutral"}


def test_the_examples_of_decomposition_match_the_rules() -> None:
    prompt = (OURS / "decompose.md").read_text("utf-8")
    seen = set()
    for example in re.findall(r"^Text: (.*(?:\natomicity .*)+)", prompt, re.MULTILINE):
        text, *lines = example.split("\n")
        for line in lines:
            match = re.fullmatch(
                r"atomicity (\w+), coverage (high or low|low|high): (\[.*\])", line
            )
            assert match
            for coverage in match[2].split(" or "):
                claims = rule_claims(text, match[1], coverage)
                assert json.loads(match[3]) == claims
                seen.add((text.split()[1], match[1], coverage))
    assert len(seen) == 12


def rule_claims(text: str, atomicity: Any, coverage: Any) -> list[str]:
    context = Context("Where is the Eiffel Tower?")
    found = decompose(text, atomicity=atomicity, coverage=coverage, context=context, parser=PARSER)
    return [claim.claim for claim in found]


def test_the_full_decomposition_matches_the_rules_for_supported_languages() -> None:
    prompt = (OURS / "decompose.md").read_text("utf-8")
    ((asked, reply),) = replies(prompt)
    texts = re.findall(r"^Text \d: (.*)$", asked, re.MULTILINE)
    assert [entry["id"] for entry in reply["texts"]] == [1, 2, 3, 4]
    answer = DecomposeClaims(of="response", prompt=prompt).form().answer
    for entry in reply["texts"]:
        answer.model_validate({"claims": entry["claims"]})
    assert reply["texts"][0]["claims"][:2] == rule_claims(texts[0], "high", "high")[:2]
