"""Prefect: flow, deployments, task runs, artifacts, shared limits, recovery."""

import os

# Prefect reads these when it is imported. claimflow sends no telemetry.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
# Without a server Prefect starts a temporary one, which takes longer than its default timeout.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
