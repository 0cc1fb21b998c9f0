"""A run put on record, with the tools that it asks; let go of and published when it is over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from claimflow.flows.engine.config.pipeline import Pipeline
from claimflow.flows.engine.errors import StoreError
from claimflow.flows.engine.llm.journal import take_in_journals
from claimflow.flows.engine.llm.session import Session
from claimflow.flows.engine.steps.runner import Watch
from claimflow.flows.engine.storage import runs
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.storage.read_copy import publish_after_run
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.tools.toolbox import Toolbox
from claimflow.flows.engine.workers import Workers


@contextmanager
def on_record(
    pipeline: Pipeline,
    store: Store,
    watch: Watch,
    session: Callable[[str], Session],
    *,
    about: str = "",
    workers: Workers | None = None,
) -> Iterator[tuple[str, Toolbox]]:
    """The id of a new run of a pipeline, and its tools; its end is for the caller to note.

    `session` opens that of a run by its id, `about` is added to the pipeline's name. What runs
    before this one left in journals is taken in first. Afterwards tools and `workers` are let go of
    and the read copy is published, unless it was the store that failed.
    """
    take_in_journals(Ledger(store))
    run_id, killed = runs.start(
        store,
        pipeline=f"{pipeline.name}{about}",
        config_path=str(pipeline.source.path.resolve()),
        config=pipeline.source.text,
    )
    toolbox = Toolbox(pipeline, session(run_id), workers)
    watch.began(run_id, killed)
    readable = True
    try:
        yield run_id, toolbox
    except StoreError:
        readable = False
        raise
    finally:
        # They are not needed any more, and copying the store may take a while.
        if workers is not None:
            workers.close()
        toolbox.close()
        if readable:
            publish_after_run(store, wanted=pipeline.read_copy)
