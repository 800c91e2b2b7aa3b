"""Proposals leave the process: as files and a patch, or as a branch with a pull request.

In: proposals, where to. Out: what was done, in words. Each step is whole or not done at all, and each can be done again
after the process was killed: files appear at once, a branch by one push, a request that is open already is found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.learning.forge import Forge, ForgeKind, forge_of
from diagnose.learning.git import Git, public_remote, safe_branch
from diagnose.learning.propose import Proposal
from diagnose.learning.writing import write_whole

_TITLE: Final = 68


@dataclass(frozen=True, slots=True)
class Target:
    """Where a pull request goes. `base` is the branch it is made against, empty for the default one."""

    remote: str
    branch: str = ""
    forge: ForgeKind | None = None
    api: str = ""
    project: str = ""
    base: str = ""


def write_files(proposals: Sequence[Proposal], root: str) -> Iterator[str]:
    """Write each rule below a rules directory; yields the paths."""
    for proposal in proposals:
        path = os.path.join(root, *proposal.path.split("/"))
        write_whole(path, proposal.text, new=True)
        yield path


def patch_text(proposals: Sequence[Proposal], prefix: str) -> str:
    """The proposals as one patch that `git am` and `git apply` take; made without git."""
    lines = [
        "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001",
        "From: diagnose <diagnose@localhost>",
        f"Subject: [PATCH] {title_of(proposals)}",
        "",
        *body_of(proposals).split("\n"),
        "---",
    ]
    for proposal in proposals:
        path = f"{prefix}/{proposal.path}" if prefix else proposal.path
        rows = proposal.text.split("\n")[:-1]
        lines += [f"diff --git a/{path} b/{path}", "new file mode 100644", "--- /dev/null", f"+++ b/{path}"]
        lines += [f"@@ -0,0 +1,{len(rows)} @@", *(f"+{row}" for row in rows)]
    return "\n".join(lines) + "\n"


def publish(proposals: Sequence[Proposal], root: str, target: Target, token: str, say: Callable[[str], None]) -> str:
    """Push the proposals as a new branch, and open a request for it where a forge is named; the last word on it."""
    git = Git(root)
    branch = safe_branch(target.branch or branch_of(proposals))
    forge = _forge(git, target, token)
    base = git.revision("HEAD")
    files = {f"{_inside(git, root)}{proposal.path}": proposal.text for proposal in proposals}
    title = title_of(proposals)
    commit = git.commit(base, files, f"{title}\n\n{body_of(proposals)}\n")
    there = git.branch_at(target.remote, branch)
    if there is None:
        git.push(target.remote, commit, branch)
        say(f"pushed {branch} to {public_remote(target.remote)}")
    elif git.same_tree(there, commit):
        say(f"{branch} is at {public_remote(target.remote)} already, with the same content")
    else:
        raise UsageError(
            f"{public_remote(target.remote)} has another branch {branch} already; choose one with --branch"
        )
    if forge is None:
        return f"branch {branch}"
    try:
        return forge.open(branch, target.base or forge.default_branch(), title, request_body(proposals))
    except UsageError as error:
        message = f"{error} (the branch {branch} is pushed; the same command again goes on from there)"
        raise UsageError(message) from None


def _forge(git: Git, target: Target, token: str) -> Forge | None:
    if target.forge is None:
        return None
    return forge_of(target.forge, git.url(target.remote), token, api=target.api, project=target.project)


def _inside(git: Git, root: str) -> str:
    """Where a rules directory stands in its checkout, with a slash at its end."""
    where = os.path.relpath(os.path.realpath(root), os.path.realpath(git.top)).replace(os.sep, "/")
    if where.startswith(".."):
        raise UsageError(f"{root} lies outside of the checkout {git.top}")
    return "" if where == "." else f"{where}/"


def branch_of(proposals: Sequence[Proposal]) -> str:
    """A branch's name for these rules."""
    ids = [proposal.rule.id for proposal in proposals if proposal.rule]
    return f"rules/{ids[0]}" if len(ids) == 1 else f"rules/{ids[0]}-and-{len(ids) - 1}-more"


def title_of(proposals: Sequence[Proposal]) -> str:
    """One line for the commit and the request."""
    rules = [proposal.rule for proposal in proposals if proposal.rule]
    if len(rules) == 1:
        return f"Rule {rules[0].id}: {rules[0].error_type}"[:_TITLE]
    return f"{len(rules)} rules proposed from incidents"


def body_of(proposals: Sequence[Proposal]) -> str:
    """What a commit says of the rules: where each comes from."""
    lines: list[str] = []
    for proposal in proposals:
        if proposal.rule:
            notes = f"; {'; '.join(proposal.notes)}" if proposal.notes else ""
            lines.append(f"{proposal.rule.id}: from the incident {_plain(proposal.case.id)}{notes}")
    lines += ["", "They are experimental: their findings are recorded and decide nothing."]
    return "\n".join(lines)


def request_body(proposals: Sequence[Proposal]) -> str:
    """What a pull request says; texts of logs stand in code blocks that they cannot end."""
    lines = ["Rules proposed by `diagnose rules propose`. All are experimental: they watch and decide nothing.", ""]
    for proposal in proposals:
        rule = proposal.rule
        if rule is None:
            continue
        lines += [f"### `{rule.id}`", "", f"- error type: {rule.error_type}"]
        lines.append(f"- author: {_plain(', '.join(rule.author))}")
        lines += [f"- incident: {_plain(proposal.case.id)}", *(f"- {_plain(note)}" for note in proposal.notes), ""]
        for example in rule.examples.positive:
            lines += _block(example.log)
    lines.append("`diagnose rules lint` and `diagnose rules test` pass, and no verdict on the corpus changes.")
    return "\n".join(lines)


def _block(text: str) -> list[str]:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return [f"{fence}text", *text.rstrip("\n").split("\n"), fence, ""]


def _plain(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text)[:200]
    return shown.replace("@", "@\u200b").replace("<", "(").replace(">", ")").replace("`", "'")
