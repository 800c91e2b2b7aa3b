"""Kept logs in place of logs."""

from __future__ import annotations

from pathlib import Path

from diagnose.keeping import Keeping
from diagnose.sources.packed import codec_of


def kept_log(keeping: Keeping, path: str, data: bytes, block: int = 1000) -> bytes | None:
    """The kept log of these bytes; None where there is none because they must be read as a whole."""
    writer = keeping.writer(path)
    out = b"".join(writer.feed(data[start : start + block]) for start in range(0, len(data), block))
    out += writer.finish()
    return None if writer.whole else out


def keep_all(folder: Path, keeping: Keeping, inputs: list[str]) -> int:
    """Puts kept logs in place of all logs below a folder; says how many hold records."""
    count = 0
    tables = {inputs[place + 1] for place, word in enumerate(inputs) if word == "--inventory"}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or name in tables:
            continue
        data = path.read_bytes()
        kept = None if codec_of(data) else kept_log(keeping, name, data)
        if kept is not None:
            path.write_bytes(kept)
            count += kept.endswith(b"\n.\n")
    return count
