"""A folder with packages `flows` and `stages` that are not ours, as a user of Prefect may have."""

import os
from pathlib import Path


def add_foreign_packages(folder: Path) -> str:
    """Put the packages into a folder; importing one fails.

    Returns the PYTHONPATH with which they are found before all others.
    """
    for package in ("flows", "stages"):
        (folder / package).mkdir()
        text = f"raise ImportError('{package} of the project was imported')\n"
        (folder / package / "__init__.py").write_text(text, "utf-8")
    parts = [str(folder), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(part for part in parts if part)
