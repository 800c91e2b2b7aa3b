"""A rule as the text of its file, whatever the texts in it hold.

In: a rule. Out: YAML that decodes to exactly this rule; files written whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Final

import yaml

from diagnose.dataclass import fields, is_dataclass
from diagnose.errors import UsageError
from diagnose.models.rule import DiagnosisRule, Edge, FilterRule
from diagnose.rules.decode import decode

MAX_BYTES: Final = 256 * 1024
_WIDTH: Final = 1_000_000  # patterns and sentences stay on one line


class _Text(str):
    """A value that is written in quotes, or as a block where it has several lines."""

    __slots__ = ()


class _Flow(list[Any]):
    """A list on one line."""


class _FlowMap(dict[str, Any]):
    """A mapping on one line."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: _Text) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(data), style="|" if "\n" in data else "'")


def _flow(dumper: yaml.SafeDumper, data: _Flow) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


def _flow_map(dumper: yaml.SafeDumper, data: _FlowMap) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=True)


_Dumper.add_representer(_Text, _text)
_Dumper.add_representer(_Flow, _flow)
_Dumper.add_representer(_FlowMap, _flow_map)
_PLAIN: Final = frozenset({"schema", "id", "status", "level", "role", "error_type", "action", "per", "source"})
_MAPS: Final = frozenset({"captures", "match", "expect", "collect", "culprit", "evidence"})


def rule_text(rule: DiagnosisRule | FilterRule) -> str:
    """The text of a rule's file; raises `UsageError` where a text in it cannot be written down."""
    dumped = yaml.dump(
        _tree(rule), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False
    )
    text: str = dumped
    data = text.encode("utf-8", "surrogatepass")
    back, problems = decode(data, f"{rule.id}.yml", type(rule)) if len(data) <= MAX_BYTES else (None, [])
    if back != rule:
        why = problems[0].message if problems else "it would not be read back as it is"
        raise UsageError(f"the rule {rule.id} cannot be written: {why}")
    return text


def _tree(rule: Any) -> dict[str, Any]:
    """A dataclass as the mapping that decodes to it; fields with their defaults are left out."""
    tree: dict[str, Any] = {}
    for each in fields(rule):
        value = getattr(rule, each.name)
        if value == _default(rule, each.name):
            continue
        tree[each.name] = _value(each.name, value)
    return tree


def _default(rule: Any, name: str) -> Any:
    for each in fields(rule):
        if each.name == name:
            factory = getattr(each, "default_factory", None)
            return factory() if callable(factory) else getattr(each, "default", None)
    return None


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Edge):
        return _FlowMap({"what": _Text(value.what), **({"scope": value.scope} if value.scope else {})})
    if is_dataclass(value):
        tree = _tree(value)
        return _FlowMap(tree) if name in _MAPS else tree
    if isinstance(value, str):
        return value if name in _PLAIN else _Text(value)
    if isinstance(value, Mapping):
        made = {str(key): _value("", item) for key, item in value.items()}
        return _FlowMap(made) if name in _MAPS else made
    if isinstance(value, tuple):
        items = [_value("", item) for item in value]
        short = all(isinstance(item, (str, int)) and len(str(item)) < 60 for item in items)
        return _Flow(items) if short or (items and isinstance(items[0], _FlowMap)) else items
    return value


def write_whole(path: str, text: str, *, new: bool = False) -> None:
    """Write a file at once: whoever looks, or whatever ends this process, sees all of it or what was before.

    Raises `UsageError` where that is not possible, or where a `new` file is there already.
    """
    folder = os.path.dirname(os.path.abspath(path))
    data = text.encode("utf-8", "backslashreplace")
    try:
        os.makedirs(folder, exist_ok=True)
        if new and hasattr(os, "O_TMPFILE") and _unnamed(folder, path, data):
            return
        handle, temporary = tempfile.mkstemp(prefix=".propose-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file.fileno(), data)
            os.chmod(temporary, 0o644)
            if new:
                os.link(temporary, path)
            else:
                os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except FileExistsError as error:
        raise UsageError(f"{path} exists; choose another --dir, or remove it first") from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from error


def _unnamed(folder: str, path: str, data: bytes) -> bool:
    """Write a file that has no name until it is whole, so that not even a killed process leaves one behind."""
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o644)
    except OSError:
        return False  # not on this file system
    try:
        _write(handle, data)
        try:
            # Only with a directory's handle does Python ask for the file behind the link, not for the link.
            os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)
        except FileExistsError:
            raise
        except OSError:
            return False
    finally:
        os.close(handle)
    return True


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    os.fsync(handle)
