"""Objects on S3 and compatible storage: addresses, transfers and errors."""

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


# Addresses on object storage: `s3://bucket/key`, without anything secret.


_ADDRESS: Final = re.compile(r"s3://(?P<bucket>[a-zA-Z0-9._-]+)(?:/(?P<key>[^\x00-\x1f\x7f]*))?")
_QUERY: Final = re.compile(r"\?[\w.-]+=")


class Address(NamedTuple):
    """An object, or all whose keys begin with `key` and a slash."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def below(self, *names: str) -> "Address":
        """The address of what lies below this one."""
        return self._replace(key="/".join(filter(None, [self.key.strip("/"), *names])))


def is_remote(place: str) -> bool:
    """Whether `place` is an address of whatever kind, and no path."""
    return "://" in place


def known_place(place: str) -> str:
    """`place`, a path or an address, as it is; raises `ValueError` for one that will not do.

    The message holds nothing of it, as it may hold a secret.
    """
    if not is_remote(place):
        return local_path(place)
    host = place.partition("://")[2].partition("/")[0]
    # A secret may hold slashes: a colon gives it away where the @ is behind one.
    if "@" in host or ":" in host or _QUERY.search(place):
        raise ValueError("keys and endpoints belong in the environment, not into an address")
    _parsed(place)
    return place


def local_path(path: str) -> str:
    """`path` as it is; raises `ValueError` for one that nothing on a disk can have."""
    if not path.strip() or "\0" in path:
        raise ValueError("write a path, relative to this file")
    return path


def address(place: str) -> Address:
    """The address that `place` is; raises `InputError` where `known_place` refuses it."""
    try:
        return _parsed(known_place(place))
    except ValueError as error:
        shown = f"{place.partition('://')[0]}://..."
        raise InputError([Fault(shown, "is not right", str(error))]) from None


def _parsed(place: str) -> Address:
    found = _ADDRESS.fullmatch(place)
    parts = (found["key"] or "").split("/") if found else []
    # No part may be empty, . or ..: such names are lost on the way.
    if found is None or {"", ".", ".."}.intersection(parts[:-1]) or parts[-1] in (".", ".."):
        raise ValueError("write a path, or an address as s3://bucket/key")
    return Address(found["bucket"], found["key"] or "")


# What S3, or the way to it, answers instead of an object -> a fault without secrets.


_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")

_KEYS: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_NO_KEYS: Final = re.compile(r"/latest/(api/token|meta-data)|Missing(AccessKeyId|SecretAccessKey)")
"""A machine in a cloud is asked for its keys, at such addresses, when the environment has none."""

_REFUSED: Final = frozenset(
    "ExpiredToken InvalidAccessKeyId InvalidToken SignatureDoesNotMatch".split()
)
_ELSEWHERE: Final = frozenset("AuthorizationHeaderMalformed PermanentRedirect".split())


def trouble(place: Address, host: str, error: Exception) -> Fault:
    """The fault that `error` is; `host` is the server that was asked.

    Nothing of the error's text is in it but the status and S3's own word for what is wrong.
    """
    text = str(error)
    code, status = (found[1] if (found := one.search(text)) else "" for one in (_CODE, _STATUS))
    if _NO_KEYS.search(text):
        what, hint = "there are no credentials", f"set {_KEYS} in the environment"
    elif isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
        what, hint = "no such object", f"the bucket looked in is at {host}"
    elif status:
        what, hint = _answer(place, host, code, status)
    elif "error sending request" in text:
        what, hint = f"no server answers at {host}", "start it, or correct AWS_ENDPOINT_URL"
    elif "body" in text:
        what, hint = f"the connection to {host} was lost", "run again"
    else:
        what, hint = "cannot be asked for", "correct what begins with AWS_ in the environment"
    return Fault(str(place), what, hint)


def _answer(place: Address, host: str, code: str, status: str) -> tuple[str, str]:
    """(what is wrong, what would be right) where the server answered with another status."""
    reason = f" ({code})" if code else ""
    if code == "NoSuchBucket":
        return f"there is no bucket {place.bucket!r} at {host}", "make it, or correct the name"
    if code in _REFUSED or status == "401":
        return f"{host} refuses the credentials{reason}", f"correct {_KEYS}"
    if code in _ELSEWHERE or status.startswith("3"):
        return f"{host} says that the bucket is elsewhere{reason}", "set AWS_REGION to its region"
    if status == "403":
        return f"no permission{reason}", "permit it to the keys in the environment"
    if status == "412":
        return "changed while it was read", "run again when nobody writes it"
    return f"{host} answers {status}{reason}", "run again when it is well"


# One bucket: its objects listed, fetched, put and removed.


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
        from obstore.store import S3Store

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
            import obstore

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
            import obstore

            obstore.put(self._store, key, content)

    def remove(self, key: str) -> None:
        """Remove an object, if there is one."""
        with self._told(key):
            import obstore

            obstore.delete(self._store, key)

    def _asked(
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
    def _told(self, key: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

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
        hint = "write one as https://storage.example:9000, or none for AWS"
        raise InputError([Fault(name, "is no address of a server", hint)])
    return ""


# A bucket by its address, where the part of claimflow that S3 needs is installed.


def open_bucket(place: Address) -> "Bucket":
    """The bucket of `place`, of which nothing has been asked yet.

    Raises `InputError` where obstore is not installed or the environment's settings are none.
    """
    try:
        import obstore  # noqa: F401
    except ImportError:
        what, hint = "obstore is not installed", "pip install 'claimflow[s3]'"
        raise InputError([Fault(str(place), what, hint)]) from None
    return Bucket(place)


# Objects on S3, and on whatever speaks as it does: where they are, and what is done with them.
#
# obstore moves the bytes. Polars reads S3 by itself, but asks for a Parquet file in ranges that
# name no version: of an object that was written anew meanwhile it gave rows of both, without a
# word. It has no names of objects to give either, and the form of CSV and JSON arrays is checked
# by DuckDB, which reads no S3 as it is shipped.
