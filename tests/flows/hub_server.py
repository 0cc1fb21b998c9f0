"""A server on loopback that implements the model downloads of the Hugging Face Hub."""

import hashlib
import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

Files = Mapping[str, bytes]


def files_of(folder: Path) -> dict[str, bytes]:
    """The files in a folder, by relative path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


class Hub(ThreadingHTTPServer):
    """Models with their commits; `requests` are the method and path of each request.

    `private` models are visible, and `gated` ones downloadable, only with the `token`. `failure`
    is the status of every response. Files of .onnx come from another host, as large files of the
    real Hub do.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.commits: dict[str, dict[str, Files]] = {}
        self.revisions: dict[str, dict[str, str]] = {}
        self.requests: list[str] = []
        self.agents: set[str] = set()
        self.large: dict[str, bytes] = {}
        self.token = "hf_right"
        self.private: set[str] = set()
        self.gated: set[str] = set()
        self.failure: int | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def publish(self, name: str, files: Files, *, revision: str = "main") -> str:
        """Make `revision` a commit with these files; returns the commit id."""
        content = b"".join(key.encode() + value for key, value in sorted(files.items()))
        commit = hashlib.sha1(name.encode() + content).hexdigest()
        self.commits.setdefault(name, {})[commit] = files
        self.revisions.setdefault(name, {})[revision] = commit
        return commit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, urlsplit(self.path).path
        hub.requests.append(f"{self.command} {path}")
        hub.agents.add(self.headers.get("user-agent", ""))
        if hub.failure is not None:
            return self._send(hub.failure)
        if path.startswith("/large/"):
            # The token must not be sent to another host.
            has_token = self.headers.get("authorization") is not None
            return self._send(400) if has_token else self._send(200, hub.large[path])
        listing = path.startswith("/api/models/")
        owner, name, _, *rest = path.removeprefix("/api/models").strip("/").split("/")
        return self._model(f"{owner}/{name}", rest, listing=listing)

    def _model(self, name: str, rest: list[str], *, listing: bool) -> None:
        hub, token = self.server, self.headers.get("authorization")
        if token is not None and token != f"Bearer {hub.token}":
            message = "Invalid credentials in Authorization header"
            return self._send(401, **{"X-Error-Message": message})
        if name not in hub.commits or (name in hub.private and token is None):
            # Without a token, a private model looks like a missing one.
            return self._send(401) if token is None else self._send(404, **_code("RepoNotFound"))
        revision, file = unquote(rest[0]), "/".join(rest[1:])
        commit = hub.revisions[name].get(revision, revision)
        files = hub.commits[name].get(commit)
        if files is None:
            return self._send(404, **_code("RevisionNotFound"))
        if listing:
            siblings = [{"rfilename": key, "size": len(value)} for key, value in files.items()]
            info = {"id": name, "sha": commit, "siblings": siblings}
            return self._send(200, json.dumps(info).encode())
        if name in hub.gated and token is None:
            return self._send(401, **_code("GatedRepo"))
        return self._file(files.get(file), file, commit)

    def _file(self, content: bytes | None, file: str, commit: str) -> None:
        headers = {"X-Repo-Commit": commit}
        if content is None:
            return self._send(404, **headers, **_code("EntryNotFound"))
        headers["ETag"] = f'"{_etag(content)}"'
        if not file.endswith(".onnx"):
            return self._send(200, content, **headers)
        headers |= {"X-Linked-Size": str(len(content)), "X-Linked-ETag": headers["ETag"]}
        path = f"/large/{_etag(content)}"
        self.server.large[path] = content
        where = f"http://localhost:{self.server.server_address[1]}{path}"
        return self._send(302, **headers, Location=where)

    def _send(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _code(code: str) -> dict[str, str]:
    return {"X-Error-Code": code}


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """A Hub without models."""
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


@contextmanager
def hub_settings(**settings: str) -> Iterator[None]:
    """Reload the settings of the Hub's library from this environment, and restore them."""
    constants = importlib.import_module("huggingface_hub.constants")
    with pytest.MonkeyPatch.context() as patch:
        for key in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE"):
            patch.delenv(key, raising=False)
        for key, value in {"NO_PROXY": "*", **settings}.items():
            patch.setenv(key, value)
        importlib.reload(constants)
        yield
    importlib.reload(constants)
