"""litellm, imported late and kept quiet: it asks the endpoint and phones nobody else."""

import importlib
import logging
import os
import threading
import warnings
from functools import cache
from types import ModuleType
from typing import Any, Final

from claimflow.flows.engine.llm.lean import make_lean

_ENVIRONMENT: Final = {
    "LITELLM_OFFLINE_MODE": "true",
    # What releases before offline mode had instead of it, one for each of their fetches.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # In its other mode litellm reads the first .env file it finds, keys and all.
    "LITELLM_MODE": "PRODUCTION",
}

_SETTINGS: Final = {
    "suppress_debug_info": True,
    "set_verbose": False,
    "drop_params": False,
    "modify_params": False,
    "telemetry": False,
    "num_retries": None,
    "cache": None,
}

_CALLBACKS: Final = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "service_callback",
    "_async_input_callback",
    "_async_success_callback",
    "_async_failure_callback",
)

_LOGGERS: Final = (
    "LiteLLM",
    "LiteLLM Router",
    "LiteLLM Proxy",
    "openai",
    "httpx",
    "httpcore",
    "aiohttp",
)
"""What these write below the top level holds prompts, replies or addresses with keys."""

_LOCAL: Final = frozenset({"hosted_vllm", "lm_studio", "llamafile", "xinference", "custom_openai"})
"""Servers of one's own. Without an address litellm would ask a company in their stead."""

_TURN: Final = threading.Lock()


def litellm() -> ModuleType:
    """The package, imported and set up by the first call; any thread may ask.

    What it sets stays set: environment variables that keep litellm from fetching price
    tables, from reading `.env` files and from reporting, and the levels of its loggers.
    The first call takes seconds.
    """
    with _TURN:
        return _loaded()


@cache
def _loaded() -> ModuleType:
    os.environ.update(_ENVIRONMENT)
    _hush()
    # litellm warns of itself, and adds filters for the whole process. One of them is
    # needed later, too, when its first calls import more of it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = importlib.import_module("litellm")
        package.ModelResponse()
    warnings.filterwarnings("ignore", message=r".*`ReadOnly` qualifier")
    for name, value in _SETTINGS.items():
        if hasattr(package, name):
            setattr(package, name, value)
    for name in _CALLBACKS:
        setattr(package, name, [])
    make_lean(package)
    _hush()
    return package


def _hush() -> None:
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@cache
def provider_of(model: str, api_base: str | None) -> str | None:
    """Who serves a model, by litellm's name; None when it knows nobody."""
    try:
        return str(litellm().get_llm_provider(model, api_base=api_base)[1])
    except Exception:
        return None


def takes_an_address(model: str) -> bool:
    """Whether a call of a model goes to the `api_base` it is given, whatever the provider."""
    provider = provider_of(model, None)
    known = ("openai", "anthropic", "ollama", "ollama_chat", *_LOCAL)
    return provider in known or provider in litellm().openai_compatible_providers


def check(model: str, api_base: str | None) -> str | None:
    """What is missing for calls of a model to succeed, as far as one can tell without one.

    None where nothing is. Keys are looked for in the environment; a server with an address
    of its own may do without.
    """
    provider = provider_of(model, api_base)
    if provider is None:
        return f"{model!r} names no provider that litellm knows: write openai/MODEL, for example"
    named = f"{provider.upper()}_API_BASE"
    if provider in _LOCAL and not api_base and not os.environ.get(named):
        return f"{provider} needs an api_base, such as http://127.0.0.1:8000/v1"
    name = f"{provider.upper()}_API_KEY"
    key = os.environ.get(name, "")
    if not key.isascii() or any(sign.isspace() for sign in key):
        return f"{name} in the environment holds a space, a line break or a letter no key has"
    if key or address(model, api_base).get("api_key"):
        return None
    told = litellm().validate_environment(model, api_base=api_base)["missing_keys"]
    missing = [*told, *([name] if name in os.environ and not told else [])]
    keys = all(wanted.endswith("_API_KEY") for wanted in missing)
    return f"set {' or '.join(missing)} in the environment" if missing and keys else None


def address(model: str, api_base: str | None) -> dict[str, Any]:
    """Where a model is asked; with a key that stands in where its server may need none.

    The client of OpenAI refuses to send without any.
    """
    provider = provider_of(model, api_base)
    if provider in ("ollama", "ollama_chat"):
        _introduce(model.partition("/")[2])
    if not api_base:
        return {"model": model}
    asked = {"model": model, "api_base": api_base}
    keyless = provider == "openai" and not os.environ.get("OPENAI_API_KEY")
    return {**asked, "api_key": "none"} if keyless else asked


def _introduce(name: str) -> None:
    """Tells litellm of a model of Ollama.

    About one it does not know it asks the Ollama of this machine, wherever the model may
    be, twice for each call, while all other calls wait; and it puts its own words into
    the prompt in place of tools.
    """
    for provider in ("ollama", "ollama_chat"):
        known = {"litellm_provider": provider, "mode": "chat", "supports_function_calling": True}
        litellm().model_cost.setdefault(f"{provider}/{name}", known)
