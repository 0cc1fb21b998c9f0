"""A label sheet as an HTML page in which people set the labels: a file, or a page of the viewer."""

import json
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from claimflow.flows.quality.csv_sheets import escape_formula
from claimflow.flows.quality.label_sheets import TEXT_COLUMNS, UNSURE, DrawnRows, label_sheet
from claimflow.flows.quality.labels import Kind
from claimflow.flows.report.templates import render_page

_QUESTIONS: Final[Mapping[Kind, str]] = {
    "verdicts": "Does the premise say what the claim says, deny it, or neither?",
    "checks": "Does what the criterion says hold for these texts?",
    "claims": "Does the text say what the claim says, and can the claim be understood alone?",
    "samples": "How good is the response?",
}


def label_page(drawn: DrawnRows, server: Mapping[str, Any] | None = None) -> str:
    """The page in which the drawn rows are labelled, without what the judge says.

    Rows with the same texts are shown once. As a file it needs no network and saves the sheet as
    the CSV that `claimflow label import` reads. With `server` it is a page of `claimflow view`,
    whose script sends each label to it: `who` labels, the `address` of the sheet, the `token` of
    forms, the labels `given` before by row, whether it `adjudicates`, and the `rows` to show.

    The texts are embedded as JSON and shown as plain text; the content security policy allows
    only the page's own script and style sheet, and requests to the server.
    """
    facts = {"sheet": _json(drawn, server), "server": server is not None}
    directives = ["connect-src 'self'"] if server is not None else []
    return render_page(
        "form.html.j2", facts, *directives, style="form.css", scripts=["csv.js", "form.js"]
    )


def _json(drawn: DrawnRows, server: Mapping[str, Any] | None) -> Markup:
    """The sheet with its CSV cells; `guarded` names those with an apostrophe before a formula.

    `same` is the number of the first row with the same texts.
    """
    target = drawn.target
    sheet = label_sheet(drawn)
    metric = f" It is rated by {target.metric}." if target.metric else ""
    first: dict[str, int] = {}
    rows = []
    for number, (texts, (row, _)) in enumerate(zip(sheet.rows(), drawn.rows, strict=True)):
        plain = ["" if text is None else str(text) for text in texts]
        cells = [escape_formula(value) for value in plain]
        pairs = zip(sheet.columns, plain, cells, strict=True)
        guarded = [name for name, value, cell in pairs if value != cell]
        same = first.setdefault(row["subject"], number)
        rows.append({"cells": cells, "guarded": guarded, "same": same})
    content = {
        "question": _QUESTIONS[target.kind] + metric,
        "columns": sheet.columns,
        "read": TEXT_COLUMNS[target.kind],
        "values": target.values or (),
        "unsure": UNSURE,
        "rows": rows,
        "server": server,
    }
    # So that no text can end the script element or begin a comment in it.
    text = json.dumps(content).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)  # noqa: S704
