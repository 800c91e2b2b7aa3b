"""What is written down of who did what."""

from __future__ import annotations

from pathlib import Path

from diagnose.dataclass import replace
from diagnose.service.audit import Act, Trail
from diagnose.store.database import open_database

CHUNK = Act("k1", "PUT /logs", "gx/1/a.log", "p", 200, "r", "127.0.0.1", goes_on=True)


def test_what_goes_on_has_one_row_an_hour(tmp_path: Path) -> None:
    now = [1e9]
    with open_database(str(tmp_path / "memory.sqlite3")) as database:
        trail = Trail(lambda: database, clock=lambda: now[0])
        for second in (0, 1, 3_599, 3_601, 3_602):
            now[0] = 1e9 + second
            trail.note(CHUNK)
        trail.close()
        assert [row["at"] - 1e9 for row in trail.recent()] == [3_601, 0]


def test_another_key_or_another_end_has_its_own(tmp_path: Path) -> None:
    others = (
        replace(CHUNK, key="k2"),
        replace(CHUNK, status=403),
        replace(CHUNK, object="gx/1/b.log"),
        replace(CHUNK, address="::1"),
    )
    with open_database(str(tmp_path / "memory.sqlite3")) as database:
        trail = Trail(lambda: database)
        for act in (CHUNK, *others, CHUNK, *others):
            trail.note(act)
        trail.note(replace(CHUNK, goes_on=False))
        trail.close()
        assert len(trail.recent()) == 6
