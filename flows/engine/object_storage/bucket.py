"""One bucket: its objects listed, fetched, put and removed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.object_storage.address import Address
from claimflow.flows.engine.object_storage.troubles import trouble

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import S3Config

_BLOCK: Final = 16 << 20
"""Bytes asked for at a time: what memory holds of an object."""

_RETRIES: Final = 6
_PATIENCE: Final = timedelta(seconds=60)


class Bucket:
    """The bucket of an address, with the keys and the endpoint that the environment names.

    What fails for the moment is tried again, six times within a minute; every method raises
    `InputError` for what fails still, and so does the making of one for settings that are none.
    """

    def __init__(self, place: Address) -> None:
        self._place = place
        config: S3Config = {}
        endpoint = _endpoint()
        if endpoint:
            config["endpoint"] = endpoint
        self._host = urlsplit(endpoint).netloc or "AWS"
        with self._told(place.key):
            self._store = S3Store(
                place.bucket,
                config=config,
                client_options={"allow_http": endpoint.startswith("http://")},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
            )

    def versions(self, prefix: str) -> dict[str, str | None]:
        """Key -> version (ETag) of every object below `prefix`, in the order of the keys."""
        with self._told(prefix):
            found = [meta for some in obstore.list(self._store, prefix) for meta in some]
        return {meta["path"]: meta["e_tag"] for meta in sorted(found, key=lambda m: m["path"])}

    def fetch(self, key: str, path: Path, *, version: str | None = None) -> None:
        """Copy an object to a file, block by block, all of it of one version.

        Where `version` is given it is that one. Raises `OSError` where the file cannot be
        written.
        """
        with self._told(key):
            whole = self._asked(key, version)
            size, version = whole.meta["size"], whole.meta["e_tag"]
            block = whole.bytes() if size <= _BLOCK else None
        with path.open("wb") as file:
            if block is not None:
                file.write(block)
                return
            for start in range(0, size, _BLOCK):
                with self._told(key):
                    block = self._asked(key, version, (start, min(start + _BLOCK, size))).bytes()
                file.write(block)

    def put(self, key: str, content: Path | bytes) -> None:
        """Put an object, which appears whole or not at all, in place of an older one."""
        with self._told(key):
            obstore.put(self._store, key, content)

    def remove(self, key: str) -> None:
        """Remove an object, if there is one."""
        with self._told(key):
            obstore.delete(self._store, key)

    def _asked(
        self, key: str, version: str | None, span: tuple[int, int] | None = None
    ) -> "GetResult":
        options: GetOptions = {}
        if version is not None:
            options["if_match"] = version
        if span is not None:
            options["range"] = span
        return obstore.get(self._store, key, options=options)

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            # Its own text is left behind: it is long, and nobody vouches for what is in it.
            place = self._place._replace(key=key)
            raise InputError([trouble(place, self._host, error)]) from None


def _endpoint() -> str:
    """The server that the environment names; empty for AWS itself."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        endpoint = os.environ.get(name)
        if endpoint is None:
            continue
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc:
            return endpoint
        right = "write one as https://storage.example:9000, or none for AWS"
        raise InputError([Fault(name, "is no address of a server", right)])
    return ""
