"""The claims and verdicts of a run, as they stand in a sheet."""

from typing import Final

import polars as pl

from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.flows.engine.storage.edits import Kind
from claimflow.flows.engine.storage.store import Store, read_table

_STEPS: Final = """
SELECT run_steps.step, position, settings->>'of' AS "of"
FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
WHERE run_steps.run_id = $run AND kind = $kind AND step = coalesce($step::VARCHAR, step)
ORDER BY position
"""

# A text without claims has a row too, in which some can be written.
_CLAIMS: Final = f"""
SELECT $run AS run, texts.sample_id, texts.step, texts."of", claim_id::VARCHAR AS claim_id,
       claim, coalesce(status, 'none') AS status,
       CASE WHEN "start" IS NULL THEN whole
            ELSE substr(whole, "start" + 1, "end" - "start") END AS text
FROM (
    SELECT sample_id, steps.step, position, steps."of",
           CASE steps."of" WHEN 'response' THEN response ELSE reference END AS whole
    FROM samples, ({_STEPS}) steps WHERE samples.run_id = $run
) texts
LEFT JOIN (SELECT * FROM claims WHERE run_id = $run) made USING (sample_id, step)
WHERE claim_id IS NOT NULL OR trim(whole) <> ''
ORDER BY position, texts.sample_id, "start", claim
"""

_VERDICTS: Final = f"""
SELECT $run AS run, about.sample_id, v.step, v.claim_id::VARCHAR AS claim_id, about.claim,
       v.against, v.passage, v.verdict, v.status, v.evidence, v.reason
FROM ({_STEPS}) steps
JOIN (SELECT * FROM verdicts WHERE run_id = $run) v USING (step)
JOIN (
    SELECT claim_id, any_value(sample_id) AS sample_id, any_value(claim) AS claim,
           any_value("start") AS "start"
    FROM claims WHERE run_id = $run GROUP BY claim_id
) about USING (claim_id)
ORDER BY position, about.sample_id, "start", about.claim, v.passage
"""


def sheet_rows(store: Store, run_id: str, kind: Kind, step: str | None = None) -> pl.DataFrame:
    """The rows of a sheet of a run (of one step of it), in the columns of that kind.

    Raises `InputError` where no step of the run, or not that one, makes rows of that kind.
    """
    query = _CLAIMS if kind == "claims" else _VERDICTS
    with store.reading() as connection:
        every = read_table(connection, _STEPS, run=run_id, kind=kind, step=None)["step"]
        if step is not None and step not in every:
            what = f"no step {step!r} of run {run_id} makes {kind}"
            raise InputError([Fault("--step", what, one_of(step, every))])
        if every.is_empty():
            what, right = f"no step of run {run_id} makes {kind}", "choose a run that has some"
            raise InputError([Fault(str(store.path), what, right)])
        return read_table(connection, query, run=run_id, kind=kind, step=step)
