"""How large input may be: far above honest input, so that larger input is a mistake.

Everything below these sizes is read in linear time. `configs/guides/pipelines.md` lists them.
"""

from typing import Final

YAML_BYTES: Final = 256 << 10
"""Bytes of a pipeline file, a schedules file or a prompt file."""

STEPS: Final = 1_000
"""Steps of a pipeline."""

RECORD_BYTES: Final = 64 << 20
"""Bytes of one sample in its file: a line of JSON Lines, a row of CSV, an object in an array."""

GZIP_RATIO: Final = 200
"""How many times larger than a compressed file its content may be, above one sample's bytes."""

TEXT_CHARACTERS: Final = 5_000_000
"""Characters of one text of a sample."""

LIST_TEXTS: Final = 10_000
"""Texts in one list of a sample: contexts, references or claims."""

ID_CHARACTERS: Final = 2_000
"""Characters of a sample_id."""

COLUMNS: Final = 10_000
"""Columns of a sample, those that become metadata included."""

MESSAGES: Final = 10_000
"""Messages of a conversation."""

HISTORY_MESSAGES: Final = 50
HISTORY_CHARACTERS: Final = 20_000
"""Messages, and characters in all, that a turn has of what was said before it: the newest. Larger
input is no mistake here: it is cut, so that a long conversation takes no quadratic space."""

COUNT: Final = 10**12
"""A count that is asked for, such as that of the samples to take."""


def too_many(found: int, limit: int, what: str) -> str:
    """`5,000,001 characters, more than 5,000,000`: what is wrong with input above a limit."""
    return f"{found:,} {what}, more than {limit:,}"
