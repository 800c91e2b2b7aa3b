"""Jobs whose logs come while they run: taken, watched, and handed in once they have ended and their last ranks spoken.

In: chunks, and that a job has ended. Out: `on_end(job, said, late)` when it is time to diagnose, and
`on_stall(job, notice)` when one stands still or goes on again. One thread keeps the time; what it calls must not take
long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from diagnose.errors import DiagnoseError
from diagnose.models import RuleSet
from diagnose.service.latecomers import Latecomers, Waits
from diagnose.service.stall import Sign, SignReader, StallNotice, StallSettings, StallWatch
from diagnose.service.streams import Appended, Chunk, JobKey, Streams

_TICK: Final = 0.5
_LOOK: Final = 5.0  # seconds between looks at what a job prints
_TAIL: Final = 8 * 1024  # bytes of a log that are looked at
_WATCHED: Final = 20_000
_TRY_AGAIN: Final = 5.0
_SILENT: Final = 2 * 86_400.0  # seconds after which a job is watched no more


class _Job:
    """A job that is watched: the newest bytes of its logs that nobody has looked at yet."""

    __slots__ = ("elsewhere", "heard", "looked", "quiet", "signs", "tails", "watch")

    def __init__(self, now: float, settings: StallSettings) -> None:
        self.watch = StallWatch(now, settings)
        self.tails: dict[str, bytes] = {}
        self.signs: list[Sign] = []
        self.heard = self.looked = now
        self.elsewhere = 0  # what was read of the progress that other processes see
        self.quiet = False  # another process tells of this standstill


class Live:
    """The running jobs of a service; `start` it, and `close` it at the end."""

    def __init__(
        self,
        streams: Streams,
        rules: Callable[[], RuleSet],
        on_end: Callable[[JobKey, str, bool], bool],
        on_stall: Callable[[JobKey, StallNotice], None],
        *,
        waits: Waits | None = None,
        stall: StallSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_end` is told whether it is asked once more for what came late; where it says no, it is asked again."""
        self.streams = streams
        self._rules = rules
        self._reader: SignReader | None = None
        self._on_end, self._on_stall = on_end, on_stall
        self._stall = stall or StallSettings()
        self._clock = clock
        self._lock = threading.Lock()
        self._late = Latecomers[JobKey](waits)
        self._ends: dict[str, tuple[JobKey, int]] = {}  # by their names in the spool: how often each was heard
        self._jobs: dict[JobKey, _Job] = {}
        self._log = structlog.get_logger("diagnose.live")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    def start(self) -> None:
        """Go on where the process before this one ended."""
        self._meet(self._clock())
        self.streams.seal_all()
        self._thread.start()

    def close(self) -> None:
        """End; what is waited for is waited for by the next process."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self.streams.close()

    def append(self, job: JobKey, chunk: Chunk, step: int | None = None) -> Appended:
        """Take a chunk; one without bytes says that its sender is there. `step` is the last it has seen."""
        took = self.streams.append(job, chunk)
        heard = self.streams.endings.heard(job) if took.new else None
        now = self._clock()
        with self._lock:
            if heard is not None:
                self._ends[self.streams.endings.name(job)] = (job, heard)
                self._late.ended(job, now)
                self._late.heard(job, now)
            watched = self._jobs.get(job)
            if watched is None:
                if self.streams.endings.state(job) or len(self._jobs) >= _WATCHED:
                    return took
                watched = self._jobs[job] = _Job(now, self._stall)
            if step is not None:
                watched.signs.append(Sign(step=step))
            if not chunk.data:
                watched.watch.heartbeat(now)
            if took.new and chunk.form == "raw":
                before = watched.tails.get(chunk.name, b"")
                watched.tails[chunk.name] = (before + chunk.data[-_TAIL:])[-_TAIL:]
            watched.heard = now
        return took

    def ended(self, job: JobKey, said: str) -> bool:
        """The job has ended: it is handed in when its last ranks have spoken. Say whether that is news."""
        news = self.streams.endings.end(job, said)
        with self._lock:
            self._jobs.pop(job, None)
            if news:
                self._late.ended(job, self._clock())
        return news

    def left(self, job: JobKey) -> float | None:
        """In how many seconds a job is handed in, unless something comes until then; None where nobody waits for it."""
        with self._lock:
            at = self._late.at(job)
        return None if at is None else max(0.0, at - self._clock())

    def forget(self, job: JobKey) -> None:
        """Nobody wants the logs of a job any more."""
        with self._lock:
            self._late.forget(job)
            self._jobs.pop(job, None)
        self.streams.forget(job)

    def tick(self) -> None:
        """Do what is due."""
        now = self._clock()
        self._meet(now)
        with self._lock:
            due = self._late.due(now)
        for job in due:
            try:
                done = self._due(job)
            except DiagnoseError:  # the spool or the database is away
                done = False
            if not done:
                with self._lock:
                    self._late.again(job, now + _TRY_AGAIN)
        self._look(now)

    def _meet(self, now: float) -> None:
        """Hear from the spool which jobs have ended, what came of them, and which were handed in: by any process."""
        endings = self.streams.endings
        there = endings.waiting()
        for name, count in there.items():
            known = self._ends.get(name)
            if known is not None and known[1] == count:
                continue
            ending = endings.read(name) if known is None else None
            job = known[0] if known is not None else ending.job if ending is not None else None
            if job is None:
                continue
            with self._lock:
                self._ends[name] = (job, count)
                self._jobs.pop(job, None)
                self._late.ended(job, now)
                if known is not None:
                    self._late.heard(job, now)
        with self._lock:
            for name in self._ends.keys() - there.keys():
                self._late.forget(self._ends.pop(name)[0])

    def _due(self, job: JobKey) -> bool:
        """Hand a job in, if no other process does; say whether that is done."""
        endings = self.streams.endings
        with endings.handing_in(job) as ending:
            if ending is None:
                return endings.state(job) != "ended"
            if not self._on_end(job, ending.said, ending.times > 0):
                return False
            endings.handed_in(job)
        return True

    def _look(self, now: float) -> None:
        """See which jobs get on: those that were not looked at for a while, so that not all are at once."""
        with self._lock:
            for job in [job for job, watched in self._jobs.items() if now - watched.heard > _SILENT]:
                del self._jobs[job]
            jobs = [(job, watched) for job, watched in self._jobs.items() if now - watched.looked >= _LOOK]
        jobs.sort(key=lambda one: one[1].looked)
        for job, watched in jobs:
            watched.looked = now
            with self._lock:
                tails, watched.tails = watched.tails, {}
                signs, watched.signs = watched.signs, []
            if tails and self._reader is None:
                self._reader = SignReader(self._rules())
            for name, tail in tails.items():
                assert self._reader is not None
                signs += self._reader.read(f"{job.project}|{job.cluster}|{job.job_id}|{job.attempt}|{name}", tail)
            self._watch(job, watched, signs, now, grown=bool(signs or tails))
            if not self._pause():  # somebody is due: that comes first, and the rest at the next look
                return

    def _watch(self, job: JobKey, watched: _Job, signs: list[Sign], now: float, *, grown: bool) -> None:
        """Tell of a standstill and of its end, unless another process does; tell the others of progress."""
        shared, watch = self.streams.progress(job), watched.watch
        notices = []
        if (latest := shared.latest()) != watched.elsewhere:
            watched.elsewhere = latest
            notices.append(watch.elsewhere(now, done=shared.done()))
        before = watch.seen
        if grown:
            notices.append(watch.observe(signs, now))
        if watch.seen != before:
            watched.elsewhere = shared.went_on(done=watch.seen[1])
        notices.append(watch.check(now))
        for notice in notices:
            if notice is None:
                continue
            if not notice.over:
                watched.quiet = not shared.first_to_tell(watched.elsewhere)
            if not watched.quiet:
                self._on_stall(job, notice)

    def _pause(self) -> float:
        """Seconds until somebody is due, or might have come."""
        with self._lock:
            due = self._late.next_at()
        return _TICK if due is None else min(_TICK, max(0.0, due - self._clock()))

    def _run(self) -> None:
        while not self._stop.wait(self._pause()):
            try:
                self.tick()
            except DiagnoseError as error:
                self._log.warning("running jobs could not be looked after", error=str(error))
            except Exception:  # noqa: BLE001 - one job's logs must not end what waits for all others
                self._log.exception("internal error")
