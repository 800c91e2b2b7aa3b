"""The rule set, prebuilt: what a run needs of the rules, as one file that loads in milliseconds.

In: rule directories. Out: the same `RuleSet` that `load_rules` gives, without examples and prose, which only authors
need. The bundle lies in the user's cache directory under a digest of the rule files' names, sizes and times and of this
code's version. One that others could have written is not read: whoever writes the bundle decides every verdict.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from diagnose import cache
from diagnose.dataclass import replace
from diagnose.models.rule import DiagnosisExamples, FilterExamples, RedactionExamples, RuleSet
from diagnose.rules.packing import packed, unpacked
from diagnose.rules.tree import shipped_rules

_FORMAT = "6"
_MAX_LISTED = 50_000  # no rules directory; what is wrong with it the loader says


def load_bundled(dirs: Sequence[str] = ()) -> RuleSet:
    """The rule set of the shipped rules and site directories, from the bundle where it is current.

    Raises `RuleError` like `load_rules`. Examples, descriptions and references are empty.
    """
    name = _name((shipped_rules(), *dirs))
    with contextlib.suppress(*cache.BROKEN):
        return unpacked(cache.read(name))
    from diagnose.rules.load import load_rules  # with it YAML, which a run with a bundle does without

    rule_set = slim(load_rules(dirs))
    cache.write(name, packed(rule_set))
    return rule_set


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


def _name(roots: Sequence[str]) -> str:
    """The name of the bundle of these directories as they are now."""
    stated = [_FORMAT.encode()]
    for module in (__file__, _models_file(), *_readers()):
        with contextlib.suppress(OSError):
            stated.append(str(os.stat(module).st_mtime_ns).encode())
    for root in roots:
        stated.append(b"\0" + os.fsencode(os.path.abspath(root)))
        for name, size, changed in _listing(root):
            stated.append(f"{name}\0{size}\0{changed}".encode("utf-8", "surrogateescape"))
    return cache.name_of("rules", stated)


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
