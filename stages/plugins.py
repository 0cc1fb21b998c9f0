"""Code of other packages: found by `module:Name` or by an entry point, and hashed by its source."""

import ast
import hashlib
import importlib
import inspect
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

_REFERENCE: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")

_IMPORTING: Final = threading.RLock()
"""Held while `sys.path` and `sys.modules` are looked at and changed."""

_CONSTANTS: Final = str, bytes, int, float, complex, bool, type(None), tuple, range, re.Pattern
"""Types of values that count although the text of their module does: it may set them anew."""

_SIMPLE: Final = (
    *(str, bytes, int, float, complex, bool, type(None), range),
    *(Decimal, Fraction, date, time, timedelta, tzinfo, PurePath, Enum),
)
"""Types of values whose `repr` says all of them, in every process."""

_MOST_VALUES: Final = 100_000
"""Values in lists, dicts and objects that are part of a source; larger ones are not read."""

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
    try:
        message = " ".join(str(error).split())[:_LONGEST]
    except Exception:  # `__str__` of a user's class may raise, too.
        message = ""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append((trace.tb_frame.f_globals.get("__name__"), code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        places = []  # Its message has the place.
    own = [place for place in places if place[0] == module] or places
    outside = [place for place in own if not str(place[0]).startswith(("claimflow.", "importlib."))]
    where = f" ({Path(outside[-1][1]).name}:{outside[-1][2]})" if outside else ""
    text = f"{type(error).__name__}{f': {message}' if message else ''}{where}"
    return text.encode("utf-8", "replace").decode()


class Source(NamedTuple):
    """A hash of source code, and of the values that it uses.

    It is `complete` if the text of all its modules could be read; `text` is the hash of these texts
    alone. `unseen` are names, used in a module without a text, whose values cannot be compared.
    """

    digest: str
    complete: bool
    text: str = ""
    unseen: tuple[str, ...] = ()


def source_of(modules: Iterable[str], functions: Iterable[Callable[..., Any]]) -> Source | None:
    """The source of loaded modules, without comments and docstrings; None where there is none.

    The bytecode of `functions` stands for a module whose text cannot be read, such as a notebook.
    What they use of their own modules and of enclosing functions counts as it is now: functions,
    classes, and constants, also imported ones. Functions of other modules do not count.
    """
    functions = list(functions)
    texts: list[object] = []
    complete, without_text = True, set[str]()
    for name in sorted(set(modules)):
        try:
            texts.append(syntax(inspect.getsource(sys.modules[name])))
        except (OSError, TypeError, KeyError, SyntaxError):
            without_text.add(name)
            complete = complete and any(one.__module__ == name for one in functions)
    # A module may define one name several times, and a function in several calls of another.
    own = [_own_text(one) for one in functions if one.__module__ not in without_text]
    uses = _Uses(without_text)
    for function in functions:
        uses.add_function(function)
    if not any((texts, *own, uses.parts)):
        return None
    unseen = tuple(sorted(uses.unseen))
    return Source(_digest([texts, own, uses.parts]), complete, _digest(texts), unseen)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:32]


_OWN_TEXTS: Final[WeakKeyDictionary[Callable[..., Any], str]] = WeakKeyDictionary()
"""The texts of functions as they were defined: later the lines of the file may be others."""


def _own_text(function: Callable[..., Any]) -> str:
    if function not in _OWN_TEXTS:
        try:
            _OWN_TEXTS[function] = syntax(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError, IndexError):
            _OWN_TEXTS[function] = ""  # As of a lambda in an expression; the module has it.
    return _OWN_TEXTS[function]


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


class _Uses:
    """What functions use of their modules and of enclosing functions, each thing once.

    `parts` are plain values in an order that does not change. Of modules `without_text` they have
    the bytecode of functions and every value, of others only constants and what enclosing
    functions gave: a dict in such a module may be a cache, and its text is a part of the source.
    """

    def __init__(self, without_text: Collection[str]) -> None:
        self.parts: list[object] = []
        self.unseen: set[str] = set()
        self._without_text = without_text
        self._known: set[int] = set()
        self._values = 0

    def add_function(self, function: Callable[..., Any]) -> None:
        """Add a function, and what it uses."""
        if not self._is_new(function):
            return
        code, module = function.__code__, function.__module__
        if module in self._without_text:
            self.parts.append(_bytecode(code))
        free = zip(code.co_freevars, function.__closure__ or (), strict=False)
        given = {name: cell.cell_contents for name, cell in free if _is_filled(cell)}
        for name, value in [*given.items(), ("(defaults)", function.__defaults__)]:
            self._add(name, value, module, every=True)
        for name in sorted(_names(code) & function.__globals__.keys()):
            self._add(name, function.__globals__[name], module)

    def _add(self, name: str, value: Any, module: str, *, every: bool = False) -> None:
        found = self._value(value, module)
        if module in self._without_text and found is None and not _is_elsewhere(value, module):
            self.unseen.add(name)
        elif every or module in self._without_text or isinstance(value, _CONSTANTS):
            self.parts.append((name, found))

    def _value(self, value: Any, module: str) -> object:
        """A value by what it is made of; None where it has no such form."""
        self._values += 1
        if self._values > _MOST_VALUES:
            return None
        if isinstance(value, _SIMPLE):
            return repr(value)
        if isinstance(value, re.Pattern):
            return "re.compile", repr(value.pattern), value.flags
        # Of a metric, and of what functools.cache returns, the function.
        function = inspect.getattr_static(value, "__wrapped__", value)
        if inspect.isfunction(function):
            if function.__module__ == module:
                self.add_function(function)
            return function.__qualname__
        if isinstance(value, type):
            return self._class(value, module)
        return self._content(value, module) if self._is_new(value) else "(above)"

    def _content(self, value: Any, module: str) -> object:
        own = type(value).__module__ == module and hasattr(value, "__dict__")
        content = vars(value) if own else value
        if not isinstance(content, Mapping | list | tuple | set | frozenset):
            return None
        if len(content) > _MOST_VALUES:
            return None
        inner: Collection[Any]
        if isinstance(content, Mapping):
            inner = [part for pair in content.items() for part in pair]
        else:
            inner = sorted(content, key=repr) if isinstance(content, set | frozenset) else content
        items = [self._value(part, module) for part in inner]
        return None if None in items else [self._class(type(value), module), items]

    def _class(self, kind: type, module: str) -> object:
        if kind.__module__ == module and self._is_new(kind):
            for name, value in vars(kind).items():
                plain = getattr(value, "__func__", getattr(value, "fget", value))
                if inspect.isfunction(plain):
                    self.add_function(plain)
                elif not name.startswith("__"):
                    self._add(f"{kind.__qualname__}.{name}", value, module)
        return kind.__qualname__

    def _is_new(self, value: object) -> bool:
        if id(value) in self._known:
            return False
        self._known.add(id(value))
        return True


def _is_elsewhere(value: Any, module: str) -> bool:
    """Whether a value is a module, or something that another module defines."""
    if inspect.ismodule(value) or inspect.isbuiltin(value):
        return True
    return callable(value) and getattr(value, "__module__", module) != module


def _names(code: CodeType) -> set[str]:
    inner = (_names(value) for value in code.co_consts if isinstance(value, CodeType))
    return set(code.co_names).union(*inner)


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
