"""A label sheet as an HTML page."""

import json
from collections.abc import Mapping
from typing import Final

import polars as pl
from markupsafe import Markup

from claimflow.flows.quality.csv_sheets import escape_formula
from claimflow.flows.quality.label_sheets import TEXT_COLUMNS
from claimflow.flows.quality.labels import VALUES, Kind
from claimflow.flows.report.templates import asset, content_policy, csp_hash, render_template

_QUESTIONS: Final[Mapping[Kind, str]] = {
    "verdicts": "Does the premise say what the claim says, deny it, or neither?",
    "claims": "Does the text say what the claim says, and can the claim be understood alone?",
    "samples": "How good is the response?",
}


def label_page(sheet: pl.DataFrame, kind: Kind) -> str:
    """The page of a blind sheet of that kind, which needs no network and sends nothing.

    The texts are JSON in it, shown as text and nothing else; a policy forbids everything but
    its own script and style. What it saves is the sheet as `claimflow label import` reads it.
    """
    style, script = (
        asset("claimflow.flows.report", "form.css"),
        asset("claimflow.flows.report", "form.js"),
    )
    allowed = content_policy(
        f"script-src {csp_hash(script)}",
        f"style-src {csp_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    facts = {"policy": allowed, "style": style, "script": script, "sheet": _json(sheet, kind)}
    return render_template("claimflow.flows.report", "form.html.j2", facts)


def _json(sheet: pl.DataFrame, kind: Kind) -> Markup:
    """The sheet with the cells that its CSV has, and which of them have an apostrophe before."""
    metric = f" It is rated by {sheet['metric'][0]}." if kind == "samples" else ""
    rows = []
    for texts in sheet.rows():
        plain = ["" if text is None else str(text) for text in texts]
        cells = [escape_formula(text) for text in plain]
        pairs = zip(sheet.columns, plain, cells, strict=True)
        rows.append({"cells": cells, "guarded": [name for name, was, now in pairs if was != now]})
    content = {
        "question": _QUESTIONS[kind] + metric,
        "columns": sheet.columns,
        "read": TEXT_COLUMNS[kind],
        "values": VALUES.get(kind, ()),
        "rows": rows,
    }
    # No text can end the script element, or begin a comment in it.
    text = json.dumps(content).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)  # noqa: S704
