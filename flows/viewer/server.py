"""The local web server for reports and SQL."""

import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.pages import Answer, Asked, answered, refused

ADDRESS: Final = "127.0.0.1"
_LONGEST: Final = 100_000
"""Bytes of a form."""

_OPEN: Final = "open the address that `claimflow view` has printed"

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: forms would come without the origin that they are checked by.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class View(ThreadingHTTPServer):
    """Serves a store on the loopback address until it is shut down; never writes to it."""

    daemon_threads = True

    def __init__(self, store: Store, port: int) -> None:
        """Listen on `port`, or on any free one for 0. Raises `InputError` where it is taken."""
        self.store = store
        self.key, self.token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        try:
            super().__init__((ADDRESS, port), _Answering)
        except OSError as error:
            what, hint = f"cannot be used ({error.strerror})", "name another, or 0 for a free one"
            raise InputError([Fault(f"--port {port}", what, hint)]) from error
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}
        # Cookies are for all ports of a host.
        self.cookie = f"claimflow-{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that has gone is no news; anything else is told as ever."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """Where to look, with the key: others who use this machine do not have it."""
        return f"http://{ADDRESS}:{self.server_port}/?key={self.key}"


class _Answering(BaseHTTPRequestHandler):
    server: View
    timeout = 30
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s"

    def do_GET(self) -> None:
        self._send(self._host_refused() or self._let_in() or self._answered({}))

    def do_POST(self) -> None:
        self._send(self._host_refused() or self._form_refused() or self._let_in() or self._taken())

    def version_string(self) -> str:
        """What answers; no version."""
        return "claimflow"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: what people look at is no news."""

    def _host_refused(self) -> Answer | None:
        """A name that somebody else's DNS points here is not ours (DNS rebinding)."""
        if self.headers.get_all("Host", []) in ([host] for host in self.server.hosts):
            return None
        return refused(HTTPStatus.MISDIRECTED_REQUEST, _OPEN)

    def _let_in(self) -> Answer | None:
        """A cookie for who has the key, and a word for who has neither."""
        url, key = urlsplit(self.path), self.server.key
        if _same(_first(url.query).get("key", ""), key):
            cookie = f"{self.server.cookie}={key}; HttpOnly; SameSite=Strict; Path=/"
            seen = refused(HTTPStatus.SEE_OTHER, "the key is in a cookie now")
            return seen._replace(headers={"Set-Cookie": cookie, "Location": "/"})
        cookies = self.headers.get("Cookie", "").split(";")
        if any(_same(cookie.strip(), f"{self.server.cookie}={key}") for cookie in cookies):
            return None
        return refused(HTTPStatus.FORBIDDEN, _OPEN)

    def _form_refused(self) -> Answer | None:
        """A form that another site has sent for the user."""
        mine = f"http://{self.headers['Host']}"
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        if self.headers.get_all("Origin", []) != [mine] or site != "same-origin":
            return refused(HTTPStatus.FORBIDDEN, "the form comes from another site")
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            return refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send a form")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return refused(HTTPStatus.LENGTH_REQUIRED, "say how long the form is")
        if int(length) > _LONGEST:
            words = f"a form has at most {_LONGEST:,} bytes"
            return refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
        return None

    def _taken(self) -> Answer:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        form = _first(content.decode("utf-8", "replace"))
        if not _same(form.get("token", ""), self.server.token):
            words = "the page is from before this server was started: open it again"
            return refused(HTTPStatus.FORBIDDEN, words)
        return self._answered(form)

    def _answered(self, form: dict[str, str]) -> Answer:
        url = urlsplit(self.path)
        asked = Asked(self.command, url.path, _first(url.query), form)
        return answered(self.server.store, asked, token=self.server.token)

    def _send(self, answer: Answer) -> None:
        content = answer.page.encode()
        # What is left of a form that nobody read would be taken for the next request.
        self.close_connection = True
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", answer.policy)
        for name, value in {**_HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _first(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query, max_num_fields=20).items()}


def _same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())
