"""The texts of a sample that its response is compared with word by word."""

from collections.abc import Mapping
from typing import Any, Literal

Against = Literal["reference", "retrieved_contexts"]
Numbered = list[tuple[int | None, str]]


def sources_of(sample: Mapping[str, Any], against: Against) -> Numbered:
    """Every reference with its number, or all contexts joined by line breaks, without one.

    None where the sample lacks the field; of the references those that are there.
    """
    if against == "reference":
        references = [sample["reference"], *(sample["other_references"] or ())]
        return [(number, text) for number, text in enumerate(references) if text is not None]
    contexts = sample["retrieved_contexts"]
    if contexts is None:
        return []
    return [(None, "\n".join(text for text in contexts if text is not None))]
