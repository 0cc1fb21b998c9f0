"""What may be asked of a run, and the steps it comes to."""

from pathlib import Path

import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.rerun import Rerun, StepSelection, select_steps
from claimflow.flows.runner.prepare import prepare

CLAIMS = "response_claims"
NEEDED = {"response_claims", "response_in_reference", "precision"}
AFTER = {"response_in_reference", "precision", "summary"}
FAITH = {"context_matches", "deterministic_faithfulness"}


def choice(small: Path, rerun: Rerun, *failed: str) -> StepSelection:
    return select_steps(prepare(small, rerun=rerun).pipeline, rerun, failed)


def names(found: StepSelection) -> set[str]:
    return {step.name for step in found.steps}


def test_without_options_all_steps_are_selected(small: Path) -> None:
    found = choice(small, Rerun())
    assert len(found.steps) == 7
    assert (found.again, found.found, found.fresh) == (frozenset(), frozenset(), frozenset())


def test_again_and_fresh_select_steps_to_make_although_stored(small: Path) -> None:
    again = choice(small, Rerun(again=("precision",)))
    assert (again.again, again.fresh) == ({"precision"}, frozenset())
    fresh = choice(small, Rerun(again=("precision",), fresh=True))
    assert (fresh.again, fresh.fresh) == ({"precision"}, {"precision"})
    every = choice(small, Rerun(fresh=True))
    assert every.fresh == every.again == names(every)


def test_only_selects_the_named_steps_and_finds_their_inputs(small: Path) -> None:
    found = choice(small, Rerun(only=("precision",)))
    assert names(found) == NEEDED
    assert found.found == NEEDED - {"precision"}
    assert found.wanted == {"precision"}
    assert found.again == frozenset()
    two = choice(small, Rerun(only=("precision", CLAIMS), fresh=True))
    assert (two.found, two.fresh) == ({"response_in_reference"}, {"precision", CLAIMS})


def test_from_selects_the_step_and_all_that_depend_on_it(small: Path) -> None:
    found = choice(small, Rerun(from_step="response_in_reference"))
    assert found.wanted == AFTER
    assert found.found == {CLAIMS, *FAITH}
    assert "reference_claims" not in names(found)
    fresh = choice(small, Rerun(from_step="response_in_reference", fresh=True))
    assert fresh.fresh == fresh.again == AFTER


def test_failed_selects_failed_steps_and_all_that_depend_on_them(small: Path) -> None:
    found = choice(small, Rerun(failed=True), "response_in_reference")
    assert found.wanted == AFTER
    assert (found.again, found.fresh) == ({"response_in_reference"}, frozenset())
    fresh = choice(small, Rerun(failed=True, fresh=True), "response_in_reference")
    assert fresh.fresh == {"response_in_reference"}


@pytest.mark.parametrize(
    ("rerun", "limit", "message"),
    [
        (
            Rerun(again=("precison",)),
            None,
            "--again: there is no step 'precison'; did you mean 'precision'?",
        ),
        (
            Rerun(only=("summary", "reference_claim"), again=("x",)),
            None,
            "--again: there is no step 'x'; known are context_matches, "
            "deterministic_faithfulness, precision, reference_claims, response_claims, "
            "response_in_reference, summary\n"
            "--only: there is no step 'reference_claim'; did you mean 'reference_claims'?",
        ),
        (
            Rerun(from_step="sumary"),
            None,
            "--from: there is no step 'sumary'; did you mean 'summary'?",
        ),
        (
            Rerun(only=("summary",), from_step="precision", failed=True),
            None,
            "--only and --from: both select the steps to make; choose one of them\n"
            "--only and --failed: both select the steps to make; choose one of them\n"
            "--from and --failed: both select the steps to make; choose one of them",
        ),
        (
            Rerun(again=("summary",), failed=True),
            None,
            "--again and --failed: both select the steps to make again; choose one of them",
        ),
        (
            Rerun(samples="ids.txt"),
            3,
            "--limit and --samples: both select the samples; choose one of them",
        ),
        (
            Rerun(again=("summary",), only=("precision",)),
            None,
            "--again and --only: 'summary' is not made in a run --only precision; "
            "leave out --again summary or --only",
        ),
        (
            Rerun(again=(CLAIMS,), from_step="precision"),
            None,
            "--again and --from: 'response_claims' is not made in a run --from precision; "
            "leave out --again response_claims or --from",
        ),
    ],
)
def test_options_that_exclude_each_other_are_reported_together(
    small: Path, rerun: Rerun, limit: int | None, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        prepare(small, rerun=rerun, limit=limit)
    assert str(caught.value) == message
