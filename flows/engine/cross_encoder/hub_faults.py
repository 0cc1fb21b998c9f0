"""Why a model of the Hugging Face Hub cannot be had, in plain words."""

import errno
import importlib
from typing import Any, Final
from urllib.parse import urlsplit

from claimflow.flows.engine.errors import Fault, InputError, StoreFullError
from claimflow.flows.engine.hub_model import HubModel

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def hub_host() -> str:
    """The Hub that is asked: huggingface.co, or that of HF_ENDPOINT, without what may be secret."""
    address = urlsplit(_constants().ENDPOINT)
    return f"{address.hostname}:{address.port}" if address.port else str(address.hostname)


def http_error() -> type[Exception]:
    """What every failure of a connection is a kind of."""
    kind: type[Exception] = _errors().HTTPError
    return kind


def told(error: Exception, model: HubModel, place: str) -> InputError | StoreFullError:
    """What `error` means to whoever named `model` at `place`."""
    if _is_full(error):
        where = f"in {_constants().HF_HUB_CACHE}: free some, or set HF_HOME to a folder elsewhere"
        return StoreFullError(f"{place}: no room for {model} {where}")
    what, right = _words(error, model, hub_host())
    return InputError([Fault(place, f"{model} {what}", right)])


def _words(error: Exception, model: HubModel, host: str) -> tuple[str, str]:
    """What is wrong with the model, and what would be right; the particular goes first."""
    errors = _errors()
    if isinstance(error, errors.HFValidationError):
        return "is no folder here, and no name of a model", "name one as owner/name"
    if isinstance(error, errors.OfflineModeIsEnabled):
        right = "fetch it where there is a network, or unset HF_HUB_OFFLINE"
        return "is no folder here, and not in the cache, beyond which HF_HUB_OFFLINE is set", right
    if isinstance(error, errors.GatedRepoError):
        right = f"ask for it at https://{host}/{model.name} and set HF_TOKEN"
        return f"is given on request only by {host}", right
    if isinstance(error, errors.RepositoryNotFoundError) or _asks_who(error):
        right = "check the name; for a private model set HF_TOKEN"
        return f"is no folder here, and no model that {host} shows", right
    if isinstance(error, errors.RevisionNotFoundError):
        right = f"name a branch, a tag or a commit of {model.name}"
        return f"names a revision that {host} does not know", right
    if isinstance(error, errors.HfHubHTTPError):
        return _refused(error.response.status_code, host)
    if isinstance(error, errors.HTTPError | errors.LocalEntryNotFoundError):
        what = f"is no folder here, not in the cache, and {host} cannot be reached"
        return f"{what} ({_reason(error)})", "a network is needed to fetch it once"
    if isinstance(error, OSError) and error.errno is not None:
        what = f"cannot be put into {_constants().HF_HUB_CACHE} ({error.strerror})"
        return what, "set HF_HOME to a folder of yours"
    return f"cannot be fetched from {host} ({_reason(error)})", "try again, or name a folder"


def _asks_who(error: Exception) -> bool:
    """A Hub does not tell strangers whether a model is private or not there."""
    if not isinstance(error, _errors().HfHubHTTPError):
        return False
    response: Any = error.response
    return response.status_code == 401 and "authorization" not in response.request.headers


def _refused(status: int, host: str) -> tuple[str, str]:
    if status == 401:
        return f"cannot be fetched: {host} refuses the token", "set HF_TOKEN to one that holds"
    if status == 403:
        right = "set HF_TOKEN to one that may read it"
        return f"cannot be fetched: {host} does not allow it", right
    return f"cannot be fetched: {host} answers {status}", "try again later"


def _is_full(error: Exception) -> bool:
    """Some errors come from libraries that give no number."""
    number = error.errno if isinstance(error, OSError) else None
    return number in _FULL or "no space left on device" in str(error).lower()


def _reason(error: Exception) -> str:
    """The first line of the message, or where it has none the kind of error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _errors() -> Any:
    return importlib.import_module("huggingface_hub.errors")


def _constants() -> Any:
    return importlib.import_module("huggingface_hub.constants")
