"""The logs of a job as they are now, as files to diagnose.

In: a directory of streams, a job. Out: files, each the log itself or the kept log that the whole log would give. Any
process may do so while chunks come.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from diagnose.compress.keptlog import END, range_records
from diagnose.keeping import Keeping
from diagnose.service.streams import disk, layout
from diagnose.service.streams.model import JobKey, StreamError
from diagnose.sources.kept import first_line


def snapshot_of(
    folder: str, job: JobKey, into: str, place: Callable[[str, str], str], keeping: Callable[[], Keeping]
) -> list[str]:
    """Write all logs of a job as they are now into a directory, and return their paths in it.

    `place(into, name)` gives the path, relative to `into`, under which a log of that name is to lie.
    """
    paths: list[str] = []
    for log, state in layout.logs(layout.job_folder(folder, job)):
        for generation in state.generations:
            paths.append(place(into, state.shown(generation)))
            _write(log, state, generation, os.path.join(into, paths[-1]), keeping)
    return paths


def _write(
    folder: str, state: layout.State, generation: layout.Generation, path: str, ready: Callable[[], Keeping]
) -> None:
    """Write one generation of a log; begin again where it was sealed meanwhile."""
    for _ in range(100):
        try:
            with open(path, "wb") as out:
                starts = layout.segments(folder, generation.number, generation.border)
                sources = [layout.segment(folder, generation.number, start) for start in starts]
                if not generation.border:
                    for source in sources:
                        out.writelines(disk.blocks(source))
                    return
                with open(layout.kept_path(folder, generation.number), "rb") as kept:
                    disk.copy(kept, out, generation.kept)
                lines, keeping = generation.lines, ready()
                for start, source in zip(starts, sources, strict=True):
                    compressor = keeping.compressor(generation.kind or "job", start)
                    if not os.stat(source).st_size:
                        continue
                    out.writelines(range_records(disk.blocks(source), compressor, lines))
                    lines += compressor.counts.lines
                out.write(END)
                if generation.guard:  # several releases may have chosen the lines, of which the first has begun it
                    out.seek(0)
                    out.write(first_line(layout.base(state.name), generation.guard))
                return
        except FileNotFoundError:
            again = layout.load(folder)
            found = [one for one in (again.generations if again else ()) if one.number == generation.number]
            if not found:
                raise
            generation = found[0]
    raise StreamError(f"{state.name}: is sealed faster than it can be read; try again")
