"""Which hosts a job's own logs name, and whether they name all of them."""

from __future__ import annotations

import pytest

from diagnose.lines.inventory import Inventory
from diagnose.models import Line, LogSource


def learned(*texts: str, kind: str = "job", name: str = "job.log") -> Inventory:
    inventory = Inventory()
    source = LogSource(name, kind)  # type: ignore[arg-type]
    inventory.learn_source(source)
    for text in texts:
        inventory.observe(Line(source, 1, text, text, "s"))
    return inventory


TWO = ("srun: error: fir-1: tasks 0-3: Terminated", "srun: error: fir-2: tasks 4-7: Killed")
COMM = "fir-{0}:9:9 [0] NCCL INFO comm 0x{0} rank {1} nranks {2} cudaDev 0 busId 4e000 - Init COMPLETE"


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (TWO, True),
        (TWO[:1], True),
        (TWO[1:], False),
        ((*TWO, "world_size: 16"), False),
        ((*TWO, "world_size: 8"), True),
        ((*TWO, "[PG ID 0 PG GUID 0 Rank 9] timed out"), False),
        (("srun: error: fir-1: task 0: Killed",), False),
        (("srun: error: fir-1: task 0: Killed", "srun: error: fir-2: task 1: Killed"), True),
        (("srun: error: fir-1: task 0: Killed", "srun: error: fir-2: task 1: Killed", "world_size: 8"), False),
        (("torchrun --nproc_per_node=4 --nnodes=2 x.py", "srun: error: fir-1: task 0: Killed"), False),
        (("torchrun --nproc_per_node=4 --nnodes=2 x.py", *TWO), True),
        (("torchrun --nproc_per_node=4 --nnodes=1:4 x.py", "fir-1:9:9 [0] m.cc:1 NCCL WARN x"), False),
        (("SLURM_JOB_NODELIST=fir-[1-2]",), True),
        (("fir-1:9:9 [0] m.cc:1 NCCL WARN x",), False),
        ((COMM.format(1, 0, 2), COMM.format(2, 1, 2), "world_size: 2"), True),
        ((COMM.format(1, 0, 2), "world_size: 2"), False),
        (
            ("SLURM_JOB_NODELIST=fir-1", COMM.format(1, 0, 16).replace("16", "16 nNodes 2 localRanks 8 localRank 0")),
            False,
        ),
    ],
)
def test_all_hosts_are_named_where_nothing_leaves_room_for_another(texts: tuple[str, ...], whole: bool) -> None:
    assert learned(*texts).all_hosts_named is whole


def test_what_is_no_line_of_the_job_names_none_of_its_hosts() -> None:
    assert learned("NVRM: Xid (PCI:0000:4e:00): 79, pid=12, name=x", kind="kernel").job_hosts == ()
    assert learned("step 4", name="fir-9.log").job_hosts == ()
    assert learned(*TWO).job_hosts == ("fir-1", "fir-2")


def test_two_lists_of_nodes_in_a_scheduler_record_are_of_two_jobs() -> None:
    record = ("JobId=7 NodeList=fir-[1-2]", "JobId=8 NodeList=fir-[3-4]")
    assert learned(*record[:1], kind="scheduler").all_hosts_named
    assert not learned(*record, kind="scheduler").all_hosts_named
    assert learned(*record, kind="scheduler").job_hosts == ("fir-1", "fir-2", "fir-3", "fir-4")


def test_addresses_are_no_names_to_compare_with() -> None:
    inventory = learned("torchrun --nnodes=2 --nproc_per_node=1 x.py", "rank 0 host 10.0.0.4", "rank 1 host 10.0.0.5")
    assert not inventory.all_hosts_named
