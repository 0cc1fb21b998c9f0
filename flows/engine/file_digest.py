"""What a file holds, as one number: models count by their content, not by their place."""

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> str:
    """SHA-256 of the bytes in a file, in hexadecimal; read in pieces, however long it is."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
