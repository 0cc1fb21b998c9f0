"""A fake model endpoint on loopback: a deterministic judge, and faults of every kind.

`with serve(fault=..., latency=...) as endpoint:` runs it in a thread of this process,
`python -m tests.endpoint` as a process of its own. It implements the parts of the
OpenAI, Ollama and Anthropic APIs that litellm needs for `openai/x`, `hosted_vllm/x` (api_base:
`endpoint.api_base`), `ollama_chat/x` and `anthropic/x` (api_base: `endpoint.url`).
"""

from tests.endpoint import faults
from tests.endpoint.fault import Fault, Rule
from tests.endpoint.record import Recorded
from tests.endpoint.server import Endpoint, serve
from tests.endpoint.throttle import Throttle

__all__ = ["Endpoint", "Fault", "Recorded", "Rule", "Throttle", "faults", "serve"]
