"""Settings of judges, embedders and entailment models."""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from claimflow.flows.files import path_exists

# A model that a pipeline names: a folder, or one of the Hugging Face Hub.


_NEWEST: Final = "main"
"""The revision that is meant where none is named."""

_NAMED: Final = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)


class HubModel(NamedTuple):
    """A model of the Hub: `name` is owner/name, `revision` a branch, a tag or a commit."""

    name: str
    revision: str = _NEWEST

    def __str__(self) -> str:
        return self.name if self.revision == _NEWEST else f"{self.name}@{self.revision}"


def folder_or_hub_model(base: Path, written: str) -> Path | HubModel:
    """What is meant by a `written` model in a file whose folder is `base`.

    A folder that is there goes before a model of that name. What has not the form of a name,
    owner/name or owner/name@revision, is a folder, whether it is there or not: `./owner/name`.
    """
    folder = base / written
    named = _NAMED.fullmatch(written)
    if named is None or path_exists(folder):
        return folder
    return HubModel(named[1], named[2] or _NEWEST)


# What a pipeline may say of a language model or an embedding model behind an endpoint.


EMBEDDED: Final = "embedded"
"""The judge that needs no language model, for a step that is to do without the pipeline's."""

DEFAULT_JUDGE: Final = "judge"
"""The name of the judge of all steps that choose none."""

LIMIT_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
"""What a limit that runs share may be called."""

SECRET_NAME: Final = re.compile(
    r"api[_-]?key|secret|password|passwd|credential|authorization|access[_-]?token|bearer",
    re.IGNORECASE,
)
"""Names that secrets go by. They have no place in a file that is shared and stored."""
_OURS: Final = frozenset(
    """
    api_base base_url drop_params input max_retries max_tokens messages mock_response model n
    num_retries request_timeout response_format seed stream temperature timeout tool_choice tools
    """.split()
)


def _no_credentials(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a URL such as http://127.0.0.1:8000/v1 belongs here")
    if parts.username or parts.password or parts.query:
        raise ValueError("keys belong in the environment, not into a URL")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("the port of a URL is a number up to 65535") from None
    return url


def _passed_through(extra: dict[str, Any]) -> dict[str, Any]:
    taken = sorted(_OURS & set(extra))
    if taken:
        raise ValueError(f"{taken[0]} is not for extra: it is set by the judge or by claimflow")
    secret = _secret_in(extra)
    if secret:
        raise ValueError(f"{secret} looks like a secret: keys belong in the environment")
    return extra


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


class YamlModel(BaseModel):
    """A part of a pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Price(YamlModel):
    """US dollars per million tokens."""

    input: float = Field(ge=0)
    """Tokens of the prompt."""
    output: float = Field(default=0, ge=0)
    """Tokens of the reply."""
    cached_input: float | None = Field(default=None, ge=0)
    """Tokens of the prompt that the provider had cached; the price of input when left out."""


class Endpoint(YamlModel):
    """A model reached through litellm. Keys come from the environment, under litellm's names."""

    model: str = Field(min_length=1)
    """The model by litellm's name, for example openai/gpt-4o-mini or hosted_vllm/qwen3."""
    api_base: Annotated[str, AfterValidator(_no_credentials)] | None = None
    """The address of a server of your own; the provider's when left out."""
    timeout: float = Field(default=60, gt=0)
    """Seconds that one attempt may take; a call that keeps failing is given up after four times."""
    max_concurrency: int = Field(default=16, ge=1, le=1000)
    """Requests at a time, at most; fewer while the endpoint sends us away."""
    rpm: int | None = Field(default=None, ge=1)
    """Requests a minute, where the endpoint's limit is known."""
    tpm: int | None = Field(default=None, ge=1)
    """Tokens a minute, where the endpoint's limit is known."""
    shared_limit: Annotated[str, Field(pattern=LIMIT_NAME)] | None = None
    """A limit of a schedules file, which all runs that Prefect tracks share."""
    price: Price | None = None
    """What tokens cost; litellm's table when left out."""
    budget_usd: float | None = Field(default=None, gt=0)
    """US dollars that one run may spend; what would cost more is not asked."""
    budget_calls: int | None = Field(default=None, ge=1)
    """Requests that one run may send, repeated ones included."""
    extra: Annotated[dict[str, Any], AfterValidator(_passed_through)] = {}
    """Parameters passed on as they are, for example {reasoning_effort: low}."""


class Judge(Endpoint):
    """A language model that decomposes and verifies."""

    provider: Literal["litellm"] = "litellm"
    temperature: float | None = Field(default=0, ge=0)
    """Of sampling; null for a model that does not take it."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of a reply, at most; the provider's limit when left out."""
    seed: int | None = None
    """Of sampling, for endpoints that know one."""

    def identity(self) -> dict[str, Any]:
        """What could change a reply: all that is sent beside the messages."""
        return {"model": self.model, "api_base": self.api_base, **self.parameters()}

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
    """A folder that holds an ONNX sentence encoder; relative to this file."""


class OnnxCrossEncoder(YamlModel):
    """An entailment model that runs in this process."""

    model: str
    """A folder that holds an ONNX cross-encoder for entailment, relative to this file; or one of
    the Hugging Face Hub as owner/name or owner/name@revision, where there is no such folder."""


class EmbeddingEndpoint(Endpoint):
    """An embedding model behind an endpoint."""

    provider: Literal["litellm"]
    dimensions: int | None = Field(default=None, ge=1)
    """Numbers of a vector, for models that can shorten them."""
    texts_per_call: int = Field(default=256, ge=1, le=2048)
    """Texts sent in one request."""

    def identity(self) -> dict[str, Any]:
        """What could change a vector."""
        return {"model": self.model, "api_base": self.api_base, **self.parameters()}

    def parameters(self) -> dict[str, Any]:
        """What is sent beside the texts."""
        return ({"dimensions": self.dimensions} if self.dimensions else {}) | self.extra
