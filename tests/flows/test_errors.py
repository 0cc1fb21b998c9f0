"""Messages of faults, and the nearest name."""

import pickle

from claimflow.flows.errors import Fault, InputError, nearest, one_of


def test_a_fault_shows_place_what_and_hint() -> None:
    fault = Fault("answers.jsonl:12", "'response' is a number", "write it as text")
    assert str(fault) == "answers.jsonl:12: 'response' is a number; write it as text"


def test_an_input_error_shows_each_fault_on_its_own_line() -> None:
    faults = [Fault("a.yaml:1", "one", "two"), Fault("a.yaml:2", "three", "four")]
    error = InputError(iter(faults))
    assert error.faults == faults
    assert str(error) == "a.yaml:1: one; two\na.yaml:2: three; four"


def test_an_input_error_counts_the_faults_it_does_not_show() -> None:
    error = InputError(Fault(f"a.jsonl:{n}", "broken", "mend it") for n in range(1362))
    lines = str(error).splitlines()
    assert len(lines) == 51
    assert lines[49] == "a.jsonl:49: broken; mend it"
    assert lines[50] == "... and 1,312 more"
    assert len(error.faults) == 1362


def test_fifty_faults_are_all_shown() -> None:
    assert "more" not in str(InputError([Fault("a", "b", "c")] * 50))


def test_an_input_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(InputError([Fault("a", "b", "c")])))
    assert error.faults == [Fault("a", "b", "c")]
    assert str(error) == "a: b; c"


def test_the_nearest_name() -> None:
    words = ["verify_claims", "decompose_claims", "lexical_match"]
    assert nearest("verify_claim", words) == "verify_claims"
    assert nearest("Lexical_Match", words) == "lexical_match"
    assert nearest("zzz", words) is None
    assert nearest("x", []) is None


def test_the_hint_names_the_nearest_name_or_all() -> None:
    assert one_of("responce", {"response", "reference"}) == "did you mean 'response'?"
    assert one_of("zzz", {"response", "reference"}) == "known are reference, response"
    assert one_of("zzz", ()) == "known are none"
