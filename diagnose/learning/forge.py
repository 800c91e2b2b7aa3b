"""Pull requests on GitHub, merge requests on GitLab: the two calls each takes, over the standard library.

In: a `Forge` (kind, address of the API, project, token), branches, title and text. Out: the address of the request that
now is open; one that was open already is found, not opened twice. The token goes into one header, to the one address it
was given for: redirects are not followed, and plain HTTP is refused but on this machine.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Final, Literal
from urllib.parse import quote, urlencode, urlsplit

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError

ForgeKind = Literal["github", "gitlab"]
_SECONDS: Final = 30.0
_ANSWER_BYTES: Final = 4 * 1024 * 1024
_BODY_CHARS: Final = 60_000  # GitHub takes 65,536
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_ADDRESS: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^/@\s]{1,300}@)?(?P<host>[A-Za-z0-9.-]{1,253})(?::\d{1,5})?/|"
    r"(?:[\w.-]{1,64}@)(?P<scp>[A-Za-z0-9.-]{1,253}):)(?P<path>[\w.~/-]{1,300}?)(?:\.git)?/?\Z"
)


@dataclass(frozen=True, slots=True)
class Forge:
    """Where to open requests. `project` is `owner/name`, on GitLab with its groups."""

    kind: ForgeKind
    api: str
    project: str
    token: str

    def __repr__(self) -> str:
        return f"Forge({self.kind}, {self.api}, {self.project})"

    def default_branch(self) -> str:
        """The branch that requests are made against."""
        found = self._call("GET", self._place(""))
        branch = found.get("default_branch") if isinstance(found, dict) else None
        if not isinstance(branch, str):
            raise UsageError(f"{self.kind} does not say the default branch of {self.project}; give --base")
        return branch

    def open(self, branch: str, base: str, title: str, body: str) -> str:
        """Open a request, or find the one that is open for this branch; its address."""
        fields: dict[str, Any] = {"title": title[:240]}
        text = body if len(body) <= _BODY_CHARS else f"{body[:_BODY_CHARS]}\n\n(cut)"
        if self.kind == "github":
            fields |= {"head": branch, "base": base, "body": text, "maintainer_can_modify": True}
            place = self._place("/pulls")
        else:
            fields |= {"source_branch": branch, "target_branch": base, "description": text}
            fields |= {"remove_source_branch": True}
            place = self._place("/merge_requests")
        try:
            made = self._call("POST", place, fields)
        except _Refused as error:
            if not error.exists:
                raise
            made = self._found(branch)
        address = _address_in(made)
        if address is None:
            raise UsageError(f"{self.kind} opened no request for {branch}: its answer names none")
        return address

    def _found(self, branch: str) -> Any:
        """The open request of a branch."""
        if self.kind == "github":
            owner = self.project.partition("/")[0]
            asked = {"head": f"{owner}:{branch}", "state": "open"}
            found = self._call("GET", f"{self._place('/pulls')}?{urlencode(asked)}")
        else:
            asked = {"source_branch": branch, "state": "opened"}
            found = self._call("GET", f"{self._place('/merge_requests')}?{urlencode(asked)}")
        return found[0] if isinstance(found, list) and found else None

    def _place(self, rest: str) -> str:
        if self.kind == "github":
            return f"{self.api}/repos/{quote(self.project)}{rest}"
        return f"{self.api}/projects/{quote(self.project, safe='')}{rest}"

    def _call(self, method: str, url: str, fields: Mapping[str, Any] | None = None) -> Any:
        headers = {"User-Agent": "diagnose", "Accept": "application/json"}
        if self.kind == "github":
            headers |= {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
            headers["Authorization"] = f"Bearer {self.token}"
        else:
            headers["PRIVATE-TOKEN"] = self.token
        data = None if fields is None else json.dumps(fields).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 # `forge_of` has looked at it
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=_SECONDS) as reply:
                return _json(reply)
        except urllib.error.HTTPError as error:
            with error:
                said = _message(_json(error))
            raise _Refused(self, error.code, said) from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise UsageError(f"{self.kind} cannot be reached at {self.api}: {_plain(str(why))}") from None


class _Refused(UsageError):
    """The forge said no, with a status and in its words."""

    def __init__(self, forge: Forge, status: int, said: str) -> None:
        self.exists = status in (409, 422) and "already exists" in said.lower()
        what = f"{forge.kind} refused ({status}{': ' if said else ''}{said})"
        if status in (401, 403):
            what += "; is the token right, and may it write to the repository?"
        elif status == 404:
            what += f"; is {forge.project} the repository, and may the token see it?"
        elif 300 <= status < 400:
            what += "; redirects are not followed, give the final address with --api"
        super().__init__(what)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Gives a redirect back as it came: the token must not go elsewhere."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """There is no next request."""


def forge_of(kind: ForgeKind, remote: str, token: str, *, api: str = "", project: str = "") -> Forge:
    """The forge behind a remote's address; raises `UsageError` where that does not tell it."""
    found = _ADDRESS.match(remote)
    host = (found["host"] or found["scp"]) if found else ""
    project = project or (found["path"].strip("/") if found else "")
    if not re.fullmatch(r"[\w.-]{1,100}(?:/[\w.-]{1,100}){1,20}", project) or ".." in project:
        raise UsageError(f"the remote's address does not tell the {kind} project; give --project OWNER/NAME")
    if kind == "github" and project.count("/") != 1:
        raise UsageError(f"{project} is no GitHub repository; give --project OWNER/NAME")
    if not api:
        if not host:
            raise UsageError(f"the remote's address does not tell where {kind} is; give --api URL")
        api = f"https://{host}/api/v4"
        if kind == "github":
            api = "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3"
    parts = urlsplit(api)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not safe or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise UsageError(f"{_plain(api)!r} is no address of an API: give one such as https://git.example.com/api/v4")
    if not token:
        names = "GITHUB_TOKEN" if kind == "github" else "GITLAB_TOKEN"
        raise UsageError(f"there is no token for {kind}: set {names}, or DIAGNOSE_FORGE_TOKEN_FILE to a file with it")
    if not token.isascii() or not token.isprintable() or " " in token or len(token) > 4096:
        raise UsageError(f"the token for {kind} is none: one line of plain characters is expected")
    return Forge(kind, api.rstrip("/"), project, token)


def _json(reply: Any) -> Any:
    """The JSON of an answer within bounds; None where it is none."""
    try:
        return json.loads(reply.read(_ANSWER_BYTES))
    except (ValueError, OSError, RecursionError, HTTPException):
        return None


def _message(found: Any) -> str:
    """What a forge says in a refusal: GitHub's message with its errors, GitLab's message or list of them."""
    if not isinstance(found, dict):
        return ""
    parts: list[str] = []
    for key in ("message", "error", "errors"):
        value = found.get(key)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                item = item.get("message") or item.get("code")  # noqa: PLW2901 # GitHub's errors are objects
            if isinstance(item, str):
                parts.append(item)
    return _plain("; ".join(dict.fromkeys(parts)))


def _address_in(found: Any) -> str | None:
    if not isinstance(found, dict):
        return None
    address = found.get("html_url") or found.get("web_url")
    return _plain(address) if isinstance(address, str) and address.startswith(("https://", "http://")) else None


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:300]
