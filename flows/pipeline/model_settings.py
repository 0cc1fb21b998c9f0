"""Settings of judges, embedders and entailment models."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from claimflow.flows.errors import nearest
from claimflow.flows.files import path_exists
from claimflow.flows.pipeline.verifier_forms import (
    CLAIM,
    KNOWN_FORMS,
    PLAIN,
    PREMISE,
    Form,
    Read,
    in_order,
)
from claimflow.stages.plugins import entry_point_names, is_reference
from claimflow.stages.rows import Label

_DEFAULT_REVISION: Final = "main"
"""The revision of the Hub where none is named."""

_HUB_NAME: Final = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)


class HubModel(NamedTuple):
    """A model of the Hugging Face Hub: owner/name, and a branch, a tag or a commit."""

    name: str
    revision: str = _DEFAULT_REVISION

    def __str__(self) -> str:
        return self.name if self.revision == _DEFAULT_REVISION else f"{self.name}@{self.revision}"


class EntailmentSource(NamedTuple):
    """A folder or a model of the Hub, and how the model there reads and answers."""

    place: Path | HubModel
    form: Form = PLAIN

    def __str__(self) -> str:
        return str(self.place)


def folder_or_hub_model(base: Path, written: str) -> Path | HubModel:
    """The folder or the model of the Hub that `written` names, in a file in the folder `base`.

    An existing folder takes precedence over a model of that name. A text that is not of the form
    owner/name or owner/name@revision, such as `./owner/name`, is always a folder.
    """
    folder = base / written
    hub_name = _HUB_NAME.fullmatch(written)
    if hub_name is None or path_exists(folder):
        return folder
    return HubModel(hub_name[1], hub_name[2] or _DEFAULT_REVISION)


DEFAULT_PROVIDER: Final = "litellm"

PROVIDERS: Final = {DEFAULT_PROVIDER}
"""Names of judge providers; `flows.judge.provider` registers further ones."""

PROVIDER_OBJECTS: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
"""Judge providers that are objects of this process, by name, as long as something uses them."""

PROVIDER_GROUP: Final = "claimflow.providers"
"""The group of entry points by which installed packages register judge providers."""

EMBEDDED: Final = "embedded"
"""The judge without a language model, for a step that does not use the judge of the pipeline."""

DEFAULT_JUDGE: Final = "judge"
"""The name of the judge of all steps that name none."""

EMBEDDER: Final = "embedder"
"""The name under which calls to the embedding model of a pipeline are recorded."""

LIMIT_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
"""Pattern of the names of limits that runs share."""

SECRET_NAME: Final = re.compile(
    r"api[_-]?key|secret|password|passwd|credential|authorization|access[_-]?token|bearer",
    re.IGNORECASE,
)
"""Names of secrets, which must not be in a file that is shared and stored."""
_RESERVED: Final = frozenset(
    """
    api_base base_url drop_params input max_retries max_tokens messages mock_response model n
    num_retries request_timeout response_format seed stream temperature timeout tool_choice tools
    """.split()
)


def check_url(url: str, *, example: str = "http://127.0.0.1:8000/v1") -> str:
    """The URL of a server. Raises `ValueError` for another text, and for one with keys in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"write a URL such as {example}")
    if parts.username or parts.password or parts.query:
        raise ValueError("keys belong in the environment, not into a URL")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("the port of a URL is a number up to 65535") from None
    return url


def _check_extra(extra: dict[str, Any]) -> dict[str, Any]:
    taken = sorted(_RESERVED & set(extra))
    if taken:
        raise ValueError(f"{taken[0]} cannot be in extra: it is set by the judge or by claimflow")
    for place in HEADERS:
        _check_headers(place, extra.get(place, {}))
    secret = _secret_in({name: value for name, value in extra.items() if name not in HEADERS})
    if secret:
        raise ValueError(f"{secret} looks like a secret: keys belong in the environment")
    return extra


HEADERS: Final = ("extra_headers", "headers")
"""Parameters that are sent as headers of the request."""

_VARIABLE: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_SECRET_HEADER: Final = re.compile(
    r"key|token|secret|auth|password|passwd|credential|cookie|session|signature", re.IGNORECASE
)


def header_variables(parameters: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables that hold the values of headers, by header."""
    return {
        str(header): found[1]
        for place in HEADERS
        for header, value in (parameters.get(place) or {}).items()
        if (found := _VARIABLE.fullmatch(str(value)))
    }


def _check_headers(place: str, headers: Any) -> None:
    """Raise `ValueError` unless every header that may be a secret names a variable."""
    if not isinstance(headers, dict):
        raise ValueError(f"{place} is a mapping of headers, such as x-api-key: env:MY_KEY")  # noqa: TRY004
    for header, value in headers.items():
        named = isinstance(value, str) and _VARIABLE.fullmatch(value)
        if not named and (_SECRET_HEADER.search(str(header)) or str(value).startswith("env:")):
            raise ValueError(
                f"the value of the header {header} belongs in the environment: write env:NAME, "
                "the name of the variable that holds it"
            )
        if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
            raise ValueError(f"the value of the header {header} is no text that a header can have")


def _secret_in(value: Any) -> str | None:
    """The first key in nested mappings that is named like a secret."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if SECRET_NAME.search(str(name)):
                return str(name)
            found = _secret_in(inner)
            if found:
                return found
    if isinstance(value, list):
        return next((found for inner in value if (found := _secret_in(inner))), None)
    return None


def provider_names() -> set[str]:
    """The names of all judge providers: built in, registered, and of installed packages."""
    return PROVIDERS | entry_point_names(PROVIDER_GROUP)


def _registered(provider: str) -> str:
    # The entry points are read from files, which takes a few milliseconds.
    known = provider in PROVIDERS or provider in PROVIDER_OBJECTS or is_reference(provider)
    if not known and provider not in provider_names():
        raise PydanticCustomError("unknown_provider", "is not a registered provider")
    return provider


_NAME_OF_PROVIDER: Final = {
    "type": "string",
    "minLength": 1,
    "not": {"const": "onnx"},
    "description": "litellm, or a provider of your own: its registered name, or module:Name.",
}


class YamlModel(BaseModel):
    """A section of a YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Price(YamlModel):
    """US dollars per million tokens."""

    input: float = Field(ge=0, allow_inf_nan=False)
    """Tokens of the prompt."""
    output: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Tokens of the reply."""
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Tokens of the prompt that came from the provider's cache; as input when left out."""


class Endpoint(YamlModel):
    """A model behind an endpoint. Keys come from the environment, under litellm's names."""

    model: str = Field(min_length=1)
    """The model by litellm's name, for example openai/gpt-4o-mini or hosted_vllm/qwen3."""
    api_base: Annotated[str, AfterValidator(check_url)] | None = None
    """The address of your own server; the provider's when left out."""
    timeout: float = Field(default=60, gt=0)
    """Seconds for one attempt; a call that keeps failing ends after four times as long."""
    max_concurrency: int = Field(default=16, ge=1, le=1000)
    """Most requests at a time; fewer while the endpoint limits the rate."""
    rpm: int | None = Field(default=None, ge=1)
    """Requests a minute, where the endpoint's limit is known."""
    tpm: int | None = Field(default=None, ge=1)
    """Tokens a minute, where the endpoint's limit is known."""
    shared_limit: Annotated[str, Field(pattern=LIMIT_NAME)] | None = None
    """The name of a limit in a schedules file, shared by all runs that Prefect tracks."""
    price: Price | None = None
    """The price of tokens; from litellm's table when left out."""
    budget_usd: float | None = Field(default=None, gt=0)
    """US dollars that one run may spend; calls beyond that are not made."""
    budget_calls: int | None = Field(default=None, ge=1)
    """Requests that one run may send, retries included."""
    extra: Annotated[dict[str, Any], AfterValidator(_check_extra)] = {}
    """Further parameters of the request, for example {reasoning_effort: low}."""
    provider: Annotated[str, AfterValidator(_registered), WithJsonSchema(_NAME_OF_PROVIDER)] = (
        DEFAULT_PROVIDER
    )

    def parameters(self) -> dict[str, Any]:
        """The parameters of every request."""
        return self.extra

    def identity(self) -> dict[str, Any]:
        """What these settings say of a request without its texts, and of who is asked.

        `flows.judge.provider` adds what they leave open. litellm is left out, which the ledger
        keys of earlier releases do not name.
        """
        identity = {"model": self.model, "api_base": self.api_base, **self.parameters()}
        if self.provider != DEFAULT_PROVIDER:
            identity["judge_provider"] = self.provider
        return identity


class Judge(Endpoint):
    """A language model that decomposes texts and verifies claims."""

    temperature: float | None = Field(default=0, ge=0)
    """Sampling temperature; null for a model that does not accept one."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of a reply; the provider's limit when left out."""
    seed: int | None = None
    """Sampling seed, for endpoints that accept one."""
    batch: bool = False
    """Send the calls of a run in batches, at half the price, answered within a day."""

    def parameters(self) -> dict[str, Any]:
        """The sampling parameters of every request."""
        sampling = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }
        return {name: value for name, value in sampling.items() if value is not None} | self.extra


class OnnxEncoder(YamlModel):
    """A sentence encoder that runs in this process."""

    provider: Literal["onnx"] = "onnx"
    model: str
    """A folder with an ONNX sentence encoder, relative to this file."""


class Answer(YamlModel):
    """What the answers of an entailment model mean; one of the three."""

    outputs: list[Label] | None = None
    """The meaning of each of the model's outputs, in order: entailed, neutral, contradicted. A
    single one, [entailed], is the log odds."""
    words: dict[str, Label] | None = None
    """The meaning of each word that the model may say next, for example {"Yes": entailed,
    "No": neutral}."""
    tokens: list[Label] | None = None
    """The meaning of each output that the model has for every token of the claim, in order."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [one for one in (self.outputs, self.words, self.tokens) if one is not None]
        if len(given) != 1:
            raise ValueError("give one of outputs, words and tokens")
        if self.words and not all(map(str.strip, self.words)):
            raise ValueError("name words that have a letter or a digit")
        meanings = [label for _, label in self.answers()]
        one_output = self.outputs == ["entailed"]
        if len(set(meanings)) != len(meanings) or not (
            one_output or {"entailed", "neutral"} <= set(meanings)
        ):
            raise ValueError("name entailed and neutral, and each label once")
        return self

    def read(self) -> Read:
        """Which of the three it is."""
        return "words" if self.words else "tokens" if self.tokens else "outputs"

    def answers(self) -> tuple[tuple[str, Label], ...]:
        """Each answer with its meaning."""
        if self.words:
            return tuple(self.words.items())
        return in_order(tuple(self.outputs or self.tokens or ()))


def _check_template(template: Any) -> str | tuple[str, str]:
    texts = [template] if isinstance(template, str) else template
    pair = isinstance(texts, list | tuple) and len(texts) <= 2
    if not pair or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"write a text in quotes, or a list of two, with {_ONCE_EACH}")
    if len(texts) == 1 and "{" not in texts[0]:
        if texts[0] in KNOWN_FORMS:
            return str(texts[0])
        near = nearest(texts[0].lower(), KNOWN_FORMS)
        meant = f"did you mean {near!r}? " if near else ""
        known = ", ".join(sorted(KNOWN_FORMS))
        raise ValueError(f"{meant}name one of {known}; or write a text, or two, with {_ONCE_EACH}")
    for place in (PREMISE, CLAIM):
        if (count := sum(text.count(place) for text in texts)) != 1:
            raise ValueError(f"write {_ONCE_EACH}; {place} is in it {count} times")
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


_ONCE_EACH: Final = f"{PREMISE} and {CLAIM} once each"

_TEMPLATE_SCHEMA: Final = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
    ]
}


class OnnxCrossEncoder(YamlModel):
    """An entailment model that runs in this process."""

    model: str
    """A folder with an ONNX cross-encoder for entailment, relative to this file; or a model of
    the Hugging Face Hub as owner/name or owner/name@revision, where there is no such folder."""
    template: (
        Annotated[
            str | tuple[str, str],
            BeforeValidator(_check_template),
            WithJsonSchema(_TEMPLATE_SCHEMA),
        ]
        | None
    ) = None
    """What the model reads: the name of a known template, or a text with {premise} and {claim}, or
    two for a pair of sequences; premise and claim as a pair when left out."""
    answer: Answer | None = None
    """What its answers mean; that of a known template, or id2label of its config.json, when left
    out."""
    window: int | None = Field(default=None, ge=16, le=1_000_000)
    """Tokens of premise, claim and template together; that of a known template, or that which the
    model names and 512 at most, when left out."""

    def form(self) -> Form:
        """How the model reads and answers."""
        form = PLAIN
        if isinstance(self.template, str):
            form = KNOWN_FORMS.get(self.template) or Form((self.template,))
        elif self.template:
            form = Form(self.template)
        if self.answer:
            form = form._replace(read=self.answer.read(), answers=self.answer.answers())
        return form._replace(window=self.window) if self.window else form


class EmbeddingEndpoint(Endpoint):
    """An embedding model behind an endpoint."""

    # Required here: an embedder without it is one that runs in this process.
    provider: Annotated[str, AfterValidator(_registered), WithJsonSchema(_NAME_OF_PROVIDER)]
    dimensions: int | None = Field(default=None, ge=1)
    """Length of a vector, for models that can shorten it."""
    texts_per_call: int = Field(default=256, ge=1, le=2048)
    """Texts in one request."""

    def parameters(self) -> dict[str, Any]:
        """The parameters of every request."""
        return ({"dimensions": self.dimensions} if self.dimensions else {}) | self.extra
