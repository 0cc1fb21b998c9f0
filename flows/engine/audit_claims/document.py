"""What was found in the claims of a run, as JSON: keys that stay, for programs."""

import json

from flows.engine.audit_claims.run import ClaimAudit


def as_json(found: ClaimAudit) -> str:
    """An audit as one JSON object, described in `flows/README.md`."""
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
    document = found._asdict() | {"steps": steps}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
