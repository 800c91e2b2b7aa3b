"""Git as the learning loop uses it: files of a revision, a commit made beside the checkout, a push.

In: a checkout, files to add, names. Out: a commit that no branch of the checkout knows, pushed in one step. The working
tree, the index and the branches are never touched, so that a process that is killed leaves at most objects that nobody
refers to. Names come from logs and people: none of them is ever taken for an option, and no hook, pager or external
program of the checkout is run.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from typing import Final

from diagnose.errors import UsageError

_SECONDS: Final = 120.0
_PROTOCOLS: Final = "file:git:http:https:ssh"
_BRANCH: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,118}[A-Za-z0-9])?\Z")
_REMOTE: Final = re.compile(r"[A-Za-z0-9._/~][^\x00-\x20\x7f]{0,499}\Z")
_ARCHIVE_BYTES: Final = 256 * 1024 * 1024
_PATH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*\Z")


class Git:
    """One checkout."""

    def __init__(self, folder: str) -> None:
        self._program = shutil.which("git")
        if self._program is None:
            raise UsageError("git is not installed; install it, or use --patch to get a patch file")
        self._folder = folder
        top = self.run("rev-parse", "--show-toplevel", why=f"{folder} is no Git checkout; give --dir inside of one")
        self.top = os.fsdecode(top.rstrip(b"\n"))

    def run(
        self,
        *arguments: str,
        why: str,
        data: bytes | None = None,
        more: Mapping[str, str] | None = None,
        tell: bool = False,
    ) -> bytes:
        """What git prints; raises `UsageError` that says `why` it matters, and git's own words if asked to `tell`."""
        command = [
            str(self._program),
            "-c", "core.fsmonitor=false",
            "-c", "core.hooksPath=/dev/null",
            "-c", "core.quotePath=false",
            "--no-pager",
            *arguments,
        ]  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {name: os.environ[name] for name in ("GIT_SSH_COMMAND", "GIT_SSL_CAINFO") if name in os.environ}
        environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": _PROTOCOLS, "LC_ALL": "C", **(more or {})}
        try:
            done = subprocess.run(  # noqa: S603 # a list, and no name in it can be an option
                command,
                cwd=self._folder,
                input=data,
                stdin=subprocess.DEVNULL if data is None else None,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"{why}: git took more than {_SECONDS:g} s") from error
        except OSError as error:
            raise UsageError(f"{why}: git cannot be run ({error.strerror})") from error
        if done.returncode:
            said = _said(done.stderr) if tell else ""
            raise UsageError(f"{why}: {said}" if said else why)
        return done.stdout

    def revision(self, name: str) -> str:
        """The commit that a name stands for."""
        if name.startswith("-") or not name.isprintable():
            raise UsageError(f"{name!r} is no revision")
        found = self.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}",
            why=f"there is no directory and no revision {name}",
        )  # fmt: skip
        return found.decode("ascii", "replace").strip()

    def extract(self, revision: str, paths: Sequence[str], target: str) -> None:
        """Write the files of a revision below some paths into a directory."""
        there = self.run("ls-tree", "-z", "--name-only", revision, "--", *paths, why=f"{revision} cannot be listed")
        names = [os.fsdecode(name) for name in there.split(b"\0") if name]
        if not names:
            raise UsageError(f"the revision {revision} holds no {' or '.join(paths)}")
        packed = self.run("archive", "--format=tar", revision, "--", *names, why=f"{revision} cannot be read")
        if len(packed) > _ARCHIVE_BYTES:
            raise UsageError(f"{revision} holds more than {_ARCHIVE_BYTES >> 20} MB there; give directories instead")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(target, filter="data")

    def commit(self, base: str, files: Mapping[str, str], message: str) -> str:
        """A commit on top of `base` that adds or replaces files, made of objects alone."""
        why = "the commit could not be made"
        with tempfile.TemporaryDirectory(prefix="propose-") as folder:
            index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            self.run("read-tree", base, why=why, more=index)
            for path, text in files.items():
                if not _PATH.match(path):
                    raise UsageError(f"{path!r} is no path inside the repository")
                data = text.encode()
                blob = self.run("hash-object", "-w", "--stdin", why=why, data=data).decode("ascii").strip()
                entry = f"100644,{blob},{path}"
                self.run("update-index", "--add", "--cacheinfo", entry, why=why, more=index, tell=True)
            tree = self.run("write-tree", why=why, more=index).decode("ascii").strip()
        made = self.run(
            "commit-tree", "-p", base, "-F", "-", tree, why=why, data=message.encode(), more=self._author(), tell=True
        )
        return made.decode("ascii").strip()

    def _author(self) -> dict[str, str]:
        """Who commits: whoever git knows here, else this program."""
        try:
            self.run("var", "GIT_COMMITTER_IDENT", why="no name is configured")
            self.run("var", "GIT_AUTHOR_IDENT", why="no name is configured")
        except UsageError:
            name, mail = "diagnose", "diagnose@localhost"
            return {
                "GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail,
                "GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": mail,
            }  # fmt: skip
        return {}

    def push(self, remote: str, commit: str, branch: str) -> None:
        """Make a commit the new branch of a remote, which must not have one of that name with other content."""
        safe_remote(remote)
        reference = f"refs/heads/{safe_branch(branch)}"
        lease = f"--force-with-lease={reference}:"  # it must not be there
        self.run(
            "push", "--no-verify", "--porcelain", lease, "--end-of-options", remote, f"{commit}:{reference}",
            why=f"{branch} could not be pushed to {public_remote(remote)}", tell=True,
        )  # fmt: skip

    def branch_at(self, remote: str, branch: str) -> str | None:
        """The commit of a remote's branch; None where there is none of that name."""
        safe_remote(remote)
        reference = f"refs/heads/{safe_branch(branch)}"
        found = self.run(
            "ls-remote", "--heads", "--end-of-options", remote, reference,
            why=f"{public_remote(remote)} cannot be asked for its branches", tell=True,
        )  # fmt: skip
        for line in found.decode("utf-8", "replace").splitlines():
            commit, _, name = line.partition("\t")
            if name == reference:
                return commit
        return None

    def same_tree(self, one: str, other: str) -> bool:
        """Whether two commits hold the same files; no where this checkout does not have one of them."""
        try:
            trees = [self.run("rev-parse", "--verify", "--quiet", f"{each}^{{tree}}", why="?") for each in (one, other)]
        except UsageError:
            return False
        return trees[0] == trees[1]

    def url(self, remote: str) -> str:
        """The address of a remote that has a name here; an address is its own."""
        safe_remote(remote)
        try:
            found = self.run("remote", "get-url", "--end-of-options", remote, why="no such remote")
        except UsageError:
            return remote
        return found.decode("utf-8", "replace").strip()


def safe_branch(name: str) -> str:
    """The name of a branch; raises `UsageError` where git would not take it, or take it for something else."""
    bad = not _BRANCH.match(name) or ".." in name or "//" in name or "/." in name or name.endswith(".lock")
    if bad or ".lock/" in name:
        raise UsageError(f"{name!r} is no branch name; use letters, digits, - and /, as in rules/nic-port-down")
    return name


def safe_remote(name: str) -> str:
    """The name or address of a remote; raises `UsageError` for options and for helpers that run programs."""
    if not _REMOTE.match(name) or "::" in name:
        raise UsageError(
            f"{public_remote(name)!r} is no remote; give the name of one, a path, or an https or ssh address"
        )
    return name


def public_remote(remote: str) -> str:
    """A remote's address without what it may hold of a password."""
    return re.sub(r"(://)[^/\s@]{1,300}@", r"\1", remote)


def _said(data: bytes) -> str:
    """The last line of git's complaint, without what an address may hold of a password."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    found = next((line for line in lines if line.startswith(("fatal:", "error:", "!", "remote:"))), "")
    found = found or (lines[-1] if lines else "")
    text = re.sub(r"(://)[^/\s@]{1,300}@", r"\1***@", found)
    return "".join(char if char.isprintable() else " " for char in text)[:300]
