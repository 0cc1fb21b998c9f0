"""Runs the endpoint as a process: prints its URL, then serves until it is interrupted.

`curl URL/_stats` returns counts, `curl URL/_times` hash, arrival, reply and status of each request.
"""

import argparse
import os
import signal
import threading

from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.endpoint.throttle import Throttle


def main() -> None:
    chosen = _arguments()
    throttle = None
    if chosen.concurrent or chosen.per_second:
        throttle = Throttle(
            concurrent=chosen.concurrent,
            per_second=chosen.per_second,
            burst=chosen.burst,
            retry_after=chosen.retry_after,
        )
    parent = os.getppid()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with serve(
        port=chosen.port,
        latency=chosen.latency,
        per_token=chosen.per_token,
        spread=chosen.spread,
        throttle=throttle,
        refuses=chosen.refuses,
        fault=faults.chaos(chosen.chaos, hangs=chosen.hangs) if chosen.chaos else None,
        keep_bodies=chosen.keep_bodies,
    ) as endpoint:
        print(endpoint.url, flush=True)
        while not stopped.wait(0.5):
            if chosen.with_parent and os.getppid() != parent:
                break


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.endpoint", description=__doc__)
    add = parser.add_argument
    add("--port", type=int, default=0, help="0: any free port")
    add("--latency", type=float, default=0.0, help="seconds of every reply")
    add("--per-token", type=float, default=0.0, help="seconds of every token of a reply")
    add("--spread", type=float, default=0.0, help="share by which the latency varies")
    add("--concurrent", type=int, help="requests at once, else 429")
    add("--per-second", type=float, help="requests per second, else 429")
    add("--burst", type=float, help="requests that may come at once within that rate")
    add("--retry-after", type=float, help="Retry-After of a 429, in seconds")
    add("--chaos", type=float, default=0.0, help="share of requests with a fault")
    add("--hangs", action="store_true", help="chaos includes requests without a reply")
    add("--refuses", nargs="*", default=(), help="formats or parameters answered with 400")
    add("--keep-bodies", action="store_true", help="record headers and bodies, too")
    add("--with-parent", action="store_true", help="end when the process that started it ends")
    return parser.parse_args()


if __name__ == "__main__":
    main()
