"""Code of other packages: found by `module:Name` or by an entry point, and hashed by its source."""

import ast
import hashlib
import importlib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

_REFERENCE: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")

_IMPORTING: Final = threading.RLock()
"""Held while `sys.path` and `sys.modules` are looked at and changed."""

_SIMPLE: Final = str, int, float, bool, tuple, type(None)
"""Types of constants whose values are part of a source."""

_LONGEST: Final = 300
"""Characters of an exception that a message shows."""


class PluginError(Exception):
    """Code of another package cannot be used: what is wrong, and what would be right."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


def is_reference(text: str) -> bool:
    """Whether a text is of the form `module:Name` or `package.module:Name`."""
    return _REFERENCE.fullmatch(text) is not None


def load_object(reference: str, folder: Path | None = None) -> Any:
    """The object that `module:Name` names; the module may lie in `folder`.

    Installed modules come first. Where the module is in `folder` alone, the folder is added at the
    end of `sys.path`, so that worker processes find the module too. Raises `PluginError` where the
    module cannot be imported or has no such name, and where the file in `folder` is hidden by
    another module of that name.
    """
    name, _, attribute = reference.partition(":")
    with _IMPORTING:
        module = _import(name, folder)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        where = f" ({module.__file__})" if getattr(module, "__file__", None) else ""
        names = sorted(name for name in vars(module) if not name.startswith("_"))
        raise PluginError(
            f"the module {name}{where} has no {attribute!r}",
            f"it has {', '.join(names[:20])}" if names else "it is empty",
        )
    return found


def _import(name: str, folder: Path | None) -> ModuleType:
    top = name.partition(".")[0]
    importlib.invalidate_caches()
    beside = PathFinder.find_spec(top, [str(folder)]) if folder else None
    if beside is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _import_error(name, error) from error
        hint = f"install its package, or put {top}.py beside the pipeline file"
        raise PluginError(f"there is no module {error.name!r}", hint) from None
    except (Exception, SystemExit) as error:
        raise _import_error(name, error) from error
    loaded = getattr(sys.modules.get(top), "__file__", None)
    if beside and beside.origin and loaded and not Path(beside.origin).samefile(loaded):
        what = f"{beside.origin} is hidden by {loaded}, a module of the same name"
        raise PluginError(what, "give it another name")
    return module


def reload_module(name: str) -> None:
    """Import a module again, whose file has changed; raises `PluginError`."""
    try:
        with _IMPORTING:
            importlib.reload(sys.modules[name])
    except (Exception, SystemExit) as error:
        raise _import_error(name, error) from error


def _import_error(name: str, error: BaseException) -> PluginError:
    return PluginError(f"the module {name} cannot be imported: {describe(error)}", "mend it")


def entry_point_names(group: str) -> set[str]:
    """The names of the entry points of a group; nothing of their packages is imported."""
    return set(entry_points(group=group).names)


def load_entry_point(group: str, name: str) -> Any:
    """The object of an entry point, of which there must be one; raises `PluginError`."""
    found = list(entry_points(group=group, name=name))
    values = sorted({entry.value for entry in found})
    if len(values) != 1:
        what = f"{len(values)} packages have an entry point {name!r}: {', '.join(values)}"
        raise PluginError(what, "uninstall all but one, or write module:Name")
    try:
        with _IMPORTING:
            return found[0].load()
    except (Exception, SystemExit) as error:
        what = f"{values[0]} cannot be imported: {describe(error)}"
        raise PluginError(what, f"mend it; it is an entry point of the group {group}") from error


def describe(error: BaseException, *, module: str | None = None) -> str:
    """The type and message of an exception in one line, and the file and line that raised it.

    The place is the last one in the file of `module`, if the exception passed through that file.
    """
    message = " ".join(str(error).split())[:_LONGEST]
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append((trace.tb_frame.f_globals.get("__name__"), code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    own = [place for place in places if place[0] == module] or places
    outside = [place for place in own if not str(place[0]).startswith(("claimflow.", "importlib."))]
    where = f" ({Path(outside[-1][1]).name}:{outside[-1][2]})" if outside else ""
    return f"{type(error).__name__}{f': {message}' if message else ''}{where}"


class Source(NamedTuple):
    """A hash of source code. It is `complete` if the text of all its modules could be read."""

    digest: str
    complete: bool


def source_of(modules: Iterable[str], functions: Iterable[Callable[..., Any]]) -> Source | None:
    """The source of loaded modules, without comments and docstrings; None where there is none.

    The bytecode of `functions` stands for a module whose text cannot be read, such as a notebook,
    with the functions and the values of simple types in that module which they use. Values of
    simple types that functions took from an enclosing function count too. Other modules that these
    import do not count.
    """
    functions = list(functions)
    parts: list[object] = [_closure(function) for function in functions]
    complete = True
    for name in sorted(set(modules)):
        try:
            parts.append(syntax(inspect.getsource(sys.modules[name])))
        except (OSError, TypeError, KeyError, SyntaxError):
            own = [function for function in functions if function.__module__ == name]
            complete = complete and bool(own)
            parts += _used(own)
    if not any(parts):
        return None
    return Source(hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:32], complete)


@lru_cache(256)
def syntax(code: str, *, imports: bool = True) -> str:
    """Source code without comments and docstrings, and without its imports if `imports` is false.

    It is a text that is the same in all versions of Python. Raises `SyntaxError`.
    """
    tree = ast.parse(code)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_ignored(part, imports)]  # type: ignore[attr-defined]
    return repr(_plain(tree))


def _plain(node: Any) -> Any:
    """A syntax tree as tuples. Fields that some version of Python adds are left out while empty."""
    if isinstance(node, list):
        return tuple(map(_plain, node))
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, getattr(node, name, None)) for name in node._fields]
    filled = [(name, _plain(value)) for name, value in fields if value not in (None, [])]
    return (type(node).__name__, *filled)


def _is_ignored(node: ast.AST, imports: bool) -> bool:
    return (not imports and isinstance(node, ast.Import | ast.ImportFrom)) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _used(functions: Iterable[Callable[..., Any]]) -> list[object]:
    """The bytecode of functions, and of what they use of their module, each function once."""
    parts: list[object] = []
    left, known = list(functions), set[int]()
    while left:
        function = left.pop()
        if id(function) in known:
            continue
        known.add(id(function))
        parts.append(_bytecode(function.__code__))
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[name]
            if inspect.isfunction(value) and value.__module__ == function.__module__:
                left.append(value)
            elif isinstance(value, _SIMPLE):
                parts.append((name, repr(value)))
    return parts


def _names(code: CodeType) -> set[str]:
    inner = (_names(value) for value in code.co_consts if isinstance(value, CodeType))
    return set(code.co_names).union(*inner)


def _closure(function: Callable[..., Any]) -> list[tuple[str, str]]:
    free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    values = [(name, cell.cell_contents) for name, cell in free if _is_filled(cell)]
    return [(name, repr(value)) for name, value in values if isinstance(value, _SIMPLE)]


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _bytecode(code: CodeType) -> tuple[object, ...]:
    constants = [
        _bytecode(value)
        if isinstance(value, CodeType)
        else sorted(map(repr, value))
        if isinstance(value, frozenset)
        else repr(value)
        for value in code.co_consts
    ]
    return (code.co_code.hex(), code.co_names, code.co_varnames, constants)
