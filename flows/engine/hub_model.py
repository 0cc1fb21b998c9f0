"""A model that a pipeline names: a folder, or one of the Hugging Face Hub."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from claimflow.flows.engine.existing import exists

_NEWEST: Final = "main"
"""The revision that is meant where none is named."""

_NAMED: Final = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)


class HubModel(NamedTuple):
    """A model of the Hub: `name` is owner/name, `revision` a branch, a tag or a commit."""

    name: str
    revision: str = _NEWEST

    def __str__(self) -> str:
        return self.name if self.revision == _NEWEST else f"{self.name}@{self.revision}"


def folder_or_hub_model(base: Path, written: str) -> Path | HubModel:
    """What is meant by a `written` model in a file whose folder is `base`.

    A folder that is there goes before a model of that name. What has not the form of a name,
    owner/name or owner/name@revision, is a folder, whether it is there or not: `./owner/name`.
    """
    folder = base / written
    named = _NAMED.fullmatch(written)
    if named is None or exists(folder):
        return folder
    return HubModel(named[1], named[2] or _NEWEST)
