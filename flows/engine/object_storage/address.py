"""Addresses on object storage: `s3://bucket/key`, without anything secret."""

import re
from typing import Final, NamedTuple

from claimflow.flows.engine.errors import Fault, InputError

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
