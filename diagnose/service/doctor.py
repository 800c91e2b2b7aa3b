"""What a service needs, looked at one by one.

In: a `ServiceConfig`. Out: `Seen`: `ok`, `note` (it works, but), or `amiss` with what to do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError
from diagnose.service.keys import Keys
from diagnose.service.settings import PROJECT, ServiceConfig
from diagnose.service.spool import Spool
from diagnose.service.submissions import Submissions
from diagnose.services import open_memory

Look = Callable[[ServiceConfig], Iterator[tuple[str, str]]]
_ROOM: Final = 1 << 30
_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that was looked at."""

    what: str
    state: str
    said: str


def examine(config: ServiceConfig) -> list[Seen]:
    """Looks at everything; nothing is changed but a file in the spool that is removed again."""
    seen: list[Seen] = []
    for what, look in (
        ("rules", _rules),
        ("database", _database),
        ("keys", _keys),
        ("spool", _spool),
        ("roots", _roots),
        ("webhooks", _webhooks),
        ("index", _index),
        ("model", _model),
        ("service", _service),
    ):
        seen += list(_looked(what, look, config))
    return seen


def _looked(what: str, look: Look, config: ServiceConfig) -> Iterator[Seen]:
    try:
        for state, said in look(config):
            yield Seen(what, state, said)
    except (DiagnoseError, OSError) as error:
        yield Seen(what, "amiss", str(error))


def _rules(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    from diagnose.rules.bundle import load_bundled

    rules = load_bundled(config.rules)
    yield "ok", f"{len(rules.diagnoses)} diagnosis rules, ruleset {rules.version}"


def _database(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    with open_memory(config.database) as database:
        counts = Submissions(database).counts()
        with database.writing():
            pass  # a role of a server may read and no more
        said = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no submissions yet"
        yield "ok", f"{database.name}: {said}"
        if database.is_file and not config.is_local:
            yield "note", "SQLite serves one machine; for several API or worker processes take Postgres"


def _keys(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    with open_memory(config.database) as database:
        import time

        rows = Keys(database).rows()
        active = [row for row in rows if row.state(time.time()) == "active"]
        if not rows and not config.is_local:
            yield "amiss", f"{config.host} can be reached from elsewhere: make a key with `diagnose keys add`"
        elif not rows:
            yield "note", "none: everybody on this machine may use the service"
        elif not active:
            yield "amiss", "none is active: nobody can use the service; make one with `diagnose keys add`"
        else:
            yield "ok", f"{len(active)} active of {len(rows)}"
            soon = [row.id for row in active if row.expires is not None and row.expires - time.time() < 7 * 86_400]
            if soon:
                yield "note", f"expiring within a week: {', '.join(soon[:5])}; `diagnose keys rotate ID`"


def _spool(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    spool = Spool(config.spool, most_bytes=config.bounds.spool_bytes, upload_bytes=config.bounds.upload_bytes)
    writing = spool.begin()
    try:
        writing.write(b"doctor")
    finally:
        writing.abort()
    free = shutil.disk_usage(config.spool).free
    yield ("ok" if free > _ROOM else "amiss"), f"{config.spool}: {free >> 20} MB free"
    mode = os.stat(config.spool).st_mode & 0o077
    if mode:
        yield "amiss", f"others may enter {config.spool}: chmod 700"
    waiting = len(spool.pending())
    if waiting:
        yield "note", f"{waiting} submissions wait for the database"


def _roots(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    if not config.roots:
        yield "note", "DIAGNOSE_ROOTS is not set: logs can only be uploaded"
    for root in config.roots:
        if PROJECT in root:
            yield "ok", f"{root}, for each project its own"
        else:
            readable = os.access(root, os.R_OK | os.X_OK)
            yield ("ok" if readable else "amiss"), root if readable else f"{root} cannot be read by this user"


def _webhooks(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    if config.webhook_secret_file is None:
        yield "note", "DIAGNOSE_WEBHOOK_SECRET_FILE is not set: callbacks are not sent"
        return
    from diagnose.service.webhooks import signer_of

    signer_of(config)
    yield "ok", "a secret is there" + (f"; {config.webhooks_to} is told of everything" if config.webhooks_to else "")


def _index(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    settings = config.memory.index
    if settings is None:
        yield "note", "no index of past incidents"
        return
    if settings.place.server is None:
        yield "ok", f"in {settings.place.folder}"
        return
    import httpx

    url = settings.place.server.rstrip("/") + "/api/v2/heartbeat"
    try:
        answer = httpx.get(url, timeout=_SECONDS, follow_redirects=False)
        good = answer.status_code == httpx.codes.OK
    except httpx.HTTPError as error:
        yield "amiss", f"{settings.place.server} does not answer ({type(error).__name__}); diagnoses do without it"
        return
    yield ("ok" if good else "amiss"), f"{settings.place.server} answers {answer.status_code}"


def _model(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    model = config.memory.model
    if model is None:
        yield "note", "none is configured: where neither rules nor past incidents decide, nobody is asked"
        return
    import httpx

    try:
        answer = httpx.get(f"{model.base_url.rstrip('/')}/models", timeout=_SECONDS, follow_redirects=False)
    except httpx.HTTPError as error:
        yield "amiss", f"{model.base_url} does not answer ({type(error).__name__}); diagnoses do without it"
        return
    yield "ok", f"{model.base_url} answers {answer.status_code}"


def _service(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    import httpx

    host = f"[{config.host}]" if ":" in config.host else config.host
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not listened on
    try:
        answer = httpx.get(f"http://{host}:{config.port}/readyz", timeout=_SECONDS, follow_redirects=False)
        body = answer.json()
        yield (
            ("ok" if answer.status_code == httpx.codes.OK else "amiss"),
            (
                f"http://{host}:{config.port}: {body.get('status')}, database {body.get('database')}, "
                f"spool {body.get('spool')}"
            ),
        )
    except (httpx.HTTPError, ValueError, AttributeError):
        yield "note", f"nothing answers on http://{host}:{config.port}; `diagnose serve` starts it"
