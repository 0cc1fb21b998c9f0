"""Objects on S3 and compatible storage: addresses, transfers and errors.

obstore transfers the bytes. Polars reads S3 by itself, but asks for the ranges of a Parquet file
without naming a version: where an object was replaced meanwhile, it returned rows of both
versions without an error. It also cannot list object names, and the form of CSV files and JSON
arrays is checked by DuckDB, which reads no S3 as it is shipped.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import S3Config

_ADDRESS: Final = re.compile(r"s3://(?P<bucket>[a-zA-Z0-9._-]+)(?:/(?P<key>[^\x00-\x1f\x7f]*))?")
_QUERY: Final = re.compile(r"\?[\w.-]+=")

_BLOCK: Final = 16 << 20
"""Bytes per request: the part of an object that is held in memory."""

_RETRIES: Final = 6
_RETRY_TIMEOUT: Final = timedelta(seconds=60)


class Address(NamedTuple):
    """An object, or all objects whose keys begin with `key` and a slash."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def below(self, *names: str) -> "Address":
        """The address with `names` appended to its key."""
        return self._replace(key="/".join(filter(None, [self.key.strip("/"), *names])))


def is_remote(location: str) -> bool:
    """Whether `location` is an address of any scheme rather than a path."""
    return "://" in location


def valid_location(location: str) -> str:
    """`location`, a path or an S3 address, unchanged; raises `ValueError` if it is neither.

    The message does not quote the location, which may hold a secret.
    """
    if not is_remote(location):
        return valid_path(location)
    host = location.partition("://")[2].partition("/")[0]
    # A secret may hold slashes, so that the @ is behind the first one: then a colon shows it.
    if "@" in host or ":" in host or _QUERY.search(location):
        raise ValueError("keys and endpoints belong in the environment, not into an address")
    _match_address(location)
    return location


def valid_path(path: str) -> str:
    """`path` unchanged; raises `ValueError` for one that no file can have."""
    if not path.strip() or "\0" in path:
        raise ValueError("write a path, relative to this file")
    return path


def parse_address(location: str) -> Address:
    """The address in `location`; raises `InputError` where `valid_location` raises."""
    try:
        return _match_address(valid_location(location))
    except ValueError as error:
        shown = f"{location.partition('://')[0]}://..."
        raise InputError([Fault(shown, "is not valid", str(error))]) from None


def _match_address(location: str) -> Address:
    found = _ADDRESS.fullmatch(location)
    parts = (found["key"] or "").split("/") if found else []
    # No part may be empty, . or ..: clients and servers drop such parts.
    if found is None or {"", ".", ".."}.intersection(parts[:-1]) or parts[-1] in (".", ".."):
        raise ValueError("write a path, or an address as s3://bucket/key")
    return Address(found["bucket"], found["key"] or "")


class Bucket:
    """The bucket of an address, reached with the keys and the endpoint in the environment.

    Temporary failures are retried, six times within a minute. Every method raises `InputError`
    for a failure that remains. So does the constructor, which sends no request, where obstore is
    not installed or the settings in the environment are invalid.
    """

    def __init__(self, address: Address) -> None:
        try:
            from obstore.store import S3Store
        except ImportError:
            what, hint = "obstore is not installed", "run: pip install 'claimflow[s3]'"
            raise InputError([Fault(str(address), what, hint)]) from None
        self._address = address
        config: S3Config = {}
        endpoint = _endpoint()
        if endpoint:
            config["endpoint"] = endpoint
        self._host = urlsplit(endpoint).netloc or "AWS"
        with self._translated_errors(address.key):
            self._store = S3Store(
                address.bucket,
                config=config,
                client_options={"allow_http": endpoint.startswith("http://")},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
            )

    def versions(self, prefix: str) -> dict[str, str | None]:
        """Key -> version (ETag) of every object below `prefix`, in the order of the keys."""
        with self._translated_errors(prefix):
            import obstore

            found = [meta for page in obstore.list(self._store, prefix) for meta in page]
        return {meta["path"]: meta["e_tag"] for meta in sorted(found, key=lambda m: m["path"])}

    def fetch(self, key: str, path: Path, *, version: str | None = None) -> None:
        """Copy an object to a file, block by block, all blocks of one version.

        `version` says which one; None takes the current one. Raises `OSError` where the file
        cannot be written.
        """
        with self._translated_errors(key):
            whole = self._get(key, version)
            size, version = whole.meta["size"], whole.meta["e_tag"]
            block = whole.bytes() if size <= _BLOCK else None
        with path.open("wb") as file:
            if block is not None:
                file.write(block)
                return
            for start in range(0, size, _BLOCK):
                with self._translated_errors(key):
                    block = self._get(key, version, (start, min(start + _BLOCK, size))).bytes()
                file.write(block)

    def read(self, key: str) -> bytes:
        """The content of an object, all of it in memory."""
        with self._translated_errors(key):
            return bytes(self._get(key, None).bytes())

    def put(self, key: str, content: Path | bytes) -> None:
        """Write an object, which appears whole or not at all, and replaces an older one."""
        with self._translated_errors(key):
            import obstore

            obstore.put(self._store, key, content)

    def remove(self, *keys: str) -> None:
        """Remove objects, as far as there are any."""
        if not keys:
            return
        with self._translated_errors(keys[0]):
            import obstore

            obstore.delete(self._store, keys)

    def _get(
        self, key: str, version: str | None, span: tuple[int, int] | None = None
    ) -> "GetResult":
        options: GetOptions = {}
        if version is not None:
            options["if_match"] = version
        if span is not None:
            options["range"] = span
        import obstore

        return obstore.get(self._store, key, options=options)

    @contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            # The error is not chained: its text is long and may hold a secret.
            address = self._address._replace(key=key)
            raise InputError([_storage_fault(address, self._host, error)]) from None


def _endpoint() -> str:
    """The endpoint URL in the environment; empty for AWS itself."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        endpoint = os.environ.get(name)
        if endpoint is None:
            continue
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc:
            return endpoint
        hint = "write one as https://storage.example:9000, or none for AWS"
        raise InputError([Fault(name, "is not the URL of a server", hint)])
    return ""


_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")

_KEYS: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_NO_KEYS: Final = re.compile(r"/latest/(api/token|meta-data)|Missing(AccessKeyId|SecretAccessKey)")
"""Without keys in the environment obstore asks the cloud machine's metadata service for them."""

_BAD_CREDENTIALS: Final = frozenset(
    "ExpiredToken InvalidAccessKeyId InvalidToken SignatureDoesNotMatch".split()
)
_OTHER_REGION: Final = frozenset("AuthorizationHeaderMalformed PermanentRedirect".split())


def _storage_fault(address: Address, host: str, error: Exception) -> Fault:
    """The fault for a failed request to the server `host`.

    Of the error's text only the HTTP status and the S3 error code are used, since the rest may
    hold a secret.
    """
    text = str(error)
    code = match[1] if (match := _CODE.search(text)) else ""
    status = match[1] if (match := _STATUS.search(text)) else ""
    if _NO_KEYS.search(text):
        what, hint = "there are no credentials", f"set {_KEYS} in the environment"
    elif isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
        what, hint = "no such object", f"the bucket looked in is at {host}"
    elif status:
        what, hint = _status_fault(address, host, code, status)
    elif "error sending request" in text:
        what, hint = f"no server answers at {host}", "start it, or correct AWS_ENDPOINT_URL"
    elif "body" in text:
        what, hint = f"the connection to {host} was lost", "run again"
    else:
        what, hint = "the request failed", "correct what begins with AWS_ in the environment"
    return Fault(str(address), what, hint)


def _status_fault(address: Address, host: str, code: str, status: str) -> tuple[str, str]:
    """(what, hint) for an HTTP status that is an error, and an S3 error code or ""."""
    reason = f" ({code})" if code else ""
    if code == "NoSuchBucket":
        return f"there is no bucket {address.bucket!r} at {host}", "make it, or correct the name"
    if code in _BAD_CREDENTIALS or status == "401":
        return f"{host} refuses the credentials{reason}", f"correct {_KEYS}"
    if code in _OTHER_REGION or status.startswith("3"):
        return f"{host} says that the bucket is elsewhere{reason}", "set AWS_REGION to its region"
    if status == "403":
        return f"no permission{reason}", "grant it to the keys in the environment"
    if status == "412":
        return "changed while it was read", "run again when it is no longer being written"
    return f"{host} answers {status}{reason}", "run again later"
