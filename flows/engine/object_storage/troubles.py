"""What S3, or the way to it, answers instead of an object -> a fault without secrets."""

import re
from typing import Final

from claimflow.flows.engine.errors import Fault
from claimflow.flows.engine.object_storage.address import Address

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
        what, right = "there are no credentials", f"set {_KEYS} in the environment"
    elif isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
        what, right = "no such object", f"the bucket looked in is at {host}"
    elif status:
        what, right = _answer(place, host, code, status)
    elif "error sending request" in text:
        what, right = f"no server answers at {host}", "start it, or correct AWS_ENDPOINT_URL"
    elif "body" in text:
        what, right = f"the connection to {host} was lost", "run again"
    else:
        what, right = "cannot be asked for", "correct what begins with AWS_ in the environment"
    return Fault(str(place), what, right)


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
