"""The pages that are not reports: runs, SQL, and what is told of a mistake."""

from typing import Any, Final, Literal

from claimflow.flows.rendering import hashed, policy, rendered, source

Name = Literal["runs", "sql", "refused"]

_STYLE: Final = source("claimflow.flows.report", "style.css") + source(
    "claimflow.flows.view", "style.css"
)

POLICY: Final = str(
    policy(
        f"style-src {hashed(_STYLE)}",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""No script at all, no picture, no style but ours, and forms to nobody else."""


def page(name: Name, **facts: Any) -> str:
    """A page as HTML; the template says which facts it needs."""
    return rendered("claimflow.flows.view", f"{name}.html.j2", facts | {"style": _STYLE})
