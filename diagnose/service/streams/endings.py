"""What the spool knows of the end of a job: that it has ended, what was said of it, and whether it was handed in.

In: keys of jobs. Out: small files in their directories, so that the end of a job outlives whoever heard it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from diagnose.dataclass import fields
from diagnose.service.streams import disk, layout
from diagnose.service.streams.model import JobKey


class Endings:
    """The ends of all jobs below one directory."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def end(self, job: JobKey, said: str) -> bool:
        """Note that the job has ended, and what was said of it; say whether that is news."""
        folder = layout.job_folder(self._folder, job)
        with disk.told():
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.path.exists(os.path.join(folder, "ended")) or os.path.exists(os.path.join(folder, "handed-in")):
                return False
            disk.put(folder, "ended", json.dumps({"job": _plain(job), "said": said}))
        return True

    def said(self, job: JobKey) -> str:
        """What was said of a job when it ended."""
        folder = layout.job_folder(self._folder, job)
        for path in (os.path.join(folder, "ended"), os.path.join(folder, "handed-in")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path, encoding="utf-8") as file:
                return str(json.load(file)["said"])
        return ""

    def state(self, job: JobKey) -> str:
        """`ended` where a job has ended and is to be handed in, `handed-in` where it was, nothing while it runs."""
        folder = layout.job_folder(self._folder, job)
        return next((name for name in ("ended", "handed-in") if os.path.exists(os.path.join(folder, name))), "")

    def handed_in(self, job: JobKey) -> None:
        """Note that a job that had ended was handed in, so that no restart does it again."""
        folder = layout.job_folder(self._folder, job)
        with contextlib.suppress(FileNotFoundError), disk.told():
            try:
                os.replace(os.path.join(folder, "ended"), os.path.join(folder, "handed-in"))
            except FileNotFoundError:
                return
            disk.sync(folder)

    def ended(self) -> Iterator[JobKey]:
        """All jobs that have ended and were not handed in: what a restart goes on with."""
        for entry in disk.entries(self._folder):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                with open(os.path.join(entry, "ended"), encoding="utf-8") as file:
                    job = json.load(file)["job"]
                yield JobKey(job["project"], job["cluster"], job["job_id"], int(job["attempt"]))


def _plain(job: JobKey) -> dict[str, Any]:
    return {each.name: getattr(job, each.name) for each in fields(JobKey)}
