"""One job is diagnosed: its inputs are opened, the pipeline reads them, and what comes of it is published.

In: the id of a submission. Out: its new state in the database: `rules_done` before anybody else is asked, then `done`,
or `error`. A `Worker` keeps what every job needs (rules, the database, compiled patterns) and works in a process of
its own, whose working directory is the job's: so inputs go by the names under which they were sent.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from diagnose.dataclass import dataclass, replace
from diagnose.errors import DiagnoseError, SourceError, StoreError
from diagnose.keeping import Keeping
from diagnose.models import JobContext, Report, RuleSet, Told
from diagnose.pipeline import Request, Services, diagnose
from diagnose.prepared import Prepared
from diagnose.report import render
from diagnose.service.claims import Claims, Recording
from diagnose.service.firstscreen import layout_of
from diagnose.service.jobs import Claim, InputRef, NewJob, Notice, Outcome
from diagnose.service.paths import Refused, allowed_path, roots_of
from diagnose.service.settings import ServiceConfig, streams_folder
from diagnose.service.spool import Spool, SpoolError, SpoolFull
from diagnose.service.streams import JobKey, snapshot_of
from diagnose.service.streams.endings import Endings
from diagnose.service.uploads import Uploads
from diagnose.services import services_on
from diagnose.settings import Limits, Settings
from diagnose.store.database import Database

_NAME_BYTES = 200  # of one part of a name
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE)
_NO_ACTION = ("none", "unknown")
Tell = Callable[[str], None]
Fetch = Callable[[str, str], None]  # an address, and the file that its bytes go into


def _no_fetch(uri: str, _path: str) -> None:
    raise Refused(f"{uri}: this service fetches nothing")


@dataclass(frozen=True, slots=True)
class Worker:
    """Diagnoses one job after the other. `tell` gets what whoever runs the service should know."""

    config: ServiceConfig
    database: Database
    rules: RuleSet
    name: str
    tell: Tell
    fetch: Fetch = _no_fetch
    keeping: Callable[[], Keeping] | None = None
    prepared: Prepared | None = None

    def work(self, id: str, on_state: Callable[[str], None]) -> None:
        """Takes a job up and brings it to its end.

        Raises `StoreError` where the database cannot be told, `SpoolError` where there is nowhere to work at present.
        """
        claims = Claims(self.database, Notice(self.config.webhooks_to))
        claim = claims.claim(id, self.name, self.config.bounds.tries)
        if claim is None:
            return
        on_state("running")
        try:
            self._work(claim, claims, on_state)
        except StoreError:
            raise
        except SpoolError:
            claims.put_back(claim)
            raise
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            claims.put_back(claim)
            raise SpoolFull(
                f"there is no room to diagnose in ({error.strerror}); make some in {self.config.spool}"
            ) from error
        except DiagnoseError as error:
            if claims.fail(claim, str(error)):
                on_state("error")
        except MemoryError:
            if claims.fail(claim, "its logs need more memory than the service has; give fewer inputs"):
                on_state("error")

    def _work(self, claim: Claim, claims: Claims, on_state: Callable[[str], None]) -> None:
        config, job = self.config, claim.job
        spool = Spool(config.spool, most_bytes=config.bounds.spool_bytes, upload_bytes=config.bounds.upload_bytes)
        said: list[Report] = []

        def rules_say(report: Report) -> None:
            said.append(report)
            if claims.rules_done(claim, outcome_of(report)):
                on_state("rules_done")

        with spool.work(claim.id) as folder:
            request = self._request(job, folder, spool)
            os.chdir(folder)
            try:
                with services_on(
                    self.database, self.rules, config.memory, self.tell, None, job.project, Recording(claim)
                ) as opened:
                    services = Services(
                        self.rules,
                        memory=opened.memory,
                        second_opinion=opened.second_opinion,
                        log_agent=opened.log_agent,
                        on_rules=rules_say,
                        prepared=self.prepared,
                    )
                    report = diagnose(request, services, self._settings(folder, job))
                    final = outcome_of(report)
                    done = claims.finish(claim, final, (lambda: _as_given(report, said[0], final)) if said else None)
                    if done:
                        on_state("done")
            finally:
                os.chdir("/")

    def _settings(self, folder: str, job: NewJob) -> Settings:
        bounds = self.config.bounds
        roots = (os.path.realpath(folder), *roots_of(self.config, job.project))
        limits = replace(
            Limits(),
            seconds=bounds.job_seconds,
            expanded_bytes=bounds.expanded_bytes,
            files=bounds.files,
            roots=roots,
        )
        return Settings(rules=self.config.rules, limits=limits)

    def _request(self, job: NewJob, folder: str, spool: Spool) -> Request:
        """The inputs of a job as files, each under the name by which the report is to call it."""
        unnamed = [one.upload for one in job.inputs if one.upload and not one.source]
        names = Uploads(self.database).names(unnamed) if unnamed else {}
        paths: dict[str, list[str]] = {"job": [], "kernel": [], "scheduler": []}
        told: dict[str, Told] = {}
        for one in job.inputs:
            path = self._file(one, job, folder, spool, names)
            paths[one.role].append(path)
            if one.host is not None or one.rank is not None:
                told[path] = Told(one.host, one.rank)
        key = JobKey(job.project, job.cluster, job.job_id, job.attempt)
        keeping = self.keeping or partial(Keeping, self.rules)
        paths["job"] += snapshot_of(streams_folder(self.config), key, folder, place, keeping)
        lost = Endings(streams_folder(self.config), 0).lost(key)
        record = slurm_record(job)
        if record and not paths["scheduler"]:
            path = place(folder, f"slurm-{job.job_id}.sacct")
            with open(os.path.join(folder, path), "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(record)
            paths["scheduler"].append(path)
        if not any(paths.values()):
            raise SourceError("no log came of this job, and nobody said how it ended")
        return Request(
            paths["job"],
            paths["kernel"],
            paths["scheduler"],
            context=JobContext(job.job_id, job.name, job.user, job.image, job.cluster, job.project),
            told=told,
            lacking=lost,
        )

    def _file(self, one: InputRef, job: NewJob, folder: str, spool: Spool, names: dict[str, str]) -> str:
        if one.path is not None:
            path = allowed_path(one.path, self.config, job.project)  # roots may have changed since it was taken
            if one.source is None or not os.path.isfile(path):
                return path
            shown = place(folder, one.source)
            os.symlink(path, os.path.join(folder, shown))
            return shown
        if one.upload is not None:
            shown = place(folder, one.source or names.get(one.upload) or one.upload)
            _link(spool.path(one.upload), os.path.join(folder, shown))
            return shown
        assert one.uri is not None
        shown = place(folder, one.source or os.path.basename(one.uri.split("?")[0].rstrip("/")) or "log")
        self.fetch(one.uri, os.path.join(folder, shown))
        return shown


def outcome_of(report: Report) -> Outcome:
    """What is kept of a report: its renderings, and what lists show."""
    return Outcome(
        report=render(report, "json"),
        markdown=render(report, "markdown"),
        screen=render(report, "text"),
        status=report.status,
        error_type=report.error_type,
        attribution=report.attribution,
        sureness=report.sureness,
        summary=report.root_cause.summary if report.root_cause else "",
        job_action=report.recovery.job,
        rule=report.decided_by.rule,
        layout=layout_of(report),
    )


def _as_given(report: Report, said: Report, final: Outcome) -> Outcome:
    """The report with the action that somebody was already given: a late answer never changes it."""
    if said.recovery.job in _NO_ACTION and not said.recovery.nodes:
        return final
    return outcome_of(replace(report, recovery=said.recovery))


def place(folder: str, name: str) -> str:
    """A relative path in a directory, as a name has it; what would lead out of it, and what is taken, is left out."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    parts = [_short(part) for part in parts[-8:]] or ["log"]
    taken, free = 0, 1
    while os.path.lexists(os.path.join(folder, _numbered(free, parts))):
        taken, free = free, 2 * free
    while free - taken > 1:
        middle = (taken + free) // 2
        if os.path.lexists(os.path.join(folder, _numbered(middle, parts))):
            taken = middle
        else:
            free = middle
    for number in range(free, 10_000):
        path = _numbered(number, parts)
        whole = os.path.join(folder, path)
        if not os.path.lexists(whole):
            try:
                os.makedirs(os.path.dirname(whole), mode=0o700, exist_ok=True)
            except (FileExistsError, NotADirectoryError):  # a file is called as this one's folder
                continue
            return "./-" if path == "-" else path  # which would be standard input
    raise Refused(f"too many inputs are called {name[:100]}; give them names of their own")


def _numbered(number: int, parts: list[str]) -> str:
    """The path of the log that is the `number`th of its name."""
    return os.path.join(*([str(number)] if number > 1 else []), *parts)


def _short(part: str) -> str:
    """A part of a name that a file system takes: of a long one beginning and end."""
    data = part.replace("\0", "").encode("utf-8", "backslashreplace")
    if len(data) > _NAME_BYTES:
        half = _NAME_BYTES // 2
        data = data[:half] + b"~" + data[-half:]
    return data.decode("utf-8", "ignore") or "log"


def _link(stored: str, path: str) -> None:
    """Gives stored bytes a name, without a copy where that can be."""
    try:
        os.link(stored, path)
    except FileNotFoundError:
        raise Refused("bytes that were uploaded are not there any more; send them again") from None
    except OSError:
        shutil.copyfile(stored, path)


def slurm_record(job: NewJob) -> str:
    """What Slurm says of how a job ended, as `sacct --parsable2` prints it; nothing where it says nothing."""
    if job.scheduler != "slurm" or (job.state is None and job.code is None):
        return ""
    fields = {
        "JobID": job.job_id,
        "JobName": job.name,
        "User": job.user,
        "State": job.state or ("COMPLETED" if job.code == 0 and not job.signal else "FAILED"),
        "ExitCode": f"{job.code or 0}:{job.signal or 0}",
        "Start": _stamp(job.started),
        "End": _stamp(job.ended),
        "NodeList": ",".join(job.nodes),
    }
    clean = {name: value.replace("|", "/") for name, value in fields.items()}
    return "|".join(clean) + "\n" + "|".join(clean.values()) + "\n"


def _stamp(seconds: float | None) -> str:
    return "Unknown" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
