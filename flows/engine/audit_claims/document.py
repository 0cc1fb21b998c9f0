"""What was found in the claims of a run, as JSON: keys that stay, for programs."""

import json
from typing import Any

from claimflow.flows.engine.audit_claims.run import ClaimAudit


def as_json(found: ClaimAudit) -> str:
    """An audit as one JSON object, described in `flows/README.md`."""
    return json.dumps(as_document(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_document(found: ClaimAudit) -> dict[str, Any]:
    """What that object holds."""
    steps = [
        step._asdict()
        | {
            "checks": [
                one._asdict() | {"examples": [example._asdict() for example in one.examples]}
                for one in step.checks
            ]
        }
        for step in found.steps
    ]
    return found._asdict() | {"steps": steps}
