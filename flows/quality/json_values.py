"""JSON documents of results: named tuples as objects, times in UTC."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def json_value(value: Any) -> Any:
    """`value` as JSON types: named tuples become objects, times ISO 8601 in UTC."""
    if hasattr(value, "_asdict"):
        return {name: json_value(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): json_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, datetime):
        return f"{value.isoformat(timespec='seconds')}Z"
    return value


def json_text(value: Any) -> str:
    """`value` as indented JSON with a final line end. Raises `ValueError` for NaN."""
    return json.dumps(json_value(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
