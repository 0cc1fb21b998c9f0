"""A calibration as JSON: nothing left out, keys that stay."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from claimflow.flows.engine.calibration.run import RunCalibration


def as_json(found: "RunCalibration") -> str:
    """All that was found of a run as one JSON object, described in `flows/README.md`."""
    return json.dumps(plain(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A named tuple as an object, whatever it holds likewise."""
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return f"{value.isoformat(timespec='seconds')}Z"
    return value
