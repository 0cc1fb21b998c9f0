"""The judge provider that reaches models through litellm. The only module that imports litellm.

litellm may belong to the user of this process as well. So nothing of it is replaced, and its
settings, callbacks and cached clients stay as they are: what a call needs is passed with the call.
"""

import asyncio
import json
import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from functools import cache
from inspect import unwrap
from typing import Any, Final, NamedTuple

from claimflow.flows.judge.batch_protocol import (
    MOST_BYTES,
    AnthropicBatches,
    BatchApi,
    OpenaiBatches,
)
from claimflow.flows.judge.cloud_batches import (
    BedrockBatches,
    VertexBatches,
    cloud_terms,
    read_bedrock_url,
)
from claimflow.flows.judge.litellm_settings import (
    BATCH_PROVIDERS,
    address_variable,
    key_variables,
    must_import,
    other_address,
    proxied,
    reply_settings,
)
from claimflow.flows.judge.provider import (
    BatchState,
    BatchTerms,
    ChatReply,
    JudgeProvider,
    Price,
    ProviderError,
    Request,
    Usage,
)
from claimflow.flows.judge.provider_errors import classify, redirect_error
from claimflow.flows.judge.usage import checked_reply, read_reply

_MILLION: Final = 1_000_000

_HELLO: Final = [{"role": "user", "content": "Hello"}]

_LOCAL: Final = frozenset({"hosted_vllm", "lm_studio", "llamafile", "xinference", "custom_openai"})
"""Local servers. Without an address litellm would ask a company instead."""

_TAKES_CLIENT: Final = {
    "acompletion": frozenset(
        """
        a2a anthropic azure_ai bedrock bedrock_mantle cometapi compactifai databricks datarobot
        deepseek edenai fireworks_ai gemini groq heroku hosted_vllm huggingface langflow langgraph
        lemonade minimax mistral nadir ollama ollama_chat openrouter ovhcloud together_ai vertex_ai
        xai
        """.split()
    ),
    "aembedding": frozenset(
        """
        cohere cohere_chat cometapi dashscope databricks edenai hosted_vllm infinity jina_ai
        llamafile lm_studio openai_like openrouter ovhcloud perplexity qwen_ai_platform qwencloud
        sambanova triton vercel_ai_gateway volcengine voyage
        """.split()
    ),
}
"""Providers that litellm 1.106 calls through its own HTTP client, for which ours can stand in."""

_OPENAI_LIKE: Final = frozenset(
    {"assemblyai", "charity_engine", "mistral", "neosantara", "scaleway", "xiaomi_mimo"}
)
"""Providers that litellm 1.106 calls through OpenAI's client, beside those that it lists."""

_KEEPS_CLIENT: Final[Mapping[tuple[str, str], tuple[str, dict[str, Any]]]] = {
    ("acompletion", "cloudflare"): ("cloudflare", {"ssl_verify": None}),
    ("acompletion", "cohere"): ("cohere_chat", {"ssl_verify": None}),
    ("acompletion", "cohere_chat"): ("cohere_chat", {"ssl_verify": None}),
    ("aembedding", "gemini"): ("vertex_ai", {"timeout": 300}),
}
"""Providers that litellm 1.106 calls through a client that it keeps for an event loop, with the
name and the parameters of that client. It takes no other. In later releases the time limit of
Gemini's is that of the call."""

_MAX_TEXT_BYTES: Final = 2**24
"""Most bytes of a reply with a text, after it is unpacked."""

_MAX_EMBEDDING_BYTES: Final = 2**27
"""Most bytes of a reply with embeddings, after it is unpacked: 2,048 vectors of 3,072 numbers."""

_NO_CACHE: Final = {"no-cache": True, "no-store": True}

_NOT_SENT: Final = frozenset(
    {"allowed_openai_params", "extra_body", "extra_headers", "extra_query", "headers"}
    | {"organization"}
)
"""Parameters, beside those that litellm lists, which are instructions to its `acompletion`."""

_NOT_IN_A_FILE: Final = _NOT_SENT - {"allowed_openai_params", "extra_body"}
"""Those that say how a request is sent, which a file of requests cannot."""

_BY_RECORDER: Final = frozenset({"anthropic", "vertex_ai", "bedrock"})
"""Providers whose batches hold requests and replies as litellm writes and reads single ones."""

_OF_ONE: Final = frozenset({"accept-encoding", "connection", "content-length", "host"})
"""Headers of a single request, which those about batches have of their own."""

_ANY_JSON: Final = {"type": "json_schema", "json_schema": {"name": "any", "schema": {}}}


class LitellmProvider(JudgeProvider):
    """Reaches models through litellm, whose import takes seconds and happens at the first use."""

    def __init__(self) -> None:
        self._client: Any = None

    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        """As `JudgeProvider.chat`."""
        hide = [message["content"] for message in request.messages]
        reply = await self._send("acompletion", request, timeout=timeout, hide=hide)
        return _chat_reply(reply)

    async def embed(
        self,
        model: str,
        texts: Sequence[str],
        *,
        api_base: str | None,
        parameters: dict[str, Any],
        timeout: float,
    ) -> tuple[list[list[float]], Usage]:
        """As `JudgeProvider.embed`."""
        request = Request(model, [], {**parameters, "input": list(texts)}, api_base)
        reply = await self._send("aembedding", request, timeout=timeout, hide=texts)
        return _vectors(reply, len(texts)), _usage(reply)

    def batch_terms(
        self, model: str, api_base: str | None, parameters: Mapping[str, Any]
    ) -> BatchTerms | None:
        """As `JudgeProvider.batch_terms`, for `BATCH_PROVIDERS`."""
        provider = _provider_of(model, api_base)
        name = model.partition("/")[2]
        if proxied(_litellm()) or _mode(name) != "chat" or provider not in BATCH_PROVIDERS:
            return None
        if unsent := sorted(parameters.keys() & _NOT_IN_A_FILE):
            return BatchTerms(missing=f"remove {unsent[0]}: a batch cannot hold it")
        # Where an account is, the environment says: a later run has to find the batch.
        if places := sorted(one for one in parameters if one.startswith(("aws_", "vertex_"))):
            variable = places[0].upper().replace("VERTEX_", "VERTEXAI_")
            return BatchTerms(missing=f"set {variable} in the environment instead of {places[0]}")
        if provider in ("vertex_ai", "bedrock"):
            return cloud_terms(provider, name)
        return BatchTerms()

    async def check_batches(self, model: str, *, api_base: str | None, timeout: float) -> None:
        """As `JudgeProvider.check_batches`: that the bucket of a cloud is there."""
        if _provider_of(model, api_base) in ("vertex_ai", "bedrock"):
            async with self._batches(Request(model, _HELLO, {}, api_base), timeout) as batches:
                await batches.check()

    async def submit_batch(
        self, name: str, requests: Mapping[str, Request], *, timeout: float
    ) -> str:
        """As `JudgeProvider.submit_batch`."""
        first = next(iter(requests.values()))
        try:
            bodies = {one: await self._body(request) for one, request in requests.items()}
        except ProviderError as error:
            # Nothing was sent: of a package or an account that lacks.
            what = f"no request can be written: {error.message}"
            raise ProviderError("fatal", what) from None
        async with self._batches(first, timeout) as batches:
            return await batches.submit(name, bodies)

    async def _body(self, request: Request) -> dict[str, Any]:
        """The body of a request, as a batch holds it."""
        if _provider_of(request.model, request.api_base) not in _BY_RECORDER:
            with _quiet():
                return _openai_body(request)
        body: dict[str, Any] = json.loads((await self._written(request)).content)
        return body

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
        """As `JudgeProvider.find_batch`."""
        async with self._batches(Request(model, _HELLO, {}, api_base), timeout) as batches:
            return await batches.find(name, requests, since)

    async def batch_state(
        self, batch: str, model: str, *, api_base: str | None, timeout: float
    ) -> BatchState:
        """As `JudgeProvider.batch_state`."""
        async with self._batches(Request(model, _HELLO, {}, api_base), timeout) as batches:
            return await batches.state(batch)

    async def batch_replies(
        self, batch: str, model: str, *, api_base: str | None, timeout: float
    ) -> dict[str, ChatReply | ProviderError]:
        """As `JudgeProvider.batch_replies`."""
        hello = Request(model, _HELLO, {}, api_base)
        async with self._batches(hello, timeout) as batches:
            bodies = [one async for one in batches.replies(batch)]
        found: dict[str, ChatReply | ProviderError] = {}
        by_recorder = _provider_of(model, api_base) in _BY_RECORDER
        for request_id, body in bodies:
            try:
                if isinstance(body, ProviderError):
                    found.setdefault(request_id, body)
                    continue
                checked = checked_reply(body)
                read = await self._read(hello, checked) if by_recorder else _from_openai(checked)
                found[request_id] = _chat_reply(read)
            except ProviderError as error:
                found.setdefault(request_id, error)
            except Exception as error:
                found.setdefault(request_id, classify(error))
        return found

    @asynccontextmanager
    async def _batches(self, request: Request, timeout: float) -> AsyncIterator[BatchApi]:
        """The batches of the account that `request` goes to.

        The block raises `ProviderError` only.
        """
        try:
            with _quiet(), _internal_call():
                async with asyncio.timeout(timeout):
                    yield await self._batches_of(request, timeout)
        except TimeoutError:
            failure = ProviderError("timeout", f"no whole reply within {timeout:g} seconds")
        except Exception as error:
            failure = classify(error)
        else:
            return
        raise failure

    async def _batches_of(self, request: Request, timeout: float) -> BatchApi:
        provider = _provider_of(request.model, request.api_base)
        if provider not in _BY_RECORDER:
            return OpenaiBatches(self._client_of_batches(request))
        single = await self._written(request)
        url = str(single.url)
        if provider == "bedrock":
            return BedrockBatches(read_bedrock_url(url), timeout)
        client = self._own_client().client
        if provider == "vertex_ai":
            return VertexBatches(client, url, single.headers)
        headers = {name: value for name, value in single.headers.items() if name not in _OF_ONE}
        return AnthropicBatches(client, url, headers)

    async def _written(self, request: Request) -> Any:
        """The request of httpx that litellm would send for a chat; it is not sent."""
        recorder = _recorder_class()(b"{}")
        hide = [message["content"] for message in request.messages]
        try:
            await self._send("acompletion", request, timeout=60, hide=hide, client=recorder.client)
        except ProviderError:
            # It makes nothing of the empty reply.
            if recorder.request is None:
                raise
        return recorder.request

    async def _read(self, hello: Request, body: Any) -> Any:
        """A reply's body as litellm reads it when it has sent a chat."""
        from litellm.constants import RESPONSE_FORMAT_TOOL_NAME

        content = json.dumps(body)
        # litellm asks some models for JSON by a tool of this name.
        if f'"{RESPONSE_FORMAT_TOOL_NAME}"' in content:
            hello = hello._replace(parameters={"response_format": _ANY_JSON})
        client = _recorder_class()(content.encode()).client
        return await self._send("acompletion", hello, timeout=60, hide=(), client=client)

    def _client_of_batches(self, request: Request) -> Any:
        provider = _provider_of(request.model, request.api_base)
        if provider == "azure":
            return self._azure_client(request)
        if provider == "openai":
            return self._openai_client(_openai_address(request.api_base))
        found = _litellm().get_llm_provider(request.model, api_base=request.api_base)
        return self._openai_client(_OpenaiAddress(found[3], found[2] or "none"))

    def list_price(self, model: str) -> Price | None:
        """As `JudgeProvider.list_price`, from the table that litellm carries."""
        entry = _price_entry(model)
        prompt, completion = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
        if prompt is None or completion is None:
            return None
        cached = entry.get("cache_read_input_token_cost")
        per_token = (prompt, prompt if cached is None else cached, completion)
        return Price(*(Decimal(str(usd)) * _MILLION for usd in per_token))

    def identity(self, model: str, api_base: str | None) -> dict[str, Any]:
        """As `JudgeProvider.identity`. Imports litellm only where it may change the result."""
        needed = "litellm" in sys.modules or must_import() or "/" not in model
        package = _litellm() if needed else None
        named = model.partition("/")[0] if "/" in model else _provider_of(model, api_base) or ""
        provider = "litellm_proxy" if proxied(package) else named
        attribute = _address_attribute(model, provider, api_base) if package else None
        address = other_address(provider, attribute) if attribute or not api_base else None
        located = bool(api_base or address)
        settings = reply_settings(model, provider, package, located=located)
        return {
            **({"api_base": address} if address else {}),
            **({"settings": settings} if settings else {}),
        }

    def missing(self, model: str, api_base: str | None) -> str | None:
        """As `JudgeProvider.missing`. Keys are looked for in the environment.

        For a well-known provider whose key is there litellm is not imported: its seconds then pass
        beside the steps that ask nothing.
        """
        if _has_usual_key(model, api_base):
            return None
        provider = _provider_of(model, api_base)
        if provider is None:
            return (
                f"{model!r} names no provider that litellm knows: write openai/MODEL, for example"
            )
        if provider in _LOCAL and not api_base and not address_variable(provider):
            return f"{provider} needs an api_base, such as http://127.0.0.1:8000/v1"
        name = f"{provider.upper()}_API_KEY"
        key = os.environ.get(name, "")
        if not key.isascii() or any(sign.isspace() for sign in key):
            return f"{name} in the environment holds a space, a line break or a letter no key has"
        if key or _address(model, api_base).get("api_key"):
            return None
        listed = _litellm().validate_environment(model, api_base=api_base)["missing_keys"]
        missing = [*listed, *([name] if name in os.environ and not listed else [])]
        keys = all(wanted.endswith("_API_KEY") for wanted in missing)
        return f"set {' or '.join(missing)} in the environment" if missing and keys else None

    def key_variable(self, model: str, api_base: str | None) -> Sequence[str] | None:
        """As `JudgeProvider.key_variable`."""
        provider = _provider_of(model, api_base)
        return provider and key_variables(provider)

    async def warm_up(self, model: str) -> None:
        """As `JudgeProvider.warm_up`: sends a request to a closed port of this machine.

        Where litellm cannot be given an address the reply is made up instead.
        """
        await asyncio.to_thread(_litellm)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
            parameters = {} if _takes_address(model) else {"mock_response": "Hello"}
            with suppress(ProviderError):
                request = Request(model, _HELLO, parameters, nowhere)
                await self._send("acompletion", request, timeout=10, hide=(), api_key="none")

    async def close(self) -> None:
        """As `JudgeProvider.close`; clients that litellm made for other loops stay open."""
        if "litellm" not in sys.modules:
            return
        if self._client is not None:
            await self._client.close()
            self._client = None
        while _registered:
            _litellm().model_cost.pop(_registered.pop(), None)
        # litellm caches clients by event loop. A later loop can get the same id, and must not
        # find a closed client.
        cached = _litellm().in_memory_llm_clients_cache
        loop = f"-{id(asyncio.get_running_loop())}"
        for name in [name for name in list(cached.cache_dict) if str(name).endswith(loop)]:
            client = cached.cache_dict[name]
            cached.delete_cache(name)
            # A client of OpenAI that litellm made may wrap an HTTP client that is the user's.
            if getattr(client, "_client", client) is _litellm().aclient_session:
                continue
            closing = getattr(client, "aclose", None) or getattr(client, "close", None)
            if closing is not None:
                with suppress(Exception):
                    await closing()

    async def _send(
        self,
        function: str,
        request: Request,
        *,
        timeout: float,
        hide: Iterable[str],
        **more: Any,
    ) -> Any:
        """litellm's reply, asked for once. Raises `ProviderError` without the texts to `hide`."""
        package = _litellm()
        address = {**_address(request.model, request.api_base), **more}
        try:
            _reject_dropped_parameters(request)
            with _quiet(), _internal_call():
                # litellm's timeout is for each read: a reply that drips could take for ever.
                async with asyncio.timeout(timeout):
                    if function == "acompletion" and _is_plain_openai(request):
                        return await self._send_to_openai(request, timeout)
                    provider = _provider_of(request.model, request.api_base)
                    if "client" not in address:
                        client = self._client_for(function, provider or "", request, timeout)
                        address |= {"client": client} if client else {}
                    # The decorator of litellm's functions calls hooks of the user's callbacks,
                    # caches, retries and checks budgets. The function inside only sends.
                    return await unwrap(getattr(package, function))(
                        **request.parameters,
                        **address,
                        **({"messages": _marked(request, provider)} if request.messages else {}),
                        litellm_logging_obj=_silent_logging(function, request.model),
                        cache=_NO_CACHE,
                        # For tools, litellm would import a package that it does not install.
                        _skip_mcp_handler=True,
                        timeout=timeout,
                        max_retries=0,
                        num_retries=0,
                    )
        except TimeoutError:
            failure = ProviderError("timeout", f"no whole reply within {timeout:g} seconds")
        except Exception as error:
            failure = classify(error, hide=hide)
        # Raised out here, it does not carry litellm's exception, which holds the prompt.
        raise failure

    async def _send_to_openai(self, request: Request, timeout: float) -> Any:
        """The reply of OpenAI, or of a server that speaks its protocol, by our HTTP client.

        litellm's `acompletion` would use OpenAI's client for it, at 7.1 ms CPU a call; this way
        costs about 3 ms (measured on the loopback endpoint with two busy cores).
        """
        from litellm.llms.custom_httpx.llm_http_handler import BaseLLMHTTPHandler
        from litellm.utils import get_optional_params

        package = _litellm()
        model = request.model.partition("/")[2].removeprefix("responses/")
        by_responses = _by_responses_api(request)
        options = get_optional_params(
            model=model,
            custom_llm_provider="openai",
            stream=None,
            allowed_openai_params=["reasoning_effort"] if by_responses else None,
            **request.parameters,
        )
        address = _openai_address(request.api_base)
        try:
            if by_responses:
                return await self._send_to_responses_api(request, model, options, address, timeout)
            return await BaseLLMHTTPHandler().completion(
                model=model,
                messages=list[Any](request.messages),
                api_base=address.url,
                custom_llm_provider="openai",
                model_response=package.ModelResponse(),
                encoding=None,
                logging_obj=_silent_logging("acompletion", request.model),
                optional_params=options,
                timeout=timeout,
                litellm_params={},
                acompletion=True,
                stream=False,
                api_key=address.key,
                headers=dict(address.headers),
                client=self._own_client(),
            )
        except Exception as error:
            mapped = package.exception_type(
                model=model, original_exception=error, custom_llm_provider="openai"
            )
            raise mapped from error

    async def _send_to_responses_api(
        self,
        request: Request,
        model: str,
        options: dict[str, Any],
        address: "_OpenaiAddress",
        timeout: float,
    ) -> Any:
        """A chat by OpenAI's responses API, for models that it offers by no other.

        litellm's own `aresponses` imports a package that it does not install.
        """
        from litellm.completion_extras.litellm_responses_transformation.transformation import (
            LiteLLMResponsesTransformationHandler,
        )
        from litellm.llms.custom_httpx.llm_http_handler import BaseLLMHTTPHandler
        from litellm.llms.openai.responses.transformation import OpenAIResponsesAPIConfig
        from litellm.types.router import GenericLiteLLMParams

        translate: Callable[[], Any] = LiteLLMResponsesTransformationHandler
        configure: Callable[[], Any] = OpenAIResponsesAPIConfig
        translation = translate()
        common: dict[str, Any] = {
            "model": model,
            "messages": list[Any](request.messages),
            "optional_params": options,
            "litellm_params": {},
        }
        log = _silent_logging("aresponses", request.model)
        body = translation.transform_request(**common, headers={}, litellm_logging_obj=log)
        about = {name: body.pop(name) for name in ("model", "input")}
        for name in ("litellm_logging_obj", "client"):
            del body[name]
        reply = await BaseLLMHTTPHandler().async_response_api_handler(
            **about,
            responses_api_provider_config=configure(),
            response_api_optional_request_params=body,
            custom_llm_provider="openai",
            litellm_params=GenericLiteLLMParams(api_base=address.url, api_key=address.key),
            logging_obj=log,
            extra_headers=dict(address.headers),
            timeout=timeout,
            client=self._own_client(),
        )
        return translation.transform_response(
            **common,
            raw_response=reply,
            model_response=_litellm().ModelResponse(),
            logging_obj=log,
            request_data=body,
            encoding=None,
        )

    def _client_for(self, function: str, provider: str, request: Request, timeout: float) -> Any:
        """The client for a call, which follows no redirect; None where litellm takes none."""
        package = _litellm()
        if provider in _TAKES_CLIENT[function]:
            return self._own_client()
        if provider in ("openai", "text-completion-openai") and not proxied(package):
            return self._openai_client(_openai_address(request.api_base))
        if provider in ("azure", "azure_text"):
            return self._azure_client(request)
        compatible = provider in package.openai_compatible_providers or provider in _OPENAI_LIKE
        if compatible or proxied(package):
            _, _, key, url = package.get_llm_provider(request.model, api_base=request.api_base)
            return self._openai_client(_OpenaiAddress(url, key or "none")) if url else None
        if (function, provider) in _KEEPS_CLIENT:
            from litellm.llms.custom_httpx.http_handler import get_async_httpx_client

            name, parameters = _KEEPS_CLIENT[function, provider]
            _reject_redirects(get_async_httpx_client(name, params=dict(parameters)).client)
            if "timeout" in parameters:
                _reject_redirects(get_async_httpx_client(name, params={"timeout": timeout}).client)
        elif (function, provider) == ("aembedding", "ollama"):
            _reject_redirects(package.module_level_aclient.client)
        return None

    def _azure_client(self, request: Request) -> Any:
        """Azure's client as litellm makes it, over our HTTP client."""
        from litellm.llms.azure.common_utils import BaseAzureLLM
        from openai import AsyncAzureOpenAI

        package, known = _litellm(), os.environ.get
        settings = BaseAzureLLM().initialize_azure_sdk_client(
            litellm_params={},
            api_key=package.api_key or package.azure_key or known("AZURE_API_KEY"),
            api_base=request.api_base or package.api_base or known("AZURE_API_BASE"),
            model_name=request.model.partition("/")[2],
            api_version=package.api_version or known("AZURE_API_VERSION"),
            is_async=True,
        )
        ours = {"max_retries": 0, "http_client": self._own_client().client}
        return AsyncAzureOpenAI(**{**settings, **ours})

    def _openai_client(self, address: "_OpenaiAddress") -> Any:
        """OpenAI's client over our HTTP client: litellm's would use a session that the user set."""
        return _openai_class()(
            api_key=address.key,
            base_url=address.url,
            default_headers=address.headers,
            http_client=self._own_client().client,
        )

    def _own_client(self) -> Any:
        """The HTTP client of this provider's loop, which `close` closes."""
        if self._client is None:
            self._client = _client_class()(event_hooks={"response": [_read_carefully]})
        return self._client


# litellm: imported late, kept quiet during our calls.


_ENVIRONMENT: Final = {
    "LITELLM_OFFLINE_MODE": "true",
    # What releases before offline mode had instead of it, one for each of their fetches.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # In its other mode litellm reads the first .env file it finds, keys and all.
    "LITELLM_MODE": "PRODUCTION",
}
"""Set, unless they are set already, while litellm is imported by us: it fetches nothing.

litellm reads the last one and the map of costs on import. What it would fetch with the first call
of Anthropic is read while they are set, so that the environment of the process can be restored.
"""

_LOGGERS: Final = ("LiteLLM", "openai", "httpx", "httpcore", "aiohttp")
"""Below the level WARNING their records hold prompts, replies or addresses with keys."""

_LOCK: Final = threading.Lock()

_asking: Final = ContextVar("claimflow_asking", default=False)
"""Whether this code runs on behalf of one of our calls."""


def _litellm() -> Any:
    """The package, imported by the first call; any thread may ask. The import takes seconds."""
    with _LOCK:
        return _imported()


@cache
def _imported() -> Any:
    ours = "litellm" not in sys.modules
    # litellm warns, and adds warning filters, while it is imported and at its first call.
    undone = _import_undone(_ENVIRONMENT if ours else {})
    with warnings.catch_warnings(), _records_dropped(), undone:
        warnings.simplefilter("ignore")
        import litellm

        litellm.ModelResponse()
        if ours:
            # Loaded by the first call else, which sets a variable and reads one.
            with suppress(ImportError):
                import litellm.litellm_core_utils.default_encoding
                from litellm.anthropic_beta_headers_manager import get_provider_name

                get_provider_name("anthropic")
    return litellm


@contextmanager
def _import_undone(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that are not set; then restore what these and the import changed elsewhere."""
    changed = (*variables, "TIKTOKEN_CACHE_DIR")
    before = {name: os.environ.get(name) for name in changed}
    levels = {name: logging.getLogger(name).level for name in _LOWERED_LOGGERS}
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            if kept is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = kept
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


_LOWERED_LOGGERS: Final = ("httpx", "apscheduler.executors.default", "apscheduler.scheduler")


_quiet_calls = 0
_banner_before: bool | None = None


@contextmanager
def _quiet() -> Iterator[None]:
    """No banner on stdout, no log record and no warning of litellm's own types for our calls.

    litellm loads parts of itself with the first call of a provider, where pydantic warns of them.
    What is changed is restored when the last of our calls that go on together has ended.
    """
    global _quiet_calls, _banner_before  # noqa: PLW0603
    package = _litellm()
    with _LOCK:
        if _quiet_calls == 0:
            _banner_before = package.suppress_debug_info
            package.suppress_debug_info = True
            warnings.filterwarnings("ignore", _READ_ONLY, UserWarning)
        _quiet_calls += 1
    try:
        with _records_dropped():
            yield
    finally:
        with _LOCK:
            _quiet_calls -= 1
            if _quiet_calls == 0:
                package.suppress_debug_info = _banner_before
                filters: list[Any] = warnings.filters  # type: ignore[assignment]
                filters[:] = [entry for entry in filters if not _is_read_only(entry)]


_READ_ONLY: Final = "Items? .* using the `ReadOnly` qualifier"


def _is_read_only(entry: Any) -> bool:
    return getattr(entry[1], "pattern", None) == _READ_ONLY


@contextmanager
def _records_dropped() -> Iterator[None]:
    """Drop the log records that these libraries emit in this context, and in no other."""
    _filter_loggers()
    before = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(before)


@cache
def _filter_loggers() -> None:
    # A filter applies to records of its own logger alone, so the loggers below need one, too.
    for name in (*_LOGGERS, "LiteLLM Router", "LiteLLM Proxy", *_CHILD_LOGGERS):
        logging.getLogger(name).addFilter(_not_ours)


_CHILD_LOGGERS: Final = (
    *("openai._base_client", "openai._legacy_response", "openai._response"),
    *("httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy"),
    *("aiohttp.client", "aiohttp.internal"),
)


def _not_ours(_: logging.LogRecord) -> bool:
    return not _asking.get()


@contextmanager
def _internal_call() -> Iterator[None]:
    """Calls in here are not handed to litellm's logging worker, nor to its logging callbacks.

    A context variable of litellm, which no other call sees. The worker belongs to one event loop,
    possibly that of the user.
    """
    from litellm._internal_context import is_internal_call

    before = is_internal_call.set(True)
    try:
        yield
    finally:
        is_internal_call.reset(before)


def _silent_logging(function: str, model: str) -> Any:
    """The logging object of one call: it neither logs, calls back, nor prices.

    Given with the call, litellm does not set up its own, which would hand the prompt to the
    callbacks of the user and look for the price at 1.5 ms CPU a call.
    """
    silent = _silent_class()(
        model=model,
        messages=None,
        stream=False,
        call_type=function,
        start_time=datetime.now(),
        litellm_call_id="claimflow",
        function_id="",
    )
    silent.dynamic_success_callbacks = _NoCallbacks()
    return silent


@cache
def _silent_class() -> type[Any]:
    from litellm.litellm_core_utils.litellm_logging import Logging

    class Silent(Logging):  # type: ignore[misc, unused-ignore]
        def pre_call(self, *_: Any, **__: Any) -> None: ...

        def post_call(self, *_: Any, **__: Any) -> None: ...

        def response_cost_calculator(self, *_: Any, **__: Any) -> None: ...

        def should_run_prompt_management_hooks(self, *_: Any, **__: Any) -> bool:
            return False

    return Silent


class _NoCallbacks(list[Any]):
    """The callbacks of a call. litellm adds them to those of the user; the sum is empty."""

    def __bool__(self) -> bool:
        return True

    def __radd__(self, _: list[Any]) -> list[Any]:
        return []


@cache
def _client_class() -> type[Any]:
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    class SendsOnce(AsyncHTTPHandler):  # type: ignore[misc, unused-ignore]
        def create_client(self, *given: Any, **named: Any) -> Any:
            client = _reject_redirects(super().create_client(*given, **named))
            client.follow_redirects = False
            return client

        async def single_connection_post_request(self, *_: Any, **__: Any) -> Any:
            """Called while a broken connection's error is handled, to send again: raise it."""
            raise  # noqa: PLE0704

    return SendsOnce


@cache
def _recorder_class() -> type[Any]:
    import httpx
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    class Recorder(httpx.AsyncBaseTransport):
        """Notes the `request` of its `client`, and answers it with `reply`; nothing is sent."""

        def __init__(self, reply: bytes) -> None:
            self.request: httpx.Request | None = None
            self._reply = reply
            self.client = Handler(self)

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            self.request = request
            return httpx.Response(200, content=self._reply, request=request)

    class Handler(AsyncHTTPHandler):  # type: ignore[misc, unused-ignore]
        def __init__(self, recorder: Recorder) -> None:
            self._recorder = recorder
            super().__init__()

        def create_client(self, *_: Any, **__: Any) -> Any:
            return httpx.AsyncClient(transport=self._recorder)

    return Recorder


async def _read_carefully(response: Any) -> None:
    """Make litellm read the body of a reply up to a limit, and by `read_reply`."""
    path = response.request.url.path.lower()
    most = _MAX_EMBEDDING_BYTES if "embed" in path else _MAX_TEXT_BYTES
    of_openai = "/files/" in path and path.endswith("/content")
    if of_openai or path.endswith("/results") or path.startswith("/storage/v1/"):
        most = MOST_BYTES
    read = response.aiter_bytes

    async def read_up_to_most(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        size = 0
        async for part in read(chunk_size):
            size += len(part)
            if size > most:
                raise ProviderError("bad_request", f"the reply is longer than {most >> 20} MB")
            yield part

    response.aiter_bytes = read_up_to_most
    if response.is_success:
        response.json = lambda: read_reply(response.content)


@cache
def _openai_class() -> type[Any]:
    from openai import AsyncOpenAI

    class SendsOnce(AsyncOpenAI):
        @property
        def max_retries(self) -> int:
            """None: for embeddings litellm sets 2 where it is told 0."""
            return 0

        @max_retries.setter
        def max_retries(self, _: int) -> None: ...

    return SendsOnce


def _reject_redirects(client: Any) -> Any:
    """Let an httpx client raise `ProviderError` for a redirect of one of our calls.

    The client may be one that the user's process shares: for other calls the hook does nothing.
    """
    hooks = client.event_hooks
    if _raise_redirect not in hooks["response"]:
        client.event_hooks = {**hooks, "response": [_raise_redirect, *hooks["response"]]}
    return client


async def _raise_redirect(response: Any) -> None:
    if _asking.get() and (redirect := redirect_error(response)) is not None:
        raise redirect


# What litellm knows of models.


@cache
def _provider_of(model: str, api_base: str | None) -> str | None:
    """litellm's name of the provider of a model; None when it knows none."""
    package = _litellm()
    try:
        with _quiet():
            return str(package.get_llm_provider(model, api_base=api_base)[1])
    except Exception:
        return None


def _address_attribute(model: str, provider: str, api_base: str | None) -> str | None:
    """`litellm.api_base` where a call of the model goes there, else None."""
    package = _litellm()
    address = package.api_base
    if not address or provider in ("ollama", "ollama_chat"):
        return address and str(address)  # For these litellm prefers it to that of the call.
    if api_base:
        return None
    with _quiet(), suppress(Exception):
        # Of many providers litellm knows the address, and prefers that.
        return None if package.get_llm_provider(model)[3] else str(address)
    return str(address)


def _takes_address(model: str) -> bool:
    """Whether a call of a model goes to the `api_base` it is given."""
    provider = _provider_of(model, None)
    known = ("openai", "anthropic", "ollama", "ollama_chat", *_LOCAL)
    return provider in known or provider in _litellm().openai_compatible_providers


_USUAL: Final = frozenset(
    {"anthropic", "deepseek", "gemini", "groq", "mistral", "openai", "openrouter"}
)
"""Providers whose key is in PROVIDER_API_KEY."""


def _has_usual_key(model: str, api_base: str | None) -> bool:
    """Whether a call surely has what it needs, as far as that is known without litellm."""
    if "litellm" in sys.modules or must_import() or proxied(None):
        return False
    provider, slash, _ = model.partition("/")
    key = os.environ.get(f"{provider.upper()}_API_KEY", "")
    if not slash or not key.isascii() or any(sign.isspace() for sign in key):
        return False
    if api_base and (provider == "openai" or provider in _LOCAL):
        return True  # A server of one's own may need no key.
    return provider in _USUAL and bool(key)


def _is_plain_openai(request: Request) -> bool:
    """Whether a chat goes to OpenAI, or to a server that speaks its protocol.

    litellm's `acompletion` handles what needs more: parameters that are instructions to litellm,
    and an account that is identified by other means than a key in the environment.
    """
    if not request.model.startswith("openai/") or "mock_response" in request.parameters:
        return False
    if not request.api_base and not os.environ.get("OPENAI_API_KEY"):
        return False
    if proxied(_litellm()):
        return False
    from litellm.types.utils import all_litellm_params

    plain = request.parameters.keys().isdisjoint({*all_litellm_params, *_NOT_SENT})
    return plain and _mode(request.model.removeprefix("openai/")) in ("chat", "responses")


def _openai_body(request: Request) -> dict[str, Any]:
    """The body of a chat request in OpenAI's protocol."""
    from litellm.utils import get_optional_params

    provider = _provider_of(request.model, request.api_base)
    model = request.model.partition("/")[2]
    options = get_optional_params(
        model=model, custom_llm_provider=provider, stream=None, **request.parameters
    )
    more = options.pop("extra_body", None) or {}
    return {"model": model, "messages": request.messages, **options, **more}


def _from_openai(body: Mapping[str, Any]) -> Any:
    """A reply of OpenAI's protocol as litellm gives it, of what is needed here."""
    named = ("choices", "usage", "system_fingerprint")
    return _litellm().ModelResponse(**{name: body[name] for name in named if name in body})


def _mode(name: str) -> str:
    """What litellm's table says a model of OpenAI is for."""
    return str(_litellm().model_cost.get(name, {}).get("mode", "chat"))


def _by_responses_api(request: Request) -> bool:
    """Whether OpenAI answers this request by its responses API only."""
    name = request.model.removeprefix("openai/")
    if name.startswith("responses/") or _mode(name) == "responses":
        return True
    if "tools" not in request.parameters:
        return False
    from litellm.main import responses_api_bridge_check

    found, _ = responses_api_bridge_check(
        model=name,
        custom_llm_provider="openai",
        tools=request.parameters["tools"],
        reasoning_effort=request.parameters.get("reasoning_effort"),
        api_base=request.api_base,
    )
    return bool(found.get("mode") == "responses")


class _OpenaiAddress(NamedTuple):
    """Where a request goes, with which key, and headers that name the account."""

    url: str
    key: str | None
    headers: Mapping[str, str] = {}


def _openai_address(api_base: str | None) -> _OpenaiAddress:
    """`api_base`, or the address of OpenAI by litellm's settings and the environment."""
    known = os.environ.get
    key = known("OPENAI_API_KEY")
    if api_base:
        return _OpenaiAddress(api_base, key or "none")
    package = _litellm()
    # Address and key that a script set in litellm belong together.
    key = package.api_key or package.openai_key or key
    url = package.api_base or known("OPENAI_BASE_URL") or known("OPENAI_API_BASE")
    account = {
        "OpenAI-Organization": package.organization
        or known("OPENAI_ORGANIZATION")
        or known("OPENAI_ORG_ID"),
        "OpenAI-Project": known("OPENAI_PROJECT_ID"),
    }
    headers = {name: value for name, value in account.items() if value}
    return _OpenaiAddress(url or "https://api.openai.com/v1", key, headers)


def _reject_dropped_parameters(request: Request) -> None:
    """Raise `ProviderError` where the user's `litellm.drop_params` would drop a parameter.

    The judge's identity names its parameters, so all of them must be sent.
    """
    package = _litellm()
    if package.drop_params is not True:
        return
    supported = package.get_supported_openai_params(model=request.model) or []
    openai = {"temperature", "max_tokens", "seed", "response_format", "tools", "tool_choice"}
    dropped = sorted((request.parameters.keys() & openai) - set(supported))
    if dropped:
        message = f"{request.model} does not take {dropped[0]}, and litellm.drop_params is set"
        by_format = {"response_format", "tools"} & set(dropped)
        raise ProviderError("format" if by_format else "fatal", message)


def _address(model: str, api_base: str | None) -> dict[str, Any]:
    """Model and address of a call, with a placeholder key where a server may need none.

    The client of OpenAI refuses to send without any.
    """
    provider = _provider_of(model, api_base)
    if provider in ("ollama", "ollama_chat"):
        _register_ollama_model(model.partition("/")[2])
    if not api_base:
        return {"model": model}
    address = {"model": model, "api_base": api_base}
    keyless = provider == "openai" and not os.environ.get("OPENAI_API_KEY")
    return {**address, "api_key": "none"} if keyless else address


_registered: Final[set[str]] = set()
"""Entries of ours in litellm's table."""


def _register_ollama_model(name: str) -> None:
    """Add an Ollama model to litellm's table, where it is not in it, until `close`.

    About a model it does not know litellm asks the Ollama of this machine, wherever the model may
    be, twice for each call, while all other calls wait; and it puts instructions of its own into
    the prompt in place of tools.
    """
    table = _litellm().model_cost
    for provider in ("ollama", "ollama_chat"):
        known = {"litellm_provider": provider, "mode": "chat", "supports_function_calling": True}
        if f"{provider}/{name}" not in table:
            table[f"{provider}/{name}"] = known
            _registered.add(f"{provider}/{name}")


def _price_entry(model: str) -> Mapping[str, Any]:
    """The table's entry for `provider/name`, or for `name` where it is of that provider.

    Looked up here because litellm's own look-up asks a local server about its models.
    """
    table: Mapping[str, Mapping[str, Any]] = _litellm().model_cost
    provider, _, name = model.partition("/")
    bare = table.get(name, {}) if provider else {}
    ours = str(bare.get("litellm_provider")).startswith(provider)
    return table.get(model) or (bare if ours else {})


_MARKED_PROVIDERS: Final = frozenset({"anthropic", "bedrock", "vertex_ai", "openrouter"})
"""Providers of Claude, which caches what is marked; other models cache by themselves."""


def _marked(request: Request, provider: str | None) -> list[dict[str, Any]]:
    """The messages, the system message marked as cacheable where the model needs that.

    A marker on a text too short for the cache has no effect.
    """
    messages: list[dict[str, Any]] = list(request.messages)
    first = messages[0]
    needed = provider in _MARKED_PROVIDERS and "claude" in request.model.lower()
    if needed and first["role"] == "system" and len(messages) > 1:
        part = {"type": "text", "text": first["content"], "cache_control": {"type": "ephemeral"}}
        messages[0] = first | {"content": [part]}
    return messages


# litellm's replies.


def _chat_reply(reply: Any) -> ChatReply:
    if not getattr(reply, "choices", None):
        raise ProviderError("server", "the reply has no choices")
    choice = reply.choices[0]
    finish = choice.finish_reason
    text = _text(choice.message)
    refusal = _refusal(choice.message, finish, text)
    fingerprint = getattr(reply, "system_fingerprint", None)
    # A server may write anything there; the answer is paid for.
    known = fingerprint if isinstance(fingerprint, str) else None
    return ChatReply(text, finish, refusal, _usage(reply), known)


def _text(message: Any) -> str:
    for call in getattr(message, "tool_calls", None) or []:
        arguments = call.function.arguments
        if isinstance(arguments, str):
            return arguments
        return json.dumps(arguments, ensure_ascii=False)
    return message.content if isinstance(message.content, str) else ""


def _refusal(message: Any, finish: str | None, text: str) -> str | None:
    more = getattr(message, "provider_specific_fields", None) or {}
    if more.get("stop_reason") == "refusal":  # As Anthropic says it, with words or without.
        return text or "refusal"
    if text:
        return None
    reason = getattr(message, "refusal", None) or more.get("refusal")
    if reason:
        return str(reason)
    return finish if finish == "content_filter" else None


def _usage(reply: Any) -> Usage:
    usage: Any = getattr(reply, "usage", None)
    # No request is empty: litellm reports 0 where the endpoint reported nothing.
    if not getattr(usage, "prompt_tokens", None):
        return Usage(None, None, None)
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    # Nor is a reply empty; embeddings have no such number.
    return Usage(usage.prompt_tokens, cached, getattr(usage, "completion_tokens", None) or None)


def _vectors(reply: Any, number: int) -> list[list[float]]:
    """The embeddings, sorted by the index that the endpoint gave each."""
    try:
        found = {entry["index"]: entry["embedding"] for entry in reply.data}
        vectors = [found[index] for index in range(number)]
    except (KeyError, TypeError):
        vectors = []
    lists = [vector for vector in vectors if isinstance(vector, list)]
    if len(lists) != number or len(reply.data) != number:
        raise ProviderError("server", f"the reply does not hold {number} embeddings")
    return lists
