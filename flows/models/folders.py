"""Folders that hold a cross-encoder or a sentence encoder: their files, settings and identity."""

import json
import re
from collections.abc import Collection, Container
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import sha256_of
from claimflow.flows.pipeline.verifier_forms import PLAIN, Form
from claimflow.stages.rows import Label

MODEL_FILES: Final = ("model.onnx", "onnx/model.onnx")
"""The possible paths of the model in a folder; the first that exists is used."""

ENCODER_DECODER_FILES: Final = ("encoder_model.onnx", "decoder_model.onnx")
"""The files of a model that reads with an encoder and says words with a decoder."""

_WEIGHTS_ENDINGS: Final = ("_data", ".data")
"""What exporters add to the name of a model for the file beside it that holds its weights."""

_LABELS: Final[dict[str, Label]] = {
    "entailment": "entailed",
    "entailed": "entailed",
    "contradiction": "contradicted",
    "contradicted": "contradicted",
    "contradictory": "contradicted",
    "neutral": "neutral",
    "notentailment": "neutral",
    "notentailed": "neutral",
}
"""The output names of published models, lower case and letters only. A model with two outputs
does not tell contradicted from neutral: both are neutral."""

_LABEL_HINT: Final = (
    'give id2label with entailment and neutral, or not_entailment, as in {"0": "entailment", '
    '"1": "neutral", "2": "contradiction"}; or in the pipeline the template of the model, or an '
    "answer, as in {outputs: [entailed, neutral, contradicted]}"
)

_MAX_WINDOW: Final = 512
"""Tokens of the window at most, and where the folder does not say."""

_UNBOUNDED: Final = 100_000
"""Tokenizers without a window have a far larger number than this in `tokenizer_config.json`."""


class CrossEncoderFolder(NamedTuple):
    """The parts of a cross-encoder.

    `models` is the model, or an encoder and a decoder. `weights` are files beside them that hold
    their weights. `labels` is the meaning of each answer, in order. `max_length` is the window in
    tokens, for premise, claim, template and special tokens together. A decoder starts with the
    token `start`.
    """

    name: str
    models: tuple[Path, ...]
    weights: tuple[Path, ...]
    tokenizer: Path
    labels: tuple[Label, ...]
    max_length: int
    form: Form
    start: int

    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a judgement: digests, labels, window and template."""
        encoder, *decoders = self.models
        found: dict[str, str | int | float] = {
            "name": self.name,
            "model_sha256": sha256_of(encoder),
            **{f"{path.name}_sha256": sha256_of(path) for path in (*decoders, *self.weights)},
            "tokenizer_sha256": sha256_of(self.tokenizer),
            "labels": ",".join(self.labels),
            "max_length": self.max_length,
            **self.form.identity(),
        }
        return found | {"start": self.start} if decoders else found


def read_cross_encoder(folder: Path, form: Form = PLAIN) -> CrossEncoderFolder:
    """The cross-encoder in `folder`: `model.onnx`, `tokenizer.json` and `config.json`.

    For a `form` that reads words there may be `encoder_model.onnx` and `decoder_model.onnx`
    instead. The models may be in `onnx/`, as in published folders. What `form` leaves open is read
    from the folder: `id2label` of `config.json` names the outputs; the window is
    `model_max_length` of `tokenizer_config.json` where that exists, else
    `max_position_embeddings`, else 512, and never more than 512. Weights in files beside the
    model are part of its identity: those that it names, and `model.onnx_data` and
    `model.onnx.data`.

    Raises `InputError` naming the folder, or every file, that is missing or cannot be used.
    """
    if not folder.is_dir():
        hint = "name a folder with model.onnx, tokenizer.json and config.json"
        raise InputError([Fault(str(folder), "no such folder", hint)])
    faults: list[Fault] = []
    models = _find_models(folder, form, faults)
    tokenizer = _find_tokenizer(folder, "put the model's tokenizer there", faults)
    settings = _cross_encoder_settings(folder, form, faults)
    if faults:
        raise InputError(faults)
    weights = tuple(path for model in models for path in _weights_beside(model))
    return CrossEncoderFolder(folder.name, models, weights, tokenizer, *settings)


def model_files(names: Container[str], form: Form) -> tuple[str, ...]:
    """The paths of the model among `names`; empty where there is none."""
    for model in MODEL_FILES:
        folder = model.removesuffix(MODEL_FILES[0])
        pair = tuple(folder + name for name in ENCODER_DECODER_FILES)
        if form.read == "words" and all(name in names for name in pair):
            return pair
        if model in names:
            return (model,)
    return ()


def weight_files(model: str) -> tuple[str, ...]:
    """The possible names of the file that holds the weights of the file `model`."""
    return tuple(model + ending for ending in _WEIGHTS_ENDINGS)


_LOCATION: Final = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])", re.DOTALL)
"""The entry of a weight in an ONNX file that names the file which holds it, and its length."""


def _weights_beside(model: Path) -> list[Path]:
    """The files beside a model that hold weights: under the usual names, and those it names."""
    names = dict.fromkeys(weight_files(model.name))
    if model.stat().st_size:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            for found in _LOCATION.finditer(content):
                name = content[found.end() : found.end() + found[1][0]]
                names[name.decode("utf-8", "replace")] = None
    paths = [model.with_name(name) for name in names if Path(name).name == name]
    return [path for path in paths if path.is_file()]


def _find_models(folder: Path, form: Form, faults: list[Fault]) -> tuple[Path, ...]:
    possible = [*MODEL_FILES, *ENCODER_DECODER_FILES]
    possible += [f"onnx/{name}" for name in ENCODER_DECODER_FILES]
    there = {name for name in possible if (folder / name).is_file()}
    found = model_files(there, form)
    if not found:
        faults.append(_missing_model(folder, form, there))
    return tuple(folder / name for name in found)


def _missing_model(folder: Path, form: Form, there: Collection[str]) -> Fault:
    parts = {Path(name).name for name in there}
    pair = " and ".join(ENCODER_DECODER_FILES)
    if form.read != "words" and parts:
        hint = f"a model of {pair} says words: name its template, or `answer: {{words: ...}}`"
        return Fault(str(folder / MODEL_FILES[0]), "no such file", hint)
    missing = [name for name in ENCODER_DECODER_FILES if parts and name not in parts]
    hint = "put a cross-encoder there in ONNX format"
    if form.read == "words":
        hint += f"; or {pair}"
    return Fault(str(folder / (missing or MODEL_FILES)[0]), "no such file", hint)


def output_labels(config: dict[str, Any]) -> tuple[Label, ...]:
    """The meaning of each output by `config.json`; empty where that cannot be determined."""
    names = _output_names(config)
    found = [_LABELS.get("".join(filter(str.isalpha, name.lower()))) for name in names]
    labels = tuple(label for label in found if label is not None)
    known = len(labels) == len(names) == len(set(labels)) and {"entailed", "neutral"} <= set(labels)
    return labels if known else ()


def describe_outputs(config: dict[str, Any]) -> str:
    """The output names in `config.json`, for a message."""
    return f"id2label names {', '.join(map(repr, _output_names(config))) or 'nothing'}"


def _output_names(config: dict[str, Any]) -> list[str]:
    found = config.get("id2label")
    names = found if isinstance(found, dict) else {}
    return [str(names.get(str(number), "")) for number in range(len(names))]


def _cross_encoder_settings(
    folder: Path, form: Form, faults: list[Fault]
) -> tuple[tuple[Label, ...], int, Form, int]:
    """(meaning of each answer, window in tokens, the form, token that a decoder starts with)."""
    path = folder / "config.json"
    config = _read_json(path, faults, "put the model's configuration there")
    labels = tuple(label for _, label in form.answers) or output_labels(config or {})
    if config is not None and not labels:
        faults.append(Fault(str(path), describe_outputs(config), _LABEL_HINT))
    path = folder / "tokenizer_config.json"
    tokenizer = _read_json(path, faults, "") if path.is_file() else None
    named = (
        (tokenizer or {}).get("model_max_length"),
        (config or {}).get("max_position_embeddings"),
    )
    known = [int(one) for one in named if isinstance(one, int | float) and 8 <= one <= _UNBOUNDED]
    start = (config or {}).get("decoder_start_token_id")
    return (
        labels,
        form.window or min([*known, _MAX_WINDOW]),
        form,
        start if isinstance(start, int) and 0 <= start <= _UNBOUNDED else 0,
    )


def _read_json(path: Path, faults: list[Fault], hint: str) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        faults.append(Fault(str(path), "no such file", hint))
        return None
    except (OSError, ValueError, RecursionError) as error:
        faults.append(Fault(str(path), f"cannot be read ({error})", "it must be a JSON object"))
        return None
    if not isinstance(found, dict):
        faults.append(Fault(str(path), "no JSON object", "it must be one"))
        return None
    return found


# What languages a model was taught: its card says so.

_CARD: Final = "README.md"
_LONGEST_CARD: Final = 100_000
_FRONT_MATTER: Final = re.compile(
    r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE
)
# Not read as YAML, for which the language `no` is false.
_LANGUAGE: Final = re.compile(
    r"^languages?:[ \t]*(\[[^\]]*\]|[^\s#][^\r\n]*|(?:\r?\n[ \t]*-[^\r\n]*)+)", re.MULTILINE
)
_ANY_LANGUAGE: Final = frozenset({"multilingual", "mul"})
_UNDECLARED: Final = frozenset({"English"})

_LANGUAGES: Final = {
    **{"en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian"},
    **{"pt": "Portuguese", "nl": "Dutch", "sv": "Swedish", "pl": "Polish", "zh": "Chinese"},
    **dict.fromkeys(("da", "no", "nb", "nn"), "Danish or Norwegian"),
    **dict.fromkeys(("ru", "uk", "be", "bg", "sr", "mk", "kk", "ky", "mn"), "Cyrillic"),
    **dict.fromkeys(("ar", "fa", "ur", "ps"), "Arabic"),
    **dict.fromkeys(("hi", "mr", "ne", "sa"), "Devanagari"),
    **{"ja": "Japanese", "ko": "Hangul", "el": "Greek", "he": "Hebrew", "th": "Thai"},
    **{"bn": "Bengali", "ta": "Tamil", "te": "Telugu", "gu": "Gujarati", "pa": "Gurmukhi"},
    **{"kn": "Kannada", "ml": "Malayalam", "si": "Sinhala", "lo": "Lao", "km": "Khmer"},
    **{"my": "Burmese", "ka": "Georgian", "hy": "Armenian", "am": "Ethiopic", "bo": "Tibetan"},
}
"""Languages of model cards (ISO 639-1) as `language_of` names them, some by their script."""


def declared_languages(folder: Path) -> frozenset[str] | None:
    """The languages that a model was taught, as `language_of` names them; None for any.

    `language` in the head of `README.md`, as in model cards of the Hugging Face Hub: a code or a
    list of codes, `multilingual` for any. A model that declares nothing counts as English.
    """
    try:
        with (folder / _CARD).open(encoding="utf-8", errors="replace") as card:
            text = card.read(_LONGEST_CARD)
    except OSError:
        return _UNDECLARED
    head = _FRONT_MATTER.match(text)
    declared = _LANGUAGE.search(head[1]) if head else None
    codes = re.findall(r"[a-z]+(?=[^a-z]|$)", declared[1].lower()) if declared else []
    if _ANY_LANGUAGE.intersection(codes):
        return None
    return frozenset(_LANGUAGES[code] for code in codes if code in _LANGUAGES) or _UNDECLARED


_ENCODER_FILE: Final = "encoder.json"
_PUBLISHED_FILES: Final = ("1_Pooling/config.json", "sentence_bert_config.json")
_ENCODER_HINT: Final = "give pooling (mean or cls), max_length (tokens) and dimension (numbers)"

_Size = Annotated[int, Field(strict=True, gt=2)]


class EncoderSettings(BaseModel):
    """How a sentence encoder makes a vector.

    `pooling` makes one vector of those of the tokens: their mean, or the vector of the first
    token. `max_length` is the window in tokens, `dimension` the length of a vector.
    """

    model_config = ConfigDict(frozen=True)

    pooling: Literal["mean", "cls"]
    max_length: _Size
    dimension: _Size


class EncoderFolder(NamedTuple):
    """The parts of a sentence encoder."""

    name: str
    model: Path
    tokenizer: Path
    settings: EncoderSettings

    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a vector: digests of the files, pooling, window."""
        weights = _weights_beside(self.model)
        return {
            "name": self.name,
            "model_sha256": sha256_of(self.model),
            **{f"{path.name}_sha256": sha256_of(path) for path in weights},
            "tokenizer_sha256": sha256_of(self.tokenizer),
            **self.settings.model_dump(),
        }


def read_encoder(folder: Path) -> EncoderFolder:
    """The sentence encoder in `folder`: `model.onnx`, `tokenizer.json` and `encoder.json`.

    `encoder.json` holds the fields of `EncoderSettings`. A folder as published by
    sentence-transformers works too: the model in `onnx/`, the pooling in `1_Pooling/config.json`,
    the window in `sentence_bert_config.json`.

    Raises `InputError` naming every file that is missing or cannot be used.
    """
    faults: list[Fault] = []
    model = _find_model(folder, "put the encoder there in ONNX format", faults)
    tokenizer = _find_tokenizer(folder, "put the encoder's tokenizer there", faults)
    settings = _encoder_settings(folder, faults)
    if faults or settings is None:
        raise InputError(faults)
    return EncoderFolder(folder.name, model, tokenizer, settings)


def _encoder_settings(folder: Path, faults: list[Fault]) -> EncoderSettings | None:
    path, published = folder / _ENCODER_FILE, [folder / name for name in _PUBLISHED_FILES]
    try:
        if path.is_file():
            return EncoderSettings.model_validate_json(path.read_bytes())
        if all(file.is_file() for file in published):
            path = published[0]
            pooling, window = (json.loads(file.read_bytes()) for file in published)
            if not isinstance(pooling, dict) or not isinstance(window, dict):
                raise ValueError("no JSON object")
            return _published_settings(pooling, window)
        faults.append(Fault(str(path), "no such file", _ENCODER_HINT))
    except ValidationError as error:
        for wrong in error.errors():
            field = ".".join(str(part) for part in wrong["loc"])
            what = f"{field}: {wrong['msg']}".lstrip(": ")
            faults.append(Fault(str(path), what, _ENCODER_HINT))
    except (ValueError, RecursionError) as error:
        faults.append(Fault(str(path), f"not JSON ({error})", _ENCODER_HINT))
    return None


def _published_settings(pooling: dict[str, Any], window: dict[str, Any]) -> EncoderSettings:
    switches = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    modes = [mode for mode, switch in switches.items() if pooling.get(switch)]
    return EncoderSettings.model_validate(
        {
            "pooling": modes[0] if modes else None,
            "max_length": window.get("max_seq_length"),
            "dimension": pooling.get("word_embedding_dimension"),
        }
    )


def _find_model(folder: Path, hint: str, faults: list[Fault]) -> Path:
    for name in MODEL_FILES:
        if (folder / name).is_file():
            return folder / name
    faults.append(Fault(str(folder / MODEL_FILES[0]), "no such file", hint))
    return folder / MODEL_FILES[0]


def _find_tokenizer(folder: Path, hint: str, faults: list[Fault]) -> Path:
    path = folder / "tokenizer.json"
    if not path.is_file():
        faults.append(Fault(str(path), "no such file", hint))
    return path
