"""A whole run in a process of its own: it speaks to its endpoint, and says nothing else."""

import os
import subprocess
import sys
from pathlib import Path

from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import DECOMPOSE, LABELS, STEPS, Judged, about

ROOT = Path(__file__).parents[2]
SECRET = "sk-proj-0123456789abcdefSECRET"

WATCHED = """
import logging, sys

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
phoned = []

def watch(event, arguments):
    if event == "socket.connect":
        address = arguments[1]
        local = not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        local = arguments[0] in ("127.0.0.1", "::1", None)
    else:
        return
    if not local:
        phoned.append((event, arguments[:2]))
        raise ConnectionError(f"{event} {arguments[:2]}")

sys.addaudithook(watch)
from claimflow.flows.cli.main import main

code = main(sys.argv[1:])
assert "litellm" in sys.modules
print("phoned:", phoned)
sys.exit(code)
"""


def test_a_run_connects_to_its_endpoint_only(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-from-dotenv\nFROM_DOTENV=1\n", "utf-8")
    bad = faults.either(
        faults.where(about("b"), faults.first(1, faults.status(500))),
        faults.where(about("c"), faults.prose()),
        faults.where(about("d"), faults.status(400)),
    )
    with serve(fault=bad) as endpoint, serve() as other:
        judged = Judged(tmp_path, endpoint)
        claude = judged.judge(model="anthropic/claude-sonnet-4-5", api_base=other.url)
        steps = {**STEPS, "response_claims": DECOMPOSE | {"judge": "claude"}}
        judged.write("abcd", model="openai/fake", steps=steps, more={"judges": {"claude": claude}})
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, "run", "p.yaml"],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            env={
                **{name: value for name, value in os.environ.items() if "LITELLM" not in name},
                "PYTHONPATH": str(ROOT),
                "OPENAI_API_KEY": SECRET,
                "ANTHROPIC_API_KEY": SECRET,
            },
        )
        assert done.returncode == 1, done.stderr[-2000:]
        assert (other.hits, endpoint.hits) == (1, 6)
    # At exit litellm adds a debug line about itself.
    assert "phoned: []" in done.stdout.splitlines()
    assert judged.verdicts() == {
        "a": LABELS,
        "b": LABELS,
        "c": ["unparseable"] * 3,
        "d": ["bad_request"] * 3,
    }
    # The root logger is at DEBUG, and what it gets is harmless.
    assert "DEBUG" in done.stderr
    for text in (done.stderr, done.stdout, judged.everything()):
        assert "SECRET" not in text
    for words in ("The tower stands in Paris", "You judge natural language", "All in all"):
        assert words not in done.stderr
    for words in ("Traceback", "Give Feedback", "never awaited"):
        assert words not in done.stderr + done.stdout
