"""Read a YAML file as plain values, with the line of every key."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from claimflow.flows.errors import NO_UNICODE, Fault, InputError, is_unicode
from claimflow.flows.files import read_text, similar_file
from claimflow.flows.pipeline.limits import YAML_BYTES

_TEXT: Final = "tag:yaml.org,2002:str"
_WHOLE: Final = "tag:yaml.org,2002:int"
_SHOWN: Final = 80
"""Characters of an unreadable value that a message shows."""


class YamlSource(NamedTuple):
    """A YAML file: its `value`, the line of each path in it, and faults found on reading.

    A value that comes from Python, not from a file, has no lines: `text` is that value as YAML.
    `arguments` are the sections that arguments of a Python function replaced.
    """

    path: Path
    text: str
    value: Any
    lines: dict[tuple[str, ...], int] | None
    faults: list[Fault]
    arguments: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path:
        """The folder of the file; paths in the file are relative to it."""
        return self.path.absolute().parent

    def place(self, *path: str) -> str:
        """File, line and path: `nightly.yaml:7 steps.verify`, or the nearest key above it.

        What an argument gave is named by the argument: `judge.model`.
        """
        known = path
        while known and known not in (self.lines or {}):
            known = known[:-1]
        if path and path[0] in self.arguments and len(known) < 2:
            return ".".join([_ARGUMENTS.get(path[0], path[0]), *path[1:]])
        if self.lines is None:
            return ".".join([self.path.name, *path])
        return f"{self.path}:{self.lines.get(known, 1)} {'.'.join(path)}".rstrip()

    def section(self, key: str) -> dict[str, Any]:
        """The mapping under a key; empty where there is none."""
        found = self.value.get(key) if isinstance(self.value, dict) else None
        return found if isinstance(found, dict) else {}

    def with_sections(self, sections: Mapping[str, Any]) -> "YamlSource":
        """The same source with sections that arguments of a function replace or add.

        What they leave as it is keeps its line. Raises `InputError` for values that are neither
        JSON nor paths.
        """
        if not sections or not isinstance(self.value, dict):
            return self
        arguments = self.arguments | sections.keys()
        changed = source_from(
            {**self.value, **sections}, self.folder, name=self.path.name, arguments=arguments
        )
        lines = self.lines and {
            at: line
            for at, line in self.lines.items()
            if not {*at[:1]} & sections.keys() or _at(changed.value, at) == _at(self.value, at)
        }
        return self._replace(
            text=changed.text, value=changed.value, lines=lines, arguments=arguments
        )


_ARGUMENTS: Final = {"samples": "answers", "steps": "metrics"}
"""Arguments that are named otherwise than the section that they replace."""


def _at(value: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of keys and of indexes of lists; None where there is none."""
    for key in path:
        if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(key)
        else:
            return None
    return value


def load_yaml(path: Path, *, what: str = "a pipeline's YAML file") -> YamlSource:
    """Read a YAML file safely; `what` it should be is the hint where there is none.

    Duplicate keys, keys that are no text, and aliases are collected as faults.
    Raises `InputError` when the file is missing, too large, no UTF-8 or no YAML at all.
    """
    text = _text(path, what)
    reader = _Reader(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        value = reader.read(root, ()) if root is not None else None
    except RecursionError:
        what = "its brackets or lists are nested hundreds deep"
        raise InputError([Fault(str(path), what, "use less nesting")]) from None
    except yaml.MarkedYAMLError as error:
        raise InputError([_syntax_fault(path, error)]) from error
    except yaml.YAMLError as error:
        what = f"is not YAML ({str(error).splitlines()[0]})"
        raise InputError([Fault(str(path), what, "write it as UTF-8 text")]) from error
    return YamlSource(path, text, value, reader.lines, reader.faults)


def source_from(
    value: Mapping[str, Any],
    folder: Path,
    *,
    name: str = "pipeline",
    arguments: frozenset[str] = frozenset(),
) -> YamlSource:
    """What `load_yaml` returns, from the values that a YAML file would hold.

    Paths in it are relative to `folder`; `name` is what messages call it, but for the sections
    that are `arguments`. Raises `InputError` for values that are neither JSON nor paths.
    """
    source = YamlSource(folder / name, "", None, None, [], arguments)
    try:
        faults = [Fault(source.place(*path), *wrong) for path, *wrong in _not_plain(value, ())]
    except RecursionError:
        faults = [Fault(name, "its values are nested hundreds deep", "use less nesting")]
    if faults:
        raise InputError(faults)
    plain = json.loads(json.dumps(value, default=_json_value))
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return source._replace(text=text, value=plain)


def _json_value(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _not_plain(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(path, what is wrong, a hint) of each value that cannot be written as YAML."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str | int) and _is_plain(key):
                yield from _not_plain(inner, (*path, str(key)))
            else:
                yield path, f"the key {key!r} is not text", "write the keys as text"
    elif isinstance(value, list | tuple):
        for n, inner in enumerate(value):
            yield from _not_plain(inner, (*path, str(n)))
    elif wrong := _wrong_scalar(value):
        yield path, *wrong


def _wrong_scalar(value: Any) -> tuple[str, str] | None:
    """What is wrong with a value that is neither a mapping nor a list, and a hint."""
    match value:
        case str() | Path():
            return None if is_unicode(str(value)) else NO_UNICODE
        case float():
            return None if math.isfinite(value) else (f"is {value}", "write a finite number")
        case None | int():
            return None if _is_plain(value) else ("is beyond 64 bits", "write a smaller number")
        case _:
            hint = "use text, numbers, truth values, lists and mappings"
            return f"is of type {type(value).__name__}", hint


class _Reader:
    """Builds plain values from YAML nodes, and collects their lines and the faults."""

    def __init__(self, path: Path) -> None:
        self.lines: dict[tuple[str, ...], int] = {}
        self.faults: list[Fault] = []
        self._path = path
        self._seen: set[int] = set()
        self._scalars = yaml.constructor.SafeConstructor()

    def read(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        self.lines.setdefault(path, _line(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._seen:
            self._fault(self.lines[path], path, "aliases are not supported", "write it out")
            return None
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        return [self.read(child, (*path, str(i))) for i, child in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            # The grades of a scale are written as numbers.
            known = (_TEXT, _WHOLE) if path[-1:] == ("scale",) else (_TEXT,)
            if key_node.tag not in known:
                which = f"the key {key!r}" if isinstance(key, str) else "a key"
                self._fault(_line(key_node), path, f"{which} is not text", "put it in quotes")
                continue
            if key in values:
                first = self.lines[(*path, key)]
                what = (
                    f"two steps are named {key!r}"
                    if path == ("steps",)
                    else f"{key!r} is written twice"
                )
                hint = f"the first is on line {first}; rename or remove one"
                self._fault(_line(key_node), (*path, key), what, hint)
                continue
            self.lines[(*path, key)] = _line(key_node)
            values[key] = self.read(value_node, (*path, key))
        return values

    def _scalar(self, node: yaml.ScalarNode, path: tuple[str, ...]) -> Any:
        # PyYAML raises these for a text that does not fit its tag.
        with suppress(yaml.YAMLError, ValueError, LookupError, AttributeError):
            value = self._scalars.construct_object(node)
            if _is_plain(value):
                return value
        shown = node.value if len(node.value) <= _SHOWN else f"{node.value[:_SHOWN]}…"
        what = f"{shown!r} cannot be read"
        self._fault(_line(node), path, what, "write plain text or a number")
        return None

    def _fault(self, line: int, path: tuple[str, ...], what: str, hint: str) -> None:
        place = f"{self._path}:{line} {'.'.join(path)}".rstrip()
        self.faults.append(Fault(place, what, hint))


def _is_plain(value: Any) -> bool:
    """Whether a value can be written as JSON: no lone surrogates, no integer over 64 bits."""
    if isinstance(value, str):
        return is_unicode(value)
    return not isinstance(value, int) or value.bit_length() <= 64


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _text(path: Path, should_be: str) -> str:
    try:
        text = read_text(path, YAML_BYTES)
    except UnicodeDecodeError as error:
        fault = Fault(str(path), f"is not UTF-8 at byte {error.start}", "save it as UTF-8 text")
        raise InputError([fault]) from error
    except (OSError, ValueError) as error:
        # A name with a null character is a ValueError.
        what = f"cannot be read ({getattr(error, 'strerror', error)})"
        hint = similar_file(path, f"name {should_be}", any_ending=True)
        raise InputError([Fault(str(path), what, hint)]) from error
    if text is None:
        what = f"is larger than {YAML_BYTES >> 10} KiB"
        raise InputError([Fault(str(path), what, "split it into several files")])
    return text


def _syntax_fault(path: Path, error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    place = f"{path}:{mark.line + 1}" if mark else str(path)
    column = f", column {mark.column + 1}" if mark else ""
    return Fault(
        place, f"is not YAML: {error.problem}{column}", "correct this line or the one above"
    )
