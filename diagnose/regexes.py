"""Patterns of the `regex` engine that stay compiled from one run to the next; its own compiler is rarely loaded then.

In: a pattern and flags. Out: what `regex.compile` gives, from the code of an earlier run where there is one. Codes are
those that `regex` itself pickles patterns by, and only its engine, an extension module, is loaded to run them: its
compiler takes as long to load as a small log takes to read. The engine trusts its codes, as Python trusts bytecode:
`cache` gives only what this user has written whole, under a name that tells which engine made it.
"""

from __future__ import annotations

import marshal
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from diagnose import cache

if TYPE_CHECKING:
    import regex

ASCII: Final = 0x80
MULTILINE: Final = 0x8
IGNORECASE: Final = 0x2
"""As `regex` has them; a test holds that this is so."""

_Key = tuple[str, int]
_Code = tuple[Any, ...]


class _Kept:
    """The engine and the codes of earlier runs, fetched when the first pattern is asked for."""

    def __init__(self) -> None:
        self.engine: ModuleType | None = None
        self.name = ""
        self.codes: dict[_Key, _Code] = {}
        self.made: dict[_Key, _Code] = {}
        try:
            path, self.engine = _engine()
            stated = os.stat(path)
            at = (sys.version, path, stated.st_size, stated.st_mtime_ns, self.engine.MAGIC, self.engine.CODE_SIZE)
            self.name = cache.name_of("regexes", [repr(at).encode()])
        except Exception:  # noqa: BLE001 - another release may be built in another way: then there are no codes
            self.engine = None
            return
        self.codes = cache.codes(self.name)

    def compiled(self, pattern: str, flags: int) -> regex.Pattern[str]:
        key = (pattern, flags)
        if self.engine is not None and key in self.codes:
            try:
                found: regex.Pattern[str] = self.engine.compile(*self.codes[key])
                if found.pattern == pattern:
                    return found
            except Exception:  # noqa: BLE001 - a code that the engine refuses
                del self.codes[key]
        import regex

        made = regex.compile(pattern, flags)
        if self.engine is not None:
            self.note(key, made)
        return made

    def note(self, key: _Key, made: regex.Pattern[str]) -> None:
        import copyreg

        try:
            code: Any = copyreg.dispatch_table[type(made)](made)[1]
            marshal.dumps(code)
        except Exception:  # noqa: BLE001 - it holds what cannot be kept
            return
        self.codes[key] = self.made[key] = code


_kept: _Kept | None = None


def compile(pattern: str, flags: int = 0) -> regex.Pattern[str]:  # noqa: A001 - as in `regex`
    """Stands for `regex.compile`."""
    global _kept  # noqa: PLW0603 - fetched once in a process, as modules are
    if _kept is None:
        _kept = _Kept()
    return _kept.compiled(pattern, flags)


def keep() -> None:
    """Keeps what this run has compiled, if anything, for later ones."""
    if _kept is not None:
        cache.keep_codes(_kept.name, _kept.codes, _kept.made)


def _engine() -> tuple[str, ModuleType]:
    """The file of the engine, and the engine: of the package, if that is loaded, else alone."""
    if "regex" in sys.modules:
        engine = sys.modules["regex._regex"]
        return str(engine.__file__), engine
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("regex")
    if package is None:
        raise ModuleNotFoundError("regex")
    spec = PathFinder.find_spec("regex._regex", package.submodule_search_locations)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ModuleNotFoundError("regex._regex")
    engine = module_from_spec(spec)
    spec.loader.exec_module(engine)
    return spec.origin, engine
