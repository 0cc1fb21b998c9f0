"""A blind sheet as one HTML page: texts, choices, and a button that saves the sheet as CSV."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Final

import polars as pl

from flows.engine.labels.sheet import READ
from flows.engine.labels.units import VALUES, Kind
from flows.engine.sheets.cells import guarded

_QUESTIONS: Final[Mapping[Kind, str]] = {
    "verdicts": "Does the premise say what the claim says, deny it, or neither?",
    "claims": "Does the text say what the claim says, and can the claim be understood alone?",
    "samples": "How good is the response?",
}


def form_page(sheet: pl.DataFrame, kind: Kind) -> str:
    """The page of a blind sheet of that kind, which needs no network and sends nothing.

    The texts are JSON in it, shown as text and nothing else; a policy forbids everything but
    its own script and style. What it saves is the sheet as `claimflow label import` reads it.
    """
    style, script = _source("form.css"), _source("form.js")
    policy = (
        f"default-src 'none'; script-src '{_hashed(script)}'; style-src '{_hashed(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    facts = {"policy": policy, "style": style, "script": script, "sheet": _json(sheet, kind)}
    return Template(_source("form.html")).substitute(facts)


def _json(sheet: pl.DataFrame, kind: Kind) -> str:
    """The sheet with the cells that its CSV has, and which of them have an apostrophe before."""
    metric = f" It is rated by {sheet['metric'][0]}." if kind == "samples" else ""
    rows = []
    for texts in sheet.rows():
        plain = ["" if text is None else str(text) for text in texts]
        cells = [guarded(text) for text in plain]
        pairs = zip(sheet.columns, plain, cells, strict=True)
        rows.append({"cells": cells, "guarded": [name for name, was, now in pairs if was != now]})
    content = {
        "question": _QUESTIONS[kind] + metric,
        "columns": sheet.columns,
        "read": READ[kind],
        "values": VALUES.get(kind, ()),
        "rows": rows,
    }
    # No text can end the script element, or begin a comment in it.
    return json.dumps(content).replace("<", "\\u003c").replace(">", "\\u003e")


def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hashed(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
