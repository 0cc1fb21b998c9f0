"""The local web server for reports and SQL: authentication, request checks, headers."""

import secrets
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.store.read_copy import refresh_read_copy
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.labelling import STORE_SECONDS, live_store
from claimflow.flows.viewer.pages import WRITTEN, handle_request
from claimflow.flows.viewer.responses import Request, Response, error_response

ADDRESS: Final = "127.0.0.1"

_MAX_FORM_BYTES: Final = 100_000

_NOT_AUTHENTICATED: Final = "open the address that `claimflow view` has printed"

_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: browsers would send forms without the origin that is checked.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _ReadCopy:
    """Brings the read copy of a store up to date after what the viewer wrote to the store."""

    _PAUSE: Final = 2.0
    """Seconds without a label after which the copy is written: the next label would wait for it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._copying, self._guard = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None

    def renew_after_pause(self) -> None:
        """Write the copy when this has not been called for a moment; returns at once."""
        with self._guard:
            if self._timer:
                self._timer.cancel()
            self._timer = threading.Timer(self._PAUSE, self.renew_if_due)
            self._timer.daemon = True
            self._timer.start()

    def renew_if_due(self) -> None:
        """Write the copy now if it would be written after a pause; wait while it is written."""
        with self._copying:
            with self._guard:
                timer, self._timer = self._timer, None
            if timer:
                timer.cancel()
                self._renew()

    def renew(self) -> None:
        """Write the copy now."""
        with self._copying:
            self._renew()

    def _renew(self) -> None:
        refresh_read_copy(live_store(self._store))


class ViewServer(ThreadingHTTPServer):
    """Serves a store on the loopback address until it is shut down.

    It writes nothing but labels and tags, and the read copy after them.

    `key` authenticates a browser, `token` protects forms against cross-site request forgery.
    """

    daemon_threads = True

    _CLOSE_SECONDS: Final = 5.0
    """How long requests that are being answered may still take when the server ends."""

    def __init__(self, store: Store, port: int) -> None:
        """Listen on `port`, or on any free one for 0. Raises `InputError` where it is in use."""
        self.store = store
        # A reader waits in front of a blank page.
        store.wait = min(store.wait, STORE_SECONDS)
        self._changed = threading.Condition()
        self._answering = 0
        self.read_copy = _ReadCopy(store)
        self.key, self.token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        try:
            super().__init__((ADDRESS, port), _RequestHandler)
        except OSError as error:
            what, hint = f"cannot be used ({error.strerror})", "name another, or 0 for a free one"
            raise InputError([Fault(f"--port {port}", what, hint)]) from error
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}
        # Browsers share the cookies of a host among its ports.
        self.cookie = f"claimflow-{self.server_port}"

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As in `ThreadingMixIn`; counted, for `server_close`."""
        with self._changed:
            self._answering += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._answering -= 1
                self._changed.notify_all()

    def server_close(self) -> None:
        """Close the socket, and wait for requests: native code must not outlive the interpreter."""
        super().server_close()
        with self._changed:
            self._changed.wait_for(lambda: self._answering == 0, self._CLOSE_SECONDS)
        self.read_copy.renew_if_due()

    @property
    def url(self) -> str:
        """The URL to open; it contains the key, which other users of the machine lack."""
        return f"http://{ADDRESS}:{self.server_port}/?key={self.key}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Report errors, except that a browser has closed its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _BadRequestError(Exception):
    """The request cannot be read."""


class _RequestHandler(BaseHTTPRequestHandler):
    server: ViewServer
    timeout = 30
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s"

    def do_GET(self) -> None:
        self._answer(self._check_host, self._authenticate, lambda: self._handle({}))

    def do_POST(self) -> None:
        self._answer(
            self._check_host, self._check_form_headers, self._authenticate, self._handle_form
        )

    def _answer(self, *steps: Callable[[], Response | None]) -> None:
        """Send the response of the first step that has one."""
        try:
            response = next(filter(None, (step() for step in steps)))
        except _BadRequestError as error:
            response = error_response(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:
            # A fault of claimflow: the page and the terminal say which, and other pages go on.
            what = escape_controls(f"{type(error).__name__}: {error}"[:500])
            where = escape_controls(f"{self.command} {self.path[:200]}")
            print(f"claimflow: {where}: {what}", file=sys.stderr)
            response = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, what)
        self._send(response)

    def version_string(self) -> str:
        """The Server header, without a version."""
        return "claimflow"

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""

    def _check_host(self) -> Response | None:
        """Refuse host names of others that resolve to this address (DNS rebinding)."""
        if self.headers.get_all("Host", []) in ([host] for host in self.server.hosts):
            return None
        return error_response(HTTPStatus.MISDIRECTED_REQUEST, _NOT_AUTHENTICATED)

    def _authenticate(self) -> Response | None:
        """Accept the cookie with the key, or exchange the key in the URL for the cookie."""
        url, key = _split(self.path), self.server.key
        if _equal(_first_values(url.query).get("key", ""), key):
            cookie = f"{self.server.cookie}={key}; HttpOnly; SameSite=Strict; Path=/"
            redirect = error_response(HTTPStatus.SEE_OTHER, "the key is in a cookie now")
            return redirect._replace(headers={"Set-Cookie": cookie, "Location": "/"})
        cookies = self.headers.get("Cookie", "").split(";")
        if any(_equal(cookie.strip(), f"{self.server.cookie}={key}") for cookie in cookies):
            return None
        return error_response(HTTPStatus.FORBIDDEN, _NOT_AUTHENTICATED)

    def _check_form_headers(self) -> Response | None:
        """Refuse forms that another site submits, and requests that are no form."""
        origin = f"http://{self.headers['Host']}"
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        if self.headers.get_all("Origin", []) != [origin] or site != "same-origin":
            return error_response(HTTPStatus.FORBIDDEN, "the form comes from another site")
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            return error_response(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send a form")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return error_response(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length")
        if len(length) > len(str(_MAX_FORM_BYTES)) or int(length) > _MAX_FORM_BYTES:
            message = f"a form has at most {_MAX_FORM_BYTES:,} bytes"
            return error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        return None

    def _handle_form(self) -> Response:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        form = _first_values(content.decode("utf-8", "replace"))
        if not _equal(form.get("token", ""), self.server.token):
            message = "the page is from before this server was started: open it again"
            return error_response(HTTPStatus.FORBIDDEN, message)
        return self._handle(form)

    def _handle(self, form: dict[str, str]) -> Response:
        url = urlsplit(self.path)
        request = Request(self.command, url.path, _first_values(url.query), form)
        server = self.server
        labels = url.path.startswith("/label")
        if not labels:
            # The other pages read the copy.
            server.read_copy.renew_if_due()
        response = handle_request(server.store, request, token=server.token)
        if self.command == "POST" and url.path in WRITTEN and response.status == HTTPStatus.OK:
            # Commands read the copy. A label must not wait for it.
            if labels:
                server.read_copy.renew_after_pause()
            else:
                server.read_copy.renew()
        return response

    def _send(self, response: Response) -> None:
        body = response.body
        content = body if isinstance(body, bytes) else body.encode()
        # The unread rest of a form would be parsed as the next request.
        self.close_connection = True
        self.send_response(response.status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", response.policy)
        for name, value in {**_HEADERS, **response.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _first_values(query: str) -> dict[str, str]:
    """The first value of each parameter of a query string or form."""
    try:
        return {name: values[0] for name, values in parse_qs(query, max_num_fields=20).items()}
    except ValueError:
        raise _BadRequestError("a request has at most 20 parameters") from None


def _split(path: str) -> SplitResult:
    try:
        return urlsplit(path)
    except ValueError:
        raise _BadRequestError("the address cannot be read") from None


def _equal(given: str, secret: str) -> bool:
    """Compare in constant time."""
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())
