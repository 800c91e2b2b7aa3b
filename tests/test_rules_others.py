"""What somebody else did: memory held by other processes, jobs that their owner ended."""

import pytest

from diagnose.models import Evidence
from diagnose.rules.others import cancelled_by_owner, foreign_memory
from tests.made import finding, rule

HEAD = (
    "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1 GiB is free. "
)
ALLOCATED = (
    "Of the allocated memory 30.00 GiB is allocated by PyTorch, and 1 GiB is reserved by PyTorch but unallocated."
)
OWN = "Including non-PyTorch memory, this process has 31.50 GiB memory in use. "


def nobody(pid):
    return False


def out_of_memory(*processes, own=OWN, **how):
    text = HEAD + "".join(f"Process {pid} has {size} memory in use. " for pid, size in processes) + own + ALLOCATED
    return finding("oom", "OutOfMemoryError", evidence=(Evidence("job.log", 1, text),), **how)


@pytest.mark.parametrize(
    ("processes", "own", "pid"),
    [
        ([(71, "40.00 GiB")], OWN, "71"),
        ([(71, "400.00 MiB"), (72, "46.00 GiB")], OWN, "72"),
        ([(71, "400.00 MiB")], OWN, None),  # a context without data
        ([], OWN, None),
        ([(71, "31.50 GiB")], "", None),  # its own, under another number
        ([(71, "31.50 GiB"), (72, "46.00 GiB")], "", "72"),
        ([(72, "46.00 GiB"), (71, "31.50 GiB")], "", "72"),
    ],
)
def test_the_largest_foreign_share_of_the_card(processes, own, pid):
    told = foreign_memory(out_of_memory(*processes, own=own), None, nobody)
    assert (told is None) if pid is None else (told is not None and f"process {pid}," in told)


def test_a_process_of_the_job_is_not_foreign():
    assert foreign_memory(out_of_memory((71, "40.00 GiB")), None, {71}.__contains__) is None


def test_ranks_on_one_card_crowd_each_other_out():
    crowd = out_of_memory((71, "40.00 GiB"), by_rank={0: {"device": 0}, 1: {"device": 0}})
    spread = out_of_memory((71, "40.00 GiB"), by_rank={0: {"device": 0}, 1: {"device": 1}})
    assert foreign_memory(crowd, None, nobody) is None
    assert foreign_memory(spread, None, nobody) is not None


@pytest.mark.parametrize(
    ("text", "tags", "foreign"),
    [
        ("Memory cgroup out of memory: Killed process 2210 (node-agent)", ("bystander",), True),
        ("Out of memory: Killed process 2210 (node-agent)", ("bystander",), False),  # the job may have used it up
        ("Memory cgroup out of memory: Killed process 2210 (python)", (), False),
    ],
)
def test_a_program_of_the_node_at_its_own_limit(text, tags, foreign):
    evidence, captures = (Evidence("kern.log", 1, text),), {"pid": 2210, "comm": "node-agent"}
    root = finding("oom", "HostOutOfMemory", evidence=evidence, captures=captures)
    by = rule(signatures={"killed": "x"}, tags=tags)
    assert (foreign_memory(root, by, nobody) is not None) is foreign
    assert foreign_memory(root, by, {2210}.__contains__) is None


@pytest.mark.parametrize(
    ("captures", "owner"),
    [
        ({"by": "30122", "owner_uid": 30122}, True),
        ({"by": "30122", "owner_uid": 30999}, False),
        ({"by": "30122"}, True),  # whose number is not told: accounts may end their own jobs only
        ({"by": "999"}, False),
        ({"uid": 30122}, True),
        ({"uid": 30122, "owner_uid": 1}, False),
        ({"by": "ada", "user": "ada"}, True),
        ({"by": "root", "user": "ada"}, False),
        ({"by": "bob", "user": "ada"}, False),
        ({"by": "ada"}, True),
        ({"by": "maui"}, False),
        ({"by": "owner"}, True),
        ({"by": "user", "user": "ada"}, True),
        ({}, False),
    ],
)
def test_who_ended_the_job(captures, owner):
    assert cancelled_by_owner(finding("f", "JobCancelled", captures=captures)) is owner
