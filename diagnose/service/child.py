"""A process that diagnoses: `python -m diagnose.service.child`, started by `pool`.

In: ids of submissions, one a line, on standard input; settings in the environment. Out: one JSON object a line on
standard output, of each change of state, and `{"id", "end"}` when it is through with one: `done`, `again` where the
database could not be told, or `later` where there is nowhere to work at present. It ends when nobody asks any more.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from functools import cache, partial
from typing import Any, BinaryIO

from diagnose import garbage
from diagnose.errors import DiagnoseError, StoreError


def main() -> int:
    """Work until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the pool ends this one
    answers = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # whatever prints must not be taken for an answer
    asked = os.fdopen(os.dup(0), "rb", 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        _serve(asked, answers)
    except BrokenPipeError:  # whoever asked is gone
        return 0
    except DiagnoseError as error:
        _say(answers, {"broken": str(error)})
        return 1
    return 0


def _serve(asked: BinaryIO, answers: BinaryIO) -> None:
    gc.disable()
    from diagnose import precompiled
    from diagnose.keeping import Keeping
    from diagnose.prepared import Prepared
    from diagnose.rules.bundle import load_bundled
    from diagnose.service.fetch import fetcher
    from diagnose.service.settings import config_of
    from diagnose.service.spool import SpoolError
    from diagnose.service.work import Worker
    from diagnose.store.database import Database, open_database

    config = config_of(os.environ)
    precompiled.recall()
    rules = load_bundled(config.rules)
    prepared = Prepared(rules)
    garbage.settle()
    database: Database | None = None
    settled = False
    fetch = fetcher(config)
    keeping = cache(partial(Keeping, rules, prepared))
    myself = f"{os.uname().nodename}:{os.getpid()}"
    _say(answers, {"ready": True})
    for line in iter(lambda: asked.readline(200), b""):
        name = line.decode("ascii", "replace").strip()
        end = "done"
        try:
            if database is None:
                database = open_database(config.database)
            worker = Worker(config, database, rules, myself, _note, fetch, keeping, prepared)
            worker.work(name, partial(_state, answers, name))
        except StoreError as error:
            _note(f"{name}: {error}; tried again later")
            end = "again"
        except SpoolError as error:
            _note(f"{name}: {error}; tried again later")
            end = "later"
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - one job must not end the others' worker
            traceback.print_exc()
            end = _defect(database, config, name, myself, error)
        _say(answers, {"id": name, "end": end})
        gc.collect()
        if not settled:  # what the first job has loaded lasts: nobody need look for garbage among it again
            gc.freeze()
            settled = True
    precompiled.keep()


def _defect(database: Any, config: Any, id: str, name: str, error: Exception) -> str:
    """Says that the service itself failed on a job: it would fail again."""
    from diagnose.service.claims import Claims
    from diagnose.service.jobs import Notice

    try:
        claims = Claims(database, Notice(config.webhooks_to))
        claim = claims.claim(id, name, 1 << 30)
        if claim is not None:
            claims.fail(
                claim,
                f"internal error ({type(error).__name__}): this is a defect of diagnose; the server's log has more",
            )
    except StoreError:
        return "again"
    return "done"


def _say(answers: BinaryIO, said: dict[str, Any]) -> None:
    answers.write(json.dumps(said).encode() + b"\n")


def _state(answers: BinaryIO, name: str, state: str) -> None:
    """An answer on the way to the end."""
    _say(answers, {"id": name, "state": state})


def _note(text: str) -> None:
    """A line for whoever runs the service."""
    said = {"event": text, "level": "warning", "logger": "worker", "process": os.getpid()}
    sys.stderr.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    sys.exit(main())
