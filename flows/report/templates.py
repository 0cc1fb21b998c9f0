"""HTML from Jinja templates in which everything is escaped, and content security policies."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from claimflow.flows.report.formatting import (
    escape_controls,
    format_difference,
    format_duration,
    format_number,
    shorten,
)

if TYPE_CHECKING:
    from claimflow.flows.report.vega_lite import Chart


def render_template(package: str, template: str, facts: Mapping[str, Any]) -> str:
    """A template of a package, filled with `facts`; raises for a variable that is missing.

    Text is escaped and its control characters are replaced; only `Markup` is inserted as it is.
    """
    return _environment(package).get_template(template).render(facts)


def render_page(
    template: str,
    facts: Mapping[str, Any],
    *directives: str,
    style: str,
    scripts: Sequence[str],
    charts: bool = False,
    tables: bool = False,
) -> str:
    """A template of the reports as a page that needs no network, with its style and scripts in it.

    With `charts` the scripts that draw them are among these, and with `tables` the libraries of
    tables. Its content security policy allows nothing but these and what `directives` add.
    """
    sheet = asset("claimflow.flows.report", style)
    own = Markup("").join(asset("claimflow.flows.report", name) for name in scripts)
    every = [
        *(chart_scripts() if charts else ()),
        *([asset("claimflow.flows.report", "libraries/tables.js")] if tables else ()),
        own,
    ]
    policy = content_policy(
        script_source(every),
        f"style-src {csp_hash(sheet)}",
        *directives,
        "base-uri 'none'",
        "form-action 'none'",
    )
    values = {**facts, "policy": policy, "style": sheet, "scripts": every}
    return render_template("claimflow.flows.report", template, values)


def asset(package: str, name: str) -> Markup:
    """A style sheet or script of a package, to be inserted into a page as it is."""
    return Markup((files(package) / name).read_text("utf-8"))  # noqa: S704


def chart_scripts() -> list[Markup]:
    """The scripts of a page with charts: Vega-Lite, and what draws the charts by it."""
    names = ("libraries/charts.js", "charts.js")
    return [asset("claimflow.flows.report", name) for name in names]


def script_source(scripts: Sequence[str]) -> str:
    """The directive by which a content security policy allows these scripts alone."""
    return f"script-src {' '.join(map(csp_hash, scripts))}"


def csp_hash(text: str) -> str:
    """The hash by which a content security policy allows a style sheet or a script, in quotes."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def content_policy(*directives: str) -> Markup:
    """A content security policy that forbids all sources except those in `directives`."""
    return Markup("; ".join(("default-src 'none'", *directives)))  # noqa: S704


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(lambda name: str(asset(package, name))),
        finalize=_escape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "address": address,
        "chart": _chart_element,
        "compact": partial(json.dumps, ensure_ascii=False, separators=(",", ":")),
        "cut": shorten,
        "duration": format_duration,
        "number": format_number,
        "signed": format_difference,
    }
    return environment


def address(state: Mapping[str, str]) -> str:
    """The part of a report's address that makes its script show `state`."""
    # Its values are in the page with their control characters replaced.
    return "#" + urlencode({name: escape_controls(value) for name, value in state.items()})


def _chart_element(chart: "Chart", kind: str = "chart") -> Markup:
    """The place of a chart in a page, of the class `kind`; `charts.js` draws it.

    What it would tell stands there as text until then.
    """
    text = json.dumps(chart.spec, ensure_ascii=False, separators=(",", ":"))
    # Shorter than with every quotation mark escaped.
    for letter, escaped in (("&", "&amp;"), ("<", "&lt;"), ("'", "&#39;")):
        text = text.replace(letter, escaped)
    data = Markup(f"data-chart='{text}'")  # noqa: S704, escaped above
    return Markup('<div class="{}" {}><p>{}</p></div>').format(kind, data, chart.about)


def _escape(value: Any) -> Any:
    return (
        escape_controls(value)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )
