"""What lies at a path, asked of whatever somebody wrote as one.

Nothing does where no file could have such a name, of which `pathlib` makes an error.
"""

from contextlib import suppress
from pathlib import Path


def exists(path: Path) -> bool:
    """Whether anything lies there."""
    with suppress(OSError):
        return path.exists()
    return False


def is_file(path: Path) -> bool:
    """Whether a file lies there."""
    return exists(path) and path.is_file()


def is_folder(path: Path) -> bool:
    """Whether a folder lies there."""
    return exists(path) and path.is_dir()
