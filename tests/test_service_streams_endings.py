"""The end of a job as the spool knows it: for several processes, and for those that come after them."""

from __future__ import annotations

import os
from pathlib import Path

from diagnose.service.streams import JobKey
from diagnose.service.streams.endings import Ending, Endings

JOB = JobKey("p", "gx", "4711", 2)


def test_the_end_of_a_job_outlives_a_restart(tmp_path: Path) -> None:
    endings = Endings(str(tmp_path), again=3)
    assert endings.state(JOB) == ""
    assert endings.end(JOB, "failed with 1")
    assert not endings.end(JOB, "what?")
    endings = Endings(str(tmp_path), again=3)
    assert endings.state(JOB) == "ended"
    assert endings.waiting() == {endings.name(JOB): 0}
    assert endings.read(endings.name(JOB)) == Ending(JOB, "failed with 1")
    endings.handed_in(JOB)
    endings.handed_in(JOB)
    assert endings.state(JOB) == "handed-in"
    assert endings.waiting() == {}
    assert not endings.end(JOB, "again")


def test_each_process_sees_what_any_has_heard(tmp_path: Path) -> None:
    one, other = Endings(str(tmp_path), again=3), Endings(str(tmp_path), again=3)
    assert one.heard(JOB) is None  # it runs
    one.end(JOB, "")
    assert [other.heard(JOB), one.heard(JOB), other.heard(JOB)] == [1, 2, 3]
    assert list(one.waiting().values()) == list(other.waiting().values()) == [3]


def test_what_comes_late_has_it_wait_again_a_few_times(tmp_path: Path) -> None:
    endings = Endings(str(tmp_path), again=2)
    endings.end(JOB, "said")
    for times in range(3):
        assert endings.read(endings.name(JOB)) == Ending(JOB, "said", times)
        endings.handed_in(JOB)
        assert (endings.heard(JOB) is None) == (times == 2)
    assert endings.waiting() == {}


def test_one_hands_a_job_in(tmp_path: Path) -> None:
    one, other = Endings(str(tmp_path), again=3), Endings(str(tmp_path), again=3)
    one.end(JOB, "said")
    with one.handing_in(JOB) as mine, other.handing_in(JOB) as theirs:
        assert (mine, theirs) == (Ending(JOB, "said"), None)
    with other.handing_in(JOB) as theirs:  # it did not come to it
        assert theirs == Ending(JOB, "said")
        other.handed_in(JOB)
    with one.handing_in(JOB) as mine:
        assert mine is None


def test_what_is_forgotten_is_not_handed_in(tmp_path: Path) -> None:
    endings = Endings(str(tmp_path), again=3)
    with endings.forgetting(JOB):
        pass  # there is nothing to forget
    endings.end(JOB, "said")
    with endings.forgetting(JOB), endings.handing_in(JOB) as ending:
        assert ending is None
    assert endings.state(JOB) == ""


def test_a_damaged_file_is_nobodys_end(tmp_path: Path) -> None:
    endings = Endings(str(tmp_path), again=3)
    endings.end(JOB, "said")
    (name,) = endings.waiting()
    for text in ("", "[]", "{", '{"job": 1}', '{"job": {}, "said": 1, "times": "x"}'):
        (tmp_path / ".ended" / name).write_text(text)
        assert endings.read(name) is None
    assert endings.read("../" * 9 + os.devnull) is None
