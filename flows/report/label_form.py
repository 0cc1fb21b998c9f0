"""A label sheet as an HTML page in which people set the labels."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl
from markupsafe import Markup

from claimflow.flows.quality.csv_sheets import escape_formula
from claimflow.flows.quality.label_sheets import TEXT_COLUMNS
from claimflow.flows.quality.labels import Kind
from claimflow.flows.report.templates import render_page

_QUESTIONS: Final[Mapping[Kind, str]] = {
    "verdicts": "Does the premise say what the claim says, deny it, or neither?",
    "checks": "Does what the criterion says hold for these texts?",
    "claims": "Does the text say what the claim says, and can the claim be understood alone?",
    "samples": "How good is the response?",
}


def label_page(sheet: pl.DataFrame, kind: Kind, values: Sequence[str]) -> str:
    """The page of a blind sheet of that kind, which needs no network and sends nothing.

    `values` are the labels to choose from; without any a number from 0 to 1 is given.

    The texts are embedded as JSON and shown as plain text; the content security policy allows
    only the page's own script and style sheet. The page saves the sheet as the CSV that
    `claimflow label import` reads.
    """
    facts = {"sheet": _json(sheet, kind, values)}
    return render_page("form.html.j2", facts, style="form.css", scripts=["form.js"])


def _json(sheet: pl.DataFrame, kind: Kind, values: Sequence[str]) -> Markup:
    """The sheet with its CSV cells; `guarded` names those with an apostrophe before a formula."""
    metric = f" It is rated by {sheet['metric'][0]}." if kind == "samples" else ""
    rows = []
    for texts in sheet.rows():
        plain = ["" if text is None else str(text) for text in texts]
        cells = [escape_formula(value) for value in plain]
        pairs = zip(sheet.columns, plain, cells, strict=True)
        guarded = [name for name, value, cell in pairs if value != cell]
        rows.append({"cells": cells, "guarded": guarded})
    content = {
        "question": _QUESTIONS[kind] + metric,
        "columns": sheet.columns,
        "read": TEXT_COLUMNS[kind],
        "values": values,
        "rows": rows,
    }
    # So that no text can end the script element or begin a comment in it.
    text = json.dumps(content).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)  # noqa: S704
