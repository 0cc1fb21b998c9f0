"""Templates: values are escaped, a missing value raises, policies are exact."""

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from claimflow.flows.report.templates import asset, content_policy, csp_hash, render_template

FACTS = {
    "title": "Two & two",
    "messages": ["<b>one</b> & \u202etwo\x1b"],
    "style": Markup("p > a {}"),
    "scripts": (),
}


def test_text_is_escaped_and_markup_is_not() -> None:
    page = render_template("claimflow.flows.viewer", "error.html.j2", FACTS)
    assert "&lt;b&gt;one&lt;/b&gt; &amp; " in page
    assert "<style>p > a {}</style>" in page
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_a_missing_value_raises() -> None:
    with pytest.raises(UndefinedError, match="'style' is undefined"):
        render_template("claimflow.flows.viewer", "error.html.j2", {"title": "Two", "messages": []})


def test_a_policy_allows_only_what_is_named() -> None:
    # printf 'a {}' | openssl sha256 -binary | base64
    assert csp_hash("a {}") == "'sha256-mkSHzL7faOU7/U/v8Umg+058R69+vN2A2xmE3Fz1q98='"
    assert content_policy("style-src 'self'", "img-src data:") == (
        "default-src 'none'; style-src 'self'; img-src data:"
    )


def test_assets_are_package_files() -> None:
    assert "localStorage" in asset("claimflow.flows.report", "form.js")
