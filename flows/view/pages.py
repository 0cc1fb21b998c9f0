"""The pages that are not reports, made of templates that take every word for text."""

import hashlib
from base64 import b64encode
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from jinja2 import Environment, FunctionLoader, StrictUndefined

from flows.pages.words import visible

Name = Literal["runs", "sql", "refused"]

_STYLE: Final = "".join(
    (files(package) / "style.css").read_text("utf-8") for package in ("flows.report", "flows.view")
)
_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""No script at all, no picture, no style but ours, and forms to nobody else."""


def page(name: Name, **facts: Any) -> str:
    """A page as HTML. What steers the direction of text or a terminal is shown as a sign."""
    return _environment().get_template(f"{name}.html.j2").render(facts, style=_STYLE)


@cache
def _environment() -> Environment:
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_template),
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template(name: str) -> str:
    return (files("flows.view") / name).read_text("utf-8")


def _shown(value: Any) -> Any:
    return visible(value) if type(value) is str else value
