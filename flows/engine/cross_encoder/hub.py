"""Cross-encoders of the Hugging Face Hub: found in its cache, or fetched into it."""

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from claimflow.flows.engine.cross_encoder.folder import (
    MODELS,
    WEIGHTS,
    named_outputs,
    output_labels,
)
from claimflow.flows.engine.cross_encoder.hub_faults import http_error, hub_host, told
from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.hub_model import HubModel

_CONFIG: Final = "config.json"
_NEEDED: Final = (_CONFIG, "tokenizer.json")
_WELCOME: Final = ("tokenizer_config.json",)

_EXPORT: Final = (
    "export it (optimum-cli export onnx --model {name} --task text-classification FOLDER) and "
    "name that folder"
)


def cached(model: HubModel) -> Path | None:
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


def fetch(model: HubModel, place: str, tell: Callable[[str], None]) -> Path:
    """The folder of the cache that holds the model, which is fetched where it is not there.

    `tell` is told beforehand how much that is. The Hub, the cache and the token are those of
    the environment: HF_ENDPOINT, HF_HOME, HF_TOKEN. Raises `InputError` at `place` where it
    cannot be had, or is no cross-encoder for entailment in ONNX format, and `StoreFullError`
    where the disk is full.
    """
    try:
        folder = cached(model) or _fetched(model, place, tell)
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
        right = (
            "take a model that names entailment and neutral, or not_entailment; or put its "
            "files in a folder of your own, say in id2label what they mean, and name that"
        )
        raise InputError([Fault(place, f"{_CONFIG} of {model}: {said}", right)])


def _hub() -> Any:
    hub: Any = importlib.import_module("huggingface_hub")
    # It is to tell nobody who uses what, and to draw nothing, whoever imported it first.
    hub.constants.HF_HUB_DISABLE_TELEMETRY = True
    importlib.import_module("huggingface_hub.utils").disable_progress_bars()
    return hub
