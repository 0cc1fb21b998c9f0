"""What a reader of the texts of samples knows, and their short answers as statements."""

import json
from typing import Literal

import polars as pl

from claimflow.stages.claim_rules.decompose import Completed, completed
from claimflow.stages.claim_rules.questions import Context
from claimflow.stages.rows import Side

ContextSetting = Literal["none", "question", "conversation"]
"""What is read beside a text: nothing, the question, or also the messages before it."""


def contexts_of(samples: pl.DataFrame, setting: ContextSetting) -> dict[str, Context]:
    """What a reader of the texts of each sample knows, by sample id; empty for none."""
    if setting == "none":
        return {}
    questions = dict(samples.select("sample_id", "user_input").iter_rows())
    histories: dict[str, tuple[tuple[str, str], ...]] = {}
    if setting == "conversation":
        rows = samples.select("sample_id", "metadata").iter_rows()
        histories = {sample_id: _history(metadata) for sample_id, metadata in rows}
    return {
        sample_id: Context(question or "", histories.get(sample_id, ()))
        for sample_id, question in questions.items()
    }


def completed_texts(
    samples: pl.DataFrame, field: Side, setting: ContextSetting
) -> dict[str, Completed]:
    """The texts that are, or begin with, a short answer, by sample id."""
    contexts = contexts_of(samples, setting)
    texts = samples.select("sample_id", field).iter_rows() if contexts else ()
    found = ((sample_id, completed(text, contexts[sample_id])) for sample_id, text in texts if text)
    return {sample_id: one for sample_id, one in found if one}


def conversation_text(context: Context) -> str:
    """The messages of a context and the question after them, each with its role; empty for none."""
    turns = list(context.history)
    if context.question.strip():
        turns.append(("user", context.question))
    return "\n\n".join(f"{role}: {text}" for role, text in turns)


def _history(metadata: str) -> tuple[tuple[str, str], ...]:
    """The earlier messages of a conversation, as reading the samples left them in the metadata."""
    history = json.loads(metadata).get("history")
    if not isinstance(history, list):
        return ()
    return tuple(
        (str(message["role"]), str(message["content"]))
        for message in history
        if isinstance(message, dict) and {"role", "content"} <= message.keys()
    )
