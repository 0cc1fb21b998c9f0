"""Faults of HTTP: refusals with the messages of real providers, and bodies that are no reply."""

from collections.abc import Mapping
from typing import Final

from tests.endpoint.fault import Fault, Refusal

_USUAL: Final = {
    400: ("invalid_request_error", "The request is not valid."),
    401: ("invalid_request_error", "Incorrect API key provided."),
    403: ("permission_error", "You have no access to this model."),
    404: ("invalid_request_error", "The model `fake` does not exist."),
    408: ("timeout", "The request timed out."),
    409: ("conflict_error", "The resource was changed meanwhile."),
    413: ("request_too_large", "The request is too large."),
    422: ("invalid_request_error", "The request cannot be processed."),
    429: ("rate_limit_exceeded", "Rate limit reached for requests. Please try again."),
    500: ("server_error", "The server had an error while processing your request."),
    502: ("server_error", "Bad gateway."),
    503: ("service_unavailable", "The engine is currently overloaded."),
    504: ("timeout", "The upstream server timed out."),
    529: ("overloaded_error", "Overloaded"),
}


def status(
    code: int,
    *,
    message: str | None = None,
    retry_after: float | str | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes | str | None = None,
) -> Fault:
    """An HTTP status with its usual message, with `message`, or with `body`."""
    kind, usual = _USUAL.get(code, ("server_error", f"Status {code}."))
    sent = dict(headers or {})
    if retry_after is not None:
        sent["retry-after"] = str(retry_after)
    whole = body.encode() if isinstance(body, str) else body
    short = "rate_limit_exceeded" if code == 429 else None
    refusal = Refusal(code, usual if message is None else message, kind, short, None, sent, whole)
    return Fault(f"status {code}", refusal)


def unsupported_format(name: str = "json_schema") -> Fault:
    """400: the response format (or tools, with "tools") is not supported."""
    if name == "tools":
        return _bad("tools is not supported with this model.", "unsupported_value", "tools")
    words = f"Invalid parameter: 'response_format' of type '{name}' is not supported"
    return _bad(f"{words} with this model.", None, "response_format")


def unsupported_parameter(name: str = "seed") -> Fault:
    """400: the parameter is not supported."""
    words = f"Unsupported parameter: '{name}' is not supported with this model."
    if name == "max_tokens":
        words += " Use 'max_completion_tokens' instead."
    return _bad(words, "unsupported_parameter", name)


def too_long(limit: int = 8192, sent: int = 9000) -> Fault:
    """400: the prompt exceeds the context window."""
    words = (
        f"This model's maximum context length is {limit} tokens. However, your messages "
        f"resulted in {sent} tokens. Please reduce the length of the messages."
    )
    return _bad(words, "context_length_exceeded", "messages")


def policy() -> Fault:
    """400: the prompt violates the provider's policy."""
    words = "Your request was rejected as a result of our safety system."
    return _bad(words, "content_policy_violation", None)


def out_of_quota() -> Fault:
    """429 for an exhausted quota, which does not recover."""
    words = (
        "You exceeded your current quota, please check your plan and billing details. For more "
        "information on this error, read the docs."
    )
    refusal = Refusal(429, words, "insufficient_quota", "insufficient_quota")
    return Fault("out of quota", refusal)


def wrong_key(key: str = "sk-wrong-key-1234567890") -> Fault:
    """401 whose message repeats the key that was sent."""
    words = f"Incorrect API key provided: {key}. You can find your API key in your account."
    return Fault("wrong key", Refusal(401, words, "invalid_request_error", "invalid_api_key"))


def no_such_model(model: str = "fake") -> Fault:
    """404: no model of this name."""
    words = f"The model `{model}` does not exist or you do not have access to it."
    return Fault("no such model", Refusal(404, words, "invalid_request_error", "model_not_found"))


def html() -> Fault:
    """An HTML page with status 200, as gateways and captive portals send it."""
    page = b"<!DOCTYPE html><html><body><h1>Please sign in</h1></body></html>"
    return Fault("html", Refusal(200, headers={"content-type": "text/html"}, body=page))


def not_json() -> Fault:
    """Status 200 and the content type of JSON, but a body that ends in the middle."""
    return Fault("not json", Refusal(200, body=b'{"id": "chatcmpl-1", "choices": [{"index"'))


def _bad(words: str, code: str | None, param: str | None) -> Fault:
    name = code or f"unsupported {param}"
    return Fault(name, Refusal(400, words, "invalid_request_error", code, param))
