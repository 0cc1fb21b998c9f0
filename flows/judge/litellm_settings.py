"""Who answers a call by litellm: the address and the settings that it takes from elsewhere.

litellm reads both from environment variables and from attributes of its module. This module reads
the same without importing litellm, which takes seconds: what is not imported has its defaults.
Functions get litellm as `package`, None where it is not imported.
"""

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

BATCH_PROVIDERS: Final = frozenset(
    {"openai", "azure", "hosted_vllm", "anthropic", "vertex_ai", "bedrock"}
)
"""Providers whose batch protocols are known."""

_SAME: Final = {
    "ai21_chat": "ai21",
    "anthropic_text": "anthropic",
    "azure_text": "azure",
    "bedrock_converse": "bedrock",
    "cohere_chat": "cohere",
    "custom_openai": "openai",
    "ollama_chat": "ollama",
    "sagemaker_chat": "sagemaker",
    "sagemaker_nova": "sagemaker",
    "text-completion-codestral": "codestral",
    "text-completion-openai": "openai",
    "vertex_ai_beta": "vertex_ai",
    "watsonx_text": "watsonx",
}
"""Providers that take address and settings from the variables of another."""

_ADDRESSES: Final[Mapping[str, tuple[str, ...]]] = {
    "a2a_agent": ("A2A_API_BASE",),
    "anthropic": ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
    "azure_ai": ("AZURE_AI_API_BASE", "AZURE_API_BASE"),
    "baseten": (),
    "bedrock": ("AWS_BEDROCK_RUNTIME_ENDPOINT",),
    "datarobot": ("DATAROBOT_ENDPOINT",),
    "featherless_ai": ("FEATHERLESS_AI_API_BASE", "FEATHERLESS_API_BASE"),
    "fireworks_ai": ("FIREWORKS_API_BASE",),
    "friendliai": ("FRIENDLI_API_BASE",),
    "gradient_ai": ("GRADIENT_AI_AGENT_ENDPOINT",),
    "huggingface": ("HF_API_BASE", "HUGGINGFACE_API_BASE"),
    "lambda_ai": ("LAMBDA_API_BASE",),
    "meta_llama": ("LLAMA_API_BASE",),
    "mistral": ("MISTRAL_AZURE_API_BASE", "MISTRAL_API_BASE"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "sap": ("AI_API_URL", "SAP_API_BASE"),
    "scx-ai": ("SCX_API_BASE",),
    "tensormesh": ("TENSORMESH_SERVERLESS_BASE_URL",),
    "vertex_ai": ("VERTEXAI_API_BASE", "VERTEX_API_BASE"),
    "volcengine": ("VOLCENGINE_API_BASE", "ARK_API_BASE"),
    "watsonx": ("WATSONX_API_BASE", "WATSONX_URL", "WX_URL", "WML_URL"),
}
"""Variables with the address of a provider, of which the first that is set counts. Of other
providers it is `PROVIDER_API_BASE`."""

_AWS: Final = ("AWS_REGION_NAME", "AWS_REGION", "AWS_DEFAULT_REGION")

_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "bedrock": _AWS,
    "bedrock_mantle": ("BEDROCK_MANTLE_REGION", *_AWS),
    "cloudflare": ("CLOUDFLARE_ACCOUNT_ID",),
    "oci": ("OCI_REGION",),
    "sagemaker": _AWS,
    "snowflake": ("SNOWFLAKE_ACCOUNT_ID",),
    "vertex_ai": ("VERTEXAI_PROJECT", "VERTEXAI_LOCATION", "VERTEX_LOCATION"),
    "watsonx": (
        *("WATSONX_REGION", "WX_REGION", "WATSONX_PROJECT_ID", "WX_PROJECT_ID"),
        *("WATSONX_DEPLOYMENT_SPACE_ID", "WATSONX_SPACE_ID", "WX_SPACE_ID"),
    ),
}
"""Variables from which litellm makes the address of a provider where it is given none."""

_VERSIONS: Final = {
    "azure": "AZURE_API_VERSION",
    "azure_ai": "AZURE_API_VERSION",
    "oci": "OCI_API_VERSION",
}

_NUMBERS: Final = (
    "DEFAULT_MAX_TOKENS",
    "DEFAULT_MAX_TOKENS_FOR_TRITON",
    "DEFAULT_ANTHROPIC_CHAT_MAX_TOKENS",
    "DEFAULT_REASONING_EFFORT_",
    "BEDROCK_MIN_THINKING_BUDGET_TOKENS",
)
"""Variables, or how their names start, with numbers that litellm sends in place of missing ones."""

_SWITCHES: Final = (
    "LITELLM_DROP_PARAMS",
    "LITELLM_MODIFY_PARAMS",
    "LITELLM_ROUTE_ALL_CHAT_OPENAI_TO_RESPONSES",
)
"""Variables by which litellm sets its attributes while it is imported."""

_ATTRIBUTES: Final = (
    "add_function_to_prompt",
    "api_version",
    "custom_prompt_dict",
    "disable_add_prefix_to_prompt",
    "disable_anthropic_gemini_context_caching_transform",
    "disable_stop_sequence_limit",
    "drop_params",
    "enable_gemini_default_thinking_level_low",
    "enable_preview_features",
    "model_fallbacks",
    "modify_params",
    "network_mock",
    "openai_system_messages_first",
    "reasoning_auto_summary",
    "route_all_chat_openai_to_responses",
    "vertex_ai_safety_settings",
    "vertex_location",
    "vertex_project",
)
"""Attributes of litellm, empty by default, that change a request, or who gets it."""

_AWS_KEYS: Final = (
    ("AWS_WEB_IDENTITY_TOKEN", "AWS_ROLE_NAME", "AWS_SESSION_NAME"),
    ("AWS_ROLE_NAME",),
    ("AWS_PROFILE_NAME",),
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ("AWS_PROFILE",),
    ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
)

_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "bedrock": (("AWS_BEARER_TOKEN_BEDROCK",), *_AWS_KEYS),
    "sagemaker": _AWS_KEYS,
    "vertex_ai": (("VERTEXAI_CREDENTIALS",), ("GOOGLE_APPLICATION_CREDENTIALS",)),
}
"""Variables with the credentials of a provider, of which the first that are all set count. Of other
providers it is `PROVIDER_API_KEY`."""

_USUAL_KEYS: Final = {
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "sagemaker": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "vertex_ai": ("GOOGLE_APPLICATION_CREDENTIALS",),
}
"""Those to set where none is."""

_OWN_ADDRESS: Final = {
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://localhost:11434",
    "openai": "https://api.openai.com/v1",
}


def must_import() -> bool:
    """Whether the import of litellm would set anything, by its own variables or a .env file."""
    mode = os.environ.get("LITELLM_MODE", "PRODUCTION")
    return mode != "PRODUCTION" or any(os.environ.get(name) for name in _SWITCHES)


def proxied(package: Any) -> bool:
    """Whether litellm sends the calls of all models to a LiteLLM proxy."""
    by_variable = os.environ.get("USE_LITELLM_PROXY", "").strip().lower() == "true"
    return by_variable or getattr(package, "use_litellm_proxy", False) is True


def address_variable(provider: str) -> str | None:
    """The environment variable that gives the address of a provider, None where none is set."""
    provider = _SAME.get(provider, provider)
    usual = (f"{provider.upper()}_API_BASE",)
    names = _ADDRESSES.get(provider, usual)
    return next((name for name in names if os.environ.get(name)), None)


def key_variables(provider: str) -> tuple[str, ...]:
    """The environment variables that hold the key of a provider together.

    Where there are several ways to give it, those of the one that counts, or that is usual.
    """
    same = _SAME.get(provider, provider)
    if same not in _KEYS:
        return (f"{provider.removesuffix('_chat').upper()}_API_KEY",)
    given = (names for names in _KEYS[same] if all(map(os.environ.get, names)))
    return next(given, _USUAL_KEYS[same])


def other_address(provider: str, attribute: str | None) -> str | None:
    """The address that litellm asks where a call names none, normalised.

    `attribute` is `litellm.api_base`. None is the provider's own address, however it is given.
    """
    variable = address_variable(provider)
    found = attribute or (variable and os.environ[variable])
    address = normalised(found) if found else None
    return None if address == _OWN_ADDRESS.get(_SAME.get(provider, provider)) else address


def reply_settings(model: str, provider: str, package: Any, *, located: bool) -> dict[str, Any]:
    """What changes replies beside address and parameters, where it is not litellm's default.

    JSON values by name of variable or attribute. A call that is `located` names an address.
    """
    provider = _SAME.get(provider, provider)
    names = [name for name in os.environ if name.startswith(_NUMBERS)]
    names += () if located else _PLACES.get(provider, ())
    names += (_VERSIONS[provider],) if provider in _VERSIONS else ()
    found: dict[str, Any] = {name: value for name in names if (value := os.environ.get(name))}
    for name in _ATTRIBUTES:
        if value := getattr(package, name, None):
            found[name] = _json(value)
    if alias := (getattr(package, "model_alias_map", None) or {}).get(model):
        found["model_alias_map"] = _json(alias)
    return found


def _json(value: Any) -> Any:
    """A setting as a JSON value; of anything else, the name of its type."""
    if isinstance(value, Mapping):
        return {str(name): _json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    return value if value is None or isinstance(value, str | int) else type(value).__name__


def normalised(address: str) -> str:
    """The address as one text for all its spellings, without user, password and query.

    Scheme and host are in lower case; the usual port and slashes at the end are left out.
    """
    try:
        parts = urlsplit(address.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host:
        return address.strip().rpartition("@")[2].partition("?")[0].rstrip("/")
    named = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    at_port = "" if port in (None, usual) else f":{port}"
    return f"{parts.scheme}://{named}{at_port}{parts.path.rstrip('/')}"
