"""The page of attacks names tests that exist. `python -m tests.benchmarks.attacks` runs them."""

import ast

import pytest

from tests.benchmarks.attacks import PAGE, ROOT, Attack, read_attacks

ATTACKS = read_attacks(PAGE.read_text("utf-8"))


def _exists(test: str) -> bool:
    file, *names = test.split("::")
    if not (ROOT / file).is_file():
        return False
    body: list[ast.stmt] = ast.parse((ROOT / file).read_text("utf-8")).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == name
        ]
        if not found:
            return False
        body = found[-1].body
    return bool(names)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.tried[:60])
def test_every_attack_names_tests_that_exist(attack: Attack) -> None:
    assert attack.section
    assert attack.tried
    assert attack.holds
    assert attack.tests
    assert [test for test in attack.tests if not _exists(test)] == []
    assert len(set(attack.tests)) == len(attack.tests)


def test_no_attack_is_listed_twice() -> None:
    tried = [(attack.section, attack.tried) for attack in ATTACKS]
    assert sorted(set(tried)) == sorted(tried)
