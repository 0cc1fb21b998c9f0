"""Models of the Hugging Face Hub: found in its cache, or downloaded."""

import errno
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from claimflow.flows.errors import Fault, InputError, StoreFullError
from claimflow.flows.models.cross_encoder_folder import (
    MODELS,
    WEIGHTS,
    named_outputs,
    output_labels,
)
from claimflow.flows.pipeline.models import HubModel

# Why a model of the Hugging Face Hub cannot be had, in plain words.


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
    what, hint = _words(error, model, hub_host())
    return InputError([Fault(place, f"{model} {what}", hint)])


def _words(error: Exception, model: HubModel, host: str) -> tuple[str, str]:
    """What is wrong with the model, and what would be right; the particular goes first."""
    errors = _errors()
    if isinstance(error, errors.HFValidationError):
        return "is no folder here, and no name of a model", "name one as owner/name"
    if isinstance(error, errors.OfflineModeIsEnabled):
        hint = "fetch it where there is a network, or unset HF_HUB_OFFLINE"
        return "is no folder here, and not in the cache, beyond which HF_HUB_OFFLINE is set", hint
    if isinstance(error, errors.GatedRepoError):
        hint = f"ask for it at https://{host}/{model.name} and set HF_TOKEN"
        return f"is given on request only by {host}", hint
    if isinstance(error, errors.RepositoryNotFoundError) or _asks_who(error):
        hint = "check the name; for a private model set HF_TOKEN"
        return f"is no folder here, and no model that {host} shows", hint
    if isinstance(error, errors.RevisionNotFoundError):
        hint = f"name a branch, a tag or a commit of {model.name}"
        return f"names a revision that {host} does not know", hint
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
        hint = "set HF_TOKEN to one that may read it"
        return f"cannot be fetched: {host} does not allow it", hint
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


# Cross-encoders of the Hugging Face Hub: found in its cache, or fetched into it.


_CONFIG: Final = "config.json"
_NEEDED: Final = (_CONFIG, "tokenizer.json")
_WELCOME: Final = ("tokenizer_config.json",)

_EXPORT: Final = (
    "export it (optimum-cli export onnx --model {name} --task text-classification FOLDER) and "
    "name that folder"
)


def find_cached(model: HubModel) -> Path | None:
    """The folder of the cache that holds the model, or None; the network is not asked.

    Its name is the commit. A branch or a tag is what it was when it was fetched.
    """
    hub = _hub()

    def file(name: str) -> str | None:
        found = hub.try_to_load_from_cache(model.name, name, revision=model.revision)
        return found if isinstance(found, str) else None

    needed = [file(name) for name in _NEEDED]
    whole = all(needed) and any(file(name) for name in MODELS)
    return Path(needed[0]).parent if whole and needed[0] else None


def fetch_model(model: HubModel, place: str, tell: Callable[[str], None]) -> Path:
    """The folder of the cache that holds the model, which is fetched where it is not there.

    `tell` is told beforehand how much that is. The Hub, the cache and the token are those of
    the environment: HF_ENDPOINT, HF_HOME, HF_TOKEN. Raises `InputError` at `place` where it
    cannot be had, or is no cross-encoder for entailment in ONNX format, and `StoreFullError`
    where the disk is full.
    """
    try:
        folder = find_cached(model) or _fetched(model, place, tell)
        _check_labels(model, place, folder / _CONFIG)
        return folder
    except (OSError, RuntimeError, ValueError, http_error()) as error:
        raise told(error, model, place) from error


def _fetched(model: HubModel, place: str, tell: Callable[[str], None]) -> Path:
    hub = _hub()
    timeout = hub.constants.HF_HUB_ETAG_TIMEOUT
    info = hub.HfApi().model_info(
        model.name, revision=model.revision, timeout=timeout, files_metadata=True
    )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings}
    names = _wanted(model, place, sizes)
    # The cache notes this way which commit the revision is; all the rest is of that commit.
    config = Path(hub.hf_hub_download(model.name, _CONFIG, revision=model.revision))
    # Before much is fetched.
    _check_labels(model, place, config)
    size = sum(sizes[name] for name in names) / 1e6
    tell(f"entailment model {model}: fetching {size:,.1f} MB from {hub_host()}")
    for name in names:
        hub.hf_hub_download(model.name, name, revision=config.parent.name)
    return config.parent


def _wanted(model: HubModel, place: str, sizes: Mapping[str, int]) -> list[str]:
    """The files to fetch. The model comes last: where it is, everything is."""
    missing = [name for name in _NEEDED if name not in sizes]
    models = [name for name in MODELS if name in sizes]
    if not models:
        missing.append(MODELS[0])
    if missing:
        what = f"{model} has no {', no '.join(missing)}"
        raise InputError([Fault(place, what, _EXPORT.format(name=model.name))])
    folder = models[0].removesuffix(MODELS[0])
    beside = [folder + name for name in WEIGHTS]
    return [name for name in (*_NEEDED, *_WELCOME, *beside, models[0]) if name in sizes]


def _check_labels(model: HubModel, place: str, path: Path) -> None:
    """A model that says something else is of no use."""
    config = json.loads(path.read_text("utf-8"))
    if not isinstance(config, dict) or not output_labels(config):
        said = named_outputs(config) if isinstance(config, dict) else "it is no JSON object"
        hint = (
            "take a model that names entailment and neutral, or not_entailment; or put its "
            "files in a folder of your own, say in id2label what they mean, and name that"
        )
        raise InputError([Fault(place, f"{_CONFIG} of {model}: {said}", hint)])


def _hub() -> Any:
    hub: Any = importlib.import_module("huggingface_hub")
    # It is to tell nobody who uses what, and to draw nothing, whoever imported it first.
    hub.constants.HF_HUB_DISABLE_TELEMETRY = True
    importlib.import_module("huggingface_hub.utils").disable_progress_bars()
    return hub
