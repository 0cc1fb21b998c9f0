"""Samples as the page carries them."""

import base64
import gzip
import json
import random
from collections.abc import Iterator
from typing import Any

from claimflow.flows.report.html import Payload, pack_entries


def unpacked(payload: Payload) -> list[Any]:
    found: list[Any] = json.loads(gzip.decompress(base64.b64decode(payload.text)))
    return found


def test_unpacking_returns_the_entries() -> None:
    entries = [{"text": "</script> größer 😀", "none": None, "list": [1, {"deep": "x"}]}, {}]
    payload = pack_entries(entries, most=1_000)
    assert payload.held == 2
    assert payload.text.isascii()
    assert "<" not in payload.text
    assert unpacked(payload) == entries


def test_no_samples_are_an_empty_list() -> None:
    assert unpacked(pack_entries([], most=10)) == []


def test_control_characters_are_replaced_one_for_one() -> None:
    text = "a\x1b[31m\u202eb\x00\u2066c\r\n\t"
    [entry] = unpacked(pack_entries([{text: text}], most=1_000))
    [(key, value)] = entry.items()
    assert key == value == "a␛[31m\ufffdb␀\ufffdc␍\n\t"
    assert len(value) == len(text)


def test_numbers_have_six_decimals() -> None:
    assert unpacked(pack_entries([{"x": 0.1 + 0.2, "y": 1 / 3, "z": True}], most=1_000)) == [
        {"x": 0.3, "y": 0.333333, "z": True}
    ]


def letters(count: int) -> str:
    """Letters that hardly get smaller."""
    chance = random.Random(count)
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=count))


def test_entries_beyond_the_limit_are_not_read() -> None:
    read = []

    def entries() -> Iterator[dict[str, Any]]:
        for number in range(100):
            read.append(number)
            yield {"number": number, "text": letters(1_000 + number)}

    payload = pack_entries(entries(), most=5_000)
    kept = unpacked(payload)
    assert [entry["number"] for entry in kept] == list(range(payload.held))
    assert 1 < payload.held < 10
    assert len(read) == payload.held + 1
    assert len(payload.text) <= 5_000 + 100


def test_the_first_entry_is_always_included() -> None:
    payload = pack_entries([{"text": letters(10_000)}, {"text": "b"}], most=100)
    assert [len(entry["text"]) for entry in unpacked(payload)] == [10_000]
