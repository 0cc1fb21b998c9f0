"""A folder that holds a sentence encoder: which files, and how its vectors are made."""

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.file_digest import sha256_of

_OWN: Final = "encoder.json"
_PUBLISHED: Final = ("1_Pooling/config.json", "sentence_bert_config.json")
_SETTINGS: Final = "give pooling (mean or cls), max_length (tokens) and dimension (numbers)"

_Whole = Annotated[int, Field(strict=True, gt=2)]


class EncoderSettings(BaseModel):
    """How a vector is made.

    `pooling` says how the vectors of the tokens become one: their mean, or the vector of
    the first. `max_length` is the window in tokens, `dimension` the length of a vector.
    """

    model_config = ConfigDict(frozen=True)

    pooling: Literal["mean", "cls"]
    max_length: _Whole
    dimension: _Whole


class EncoderFolder(NamedTuple):
    """The parts of a sentence encoder."""

    name: str
    model: Path
    tokenizer: Path
    settings: EncoderSettings

    def identity(self) -> dict[str, str | int | float]:
        """What could change a vector: the files by content, the pooling, the window."""
        return {
            "name": self.name,
            "model_sha256": sha256_of(self.model),
            "tokenizer_sha256": sha256_of(self.tokenizer),
            **self.settings.model_dump(),
        }


def read_folder(folder: Path) -> EncoderFolder:
    """The encoder in `folder`: `model.onnx`, `tokenizer.json` and `encoder.json`.

    `encoder.json` holds the fields of `EncoderSettings`. A folder as sentence-transformers
    publishes it will do too: the model in `onnx/`, the pooling in `1_Pooling/config.json`,
    the window in `sentence_bert_config.json`. Weights that a model keeps in files beside
    it are loaded, but do not count in its identity.

    Raises `InputError` naming every file that is missing or cannot be used.
    """
    faults: list[Fault] = []
    models = [
        path for path in (folder / "model.onnx", folder / "onnx/model.onnx") if path.is_file()
    ]
    tokenizer = folder / "tokenizer.json"
    if not models:
        faults.append(_missing(folder / "model.onnx", "put the encoder there in ONNX format"))
    if not tokenizer.is_file():
        faults.append(_missing(tokenizer, "put the encoder's tokenizer there"))
    settings = _settings(folder, faults)
    if faults or settings is None:
        raise InputError(faults)
    return EncoderFolder(folder.name, models[0], tokenizer, settings)


def _settings(folder: Path, faults: list[Fault]) -> EncoderSettings | None:
    own, published = folder / _OWN, [folder / name for name in _PUBLISHED]
    try:
        if own.is_file():
            return EncoderSettings.model_validate_json(own.read_bytes())
        if all(path.is_file() for path in published):
            own = published[0]
            return _published(*(json.loads(path.read_bytes()) for path in published))
        faults.append(_missing(own, _SETTINGS))
    except ValidationError as error:
        for wrong in error.errors():
            field = ".".join(str(part) for part in wrong["loc"])
            faults.append(Fault(str(own), f"{field}: {wrong['msg']}".lstrip(": "), _SETTINGS))
    except ValueError as error:
        faults.append(Fault(str(own), f"not JSON ({error})", _SETTINGS))
    return None


def _published(pooling: dict[str, Any], window: dict[str, Any]) -> EncoderSettings:
    modes = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    chosen = [mode for mode, switch in modes.items() if pooling.get(switch)]
    return EncoderSettings.model_validate(
        {
            "pooling": chosen[0] if chosen else None,
            "max_length": window.get("max_seq_length"),
            "dimension": pooling.get("word_embedding_dimension"),
        }
    )


def _missing(path: Path, right: str) -> Fault:
    return Fault(str(path), "no such file", right)
