"""`claimflow view` for tests: a server, a client, and a page that may complain of nothing."""

import http.client
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page

from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.flows.browser import PATIENCE


@contextmanager
def serving(store: Store) -> Iterator[ViewServer]:
    """A server of a store until the end of the block."""
    with ViewServer(store, 0) as view:
        thread = threading.Thread(target=view.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield view
        finally:
            view.shutdown()
            thread.join()


@contextmanager
def watched_page(
    browser: Browser, *, forgiven: Collection[str] = (), **settings: Any
) -> Iterator[Page]:
    """A page of a context of its own; the browser may complain only of what is `forgiven`."""
    context = browser.new_context(**settings)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert set(complaints) <= set(forgiven)
    context.close()


class Client:
    """A minimal HTTP client."""

    def __init__(self, view: ViewServer) -> None:
        self.view = view
        self.host = f"127.0.0.1:{view.server_port}"
        self.cookie = f"claimflow-{view.server_port}={view.key}"

    def ask(
        self, path: str, *, method: str = "GET", body: str | None = None, **headers: str | None
    ) -> tuple[int, str, http.client.HTTPMessage]:
        """Status, text and headers; a header of None is left out."""
        status, content, answered = self._ask(path, method, body, headers)
        return status, content.decode(), answered

    def follow(self, path: str) -> tuple[int, str]:
        """Status and text of a page, where a redirect leads to."""
        status, text, headers = self.ask(path)
        return (status, text) if status != 303 else self.ask(headers["Location"])[:2]

    def content(self, path: str) -> bytes:
        """The bytes of a file."""
        return self._ask(path, "GET", None, {})[1]

    def _ask(
        self, path: str, method: str, body: str | None, headers: Mapping[str, str | None]
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.view.server_port, timeout=120)
        sent: dict[str, str | None] = {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if body is not None:
            form: dict[str, str | None] = {
                "Origin": f"http://{self.host}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Content-Length": str(len(body.encode())),
            }
            sent = form | sent
        connection.putrequest(method, path, skip_host=True)
        usual: dict[str, str | None] = {"Host": self.host, "Cookie": f"other=1; {self.cookie}"}
        for name, value in (usual | sent).items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body.encode() if body else None)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content, answer.headers

    def sql(self, query: str, **headers: str | None) -> tuple[int, str]:
        body = urlencode({"token": self.view.token, "sql": query})
        return self.ask("/sql", method="POST", body=body, **headers)[:2]
