"""Rules that choose faults: by order, by attempt, or by a hash that is the same in every run."""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.endpoint import contents, statuses, wires
from tests.endpoint.fault import Fault, Rule


def first(tries: int, rule: Rule) -> Rule:
    """`rule` for the first `tries` of each group of equal requests."""
    seen: Counter[str] = Counter()

    def strike(number: int, body: Any, key: str) -> Fault | None:
        seen[key] += 1
        return rule(number, body, key) if seen[key] <= tries else None

    return strike


def in_turn(*rules: Rule | None) -> Rule:
    """The first rule for the first request, the second for the second; then no fault."""

    def strike(number: int, body: Any, key: str) -> Fault | None:
        rule = rules[number - 1] if number <= len(rules) else None
        return rule and rule(number, body, key)

    return strike


def where(applies: Callable[[Any], bool], rule: Rule) -> Rule:
    """`rule` for the requests whose body `applies` accepts."""
    return lambda number, body, key: rule(number, body, key) if applies(body) else None


def either(*rules: Rule) -> Rule:
    """The first fault that one of `rules` returns."""

    def strike(number: int, body: Any, key: str) -> Fault | None:
        faults = (rule(number, body, key) for rule in rules)
        return next((fault for fault in faults if fault is not None), None)

    return strike


def share(part: float, *rules: Rule, salt: str = "") -> Rule:
    """One of `rules` for this share of all requests.

    A hash of the request and `salt` decides, so equal requests are treated alike.
    """

    def strike(number: int, body: Any, key: str) -> Fault | None:
        drawn = hashlib.blake2b(f"{salt}{key}".encode(), digest_size=6).digest()
        position = int.from_bytes(drawn, "big") / 2**48
        if position >= part:
            return None
        return rules[int(position / part * len(rules))](number, body, key)

    return strike


def chaos(part: float, *, salt: str = "", hangs: bool = False) -> Rule:
    """Faults of many kinds for this share of the requests.

    Faults of transport occur for the first attempt of a request only, faults of the answer for
    every equal request.
    """
    of_transport = [
        *(statuses.status(code) for code in (500, 502, 503, 504, 408, 529)),
        statuses.status(429),
        statuses.status(429, retry_after=0.2),
        statuses.status(503, retry_after=0.2),
        statuses.html(),
        contents.no_choices(),
        wires.reset(),
        wires.reset(midway=True),
        wires.close(),
        *([wires.hang()] if hangs else []),
    ]
    of_answer = [
        contents.malformed(),
        contents.prose(),
        contents.empty(),
        contents.fenced(),
        contents.surrounded(),
        contents.drafted(),
        contents.thinking(),
        contents.bare_list(),
        contents.other_order(),
        contents.duplicated(),
        contents.missing(),
        contents.unknown_id(),
        contents.outside_label(),
        contents.conflicting(),
        contents.wrong_schema(),
        contents.nan(),
        contents.cut_off(),
        contents.refused(),
        contents.filtered(),
        contents.no_usage(),
    ]
    return share(part, *(first(1, fault) for fault in of_transport), *of_answer, salt=salt)
