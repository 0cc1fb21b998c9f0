import pytest

from claimflow.stages.sample_texts import sources_of

NOTHING = {"reference": None, "other_references": [], "retrieved_contexts": None}


@pytest.mark.parametrize(
    ("against", "fields", "sources"),
    [
        ("reference", {"reference": "a"}, [(0, "a")]),
        (
            "reference",
            {"reference": "", "other_references": ["b", "a"]},
            [(0, ""), (1, "b"), (2, "a")],
        ),
        ("reference", {"other_references": ["a"]}, [(1, "a")]),
        ("reference", {"other_references": None}, []),
        ("retrieved_contexts", {"retrieved_contexts": ["b", "", "a"]}, [(None, "b\n\na")]),
        ("retrieved_contexts", {"retrieved_contexts": ["b", None, "a"]}, [(None, "b\na")]),
        ("retrieved_contexts", {"retrieved_contexts": []}, [(None, "")]),
        ("retrieved_contexts", {}, []),
    ],
)
def test_the_sources_of_a_sample(against, fields, sources):
    assert sources_of(NOTHING | fields, against) == sources
