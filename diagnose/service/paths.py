"""Which files of this machine a submission may name, and which addresses.

In: what a submission says. Out: a path below an allowed root, judged after all links; where there is none, `Refused`,
which says the same for a file that is not there and for one that may not be read. Each file is judged once more when it
is open (`sources/confine.py`), and everything that lies below a named directory as well.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from diagnose.errors import DiagnoseError
from diagnose.service.settings import PROJECT, ServiceConfig
from diagnose.sources.confine import inside

_MARKS = "*?["


class Refused(DiagnoseError):
    """A submission names something that the service does not read."""


def roots_of(config: ServiceConfig, project: str) -> tuple[str, ...]:
    """The folders below which jobs of a project may name files, as real paths."""
    plain = [root for root in config.roots if PROJECT not in root]
    if project and project not in (".", "..") and "/" not in project and "\0" not in project:
        plain += [os.path.realpath(root.replace(PROJECT, project)) for root in config.roots if PROJECT in root]
    return tuple(plain)


def allowed_path(path: str, config: ServiceConfig, project: str) -> str:
    """The path as given, where it leads below a root; a pattern is judged by what stands before its first mark."""
    roots = roots_of(config, project)
    if not roots:
        raise Refused(
            "this service reads no files of its machine: upload the log, or have its keeper set DIAGNOSE_ROOTS"
        )
    if not os.path.isabs(path) or "\0" in path:
        raise Refused("a path must be absolute")
    marks = [path.index(mark) for mark in _MARKS if mark in path]
    fixed = path if not marks or os.path.lexists(path) else os.path.dirname(path[: min(marks)])
    if not inside(fixed, roots):
        raise Refused(f"{path}: lies outside the folders that may be read here ({', '.join(roots)})")
    return path


def allowed_uri(uri: str, config: ServiceConfig, project: str) -> tuple[str | None, str | None]:
    """A path, where the address is a file of this machine, or the address, where its host is an allowed one."""
    try:
        parts = urlsplit(uri)
        host, port, user = parts.hostname, parts.port, parts.username
    except ValueError:
        raise Refused("that is no address; give file:///..., https://... or a path") from None
    if parts.scheme == "file":
        if host not in (None, "", "localhost"):
            raise Refused("a file:// address names another machine; upload the log")
        return allowed_path(unquote(parts.path), config, project), None
    if parts.scheme not in ("http", "https") or not host or user is not None:
        raise Refused("an address must be file:///... or https://host/... without user and password")
    named = f"{host}:{port}" if port else host
    if host not in config.uri_hosts and named not in config.uri_hosts:
        raise Refused(f"this service fetches nothing from {host}: upload the log, or add it to DIAGNOSE_URI_HOSTS")
    return None, uri
