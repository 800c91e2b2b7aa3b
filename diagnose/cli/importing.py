"""Labelled cases become incidents: each is diagnosed, and recorded with what its label says.

In: a directory of cases, a database, the rules. Out: how many were added, on standard output, and which were left out,
on standard error. Each case is one transaction, so that a run that was killed is just started again: what is there as
it is on disk stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from diagnose.cli.rules import counted
from diagnose.cli.streams import tell
from diagnose.errors import DiagnoseError, StoreError, UsageError

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

    from diagnose.models import RuleSet
    from diagnose.pipeline import Request
    from diagnose.store.cases import Case
    from diagnose.store.database import Database
    from diagnose.store.recorder import Label, Recorded

Became = Literal["added", "known"]

_TOLD_EVERY: Final = 500
_LEFT_OUT_SHOWN: Final = 20
_FEW: Final = 32  # cases that are done before processes have started
_MOST_PROCESSES: Final = 8
_WAITING: Final = 4  # cases that wait for each process


def import_cases(folder: str, database: Database, rules: RuleSet) -> int:
    """Imports a directory of cases; returns the exit code. Raises `StoreError` where nothing can be recorded."""
    from diagnose.store.cases import read_cases

    count = {"added": 0, "known": 0}
    left: list[str] = []
    started = time.monotonic()

    def usable() -> Iterator[Case]:
        for case in read_cases(folder):
            if isinstance(case, str):
                left.append(case)
            else:
                yield case

    for became, problem in _taken(usable(), database, rules):
        if problem:
            left.append(problem)
        else:
            count[became] += 1
        done = sum(count.values())
        if done and done % _TOLD_EVERY == 0 and sys.stderr.isatty():
            tell(f"{done} cases, {time.monotonic() - started:.0f} s")
    without = [why for why in left if why.endswith("no failure")]
    print(
        f"added {counted(count['added'], 'incident')}, {count['known']} were there already"
        + (f", {len(without)} hold no failure" if without else "")
    )
    unusable = [why for why in left if why not in without]
    for why in unusable[:_LEFT_OUT_SHOWN]:
        tell(f"left out: {why}")
    if len(unusable) > _LEFT_OUT_SHOWN:
        tell(f"left out: {len(unusable) - _LEFT_OUT_SHOWN} more")
    return 0 if sum(count.values()) else 1


def _taken(cases: Iterator[Case], database: Database, rules: RuleSet) -> Iterator[tuple[Became, str]]:
    """What became of each case: by this process the first few, by several what is more."""
    for _ in range(_FEW):
        case = next(cases, None)
        if case is None:
            return
        yield _take(case, database, rules)
    processes = min(_MOST_PROCESSES, _processors())
    if processes < 2 or not hasattr(os, "fork"):
        yield from (_take(case, database, rules) for case in cases)
        return
    from concurrent.futures import FIRST_COMPLETED, wait

    with _pool(processes, database, rules) as pool:
        waiting: set[Future[tuple[Became, str]]] = set()
        for case in cases:
            waiting.add(pool.submit(_take_there, case))
            if len(waiting) >= processes * _WAITING:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        yield from (one.result() for one in waiting)


@contextlib.contextmanager
def _pool(processes: int, database: Database, rules: RuleSet) -> Iterator[ProcessPoolExecutor]:
    """Processes that each open the database anew: a connection is not to be shared with a fork."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    database.close()
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, context, _open_there, (database.address, rules))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


_there: list[tuple[Database, RuleSet]] = []  # of a process of the pool, which has no other place for it


def _open_there(address: str, rules: RuleSet) -> None:
    import threading

    from diagnose.store.database import open_database

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _there.append((open_database(address), rules))


def _end_with(parent: int) -> None:
    """Ends a process of the pool when its parent was killed: nobody would give it work, nor tell it so."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _take_there(case: Case) -> tuple[Became, str]:
    return _take(case, *_there[0])


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _take(case: Case, database: Database, rules: RuleSet) -> tuple[Became, str]:
    """Records one case, unless it is there as it is; says what became of it, or why it was left out."""
    from diagnose.dataclass import replace
    from diagnose.pipeline import Request
    from diagnose.redaction import Redactor
    from diagnose.store.incidents import StoredIncidents

    there = StoredIncidents(database).get(case.id)
    if there is not None and there.origin == case.origin:
        return "known", ""
    entry = rules.taxonomy.get(case.label.error_type or "")
    if entry is None or entry.symptom:
        return "added", f"{case.id}: its error type {case.label.error_type} is none of the taxonomy's"
    redactor = Redactor(rules.redactions, hosts=case.hosts)
    label = replace(
        case.label,
        attribution=case.label.attribution or entry.attribution,
        summary=redactor.redact(case.label.summary),
        accepted=tuple(name for name in case.label.accepted if name in rules.taxonomy),
    )
    request = Request(case.paths, case.kernel_logs, case.scheduler_records, case.inventory)
    try:
        recorded(request, database, rules, label, origin=case.origin, lived=False)
    except StoreError:
        raise
    except DiagnoseError as error:
        return "added", f"{case.id}: {error}"
    return "added", ""


def recorded(request: Request, database: Database, rules: RuleSet, label: Label, *, origin: str, lived: bool) -> str:
    """Diagnoses inputs and records them with what a person says; returns the incident's id. Raises `StoreError`."""
    from diagnose.dataclass import replace
    from diagnose.pipeline import Services, diagnose
    from diagnose.services import ServiceSettings, memory_of

    problems: list[str] = []
    became: list[Recorded] = []
    memory = memory_of(database, rules, ServiceSettings(records=True), problems.append, became.append)
    diagnose(request, Services(rules, memory=replace(memory, label=label, origin=origin, lived=lived)))
    if problems:
        raise StoreError(problems[0])
    if not became or became[0].incident is None:
        raise UsageError("it could not be recorded")
    return became[0].incident
