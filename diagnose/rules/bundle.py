"""The rule set, prebuilt: what a run needs of the rules, as one file that loads in milliseconds.

In: rule directories. Out: the same `RuleSet` that `load_rules` gives, without examples and prose, which only authors
need. The bundle lies in the user's cache directory under a digest of the rule files' names, sizes and times and of this
code's version: a stale one is simply another file. A cache that cannot be read or written costs time only, and so does
one that others could have written: whoever writes the bundle decides every verdict.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
import time
from collections.abc import Sequence

from diagnose.dataclass import replace
from diagnose.models.rule import DiagnosisExamples, FilterExamples, RedactionExamples, RuleSet
from diagnose.patterns import Lazy
from diagnose.rules.packing import packed, unpacked
from diagnose.rules.tree import shipped_rules

_FORMAT = "6"
_MAX_BYTES = 64 * 1024 * 1024
_MAX_LISTED = 50_000  # no rules directory; what is wrong with it the loader says
_UNFINISHED = ".part"
_BUNDLE = Lazy(r"rules-(?:[0-9a-f]{16,32}\.(?:bin|json)|\w+\.part)")


def load_bundled(dirs: Sequence[str] = ()) -> RuleSet:
    """The rule set of the shipped rules and site directories, from the bundle where it is current.

    Raises `RuleError` like `load_rules`. Examples, descriptions and references are empty.
    """
    path = _path((shipped_rules(), *dirs))
    if path is not None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError, EOFError):
            return unpacked(_read(path))
    from diagnose.rules.load import load_rules  # with it YAML, which a run with a bundle does without

    rule_set = slim(load_rules(dirs))
    if path is not None:
        _write(path, packed(rule_set))
    return rule_set


def _read(path: str) -> bytes:
    """The bundle's bytes; raises `OSError` where it is none of this user's own, or not a plain file."""
    if not _own(os.lstat(os.path.dirname(path)), stat.S_IFDIR):
        raise PermissionError(path)
    # What lies there may be a pipe or a device: opening it must not wait, reading it must end.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not _own(found, stat.S_IFREG) or found.st_size > _MAX_BYTES:
            raise PermissionError(path)
        return file.read(found.st_size)


def _own(found: os.stat_result, kind: int) -> bool:
    """Whether this is of the kind, this user's, and nobody else's to write."""
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def slim(rule_set: RuleSet) -> RuleSet:
    """The rule set without what only authors need."""
    return replace(
        rule_set,
        diagnoses=tuple(
            replace(
                rule,
                examples=DiagnosisExamples((), ()),
                description="",
                references=(),
                falsepositives=(),
                signatures={
                    name: replace(signature, programs=(), versions="", reference="")
                    for name, signature in rule.signatures.items()
                },
            )
            for rule in rule_set.diagnoses
        ),
        filters=tuple(
            replace(rule, examples=FilterExamples((), ()), description="", references=(), programs=())
            for rule in rule_set.filters
        ),
        paths={},
        programs={},
        redactions=tuple(
            replace(rule, examples=RedactionExamples((), ()), description="", references=())
            for rule in rule_set.redactions
        ),
    )


def _path(roots: Sequence[str]) -> str | None:
    """Where the bundle of these directories lies; None where there is no cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(home):
        return None
    stated = [_FORMAT.encode()]
    for module in (__file__, _models_file(), *_readers()):
        with contextlib.suppress(OSError):
            stated.append(str(os.stat(module).st_mtime_ns).encode())
    for root in roots:
        stated.append(b"\0" + os.fsencode(os.path.abspath(root)))
        for name, size, changed in _listing(root):
            stated.append(f"{name}\0{size}\0{changed}".encode("utf-8", "surrogateescape"))
    # What names the bytecode of a module by its source is at hand; hashlib would load a whole library for it.
    digest = importlib.util.source_hash(b"\n".join(stated)).hex()
    return os.path.join(home, "gpu-job-diagnose", f"rules-{digest}.bin")


def _models_file() -> str:
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models", "rule.py")


def _readers() -> list[str]:
    """What reads and judges rules: a bundle that older checks let through is stale."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return [
        os.path.join(folder, f"{name}.py")
        for name in ("load", "decode", "tree", "consistency", "prove", "policy", "packing")
    ]


def _listing(root: str) -> list[tuple[str, int, int]]:
    """All files below a directory with size and time of change, in a fixed order."""
    found: list[tuple[str, int, int]] = []
    waiting = [root]
    while waiting and len(found) < _MAX_LISTED:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        with contextlib.suppress(OSError):
                            status = entry.stat()
                            # The time of the last change of any kind too: tools that copy set the other one back.
                            found.append((entry.path, status.st_size, max(status.st_mtime_ns, status.st_ctime_ns)))
        except OSError:
            continue
    return sorted(found)


def _write(path: str, data: bytes) -> None:
    """Writes the bundle whole or not at all; two processes that do so at once write the same."""
    import tempfile

    folder = os.path.dirname(path)
    temporary = ""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _own(os.lstat(folder), stat.S_IFDIR):
            return
        with tempfile.NamedTemporaryFile(dir=folder, prefix="rules-", suffix=_UNFINISHED, delete=False) as file:
            temporary = file.name
            file.write(data)
        os.replace(temporary, path)
        _forget_others(folder, os.path.basename(path))
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _forget_others(folder: str, keep: str) -> None:
    """Keeps the few newest bundles; what a killed process has left half written goes after an hour."""
    bundles: list[tuple[float, str]] = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name == keep or not _BUNDLE.fullmatch(name):
            continue
        with contextlib.suppress(OSError):  # another process may do the same
            changed = os.path.getmtime(path)
            if not name.endswith(_UNFINISHED):
                bundles.append((changed, path))
            elif changed < time.time() - 3600:
                os.unlink(path)
    for _, path in sorted(bundles)[:-7]:
        with contextlib.suppress(OSError):
            os.unlink(path)
