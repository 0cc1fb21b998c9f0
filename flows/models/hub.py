"""Cross-encoders of the Hugging Face Hub: found in its cache, or downloaded into it."""

import errno
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from claimflow.flows.errors import Fault, InputError, StoreFullError
from claimflow.flows.models.folders import (
    ENCODER_DECODER_FILES,
    MODEL_FILES,
    describe_outputs,
    model_files,
    output_labels,
    weight_files,
)
from claimflow.flows.pipeline.model_settings import HubModel
from claimflow.flows.pipeline.verifier_forms import PLAIN, Form

_CONFIG: Final = "config.json"
_REQUIRED: Final = (_CONFIG, "tokenizer.json")
_OPTIONAL: Final = ("tokenizer_config.json", "README.md")

_EXPORT_HINT: Final = (
    "export it (optimum-cli export onnx --model {name} --task text-classification FOLDER) and "
    "name that folder"
)
_DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def hub_host() -> str:
    """The host of the Hub: huggingface.co, or that in HF_ENDPOINT without its credentials."""
    address = urlsplit(_constants().ENDPOINT)
    return f"{address.hostname}:{address.port}" if address.port else str(address.hostname)


def find_cached(model: HubModel, form: Form = PLAIN) -> Path | None:
    """The folder of the cache that holds the model of that `form`, or None; uses no network.

    The folder is named after the commit. A branch or tag is what it was when it was downloaded.
    """
    hub = _hub()

    def file(name: str) -> str | None:
        found = hub.try_to_load_from_cache(model.name, name, revision=model.revision)
        return found if isinstance(found, str) else None

    required = [file(name) for name in _REQUIRED]
    possible = [*MODEL_FILES, *ENCODER_DECODER_FILES, *(f"onnx/{n}" for n in ENCODER_DECODER_FILES)]
    complete = all(required) and model_files([name for name in possible if file(name)], form)
    return Path(required[0]).parent if complete and required[0] else None


def fetch_model(model: HubModel, form: Form, place: str, notify: Callable[[str], None]) -> Path:
    """The folder of the cache that holds the model, which is downloaded if it is not there.

    `form` is how it reads and answers; if that leaves open what its outputs mean, its
    `config.json` must say so.

    Before a download `notify` is called with a line that gives its size. The Hub, the cache and
    the token are those of the environment: HF_ENDPOINT, HF_HOME, HF_TOKEN. Raises `InputError`
    at `place` where the model cannot be downloaded or is not a cross-encoder for entailment in
    ONNX format, and `StoreFullError` where the disk is full.
    """
    try:
        folder = find_cached(model, form) or _download(model, form, place, notify)
        if not form.answers:
            _check_labels(model, place, folder / _CONFIG)
        return folder
    except (OSError, RuntimeError, ValueError, _errors().HTTPError) as error:
        raise _translated(error, model, place) from error


def _download(model: HubModel, form: Form, place: str, notify: Callable[[str], None]) -> Path:
    hub = _hub()
    timeout = hub.constants.HF_HUB_ETAG_TIMEOUT
    info = hub.HfApi().model_info(
        model.name, revision=model.revision, timeout=timeout, files_metadata=True
    )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings}
    names = _files_to_download(model, form, place, sizes)
    # Asked for by revision, so that the cache records its commit; the other files by commit.
    config = Path(hub.hf_hub_download(model.name, _CONFIG, revision=model.revision))
    # Checked again by `fetch_model`; here before the large files are downloaded.
    if not form.answers:
        _check_labels(model, place, config)
    size = sum(sizes[name] for name in names) / 1e6
    notify(f"entailment model {model}: fetching {size:,.1f} MB from {hub_host()}")
    for name in names:
        hub.hf_hub_download(model.name, name, revision=config.parent.name)
    return config.parent


def _files_to_download(
    model: HubModel, form: Form, place: str, sizes: Mapping[str, int]
) -> list[str]:
    """The names of the files, the models last: if they are in the cache, so are the others."""
    missing = [name for name in _REQUIRED if name not in sizes]
    models = model_files(sizes, form)
    if not models:
        missing.append(MODEL_FILES[0])
    if missing:
        what = f"{model} has no {', no '.join(missing)}"
        raise InputError([Fault(place, what, _EXPORT_HINT.format(name=model.name))])
    weights = [name for one in models for name in weight_files(one)]
    return [name for name in (*_REQUIRED, *_OPTIONAL, *weights, *models) if name in sizes]


def _check_labels(model: HubModel, place: str, path: Path) -> None:
    """Raise `InputError` for a model whose outputs are not those of entailment."""
    try:
        config = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict) or not output_labels(config):
        found = describe_outputs(config) if isinstance(config, dict) else "it is no JSON object"
        hint = (
            "take a model that names entailment and neutral, or not_entailment; or write its "
            "template, or what they mean: answer: {outputs: [entailed, neutral, contradicted]}"
        )
        raise InputError([Fault(place, f"{_CONFIG} of {model}: {found}", hint)])


def _translated(error: Exception, model: HubModel, place: str) -> InputError | StoreFullError:
    """`error` as one of ours, for the model named at `place`."""
    number = error.errno if isinstance(error, OSError) else None
    # Some libraries raise errors without a number.
    if number in _DISK_FULL or "no space left on device" in str(error).lower():
        where = f"in {_constants().HF_HUB_CACHE}: free some, or set HF_HOME to a folder elsewhere"
        return StoreFullError(f"{place}: no room for {model} {where}")
    what, hint = _what_and_hint(error, model, hub_host())
    return InputError([Fault(place, f"{model} {what}", hint)])


def _what_and_hint(error: Exception, model: HubModel, host: str) -> tuple[str, str]:
    """What is wrong with the model, and a hint; subclasses of errors are tested first."""
    errors = _errors()
    if isinstance(error, errors.HFValidationError):
        return "is not a folder here, and no name of a model", "name one as owner/name"
    if isinstance(error, errors.OfflineModeIsEnabled):
        hint = "fetch it where there is a network, or unset HF_HUB_OFFLINE"
        return "is not a folder here, not in the cache, and HF_HUB_OFFLINE is set", hint
    if isinstance(error, errors.GatedRepoError):
        hint = f"ask for access at https://{host}/{model.name} and set HF_TOKEN"
        return f"is gated by {host}", hint
    if isinstance(error, errors.RepositoryNotFoundError) or _needs_token(error):
        hint = "check the name; for a private model set HF_TOKEN"
        return f"is not a folder here, and no model that {host} shows", hint
    if isinstance(error, errors.RevisionNotFoundError):
        hint = f"name a branch, a tag or a commit of {model.name}"
        return f"names a revision that {host} does not know", hint
    if isinstance(error, errors.HfHubHTTPError):
        return _status_fault(error.response.status_code, host)
    if isinstance(error, errors.HTTPError | errors.LocalEntryNotFoundError):
        what = f"is not a folder here, not in the cache, and {host} cannot be reached"
        return f"{what} ({_reason(error)})", "a network is needed to fetch it once"
    if isinstance(error, OSError) and error.errno is not None:
        what = f"cannot be put into {_constants().HF_HUB_CACHE} ({error.strerror})"
        return what, "set HF_HOME to a folder that you can write to"
    return f"cannot be fetched from {host} ({_reason(error)})", "try again, or name a folder"


def _needs_token(error: Exception) -> bool:
    """Whether a request without a token was refused: a private model, or no model at all."""
    if not isinstance(error, _errors().HfHubHTTPError):
        return False
    response: Any = error.response
    return response.status_code == 401 and "authorization" not in response.request.headers


def _status_fault(status: int, host: str) -> tuple[str, str]:
    if status == 401:
        return f"cannot be fetched: {host} refuses the token", "set HF_TOKEN to a valid one"
    if status == 403:
        hint = "set HF_TOKEN to one that may read it"
        return f"cannot be fetched: {host} does not allow it", hint
    return f"cannot be fetched: {host} answers {status}", "try again later"


def _reason(error: Exception) -> str:
    """The first line of the message, or the class of an error without one."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _hub() -> Any:
    hub: Any = importlib.import_module("huggingface_hub")
    # No telemetry and no progress bars, also where something else imported the library first.
    _constants().HF_HUB_DISABLE_TELEMETRY = True
    importlib.import_module("huggingface_hub.utils").disable_progress_bars()
    return hub


def _errors() -> Any:
    return importlib.import_module("huggingface_hub.errors")


def _constants() -> Any:
    return importlib.import_module("huggingface_hub.constants")
