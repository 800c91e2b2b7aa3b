"""A diagnosis in a process of its own, so that whatever happens to it happens to nobody else.

In: `Inputs` of one job. Out: an `Answer`, or in words why there is none. The process is given a time, and its own
group: it can be ended at any moment, leaves nothing behind, and a crash, a hang or a lack of memory in it is only
told. Requests and answers are files in a directory that nobody else can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.integrations.summary import Summary, summary_of

_ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# -P: the directory that a job runs in is nothing to import from.
_START: Final = "import sys; sys.path.append(sys.argv[1]); from diagnose.integrations.local import answer; answer()"
_LARGEST: Final = 64 * 1024 * 1024
_OF_TIME: Final = 0.8  # of the seconds given, for reading; the rest is for starting and telling
_POLL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to read, who the job is, and how to tell it. `identity` holds the arguments of `JobContext` by name."""

    logs: Sequence[str]
    kernel_logs: Sequence[str] = ()
    scheduler_records: Sequence[str] = ()
    inventory: str | None = None
    rules: Sequence[str] = ()
    identity: Mapping[str, str] = {}
    records: bool = False
    llm: bool = True
    format: str = "text"
    width: int = 100
    colour: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The report as JSON, the rendering that was asked for, the plain text, and what else was told."""

    report: Mapping[str, object]
    rendered: str
    text: str
    told: tuple[str, ...] = ()

    @property
    def summary(self) -> Summary:
        """The verdict in short."""
        return summary_of(self.report)


class Diagnosing:
    """A diagnosis under way. `directory` is where it is made, for the paths in its inputs that are not absolute."""

    def __init__(self, inputs: Inputs, *, seconds: float, directory: str | None = None, nice: int = 0) -> None:
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory(prefix="diagnose-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._problem = ""
        request = {name: getattr(inputs, name) for name in _FIELDS}
        request |= {"seconds": seconds * _OF_TIME, "nice": nice, "identity": dict(inputs.identity)}
        try:
            with open(os.path.join(self._folder.name, "request"), "w", encoding="utf-8") as file:
                json.dump(request, file, default=list)
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-P", "-c", _START, _ROOT, self._folder.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._problem = f"no process to diagnose in: {error}"

    def over(self) -> bool:
        """Whether it has ended; one that takes too long is ended here."""
        if self._process is None or self._process.poll() is not None:
            return True
        if time.monotonic() >= self._until:
            self._problem = f"diagnosing took longer than {self._seconds:.0f} s"
            self._kill()
            return True
        return False

    def wait(self) -> Answer | str:
        """The answer, as soon as there is one."""
        while not self.over():
            time.sleep(_POLL)
        return self.result()

    def result(self) -> Answer | str:
        """The answer, or why there is none; removes what the process has left behind."""
        self.over()
        self._kill()
        try:
            return self._problem or self._read()
        finally:
            self._folder.cleanup()

    def abandon(self) -> None:
        """Ends it without an answer."""
        self._kill()
        self._folder.cleanup()

    def _kill(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it has forked too
        self._process.wait()

    def _read(self) -> Answer | str:
        code = self._process.returncode if self._process else None
        try:
            with open(os.path.join(self._folder.name, "answer"), "rb") as file:
                raw = file.read(_LARGEST + 1)
            given = json.loads(raw) if len(raw) <= _LARGEST else None
        except (OSError, ValueError):
            given = None
        if not isinstance(given, dict):
            return f"diagnosing ended without an answer (exit code {code})"
        if "problem" in given:
            return str(given["problem"])
        return Answer(given["report"], given["rendered"], given["text"], tuple(given["told"]))


_FIELDS: Final = (
    "logs", "kernel_logs", "scheduler_records", "inventory", "rules", "records", "llm", "format", "width", "colour",
)  # fmt: skip


def answer() -> None:
    """What the process does: reads the request, and writes an answer or a problem beside it."""
    folder = sys.argv[2]
    with open(os.path.join(folder, "request"), encoding="utf-8") as file:
        request = json.load(file)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(int(request["seconds"] / _OF_TIME) + 2)  # also where whoever waits was killed
    if request["nice"]:
        os.nice(request["nice"])
    given = _answered(request)
    partly = os.path.join(folder, "answer.part")
    with open(partly, "w", encoding="utf-8") as file:
        json.dump(given, file)
    os.rename(partly, os.path.join(folder, "answer"))


def _answered(request: Mapping[str, object]) -> dict[str, object]:
    from diagnose.errors import DiagnoseError

    try:
        return _diagnosed(request)
    except DiagnoseError as error:
        return {"problem": str(error).split("\n", 1)[0]}
    except MemoryError:
        return {"problem": "not enough memory to diagnose"}
    except Exception as error:  # noqa: BLE001 - told in one line by whoever asked
        return {"problem": f"internal error ({type(error).__name__}: {error}); please report it"}


def _diagnosed(request: Mapping[str, object]) -> dict[str, object]:
    from diagnose import precompiled, regexes
    from diagnose import services as wiring
    from diagnose.dataclass import replace
    from diagnose.models import JobContext
    from diagnose.pipeline import Request, Services, diagnose
    from diagnose.report import render, to_json
    from diagnose.rules.bundle import load_bundled
    from diagnose.settings import Limits, Settings

    told: list[str] = []
    get: dict[str, object] = dict(request)
    settings = Settings(rules=tuple(_texts(get["rules"])), limits=Limits(seconds=float(str(get["seconds"]))))
    precompiled.recall()
    services = Services(load_bundled(settings.rules))
    identity = get["identity"] if isinstance(get["identity"], dict) else {}
    inventory = get["inventory"]
    asked = Request(
        paths=_texts(get["logs"]),
        kernel_logs=_texts(get["kernel_logs"]),
        scheduler_records=_texts(get["scheduler_records"]),
        inventory=inventory if isinstance(inventory, str) else None,
        context=JobContext(**identity),
    )
    with contextlib.ExitStack() as lasting:
        if get["records"] or any(name.startswith("DIAGNOSE_") for name in os.environ):
            chosen = wiring.service_settings(os.environ, record=bool(get["records"]), llm=bool(get["llm"]))
            opened = lasting.enter_context(wiring.services(services.rules, chosen, told.append))
            services = replace(
                services, memory=opened.memory, second_opinion=opened.second_opinion, log_agent=opened.log_agent
            )
        report = diagnose(asked, services, settings)
        width = int(str(get["width"]))
        rendered = render(report, get["format"], width=width, colour=bool(get["colour"]))  # type: ignore[arg-type]
        text = render(report, "text", width=100, colour=False)
    precompiled.keep()
    regexes.keep()
    return {"report": to_json(report), "rendered": rendered, "text": text, "told": told}


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
