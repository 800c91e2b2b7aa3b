"""What a service is told about itself: `ServiceConfig`, from `DIAGNOSE_*`.

In: the environment. Out: one frozen object, passed down. Raises `UsageError` in one line for what cannot be meant.
Secrets are never values here, only names of files.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping

from diagnose.dataclass import dataclass, field
from diagnose.errors import UsageError
from diagnose.service.latecomers import Waits
from diagnose.service.stall import StallSettings
from diagnose.services import ServiceSettings, database_place, service_settings
from diagnose.sources.places import as_known

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PROJECT = "{project}"
_HOST = re.compile(r"[0-9A-Za-z_.:%-]{1,253}")
_MB = 1024 * 1024
_GB = 1024 * _MB


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request, one job and all of them together may take. Sizes in bytes, times in seconds."""

    body_bytes: int = 4 * _MB
    body_grace: float = 60.0  # for which a body may come at less than its least rate
    body_rate: int = 1024  # bytes a second, at least
    body_seconds: float = 6 * 3600.0  # for which a body is waited for in all
    upload_bytes: int = 2 * _GB
    expanded_bytes: int = 8 * _GB
    spool_bytes: int = 50 * _GB
    files: int = 20_000
    job_seconds: float = 300.0
    wait_seconds: float = 60.0
    tries: int = 3
    rate: int = 1_200  # requests per minute and key, but for chunks of streamed logs:
    stream_rate: int = 2 * _GB  # bytes of these, expanded, per minute and key
    upload_keep: float = 86_400.0  # of uploads that no job names
    stream_keep: float = 7 * 86_400.0  # of streamed logs to which nothing comes any more


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """One service.

    `database` is where the memory and the submissions are; `spool` the directory of what was sent. `roots` are the
    folders below which submissions may name files (`{project}` in one stands for the job's), `uri_hosts` the hosts that
    they may name addresses of. `processes` is how many diagnoses are made at once. `keys` is `auto` (needed unless only
    this machine can reach the service and none was ever made) or `required`. `webhooks_to` is told of all diagnoses,
    signed by the secret in `webhook_secret_file`; `webhook_allow` are networks that webhooks may reach though they are
    private.
    """

    database: str
    spool: str
    memory: ServiceSettings
    host: str = "127.0.0.1"
    port: int = 8321
    roots: tuple[str, ...] = ()
    uri_hosts: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    processes: int = 2
    keys: str = "auto"
    webhooks_to: str | None = None
    webhook_secret_file: str | None = None
    webhook_allow: tuple[str, ...] = ()
    waits: Waits = field(default_factory=Waits)
    stall: StallSettings = field(default_factory=StallSettings)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def on_postgres(self) -> bool:
        """Whether several API and worker processes may share the database."""
        return self.database.startswith(("postgres://", "postgresql://", "postgresql+psycopg://"))


def streams_folder(config: ServiceConfig) -> str:
    """Where logs lie that are sent while their jobs run."""
    return os.path.join(config.spool, "streams")


def config_of(environment: Mapping[str, str]) -> ServiceConfig:
    """The service that the environment describes."""
    database = database_place(environment)
    if environment.get("DIAGNOSE_DATABASE", "").strip().lower() in ("none", "off"):
        raise UsageError("a service needs a database: unset DIAGNOSE_DATABASE, or set it to a path or postgresql://...")
    # The library's own settings go by the same names, so a job is diagnosed as the command line would do it.
    memory = service_settings(environment, record=True)
    host = _given(environment, "DIAGNOSE_HOST") or "127.0.0.1"
    if not _HOST.fullmatch(host):
        raise UsageError("DIAGNOSE_HOST is no host: give a name or an address such as 127.0.0.1 or ::")
    keys = _given(environment, "DIAGNOSE_KEYS") or "auto"
    if keys not in ("auto", "required"):
        raise UsageError("DIAGNOSE_KEYS must be auto or required")
    secret, to = _given(environment, "DIAGNOSE_WEBHOOK_SECRET_FILE"), _given(environment, "DIAGNOSE_WEBHOOKS_TO")
    if to and not to.startswith(("http://", "https://")):
        raise UsageError("DIAGNOSE_WEBHOOKS_TO must be an address such as https://host/path")
    if to and not secret:
        raise UsageError("DIAGNOSE_WEBHOOKS_TO needs DIAGNOSE_WEBHOOK_SECRET_FILE: it shows receivers who sends")
    default = Bounds()
    return ServiceConfig(
        database=database,
        spool=os.path.abspath(_given(environment, "DIAGNOSE_SPOOL") or _beside(database, environment)),
        memory=memory,
        host=host,
        port=_number(environment, "DIAGNOSE_PORT", 0, 65_535, 8321),
        roots=_roots(environment),
        uri_hosts=tuple(_list(environment, "DIAGNOSE_URI_HOSTS", ",")),
        rules=tuple(os.path.abspath(one) for one in _list(environment, "DIAGNOSE_RULES", os.pathsep)),
        processes=_number(environment, "DIAGNOSE_PROCESSES", 1, 256, _processors()),
        keys=keys,
        webhooks_to=to,
        webhook_secret_file=secret,
        webhook_allow=_networks(environment),
        waits=_waits(environment),
        stall=_stall(environment),
        bounds=Bounds(
            body_grace=float(_number(environment, "DIAGNOSE_BODY_GRACE", 1, 3_600, int(default.body_grace))),
            body_rate=_number(environment, "DIAGNOSE_BODY_RATE", 1, 1 << 30, default.body_rate),
            body_seconds=float(_number(environment, "DIAGNOSE_BODY_SECONDS", 1, 604_800, int(default.body_seconds))),
            upload_bytes=_number(environment, "DIAGNOSE_UPLOAD_MB", 1, 1 << 20, default.upload_bytes // _MB) * _MB,
            expanded_bytes=_number(environment, "DIAGNOSE_EXPANDED_MB", 1, 1 << 24, default.expanded_bytes // _MB)
            * _MB,
            spool_bytes=_number(environment, "DIAGNOSE_SPOOL_MB", 1, 1 << 30, default.spool_bytes // _MB) * _MB,
            job_seconds=float(_number(environment, "DIAGNOSE_JOB_SECONDS", 1, 86_400, int(default.job_seconds))),
            rate=_number(environment, "DIAGNOSE_RATE", 1, 10_000_000, default.rate),
            stream_rate=_number(environment, "DIAGNOSE_STREAM_MB", 1, 1 << 24, default.stream_rate // _MB) * _MB,
        ),
    )


def _waits(environment: Mapping[str, str]) -> Waits:
    """`DIAGNOSE_LATE_RANKS`, such as `10,5,40`: seconds at least, of quiet, and at most."""
    given = _list(environment, "DIAGNOSE_LATE_RANKS", ",")
    if not given:
        return Waits()
    try:
        least, quiet, most = map(float, given)
    except ValueError:
        raise UsageError("DIAGNOSE_LATE_RANKS must be three numbers such as 10,5,40: least, quiet, most") from None
    return Waits(least, quiet, most).checked()


def _stall(environment: Mapping[str, str]) -> StallSettings:
    """`DIAGNOSE_STALL_*`: what is long, by what a job was seen doing last."""
    usual = StallSettings()

    def seconds(name: str, default: float) -> float:
        return float(_number(environment, name, 1, 30 * 86_400, int(default)))

    training = seconds("DIAGNOSE_STALL_SECONDS", usual.training)
    pause = seconds("DIAGNOSE_STALL_PAUSE_SECONDS", max(usual.pause, training))
    start = seconds("DIAGNOSE_STALL_START_SECONDS", max(usual.start, pause))
    if not training <= pause <= start:
        raise UsageError(
            "DIAGNOSE_STALL_SECONDS must not be more than DIAGNOSE_STALL_PAUSE_SECONDS, and that not more than "
            f"DIAGNOSE_STALL_START_SECONDS; they are {training:.0f}, {pause:.0f} and {start:.0f}"
        )
    return StallSettings(
        factor=float(_number(environment, "DIAGNOSE_STALL_FACTOR", 2, 100_000, int(usual.factor))),
        training=training,
        pause=pause,
        start=start,
        steps=_number(environment, "DIAGNOSE_STALL_STEPS", 2, 32, usual.steps),
    ).checked()


def _given(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name, "").strip() or None


def _list(environment: Mapping[str, str], name: str, by: str) -> list[str]:
    return [one.strip() for one in environment.get(name, "").split(by) if one.strip()]


def _number(environment: Mapping[str, str], name: str, least: int, most: int, default: int) -> int:
    given = environment.get(name, "").strip()
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 12 and least <= int(given) <= most):
        raise UsageError(f"{name} must be a whole number from {least} to {most}")
    return int(given)


def _roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    roots = []
    for given in _list(environment, "DIAGNOSE_ROOTS", os.pathsep):
        if not os.path.isabs(given):
            raise UsageError("DIAGNOSE_ROOTS: each must be an absolute path; : stands between them")
        if PROJECT in given:  # which there are is known when a job comes
            roots.append(given)
            continue
        if not os.path.isdir(given):
            raise UsageError(
                f"DIAGNOSE_ROOTS: one {as_known(given)} is no directory of this machine; make it, or leave it out"
            )
        roots.append(os.path.realpath(given))
    return tuple(roots)


def _networks(environment: Mapping[str, str]) -> tuple[str, ...]:
    networks = _list(environment, "DIAGNOSE_WEBHOOK_ALLOW", ",")
    for one in networks:
        try:
            ipaddress.ip_network(one)
        except ValueError:
            raise UsageError(
                "DIAGNOSE_WEBHOOK_ALLOW: each must be a network such as 10.0.0.0/8; a comma stands between them"
            ) from None
    return tuple(networks)


def _beside(database: str, environment: Mapping[str, str]) -> str:
    """A directory beside a database that is a file, else in the user's folder of data."""
    if "://" not in database:
        return f"{os.path.splitext(os.path.abspath(database))[0]}.spool"
    base = environment.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(environment.get("HOME", "") or os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "diagnose", "spool")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
