"""Proposals become files, patches, branches and pull requests: with real git, and forges that speak their wire format."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import UsageError
from diagnose.learning.case import Case
from diagnose.learning.draft import draft
from diagnose.learning.forge import Forge, forge_of
from diagnose.learning.git import Git, safe_branch, safe_remote
from diagnose.learning.propose import Proposal
from diagnose.learning.publish import Target, body_of, patch_text, publish, request_body, write_files
from diagnose.learning.writing import rule_text
from diagnose.models import RuleSet
from tests.test_learning_case import case_of_lines

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
TOKEN = "tok-4711"


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "tests@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **who},
    )
    return done.stdout


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own git settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with rules, and the bare repository it came from."""
    work, bare = tmp_path / "work", tmp_path / "bare.git"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(work))
    (work / "rules").mkdir()
    (work / "rules" / "VERSION").write_text("1.0.0\n")
    git(work, "add", "-A")
    git(work, "commit", "--quiet", "-m", "begun")
    git(work, "remote", "add", "origin", str(bare))
    git(work, "push", "--quiet", "origin", "main")
    return work


@pytest.fixture
def proposal(rule_set: RuleSet) -> Proposal:
    case = case_of_lines("lease-broker: shard lease 8812 revoked: fence 17 is behind 19, giving up")
    return proposal_of(case, rule_set)


def proposal_of(case: Case, rule_set: RuleSet) -> Proposal:
    rule = draft(case, case.lines[0], "codes", rule_set, redact=str, negatives=lambda _: ())
    assert rule is not None
    return Proposal(case, rule, rule_text(rule), f"diagnoses/network/{rule.id}.yml")


def told(lines: list[str]) -> Callable[[str], None]:
    return lines.append


def test_files_are_written_once_and_the_patch_is_one_that_git_takes(checkout, proposal):
    root = checkout / "rules"
    [path] = write_files([proposal], str(root))
    assert Path(path).read_text() == proposal.text
    with pytest.raises(UsageError, match="exists"):
        list(write_files([proposal], str(root)))
    os.unlink(path)
    patch = checkout.parent / "rule.patch"
    patch.write_text(patch_text([proposal], "rules"))
    git(checkout, "apply", "--check", str(patch))
    git(checkout, "am", "--quiet", str(patch))
    assert (root / proposal.path).read_text() == proposal.text
    assert "Rule " in git(checkout, "log", "-1", "--format=%s")


def test_a_branch_appears_at_the_remote_and_nothing_changes_here(checkout, proposal):
    before = git(checkout, "status", "--porcelain"), git(checkout, "for-each-ref"), git(checkout, "rev-parse", "HEAD")
    lines: list[str] = []
    last = publish([proposal], str(checkout / "rules"), Target("origin"), "", told(lines))
    branch = last.removeprefix("branch ")
    bare = checkout.parent / "bare.git"
    assert git(bare, "show", f"{branch}:rules/{proposal.path}") == proposal.text
    assert git(bare, "diff", "--name-only", "main", branch).split() == [f"rules/{proposal.path}"]
    assert (git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "HEAD")) == (before[0], before[2])
    heads = [line for line in git(checkout, "for-each-ref", "refs/heads").splitlines() if "main" not in line]
    assert heads == []


def test_the_same_again_is_no_error_and_another_branch_of_that_name_is(checkout, proposal):
    lines: list[str] = []
    target = Target("origin", "rules/lease")
    publish([proposal], str(checkout / "rules"), target, "", told(lines))
    publish([proposal], str(checkout / "rules"), target, "", told(lines))
    assert "already, with the same content" in lines[-1]
    from diagnose.dataclass import replace

    other = replace(proposal, text=proposal.text + "# more\n")
    with pytest.raises(UsageError, match="another branch"):
        publish([other], str(checkout / "rules"), target, "", told(lines))


@pytest.mark.parametrize(
    "name",
    [
        "-x",
        "--upload-pack=touch /tmp/x",
        "a..b",
        "a b",
        "a//b",
        "a/.b",
        "x.lock",
        "",
        "a\nb",
        "a:b",
        "@{1}",
        "a/",
        "é",
        "x" * 200,
    ],
)
def test_branches_that_are_none(name):
    with pytest.raises(UsageError, match="no branch name"):
        safe_branch(name)


@pytest.mark.parametrize("name", ["-x", "--upload-pack=x", "ext::sh -c true", "fd::17", "a b", "", "a\nb"])
def test_remotes_that_are_none(name):
    with pytest.raises(UsageError, match="no remote"):
        safe_remote(name)


def test_hooks_and_programs_of_the_checkout_are_not_run(checkout, proposal, tmp_path):
    mark = tmp_path / "ran"
    for hook in ("pre-push", "pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        path = checkout / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {mark}\n")
        path.chmod(0o755)
    git(checkout, "config", "core.fsmonitor", f"touch {mark}")
    git(checkout, "config", "core.pager", f"touch {mark}")
    publish([proposal], str(checkout / "rules"), Target("origin"), "", told([]))
    assert not mark.exists()


def test_a_remote_that_is_not_there_is_one_line(checkout, proposal):
    with pytest.raises(UsageError) as raised:
        publish([proposal], str(checkout / "rules"), Target("/nowhere/at/all.git"), "", told([]))
    assert "\n" not in str(raised.value)
    assert "cannot be asked for its branches" in str(raised.value)


def test_no_checkout_is_one_line(tmp_path, proposal):
    with pytest.raises(UsageError, match="no Git checkout"):
        Git(str(tmp_path))


def test_a_password_in_an_address_is_never_told(checkout, proposal):
    with pytest.raises(UsageError) as raised:
        publish([proposal], str(checkout / "rules"), Target("http://u:hunter2@127.0.0.1:1/x.git"), "", told([]))
    assert "hunter2" not in str(raised.value)


# What forges do


class Double(http.server.BaseHTTPRequestHandler):
    """GitHub and GitLab as far as requests are opened there; what was asked is kept."""

    def _reply(self, status: int, body: Any, **headers: str) -> None:
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        for name, value in {"Content-Type": "application/json; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _take(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        server: Any = self.server
        server.asked.append((self.command, self.path, dict(self.headers), body))
        self._reply(*server.script(self.command, self.path, self.headers, body))

    do_GET = do_POST = _take  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def forge() -> Iterator[Callable[[Callable[..., Any]], Any]]:
    servers = []

    def serve(script: Callable[..., Any]) -> Any:
        server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Double)
        server.asked, server.script = [], script
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return server

    yield serve
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


GITHUB_EXISTS = {
    "message": "Validation Failed",
    "errors": [
        {"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for acme:rules/x."}
    ],
    "documentation_url": "https://docs.github.com/rest/pulls/pulls#create-a-pull-request",
    "status": "422",
}


def github(command: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
    if headers.get("Authorization") != f"Bearer {TOKEN}":
        return 401, {"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest", "status": "401"}
    if (command, path) == ("GET", "/repos/acme/rules"):
        return 200, {"full_name": "acme/rules", "default_branch": "trunk"}
    if (command, path) == ("POST", "/repos/acme/rules/pulls"):
        return 201, {"number": 7, "state": "open", "html_url": "https://github.com/acme/rules/pull/7"}
    return 404, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}


def gitlab(command: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
    if headers.get("PRIVATE-TOKEN") != TOKEN:
        return 401, {"message": "401 Unauthorized"}
    if (command, path) == ("GET", "/projects/ml%2Fplatform%2Frules"):
        return 200, {"id": 3, "path_with_namespace": "ml/platform/rules", "default_branch": "main"}
    if (command, path) == ("POST", "/projects/ml%2Fplatform%2Frules/merge_requests"):
        return 201, {
            "iid": 5,
            "state": "opened",
            "web_url": "https://git.example.com/ml/platform/rules/-/merge_requests/5",
        }
    return 404, {"message": "404 Project Not Found"}


def test_a_pull_request_on_github(checkout, proposal, forge):
    server = forge(github)
    target = Target("origin", "rules/x", "github", server.url, "acme/rules")
    address = publish([proposal], str(checkout / "rules"), target, TOKEN, told([]))
    assert address == "https://github.com/acme/rules/pull/7"
    command, path, headers, body = server.asked[-1]
    assert (command, path) == ("POST", "/repos/acme/rules/pulls")
    assert headers["Accept"] == "application/vnd.github+json"
    assert headers["X-Github-Api-Version"] == "2022-11-28"
    assert (body["head"], body["base"]) == ("rules/x", "trunk")
    assert "lease-broker" in body["body"]
    assert git(checkout.parent / "bare.git", "rev-parse", "--verify", "rules/x")


def test_a_merge_request_on_gitlab(checkout, proposal, forge):
    server = forge(gitlab)
    target = Target("origin", "rules/x", "gitlab", server.url, "ml/platform/rules")
    address = publish([proposal], str(checkout / "rules"), target, TOKEN, told([]))
    assert address.endswith("/merge_requests/5")
    body = server.asked[-1][3]
    assert (body["source_branch"], body["target_branch"]) == ("rules/x", "main")
    assert body["remove_source_branch"] is True


@pytest.mark.parametrize(
    ("kind", "exists", "found"),
    [
        ("github", (422, GITHUB_EXISTS), [{"number": 3, "html_url": "https://github.com/acme/rules/pull/3"}]),
        (
            "gitlab",
            (409, {"message": ["Another open merge request already exists for this source branch: !3"]}),
            [{"iid": 3, "web_url": "https://git.example.com/acme/rules/-/merge_requests/3"}],
        ),
    ],
)
def test_a_request_that_is_open_already_is_found(forge, kind, exists, found):
    server = forge(lambda command, *_: exists if command == "POST" else (200, found))
    address = Forge(kind, server.url, "acme/rules", TOKEN).open("rules/x", "main", "title", "body")
    assert address.endswith("/3")
    assert "rules%2Fx" in server.asked[-1][1]


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((401, {"message": "Bad credentials"}), "is the token right"),
        ((403, {"message": "Resource not accessible by personal access token"}), "may it write"),
        ((404, {"message": "Not Found"}), "is acme/rules the repository"),
        (
            (422, {"message": "Validation Failed", "errors": [{"code": "invalid", "field": "base"}]}),
            "Validation Failed; invalid",
        ),
        ((500, b"<html>"), "refused (500)"),
        ((200, b"not json"), "names none"),
        ((201, []), "names none"),
        ((201, {"html_url": "javascript:alert(1)", "web_url": None}), "names none"),
        ((201, b"[" * 100_000), "names none"),
        ((302, {}), "redirects are not followed"),
    ],
)
def test_refusals_are_one_line_and_hold_no_token(forge, kind, reply, message):
    server = forge(lambda *_: reply)
    with pytest.raises(UsageError) as raised:
        Forge(kind, server.url, "acme/rules", TOKEN).open("rules/x", "main", "t", "b")
    assert message in str(raised.value)
    assert TOKEN not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_token_does_not_follow_a_redirect(forge):
    other = forge(github)
    location = f"{other.url}/repos/acme/rules/pulls"

    class Redirecting(Double):
        pass

    server = forge(lambda *_: (307, {}))
    original = Double._reply

    def redirect(self: Double, status: int, body: Any, **headers: str) -> None:
        original(self, status, body, **({"Location": location} if status == 307 else {}), **headers)

    Double._reply = redirect  # type: ignore[method-assign]
    try:
        with pytest.raises(UsageError, match="redirects"):
            Forge("github", server.url, "acme/rules", TOKEN).open("rules/x", "main", "t", "b")
    finally:
        Double._reply = original  # type: ignore[method-assign]
    assert other.asked == []


def test_a_forge_that_is_away_leaves_a_branch_from_which_the_next_try_goes_on(checkout, proposal, forge):
    target = Target("origin", "rules/x", "github", "http://127.0.0.1:1", "acme/rules")
    with pytest.raises(UsageError, match="the branch rules/x is pushed"):
        publish([proposal], str(checkout / "rules"), target, TOKEN, told([]))
    server = forge(github)
    again = Target("origin", "rules/x", "github", server.url, "acme/rules")
    assert publish([proposal], str(checkout / "rules"), again, TOKEN, told([])).endswith("/7")


@pytest.mark.parametrize(
    ("kind", "remote", "api", "project"),
    [
        ("github", "git@github.com:acme/rules.git", "https://api.github.com", "acme/rules"),
        ("github", "https://github.com/acme/rules", "https://api.github.com", "acme/rules"),
        ("github", "https://ghe.example.com/acme/rules.git", "https://ghe.example.com/api/v3", "acme/rules"),
        ("gitlab", "git@git.example.com:ml/platform/rules.git", "https://git.example.com/api/v4", "ml/platform/rules"),
        ("gitlab", "ssh://git@git.example.com:2222/ml/rules.git", "https://git.example.com/api/v4", "ml/rules"),
    ],
)
def test_the_forge_behind_a_remote(kind, remote, api, project):
    found = forge_of(kind, remote, TOKEN)
    assert (found.api, found.project) == (api, project)
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    ("remote", "more", "message"),
    [
        ("/some/path.git", {}, "--project"),
        ("/some/path.git", {"project": "a/b"}, "--api"),
        ("https://github.com/a/b", {"api": "http://evil.example.com"}, "no address of an API"),
        ("https://github.com/a/b", {"api": "https://u:p@evil.example.com"}, "no address of an API"),
        ("https://github.com/a/b", {"token": ""}, "GITHUB_TOKEN"),
        ("https://github.com/a/b", {"token": "a\nb"}, "one line"),
        ("https://github.com/a/b", {"token": "a\0b"}, "one line"),
        ("https://github.com/a/b/c", {}, "no GitHub repository"),
        ("https://github.com/a/b", {"project": "../../x"}, "--project"),
    ],
)
def test_forges_that_are_none(remote, more, message):
    with pytest.raises(UsageError, match=message):
        forge_of("github", remote, more.pop("token", TOKEN), **more)


def test_log_texts_cannot_leave_their_block_in_a_request(rule_set):
    case = case_of_lines("lease-broker: fence broke ``` @maintainers <img src=x> ````` giving up")
    text = request_body([proposal_of(case, rule_set)])
    fence = next(line for line in text.splitlines() if line.startswith("```"))
    assert fence == "``````text"
    assert "@maintainers" not in text.split(fence)[0]
    assert "@maintainers" not in body_of([proposal_of(case, rule_set)])


def test_killed_at_any_point_nothing_is_half_applied(checkout, proposal, tmp_path):
    program = textwrap.dedent(
        f"""
        import os, sys
        from diagnose.learning.publish import publish, write_files, Target
        from diagnose.learning.propose import Proposal
        from types import SimpleNamespace
        proposal = SimpleNamespace(
            rule=SimpleNamespace(id="a-rule", error_type="NetworkError", author=("x",), examples=SimpleNamespace(positive=())),
            case=SimpleNamespace(id="i"), notes=(), text={proposal.text!r}, path="diagnoses/network/a-rule.yml")
        os.write(1, b"go")
        list(write_files([proposal], {str(checkout / "rules")!r}))
        publish([proposal], {str(checkout / "rules")!r}, Target("origin", "rules/kill"), "", print)
        os.write(1, b"done")
        """
    )
    file = checkout / "rules" / "diagnoses" / "network" / "a-rule.yml"
    bare = checkout.parent / "bare.git"
    for step in range(12):
        file.unlink(missing_ok=True)
        git(bare, "update-ref", "-d", "refs/heads/rules/kill")
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        assert process.stdout.read(2) == b"go"
        time.sleep(step * 0.015)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not file.exists() or file.read_text() == proposal.text
        assert [name for name in os.listdir(checkout / "rules") if name.startswith(".")] == []
        folder = checkout / "rules" / "diagnoses" / "network"
        assert not folder.is_dir() or set(os.listdir(folder)) <= {"a-rule.yml"}
        branches = git(bare, "for-each-ref", "--format=%(refname)", "refs/heads/rules/kill").split()
        if branches:
            assert git(bare, "show", "rules/kill:rules/diagnoses/network/a-rule.yml") == proposal.text
        git(checkout, "fsck", "--strict")
        assert git(checkout, "for-each-ref", "--format=%(refname)", "refs/heads").split() == ["refs/heads/main"]
        assert not (checkout / ".git" / "index.lock").exists()
