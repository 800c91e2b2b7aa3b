"""Who is told of a verdict: one notice for each incident, updated, and never a second page.

In: verdicts of jobs as they come. Out: notices to sinks (a webhook, a command). What belongs together (the same unit of
the cluster, the same error of the same workload) within a day is one incident; a job that is diagnosed again stays with
its own. Nobody is told of a job that was cancelled or preempted; of a user's bug only the owner; whoever is on call is
woken once, for what needs a person's hand. The state is one SQLite file, which several processes may share: what could
not be delivered waits there and is sent again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol

from diagnose.dataclass import dataclass
from diagnose.errors import StoreError, UsageError
from diagnose.integrations.summary import Summary, cut

Audience = Literal["nobody", "owner", "operators", "page"]

OPEN_SECONDS: Final = 24 * 3600.0  # an incident of which nothing was heard for longer is over
_UPDATE_SECONDS: Final = 60.0  # between two updates of one notice
_FIRST_WAIT, _LONGEST_WAIT = 30.0, 3600.0
_GIVE_UP: Final = 3 * 24 * 3600.0
_KEPT: Final = 90 * 24 * 3600.0
# What calls people or makes links in a chat, and what is read in its place.
_MARKUP: Final = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "\uff20"})
_MOST_JOBS: Final = 50  # shown in a notice
_HANDS: Final = frozenset({"drain", "reset_gpu", "reboot", "replace"})
_RANK: Final[Mapping[str, int]] = {"nobody": 0, "owner": 1, "operators": 2, "page": 3}
_COMMAND_SECONDS: Final = 20.0
_HTTP_SECONDS: Final = 10.0

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS incidents (
  id TEXT PRIMARY KEY, key TEXT NOT NULL, audience TEXT NOT NULL, paged INTEGER NOT NULL DEFAULT 0,
  opened REAL NOT NULL, seen REAL NOT NULL, sequence INTEGER NOT NULL DEFAULT 0, title TEXT NOT NULL,
  text TEXT NOT NULL, owner TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS incidents_key ON incidents (key, seen);
CREATE TABLE IF NOT EXISTS jobs (
  cluster TEXT NOT NULL, job_id TEXT NOT NULL, attempt INTEGER NOT NULL, incident TEXT NOT NULL, seen REAL NOT NULL,
  line TEXT NOT NULL, PRIMARY KEY (cluster, job_id, attempt));
CREATE INDEX IF NOT EXISTS jobs_incident ON jobs (incident);
CREATE TABLE IF NOT EXISTS outbox (
  incident TEXT NOT NULL, sink TEXT NOT NULL, body TEXT NOT NULL, page INTEGER NOT NULL, due REAL NOT NULL,
  tries INTEGER NOT NULL DEFAULT 0, since REAL NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (incident, sink));
CREATE TABLE IF NOT EXISTS delivered (incident TEXT NOT NULL, sink TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (incident, sink));
"""


@dataclass(frozen=True, slots=True)
class JobRef:
    """Which attempt of which job."""

    cluster: str
    job_id: str
    attempt: int = 0
    name: str = ""
    user: str = ""


class Sink(Protocol):
    """Somebody who is told. `least` is the audience from which on; raises `OSError` where it cannot be."""

    name: str
    least: Audience

    def send(self, id: str, body: bytes) -> None:
        """Delivers a notice; `id` is the delivery's, so that one that comes twice can be told."""
        ...


def audience(summary: Summary) -> Audience:
    """Who should hear of a verdict."""
    if summary.status == "no_failure" or summary.error_type in ("JobCancelled", "Preempted"):
        return "nobody"
    if summary.error_type == "TimeLimitExceeded" or summary.attribution == "user":
        return "owner"
    if summary.failed and summary.sureness == "possible":
        return "operators"
    if any(node.action in _HANDS for node in summary.nodes):
        return "page"
    if summary.job == "none":  # the policy wants a person to look
        return "page"
    if summary.job == "wait_and_retry" and summary.attribution == "infrastructure":
        return "page"  # a shared part is down, and no restart mends it
    if summary.attribution in ("infrastructure", "scheduler"):
        return "operators"
    return "owner"


def incident_key(job: JobRef, summary: Summary) -> str:
    """What tells this incident from others: the unit at fault, or else the workload."""
    error = summary.error_type or summary.status
    if summary.attribution in ("infrastructure", "scheduler") and summary.units:
        return "\n".join(("unit", job.cluster, error, *sorted(summary.units)))
    if summary.attribution == "infrastructure" and summary.job == "wait_and_retry":
        return f"shared\n{job.cluster}\n{error}"
    return "\n".join(("workload", job.cluster, error, job.user, job.name or job.job_id))


class Notices:
    """The notices of a site, kept in one file."""

    def __init__(self, path: str, sinks: Sequence[Sink], *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._sinks = tuple(sinks)
        self._clock = clock
        with contextlib.suppress(FileExistsError, OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        with self._transaction() as db:
            for statement in _TABLES.split(";"):
                db.execute(statement)

    def tell(self, job: JobRef, summary: Summary) -> str | None:
        """Takes a verdict; returns the incident it belongs to, None where nobody needs to know. Then `deliver`."""
        now, wanted = self._clock(), audience(summary)
        with self._transaction() as db:
            held = db.execute(
                "SELECT incident, line FROM jobs WHERE cluster = ? AND job_id = ? AND attempt = ?",
                (job.cluster, job.job_id, job.attempt),
            ).fetchone()
            line = summary.line()
            if held is not None and held[1] == line:
                return str(held[0])
            if wanted == "nobody" and held is None:
                return None
            key = incident_key(job, summary)
            incident = self._incident(db, key, held[0] if held else None, now)
            if incident is None:
                incident = "n" + hashlib.sha256(f"{key}\n{now}\n{os.urandom(8).hex()}".encode()).hexdigest()[:12]
                db.execute(
                    "INSERT INTO incidents (id, key, audience, opened, seen, title, text, owner)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (incident, key, wanted, now, now, "", "", job.user),
                )
            db.execute(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)",
                (job.cluster, job.job_id, job.attempt, incident, now, line),
            )
            self._update(db, incident, key, wanted, summary, now)
            return incident

    def _incident(self, db: sqlite3.Connection, key: str, own: str | None, now: float) -> str | None:
        """The open incident of this key, or the one that the job belongs to already."""
        found = db.execute(
            "SELECT id FROM incidents WHERE key = ? AND seen > ? ORDER BY opened LIMIT 1", (key, now - OPEN_SECONDS)
        ).fetchone()
        if own is None:
            return str(found[0]) if found else None
        alone = db.execute("SELECT COUNT(*) FROM jobs WHERE incident = ?", (own,)).fetchone()[0] == 1
        if found is None or found[0] == own:
            return own if alone or found else None
        # What was thought two incidents is one: whoever was woken for the one is not woken for the other.
        if alone:
            db.execute("UPDATE incidents SET paged = 1 WHERE id = ? AND (SELECT paged FROM incidents WHERE id = ?)",
                       (found[0], own))  # fmt: skip
        return str(found[0])

    def _update(
        self, db: sqlite3.Connection, incident: str, key: str, wanted: Audience, summary: Summary, now: float
    ) -> None:
        """Brings an incident up to date and puts its notice into the outbox."""
        was, paged, sequence = db.execute(
            "SELECT audience, paged, sequence FROM incidents WHERE id = ?", (incident,)
        ).fetchone()
        highest: Audience = wanted if _RANK[wanted] > _RANK[was] else was
        page = highest == "page" and wanted == "page" and not paged
        db.execute(
            "UPDATE incidents SET key = ?, audience = ?, paged = ?, seen = ?, sequence = ?, title = ?, text = ?"
            " WHERE id = ?",
            (key, highest, int(paged or page), now, sequence + 1, summary.headline(), summary.line(), incident),
        )
        body = json.dumps(self._body(db, incident, summary, page=page), ensure_ascii=True)
        for sink in self._sinks:
            if _RANK[highest] < _RANK[sink.least]:
                continue
            waiting = db.execute(
                "SELECT page, due, since, version, tries FROM outbox WHERE incident = ? AND sink = ?",
                (incident, sink.name),
            ).fetchone()
            last = db.execute(
                "SELECT at FROM delivered WHERE incident = ? AND sink = ?", (incident, sink.name)
            ).fetchone()
            due = now if page or last is None else max(now, last[0] + _UPDATE_SECONDS)
            since, version, paging, tries = now, 1, page, 0
            if waiting is not None:  # what was not sent yet is sent as it is now, and still wakes whom it was to wake
                since, version, paging = waiting[2], waiting[3] + 1, page or bool(waiting[0])
                tries = 0 if page else waiting[4]
                # One that was tried may be on its way just now: sent again at once, it would wake somebody twice.
                due = waiting[1] if tries else min(due, waiting[1])
            text = body if paging == page else json.dumps({**json.loads(body), "page": True})
            db.execute(
                "INSERT OR REPLACE INTO outbox (incident, sink, body, page, due, tries, since, version)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (incident, sink.name, text, int(paging), due, tries, since, version),
            )

    def _body(self, db: sqlite3.Connection, incident: str, summary: Summary, *, page: bool) -> dict[str, object]:
        opened, seen, sequence, reached, owner = db.execute(
            "SELECT opened, seen, sequence, audience, owner FROM incidents WHERE id = ?", (incident,)
        ).fetchone()
        jobs = db.execute(
            "SELECT cluster, job_id, attempt FROM jobs WHERE incident = ? ORDER BY seen DESC LIMIT ?",
            (incident, _MOST_JOBS),
        ).fetchall()
        count = db.execute("SELECT COUNT(*) FROM jobs WHERE incident = ?", (incident,)).fetchone()[0]
        return {
            "type": "notice.opened" if sequence == 1 else "notice.updated",
            "notice": incident,
            "sequence": sequence,
            "page": page,
            "audience": reached,
            "owner": owner,
            "title": inert(summary.headline()),
            "text": inert(summary.line(1000)),
            "hint": inert(summary.hint),
            "count": count,
            "jobs": [{"cluster": cluster, "job_id": job, "attempt": attempt} for cluster, job, attempt in jobs],
            "opened": opened,
            "seen": seen,
        }

    def deliver(self) -> list[str]:
        """Sends what is due; returns in words what could not be sent, and waits for another time."""
        problems: list[str] = []
        self.prune(_KEPT)
        by_name = {sink.name: sink for sink in self._sinks}
        for _ in range(1000):
            now = self._clock()
            with self._transaction() as db:  # whoever takes one puts it off, so that nobody else sends it meanwhile
                row = db.execute(
                    "SELECT incident, sink, body, tries, since, version FROM outbox WHERE due <= ?"
                    " ORDER BY due LIMIT 1",
                    (now,),
                ).fetchone()
                if row is None:
                    return problems
                incident, name, body, tries, since, version = row
                key = "incident = ? AND sink = ?", (incident, name)
                if name not in by_name or now - since > _GIVE_UP:
                    db.execute(f"DELETE FROM outbox WHERE {key[0]}", key[1])  # noqa: S608 - constants
                    continue
                pause = min(_FIRST_WAIT * 2 ** min(tries, 20), _LONGEST_WAIT)
                db.execute(f"UPDATE outbox SET due = ?, tries = tries + 1 WHERE {key[0]}", (now + pause, *key[1]))  # noqa: S608
            sent = json.loads(body)
            try:
                by_name[name].send(f"{incident}-{sent['sequence']}", body.encode())
            except OSError as error:
                problems.append(f"{name}: {error}; tried again in {pause:.0f} s")
                continue
            with self._transaction() as db:
                # Delivered is what was sent: what has come since stays, but nobody is woken twice.
                db.execute(f"DELETE FROM outbox WHERE {key[0]} AND version = ?", (*key[1], version))  # noqa: S608
                left = db.execute(f"SELECT body, page FROM outbox WHERE {key[0]}", key[1]).fetchone()  # noqa: S608
                if left is not None and (sent["page"] or not left[1]):
                    calm = json.dumps({**json.loads(left[0]), "page": False})
                    db.execute(
                        f"UPDATE outbox SET body = ?, page = 0, tries = 0, due = ? WHERE {key[0]}",  # noqa: S608
                        (calm, now + _UPDATE_SECONDS, *key[1]),
                    )
                db.execute("INSERT OR REPLACE INTO delivered VALUES (?, ?, ?)", (incident, name, now))
        return problems

    def prune(self, older_than: float) -> None:
        """Forgets incidents of which nothing was heard for so many seconds."""
        before = self._clock() - older_than
        with self._transaction() as db:
            for table in ("jobs", "outbox", "delivered"):
                db.execute(
                    f"DELETE FROM {table} WHERE incident IN (SELECT id FROM incidents WHERE seen < ?)",  # noqa: S608
                    (before,),
                )
            db.execute("DELETE FROM incidents WHERE seen < ?", (before,))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(self._path, timeout=20.0, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"the notices' file {self._path} cannot be opened: {error}") from error
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"the notices' file {self._path} cannot be used: {error}") from error
        finally:
            db.close()


class CommandSink:
    """A command that gets the notice on standard input as JSON."""

    def __init__(self, command: Sequence[str], *, least: Audience = "owner") -> None:
        if not command:
            raise UsageError("a command for notices has no words")
        self.name = "command " + cut(" ".join(command), 200)
        self.least: Audience = least
        self._command = tuple(command)

    def send(self, id: str, body: bytes) -> None:
        """Runs the command; raises `OSError` where it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - the site's own command; nothing of a log is in its words
                self._command,
                input=body,
                capture_output=True,
                timeout=_COMMAND_SECONDS,
                check=False,
                env={**os.environ, "DIAGNOSE_NOTICE": id},
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"it took longer than {_COMMAND_SECONDS:.0f} s") from error
        if done.returncode:
            said = cut(done.stderr[:400].decode("utf-8", "replace"), 200)
            raise OSError(f"exit code {done.returncode} {said}".rstrip())


class WebhookSink:
    """An address that gets the notice as JSON, signed as Standard Webhooks have it where there is a secret."""

    def __init__(
        self,
        address: str,
        *,
        secret: bytes | None = None,
        least: Audience = "owner",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not address.startswith(("https://", "http://")) or "@" in address.partition("://")[2].partition("/")[0]:
            raise UsageError(f"{address!r} is no address for notices; say https://host/path")
        self.name = f"webhook {address.partition('?')[0]}"
        self.least: Audience = least
        self._address = address
        self._secret = secret
        self._clock = clock

    def send(self, id: str, body: bytes) -> None:
        """Posts it; raises `OSError` where it was not taken."""
        import httpx

        headers = {"Content-Type": "application/json", "webhook-id": id, "webhook-timestamp": str(int(self._clock()))}
        if self._secret is not None:
            signed = b".".join((id.encode(), headers["webhook-timestamp"].encode(), body))
            digest = hmac.new(self._secret, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = "v1," + base64.b64encode(digest).decode()
        try:
            with httpx.stream(
                "POST", self._address, content=body, headers=headers, timeout=_HTTP_SECONDS, follow_redirects=False
            ) as answer:
                status = answer.status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise OSError(f"{type(error).__name__}: {cut(str(error), 200)}") from error
        if not 200 <= status < 300:
            raise OSError(f"answered {status}")


def inert(text: str) -> str:
    """A text that quotes a log, for a chat: it calls nobody, and links nothing under another name."""
    return text.translate(_MARKUP).replace("](", "] (")


def webhook_secret(text: str) -> bytes:
    """The bytes of a secret as Standard Webhooks write it (`whsec_` and base64), or as it stands."""
    if text.startswith("whsec_"):
        try:
            return base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except ValueError:
            raise UsageError("the webhook's secret begins with whsec_ but is no base64") from None
    return text.encode()
