"""The files of a cross-encoder, and what its outputs mean."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import sha256_of
from claimflow.stages.rows import Label

MODELS: Final = ("model.onnx", "onnx/model.onnx")
"""Where the model may lie in a folder; the first that is there counts."""

WEIGHTS: Final = ("model.onnx_data", "model.onnx.data")
"""What exporters call the file beside a model that holds its weights."""

_WORDS: Final[dict[str, Label]] = {
    "entailment": "entailed",
    "entailed": "entailed",
    "contradiction": "contradicted",
    "contradicted": "contradicted",
    "contradictory": "contradicted",
    "neutral": "neutral",
    "notentailment": "neutral",
    "notentailed": "neutral",
}
"""What the outputs of published models are called, in small letters alone. A model of two does
not tell what is contradicted from what is left open: both are neutral."""

_LONGEST: Final = 512
"""Tokens of the window where the folder names none."""

_UNBOUNDED: Final = 100_000
"""What `tokenizer_config.json` says of a tokenizer that knows no window is far above this."""

_LABELS: Final = (
    'give id2label with entailment and neutral, or not_entailment, as in {"0": "entailment", '
    '"1": "neutral", "2": "contradiction"}'
)


class CrossEncoderFolder(NamedTuple):
    """The parts of a cross-encoder.

    `labels` says what each output means, by its number; `max_length` is the window in tokens,
    premise, claim and special tokens together. `weights` are files beside the model in which
    it keeps what is too large for one.
    """

    name: str
    model: Path
    weights: tuple[Path, ...]
    tokenizer: Path
    labels: tuple[Label, ...]
    max_length: int

    def identity(self) -> dict[str, str | int | float]:
        """What could change a judgement: the files by content, the labels, the window."""
        return {
            "name": self.name,
            "model_sha256": sha256_of(self.model),
            **{f"{path.name}_sha256": sha256_of(path) for path in self.weights},
            "tokenizer_sha256": sha256_of(self.tokenizer),
            "labels": ",".join(self.labels),
            "max_length": self.max_length,
        }


def read_folder(folder: Path) -> CrossEncoderFolder:
    """The cross-encoder in `folder`: `model.onnx`, `tokenizer.json` and `config.json`.

    The model may lie in `onnx/`, as published folders have it. `id2label` of `config.json` names
    the outputs; the window is `model_max_length` of `tokenizer_config.json` where that is there,
    else `max_position_embeddings`, else 512, and never more than 512. Weights that a model keeps
    in files beside it count in its identity under the names that exporters give them,
    `model.onnx_data` and `model.onnx.data`.

    Raises `InputError` naming the folder, or every file, that is missing or cannot be used.
    """
    if not folder.is_dir():
        hint = "name a folder with model.onnx, tokenizer.json and config.json"
        raise InputError([Fault(str(folder), "no such folder", hint)])
    models = [path for name in MODELS if (path := folder / name).is_file()]
    tokenizer = folder / "tokenizer.json"
    faults: list[Fault] = []
    if not models:
        hint = "put a cross-encoder there in ONNX format"
        faults.append(Fault(str(folder / "model.onnx"), "no such file", hint))
    if not tokenizer.is_file():
        faults.append(Fault(str(tokenizer), "no such file", "put the model's tokenizer there"))
    labels, max_length = _settings(folder, faults)
    if faults:
        raise InputError(faults)
    weights = (models[0].with_name(name) for name in WEIGHTS)
    beside = tuple(path for path in weights if path.is_file())
    return CrossEncoderFolder(folder.name, models[0], beside, tokenizer, labels, max_length)


def _settings(folder: Path, faults: list[Fault]) -> tuple[tuple[Label, ...], int]:
    """What each output means, and the window."""
    config = _read(folder / "config.json", faults, "put the model's configuration there")
    labels = output_labels(config) if config is not None else ()
    if config is not None and not labels:
        faults.append(Fault(str(folder / "config.json"), named_outputs(config), _LABELS))
    published = folder / "tokenizer_config.json"
    window = _read(published, faults, "") if published.is_file() else {}
    return labels, _window(window or {}, config or {})


def _read(path: Path, faults: list[Fault], hint: str) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        faults.append(Fault(str(path), "no such file", hint))
        return None
    except (OSError, ValueError) as error:
        faults.append(Fault(str(path), f"cannot be read ({error})", "it must be a JSON object"))
        return None
    if not isinstance(found, dict):
        faults.append(Fault(str(path), "no JSON object", "it must be one"))
        return None
    return found


def output_labels(config: dict[str, Any]) -> tuple[Label, ...]:
    """What each output means by `config.json`; none where that cannot be told."""
    words = _output_words(config)
    found = [_WORDS.get("".join(filter(str.isalpha, word.lower()))) for word in words]
    labels = tuple(label for label in found if label is not None)
    known = len(labels) == len(words) == len(set(labels)) and {"entailed", "neutral"} <= set(labels)
    return labels if known else ()


def named_outputs(config: dict[str, Any]) -> str:
    """What `config.json` says of the outputs, for a message."""
    return f"id2label names {', '.join(map(repr, _output_words(config))) or 'nothing'}"


def _output_words(config: dict[str, Any]) -> list[str]:
    given = config.get("id2label")
    names = given if isinstance(given, dict) else {}
    return [str(names.get(str(number), "")) for number in range(len(names))]


def _window(tokenizer: dict[str, Any], config: dict[str, Any]) -> int:
    given = (tokenizer.get("model_max_length"), config.get("max_position_embeddings"))
    known = [int(one) for one in given if isinstance(one, int | float) and 8 <= one <= _UNBOUNDED]
    return min([*known, _LONGEST])
