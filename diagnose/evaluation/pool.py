"""Cases handed to a few processes, one at a time each; whatever happens to one of them, the others go on.

In: what makes a worker (it must be picklable) and the items. Out: for each item its result, or in words why there is
none: it raised, its process died, it took too long. Processes are begun anew, never forked: libraries with threads
may be at work in them. All of them end with the context, also on Ctrl-C.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, Generic, TypeVar, cast

from diagnose.errors import DiagnoseError

Item = TypeVar("Item")
Made = TypeVar("Made")
Work = Callable[[Item], Made]

_GRACE: Final = 5.0  # seconds for a process that was asked to end
_POLL: Final = 1.0
_START: Final = 120.0  # seconds a process may take to begin, on a busy machine
_READY: Final = "ready"


class Lost(DiagnoseError):
    """A worker could not be made; says why."""


class _Worker(Generic[Item, Made]):
    """One process and what it is at."""

    def __init__(self, make: Callable[[], Work[Item, Made]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(make, theirs), daemon=True)
        # The terminal's Ctrl-C is for the parent, which ends the others; a child is to be deaf from its first moment.
        with _deaf():
            self.process.start()
        theirs.close()
        self.ready = False
        self.at: int | None = None
        self.since = time.monotonic()

    def end(self) -> None:
        """Ends the process, at once if it must be."""
        self.pipe.close()
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(_GRACE)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()


def each(
    make: Callable[[], Work[Item, Made]], items: Sequence[Item], jobs: int, seconds: float
) -> Iterator[tuple[int, Made | None, str]]:
    """For each item, as it is done: its place, its result, or None and why. `seconds` bound one item.

    Raises `DiagnoseError` where not even a worker can be made; it says why, or what the user must do.
    """
    waiting = list(range(len(items)))[::-1]
    workers: list[_Worker[Item, Made]] = []
    try:
        left = len(items)
        while left:
            while waiting and len(workers) < min(jobs, left):
                workers.append(_Worker(make))
            ready = wait([worker.pipe for worker in workers], timeout=_POLL)
            for worker in list(workers):
                told = _heard(worker) if worker.pipe in ready else _overdue(worker, seconds)
                if told is None:
                    continue
                kind, value = told
                if kind != _READY and worker.at is not None:
                    left -= 1
                    if kind == "done":
                        yield worker.at, cast("Made", value), ""
                    else:
                        yield worker.at, None, str(value)
                    worker.at = None
                if kind == "lost":
                    workers.remove(worker)
                    worker.end()
                elif waiting:
                    worker.at, worker.since = waiting.pop(), time.monotonic()
                    with contextlib.suppress(OSError):  # it died just now, which is heard next
                        worker.pipe.send(items[worker.at])
                elif worker.at is None:
                    workers.remove(worker)
                    worker.end()
    finally:
        for worker in workers:
            worker.end()


def _heard(worker: _Worker[Item, Made]) -> tuple[str, object] | None:
    """What a worker says, or that it is gone."""
    try:
        kind, value = worker.pipe.recv()
    except (EOFError, OSError, ValueError):
        worker.process.join(_GRACE)
        code = worker.process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        if not worker.ready:
            raise Lost(f"a process of the evaluation ended with {how} before its first case; try --jobs 1") from None
        return "lost", f"the process that read it ended with {how}"
    if kind == "unmade":
        raise value if isinstance(value, DiagnoseError) else Lost(str(value))
    worker.ready = True
    return kind, value


def _overdue(worker: _Worker[Item, Made], seconds: float) -> tuple[str, object] | None:
    taken = time.monotonic() - worker.since
    if not worker.ready and taken > _START + seconds:
        raise Lost(f"a process of the evaluation did not begin within {_START + seconds:g} s; try --jobs 1")
    if worker.at is not None and taken > seconds:
        return "lost", f"it took longer than {seconds:g} s"
    return None


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignores Ctrl-C for a moment, which children begun in it go on to do."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread: then Ctrl-C is somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(make: Callable[[], Work[Item, Made]], pipe: Connection) -> None:
    """The life of one worker."""
    os.dup2(2, 1)  # whatever libraries print, standard output is the evaluation's
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            work = make()
        except DiagnoseError as error:
            pipe.send(("unmade", _plain(error)))
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent tells it
            pipe.send(("unmade", _said(error)))
            return
        pipe.send((_READY, None))
        while True:
            item = pipe.recv()
            try:
                told: tuple[str, object] = ("done", work(item))
            except DiagnoseError as error:
                told = ("failed", str(error))
            except Exception as error:  # noqa: BLE001 - one broken case does not end the others
                told = ("failed", _said(error))
            pipe.send(told)


def _plain(error: DiagnoseError) -> DiagnoseError:
    """The error as one that travels whatever its class needs."""
    return DiagnoseError(str(error))


def _said(error: Exception) -> str:
    """An error that nobody expected, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"internal error: {type(error).__name__}: {str(error)[:300]}{where}"
