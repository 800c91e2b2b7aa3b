"""How streamed logs lie on disk: a directory for each job, one in it for each log, its state and its segments.

In: keys and names. Out: paths that names of people's cannot lead elsewhere, and what is known of a log.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from diagnose.dataclass import dataclass, fields
from diagnose.errors import SourceError
from diagnose.models import SourceKind
from diagnose.service.streams import disk
from diagnose.service.streams.model import Form, JobKey, StreamError
from diagnose.sources.kept import KEPT_LOOKED_BYTES, kept_head

_DIGITS: Final = 16
_DIGEST: Final = 24
_NAME_BYTES: Final = 1000


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a log: sealed up to byte `border`, `lines` lines, which `kept` bytes of its kept log hold.

    `guard` says whose rules chose the lines; where services of several releases have sealed it, it is none of theirs.
    """

    number: int
    form: Form = "raw"
    border: int = 0
    kept: int = 0
    lines: int = 0
    kind: SourceKind | None = None
    whole: bool = False  # it must be read as one piece, so it is never sealed
    guard: str = ""  # empty where nothing was chosen yet, or by a release that did not say


@dataclass(frozen=True, slots=True)
class State:
    """What is known of one log, beside the segments themselves."""

    name: str
    generations: tuple[Generation, ...] = ()

    @property
    def current(self) -> Generation:
        """The generation that grows."""
        return self.generations[-1]

    def shown(self, generation: Generation) -> str:
        """The name of a generation: the current one has the log's own, older ones a number behind it."""
        age = len(self.generations) - 1 - self.generations.index(generation)
        return f"{self.name}.{age}" if age else self.name


def job_folder(folder: str, job: JobKey) -> str:
    """Where the logs of a job lie."""
    return os.path.join(folder, digest(job.project, job.cluster, job.job_id, str(job.attempt)))


def log_folder(parent: str, name: str) -> str:
    """Where a log of a job lies, below the job's own directory."""
    return os.path.join(parent, digest(name))


def digest(*parts: str) -> str:
    """A name for a directory."""
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:_DIGEST]


def clean(name: str) -> str:
    """A name as people gave it, without what would lead elsewhere or drive a terminal."""
    shown = "".join(char if char.isprintable() else "?" for char in name)
    parts = [part for part in shown.split("/") if part not in ("", ".", "..")]
    return "/".join(parts).encode("utf-8", "replace")[-_NAME_BYTES:].decode("utf-8", "ignore") or "log"


def base(name: str) -> str:
    """The last part of a name."""
    return name.rpartition("/")[2]


def logs(parent: str) -> Iterator[tuple[str, State]]:
    """All logs of a job, by their directories."""
    for folder in disk.entries(parent):
        state = load(folder)
        if state is not None and state.generations:
            yield folder, state


def load(folder: str) -> State | None:
    """What is known of a log; None where nothing is."""
    try:
        with open(os.path.join(folder, "state"), encoding="utf-8") as file:
            said = json.load(file)
        names = {each.name for each in fields(Generation)}
        generations = [
            Generation(**{key: one[key] for key in names if key in one or key != "guard"})
            for one in said["generations"]
        ]
        return State(said["name"], tuple(generations))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StreamError(f"the state of a streamed log in {folder} is damaged; remove that directory") from error


def store(folder: str, state: State) -> None:
    """Notes what is known of a log."""
    generations = [{each.name: getattr(one, each.name) for each in fields(Generation)} for one in state.generations]
    disk.put(folder, "state", json.dumps({"name": state.name, "generations": generations}))


def known(folder: str, generation: Generation) -> int:
    """Where the log ends, as far as it is known."""
    starts = segments(folder, generation.number, generation.border)
    if not starts:
        return generation.border
    return starts[-1] + os.stat(segment(folder, generation.number, starts[-1])).st_size


def segments(folder: str, generation: int, border: int = 0) -> list[int]:
    """Where the segments of a generation begin; those before `border` are sealed, and about to go."""
    head = f"{generation}.raw."
    try:
        found = [name.removeprefix(head) for name in os.listdir(folder) if name.startswith(head)]
    except FileNotFoundError:
        return []
    return sorted(start for start in map(int, filter(str.isdigit, found)) if start >= border)


def segment(folder: str, generation: int, start: int) -> str:
    """The path of a segment."""
    return os.path.join(folder, f"{generation}.raw.{start:0{_DIGITS}}")


def head_guard(folder: str, name: str, generation: int) -> str:
    """The guard that the kept log of a generation bears; empty where it cannot be read."""
    with contextlib.suppress(OSError, SourceError), open(kept_path(folder, generation), "rb") as file:
        return kept_head(file.read(KEPT_LOOKED_BYTES), name).guard
    return ""


def kept_path(folder: str, generation: int) -> str:
    """The path of what is sealed of a generation."""
    return os.path.join(folder, f"{generation}.kept")
