"""Statistics and resume state of earlier calls to an endpoint, read from the store."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from claimflow.flows.judge.response_formats import ResponseFormat
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store

CHARACTERS_PER_TOKEN: Final = 4.0
"""For English text, about; used until there are calls on record."""

_HASH: Final = 36
_RECENT: Final = 1_000


class CallStatistics(NamedTuple):
    """Characters of a prompt per token, and tokens of a reply per text asked about.

    `per_entry` holds the latter by blank of the prompt, where there are calls on record.
    """

    characters_per_token: float = CHARACTERS_PER_TOKEN
    per_entry: Mapping[str, float] = {}


def recall_call_statistics(store: Store, model: str, api_base: str | None) -> CallStatistics:
    """Statistics of the newest 1,000 calls of this model at this address, as it was resolved.

    Calls whose texts are kept as hashes are left out.
    """
    if not store.path.is_file():
        return CallStatistics()
    values = {"model": model, "api_base": api_base, "hash": _HASH, "recent": _RECENT}
    with store.reading() as connection:
        found = connection.execute(_QUERY, values).fetchall()[0]
    ratio, of_claims, of_texts = found
    per_entry = {"claims": of_claims, "texts": of_texts}
    known = {blank: tokens for blank, tokens in per_entry.items() if tokens}
    return CallStatistics(ratio or CHARACTERS_PER_TOKEN, known)


_QUERY: Final = """
WITH recent AS (
  SELECT length(coalesce(system, '')) + length(prompt) AS characters, prompt_tokens,
         -- A retry repeats all texts, but its reply covers only some.
         CASE WHEN repeats IS NULL THEN completion_tokens END AS completion_tokens,
         len(regexp_extract_all(prompt, '<claim-[0-9a-f]{8} id="')) AS claims,
         len(regexp_extract_all(prompt, '<text-[0-9a-f]{8} id="')) AS texts
  FROM audit.calls
  WHERE model = $model AND api_base IS NOT DISTINCT FROM $api_base
    AND prompt_tokens > 0 AND length(prompt) <> $hash
  ORDER BY asked_at DESC LIMIT $recent
)
SELECT sum(characters) / sum(prompt_tokens),
       sum(completion_tokens) FILTER (claims > 0)
         / sum(claims) FILTER (claims > 0 AND completion_tokens IS NOT NULL),
       sum(completion_tokens) FILTER (texts > 0)
         / sum(texts) FILTER (texts > 0 AND completion_tokens IS NOT NULL)
FROM recent
"""


def only_asked_elsewhere(store: Store, model: str, api_base: str | None) -> bool:
    """Whether the store has calls of a model, but none of them at this address."""
    if not store.path.is_file():
        return False
    query = (
        "SELECT count(*) > 0 AND NOT coalesce(bool_or(api_base IS NOT DISTINCT FROM $api_base), "
        "false) FROM audit.calls WHERE model = $model"
    )
    with store.reading() as connection:
        values = {"model": model, "api_base": api_base}
        return bool(connection.execute(query, values).fetchall()[0][0])


class OpenReply(NamedTuple):
    """A reply with a mistake, from a run that ended before it asked the model to correct it."""

    call_id: str
    text: str
    cut_off: bool


class ResumeState(NamedTuple):
    """The response format that worked last, if any did, and open replies by hash of the request."""

    response_format: ResponseFormat | None
    open: dict[str, OpenReply]


def recall_resume_state(store: Store, model: str, api_base: str | None) -> ResumeState:
    """The resume state of this model at this address, as it was resolved."""
    if not store.path.is_file():
        return ResumeState(None, {})
    condition = "model = $model AND api_base IS NOT DISTINCT FROM $api_base"
    values = {"model": model, "api_base": api_base}
    with store.reading() as connection:
        response_format = connection.execute(
            f"SELECT arg_max(rung, asked_at) FROM audit.calls WHERE {condition} "
            "AND outcome IN ('ok', 'repaired')",
            values,
        ).fetchall()[0][0]
        found = read_table(
            connection,
            "SELECT request, call_id, reply, coalesce(finish_reason = 'length', false) AS cut "
            f"FROM audit.calls WHERE {condition} AND open ORDER BY asked_at",
            **values,
        )
    return ResumeState(
        response_format, {request: OpenReply(*rest) for request, *rest in found.iter_rows()}
    )
