"""Scores of a run sent to where traces are looked at: OpenTelemetry, Langfuse, Phoenix, MLflow.

`evaluations` reads the scores of traced samples from the store, `delivery` sends them in batches
and records what a server has taken. A target says what its server wants: `otlp`, `langfuse` and
`phoenix` make requests, which `endpoint` sends within limits of time and size, and `mlflow` logs
whole runs. `targets` finds them by name.

To add a target, write a class with the methods of `targets.Target`, and register it as an entry
point of the group `claimflow.targets`.
"""
