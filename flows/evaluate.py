"""The Prefect flow: a pipeline's run with one task run per step.

Prefect owns when, where and how often; which table is reused is the store's to say, so
nothing is cached here.
"""

import os
from collections.abc import Mapping
from pathlib import Path

# Prefect reads these when it is imported. Nothing we run reports to anybody.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
# Where no server runs Prefect starts a temporary one, which takes longer than its default.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.engine.artifacts import Artifact
from flows.engine.choosing import choose
from flows.engine.execute import open_store, recorded, walk
from flows.engine.prepare import prepare
from flows.engine.rerun import Rerun
from flows.engine.runner import Made


class LogWatch:
    """Tells Prefect's log of a run's steps, one line each."""

    def began(self, run_id: str, killed: list[str]) -> None:
        """Say which run this is, and which earlier ones died."""
        logger = get_run_logger()
        for name in killed:
            logger.warning("run %s was killed; what it had made is kept", name)
        logger.info("run %s", run_id)

    def advanced(self, step: str, done: int, of: int) -> None:
        """Parts of a table are not worth a line."""

    def answered(self, step: str, done: int, of: int) -> None:
        """Nor are questions."""

    def finished(self, made: Made) -> None:
        """Say what became of a step."""
        taken_over = f" ({made.taken_over:,} samples taken over)" if made.taken_over else ""
        get_run_logger().info(
            "%s: %d rows %s%s, %d failed, %.1f s",
            made.step,
            made.artifact.row_count,
            "reused" if made.reused else "made",
            taken_over,
            made.artifact.failures,
            made.seconds,
        )


@flow(name="evaluate")
def evaluate(
    config: str,
    *,
    store: str | None = None,
    limit: int | None = None,
    again: list[str] | None = None,
    fresh: bool = False,
    only: list[str] | None = None,
    from_step: str | None = None,
    failed: bool = False,
    samples: str | None = None,
    redact: bool = False,
) -> str:
    """Run the pipeline file `config` and return the id of the run.

    `store` names another DuckDB file than the pipeline's, `limit` takes the first samples
    only, `redact` keeps only hashes of texts in the record of calls; the others are the
    fields of `Rerun`. Where nothing failed and only that was asked for, the id is that of the
    run looked at. Raises `InputError` with every mistake in the pipeline or its samples.
    """
    rerun = Rerun(tuple(again or ()), fresh, tuple(only or ()), from_step, failed, samples)
    other = Path(store) if store else None
    prepared = prepare(Path(config), limit=limit, rerun=rerun, store=other)
    file = open_store(prepared, other)
    choice = choose(prepared, file, rerun)
    if choice.clean is not None:
        get_run_logger().info(choice.nothing())
        return choice.clean
    fields = ", ".join(f"{name} from {column}" for name, column in prepared.samples.mapping.items())
    get_run_logger().info("%d samples: %s", prepared.samples.count, fields)
    with recorded(prepared, file, LogWatch(), choice=choice, redact=redact) as run:

        @task(cache_policy=NO_CACHE)
        def make(step: str, inputs: Mapping[str, Artifact]) -> Artifact:
            return run.make(step, inputs)

        futures = walk(
            run,
            lambda name, inputs: make.with_options(name=name, task_run_name=name).submit(
                name, inputs
            ),
        )
        for future in futures.values():
            future.result()
    return run.run_id
