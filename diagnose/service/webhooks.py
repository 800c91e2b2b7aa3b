"""Webhooks: what has changed is told to whoever asked for it, signed as Standard Webhooks has it.

In: the outbox. Out: POST requests to addresses that `guard` lets through, without redirects, bounded in time and size;
one that fails is sent again with growing pauses, for about three days. Several receivers are told at once, so that a
slow one keeps nobody waiting; what is about one job goes to one receiver in order. Each message has one id, whoever
sends it how often: the outbox says who has taken it in hand.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import httpx
import structlog
from sqlalchemy import and_, or_, select, update
from standardwebhooks.webhooks import Webhook

from diagnose.dataclass import dataclass
from diagnose.errors import StoreError, UsageError
from diagnose.service.guard import Resolve, resolved, target_of
from diagnose.service.opening import Opening
from diagnose.service.paths import Refused
from diagnose.service.settings import ServiceConfig
from diagnose.store.service_tables import Outgoing

PAUSES: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)  # seconds, as the standard proposes
_HEADERS: Final = {"User-Agent": "diagnose"}
_TIMEOUT: Final = 15.0  # seconds for one message, however its receiver dribbles
_ROUND: Final = 45.0  # seconds for all that are sent together
_LEASE: Final = 60.0  # for how long one sender has a message in hand: longer than a round
_AT_ONCE: Final = 20
_FAR: Final = 2 * 86_400.0  # seconds ahead to which nothing is put off: by a clock that was set back since
_LOOK: Final = 2.0
_LEAST: Final = 16  # bytes of a secret


def signer_of(config: ServiceConfig) -> Webhook:
    """What signs. Raises `UsageError` where the secret cannot be used."""
    path = config.webhook_secret_file
    if path is None:
        raise UsageError("DIAGNOSE_WEBHOOK_SECRET_FILE is not set: webhooks are signed, or not sent")
    try:
        with open(path, encoding="ascii") as file:
            secret = file.read(4_096).strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds more than plain characters"
        raise UsageError(f"the file of DIAGNOSE_WEBHOOK_SECRET_FILE cannot be read: {why}") from None
    if not secret.startswith("whsec_"):
        secret = "whsec_" + base64.b64encode(secret.encode()).decode()
    try:
        long_enough = len(base64.b64decode(secret.removeprefix("whsec_"))) >= _LEAST
    except ValueError:
        long_enough = False
    if not long_enough:
        raise UsageError(
            f"the file of DIAGNOSE_WEBHOOK_SECRET_FILE holds no secret of at least {_LEAST} bytes; "
            "`openssl rand -base64 32` makes one"
        )
    return Webhook(secret)


@dataclass(frozen=True, slots=True)
class Message:
    """A webhook that somebody has in hand."""

    id: str
    about: str
    url: str
    body: str
    tries: int


class Sender:
    """Sends what is due. `clock` and `resolve` are for tests."""

    def __init__(
        self,
        config: ServiceConfig,
        opening: Opening,
        *,
        clock: Callable[[], float] = time.time,
        resolve: Resolve = resolved,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        self._config, self._opening = config, opening
        self._clock, self._resolve = clock, resolve
        self._signer = signer_of(config)
        self._transport, self._timeout = transport, timeout
        self._log = structlog.get_logger("diagnose.webhooks")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def close(self) -> None:
        """Ends."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT + 5)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK):
            try:
                while not self._stop.is_set() and self.send_due():
                    pass
            except StoreError as error:
                self._opening.failed(error)

    def send_due(self) -> int:
        """Sends what is due now; returns how many that were. Raises `StoreError`."""
        messages = self._taken()
        if messages:
            for message, why in asyncio.run(self._all_sent(messages)):
                self._ended(message, why)
        return len(messages)

    def _taken(self) -> list[Message]:
        """Takes messages in hand: nobody else sends them for a while."""
        now = self._clock()
        taken: list[Message] = []
        with self._opening.database().changing() as session:
            rows = session.execute(
                select(Outgoing.id, Outgoing.about, Outgoing.due, Outgoing.url, Outgoing.body, Outgoing.tries)
                .where(or_(Outgoing.due <= now, Outgoing.due > now + _FAR))
                .order_by(Outgoing.due)
                .limit(_AT_ONCE)
            ).all()
            for row in rows:
                held = session.execute(
                    update(Outgoing)
                    .where(and_(Outgoing.id == row.id, Outgoing.due == row.due))
                    .values(due=now + _LEASE, tries=row.tries + 1)
                    .returning(Outgoing.id)
                ).all()
                if held:
                    body = json.dumps(row.body, separators=(",", ":"), ensure_ascii=False)
                    taken.append(Message(row.id, row.about, row.url, body, row.tries + 1))
        return taken

    async def _all_sent(self, messages: Sequence[Message]) -> list[tuple[Message, str | None]]:
        """Sends messages; says of each what `_sent` does."""
        until = asyncio.get_running_loop().time() + _ROUND
        lines: dict[tuple[str, str], list[Message]] = {}
        for message in messages:
            lines.setdefault((message.about, message.url), []).append(message)
        async with httpx.AsyncClient(
            timeout=self._timeout, follow_redirects=False, trust_env=False, transport=self._transport, headers=_HEADERS
        ) as client:

            async def in_order(line: Sequence[Message]) -> list[tuple[Message, str | None]]:
                return [(message, await self._in_time(client, message, until)) for message in line]

            done = await asyncio.gather(*(in_order(line) for line in lines.values()))
        return [one for line in done for one in line]

    async def _in_time(self, client: httpx.AsyncClient, message: Message, until: float) -> str | None:
        try:
            async with asyncio.timeout_at(min(until, asyncio.get_running_loop().time() + self._timeout)):
                return await self._sent(client, message)
        except TimeoutError:
            return f"no answer within {self._timeout:.0f} s"

    async def _sent(self, client: httpx.AsyncClient, message: Message) -> str | None:
        """Sends one; None where it arrived, else why not. `gone` ends it."""
        at = datetime.fromtimestamp(int(self._clock()), UTC)
        try:
            target = await asyncio.to_thread(target_of, message.url, self._config.webhook_allow, self._resolve)
            headers = {
                "Content-Type": "application/json",
                "Host": target.host,
                "webhook-id": message.id,
                "webhook-timestamp": str(int(at.timestamp())),
                "webhook-signature": self._signer.sign(message.id, at, message.body),
            }
            async with client.stream(
                "POST",
                target.url,
                content=message.body.encode(),
                headers=headers,
                extensions={"sni_hostname": target.name},
            ) as answer:  # what it says is not read: it could be without end
                status = answer.status_code
        except Refused as error:
            return str(error)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return type(error).__name__
        if status == httpx.codes.GONE:
            return "gone"
        return None if httpx.codes.is_success(status) else f"answered {status}"

    def _ended(self, message: Message, why: str | None) -> None:
        now = self._clock()
        over = why == "gone" or message.tries > len(PAUSES)
        values: dict[str, object]
        if why is None:
            values = {"delivered": now, "due": None, "error": ""}
        elif over:
            values = {"due": None, "error": f"given up after {message.tries} tries: {why}"[:900]}
            self._log.warning("a webhook was given up", id=message.id, tries=message.tries, why=why)
        else:
            pause = PAUSES[message.tries - 1] * random.uniform(0.9, 1.1)  # noqa: S311 - spreads, hides nothing
            values = {"due": now + pause, "error": why[:900]}
        with self._opening.database().changing() as session:
            session.execute(update(Outgoing).where(Outgoing.id == message.id).values(**values))
