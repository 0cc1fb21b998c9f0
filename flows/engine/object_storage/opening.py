"""A bucket by its address, where the part of claimflow that S3 needs is installed."""

from typing import TYPE_CHECKING

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.object_storage.address import Address

if TYPE_CHECKING:
    from claimflow.flows.engine.object_storage.bucket import Bucket


def open_bucket(place: Address) -> "Bucket":
    """The bucket of `place`, of which nothing has been asked yet.

    Raises `InputError` where obstore is not installed or the environment's settings are none.
    """
    try:
        from claimflow.flows.engine.object_storage.bucket import Bucket
    except ImportError:
        what, right = "obstore is not installed", "pip install 'claimflow[s3]'"
        raise InputError([Fault(str(place), what, right)]) from None
    return Bucket(place)
