"""Judge providers: what asks a language model, and the registry of providers.

Everything else in `flows.judge` (rate limit, retry, budget, ledger) knows `JudgeProvider` only. A
provider is a subclass with a method `chat`. A pipeline chooses it as `module:Name`, as in
`judge: {provider: "my_package:MyJudge", model: ...}`, or by the name of an entry point of the group
`claimflow.providers`; a script may name it by `register_provider`, and `evaluate` takes an object.
The name becomes part of the judge's identity, so that its replies have ledger keys of their own.
"""

# ruff: noqa: ARG002 - the defaults of `JudgeProvider` make no use of their arguments.

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.model_settings import (
    DEFAULT_PROVIDER,
    PROVIDER_GROUP,
    PROVIDER_OBJECTS,
    PROVIDERS,
    Endpoint,
)
from claimflow.stages.plugins import (
    PluginError,
    describe,
    entry_point_names,
    is_reference,
    load_entry_point,
    load_object,
)
from claimflow.stages.rows import canonical

ErrorKind = Literal[
    "throttled",  # too many requests: wait, then ask again
    "server",  # the endpoint failed, or cannot be reached: ask again
    "timeout",  # no reply in time: ask again
    "fatal",  # no call can succeed: stop
    "format",  # the endpoint does not support this response format
    "refused",  # the provider declines this text
    "too_long",  # the text does not fit the model
    "bad_request",  # the endpoint does not accept this request
]


class ProviderError(Exception):
    """Why a call has no reply.

    `message` is one line of at most 300 characters without API keys and prompts.
    `retry_after` is the number of seconds that the endpoint asks to wait, None if it does not say.
    The retry loop sets `attempts`, and `seconds` since the first attempt was sent.
    """

    def __init__(self, kind: ErrorKind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.retry_after = retry_after
        self.attempts = 1
        self.seconds = 0.0


class Request(NamedTuple):
    """A call of a chat model.

    `model` is named as the provider names it. `messages` are `{"role": ..., "content": ...}`.
    `parameters` are sent unchanged: temperature, max_tokens, seed, those of the response format.
    `api_base` is the address of the endpoint, None for the provider's own.
    """

    model: str
    messages: list[dict[str, str]]
    parameters: dict[str, Any]
    api_base: str | None


class Usage(NamedTuple):
    """Tokens of the prompt, of its cached part, and of the reply; None where not reported."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


class ChatReply(NamedTuple):
    """A reply: its text (the arguments of the tool call, where a tool was called) and its end.

    `finish` is the finish reason as OpenAI names it; "length" means that the reply was cut off.
    `refusal` is the reason why the model gave no text, None if it did not decline. `fingerprint`
    identifies the system that replied, None if it is not reported.
    """

    text: str
    finish: str | None = None
    refusal: str | None = None
    usage: Usage = Usage()
    fingerprint: str | None = None


class Price(NamedTuple):
    """US dollars per million tokens: of the prompt, of its cached part, of the reply."""

    input: Decimal
    cached: Decimal
    output: Decimal


BATCH_SHARE: Final = Decimal("0.5")
"""What a token costs in a batch, as a share of its price: at OpenAI, Azure, Anthropic, Google,
Amazon and Mistral alike."""


class BatchState(NamedTuple):
    """How far a batch is: whether it has ended, and how many of its requests are done.

    `message` says why it ended without having done them all, None where it did.
    """

    ended: bool
    done: int = 0
    message: str | None = None


class BatchTerms(NamedTuple):
    """What batches of a model need: `fewest` requests in one, and what is `missing` to submit it.

    `missing` says what to do, as that of `JudgeProvider` does; None where nothing is.
    """

    fewest: int = 1
    missing: str | None = None


class JudgeProvider(ABC):
    """Sends requests to language models. Only `chat` has to be written.

    The coroutines of one instance run in one event loop, many at a time; the other methods may be
    called from any thread, before there is a loop. An implementation sends each request once:
    repeating it is the caller's decision.
    """

    @abstractmethod
    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        """The whole reply to a request within `timeout` seconds.

        Raises `ProviderError`, whose kind says whether to ask again. Other exceptions become one,
        see `provider_call`.
        """

    async def embed(
        self,
        model: str,
        texts: Sequence[str],
        *,
        api_base: str | None,
        parameters: dict[str, Any],
        timeout: float,
    ) -> tuple[list[list[float]], Usage]:
        """One vector for each text, in the order of `texts`, by one request.

        The vectors have the same length and hold finite numbers. Raises as `chat` does.
        """
        raise ProviderError("fatal", "this provider has no embeddings")

    def batch_terms(
        self, model: str, api_base: str | None, parameters: Mapping[str, Any]
    ) -> BatchTerms | None:
        """What batches of a model need; None where it takes none.

        `parameters` are those of its requests. Where it takes batches, the four methods below can
        be called.
        """
        return None

    async def check_batches(self, model: str, *, api_base: str | None, timeout: float) -> None:
        """Check, without submitting one, that batches of a model can be submitted.

        Raises as `chat` does. What only a submission shows is left to it.
        """
        return

    async def submit_batch(
        self, name: str, requests: Mapping[str, Request], *, timeout: float
    ) -> str:
        """Submit requests, by ids, to be answered within a day; returns the provider's id.

        All are of one model. `name` is stored with the batch, so that `find_batch` finds it.
        Raises as `chat` does.
        """
        raise ProviderError("fatal", "this provider has no batches")

    async def find_batch(
        self,
        name: str,
        model: str,
        *,
        requests: Collection[str],
        since: datetime,
        api_base: str | None,
        timeout: float,
    ) -> str | None:
        """The provider's id of the batch with that name; None if it was not submitted.

        `requests` are the ids of its requests; it was submitted after `since` (in UTC), if at all.
        Raises as `chat` does; of kind throttled where it cannot be known yet.
        """
        raise ProviderError("fatal", "this provider has no batches")

    async def batch_state(
        self, batch: str, model: str, *, api_base: str | None, timeout: float
    ) -> BatchState:
        """How far the batch with this id of the provider is. Raises as `chat` does."""
        raise ProviderError("fatal", "this provider has no batches")

    async def batch_replies(
        self, batch: str, model: str, *, api_base: str | None, timeout: float
    ) -> dict[str, "ChatReply | ProviderError"]:
        """The replies of a batch that has ended, by the ids of the requests.

        A request without a reply is left out. Raises as `chat` does.
        """
        raise ProviderError("fatal", "this provider has no batches")

    def list_price(self, model: str) -> Price | None:
        """The list price of a model; None if it is unknown, which is not the same as free."""
        return None

    def missing(self, model: str, api_base: str | None) -> str | None:
        """What a call of the model lacks (an API key, an address); None if nothing is missing.

        Checked before a run without asking the endpoint. The text is an instruction to the user.
        """
        return None

    def key_variable(self, model: str, api_base: str | None) -> str | Sequence[str] | None:
        """The environment variable that holds the API key, or several that hold it together.

        None if there is none to look for.
        """
        return None

    def identity(self, model: str, api_base: str | None) -> dict[str, Any]:
        """Who answers calls of a model, and how, as far as the judge's own settings do not say.

        JSON values without secrets, known without asking the endpoint. They become part of
        fingerprints and ledger keys, so that replies of another server or under other settings
        are not taken for these. `api_base` in it is the address that is asked in place of the one
        given; `settings` is for anything else.
        """
        return {}

    async def warm_up(self, model: str) -> None:
        """Load what the first call needs, so that its time limit does not include it."""
        return

    async def close(self) -> None:
        """Close the connections of this event loop. Called before the loop ends."""
        return


def provider_identity(endpoint: Endpoint) -> dict[str, Any]:
    """What `JudgeProvider.identity` says of an endpoint. Raises `InputError` where it fails."""
    try:
        found = open_provider(endpoint.provider).identity(endpoint.model, endpoint.api_base)
        canonical(found)
        return dict(found)
    except (Exception, SystemExit) as error:
        if isinstance(error, InputError):
            raise
        what = f"its identity cannot be told: {type(error).__name__}: {error}"
        hint = "identity returns a dict of JSON values"
        raise InputError([Fault(f"judge provider {endpoint.provider}", what, hint)]) from None


def endpoint_identity(endpoint: Endpoint) -> dict[str, Any]:
    """Everything that can change a reply of an endpoint, with the address as resolved.

    It equals `Endpoint.identity` where the provider takes nothing from elsewhere.
    """
    return endpoint.identity() | provider_identity(endpoint)


def register_provider(name: str, factory: Callable[[], JudgeProvider]) -> None:
    """Make a provider available to pipelines under `name`."""
    PROVIDERS.add(name)
    _FACTORIES[name] = factory


def judge_settings(judge: str | JudgeProvider | Mapping[str, Any]) -> dict[str, Any]:
    """What `judge:` of a pipeline holds, for a model, a provider, or settings that have a provider.

    A provider goes by its `name`, or as `module:Class`; `open_provider` finds it as long as
    something else refers to it. Of two with one `name`, the later is asked. `model` is that of the
    provider, or its class. Raises `InputError` where the name is taken.
    """
    if isinstance(judge, str):
        return {"model": judge}
    settings = {"provider": judge} if isinstance(judge, JudgeProvider) else dict(judge)
    provider = settings.get("provider")
    if not isinstance(provider, JudgeProvider):
        return settings
    kind = type(provider)
    named, model = getattr(provider, "name", None), getattr(provider, "model", None)
    own = named if isinstance(named, str) else ""
    name = own or f"{kind.__module__}:{kind.__qualname__}"
    if name in PROVIDERS or (not own and _is_taken(name, provider)):
        what = f"two providers are named {name}, and their replies would be mixed up"
        raise InputError([Fault("judge", what, "give each an attribute `name` of its own")])
    PROVIDER_OBJECTS[name] = provider
    model = model if isinstance(model, str) and model else kind.__name__
    return {"model": model, **settings, "provider": name}


def _is_taken(name: str, provider: JudgeProvider) -> bool:
    """Whether another provider goes by a name and is still used."""
    if PROVIDER_OBJECTS.get(name, provider) is provider:
        return False
    gc.collect()  # It may be one that nothing but itself refers to.
    return PROVIDER_OBJECTS.get(name, provider) is not provider


def open_provider(name: str) -> JudgeProvider:
    """A new instance of the provider that a pipeline names; an instance is taken as it is.

    Raises `InputError` for a provider that cannot be loaded or made, or is no `JudgeProvider`, and
    `KeyError` for a name that is not registered.
    """
    place = f"judge provider {name}"
    try:
        found = _FACTORIES.get(name) or PROVIDER_OBJECTS.get(name) or _load(name)
    except PluginError as error:
        raise InputError([Fault(place, error.what, error.hint)]) from None
    try:
        provider = found if isinstance(found, JudgeProvider) else found()
        if not isinstance(provider, JudgeProvider):
            raise TypeError(f"{type(provider).__name__} is not a subclass of JudgeProvider")
    except (Exception, SystemExit) as error:
        what = f"cannot be loaded: {describe(error, module=getattr(found, '__module__', None))}"
        known = f"{getattr(found, '__module__', '')}:{getattr(found, '__qualname__', name)}"
        raise InputError([Fault(place, what, f"mend {known}")]) from None
    return provider


def _load(name: str) -> Any:
    if is_reference(name):
        return load_object(name)
    if name not in entry_point_names(PROVIDER_GROUP):
        raise KeyError(name)
    return load_entry_point(PROVIDER_GROUP, name)


def _litellm() -> JudgeProvider:
    from claimflow.flows.judge.litellm_provider import LitellmProvider

    return LitellmProvider()


_FACTORIES: Final[dict[str, Callable[[], JudgeProvider]]] = {DEFAULT_PROVIDER: _litellm}
