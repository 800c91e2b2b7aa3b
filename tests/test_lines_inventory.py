"""What lines say of units, and that nothing is known which no line says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.lines.hostlists import MAX_HOSTS, expand_hostlist, short_name
from diagnose.lines.inventory import Inventory, inventory_literals
from diagnose.lines.units import normalise_pci
from diagnose.models import Line, LogSource, Unit

JOB = LogSource("job.log")


def line(text: str, source: LogSource = JOB, **rest: object) -> Line:
    return Line(source, 1, text, text, "s", **rest)  # type: ignore[arg-type]


def learned(*texts: str, source: LogSource = JOB, **rest: object) -> Inventory:
    inventory = Inventory()
    inventory.learn_source(source)
    for text in texts:
        inventory.observe(line(text, source, **rest))
    return inventory


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9B:00", "0000:9b:00"),
        ("PCI:0000:9b:00.0", "0000:9b:00"),
        ("0000:9b:00", "0000:9b:00"),
        ("00000000:9B:00.0", "0000:9b:00"),
        ("9b000", "0000:9b:00"),
        ("1b000", "0000:1b:00"),
        ("a101b000", "0a10:1b:00"),
        ("(PCI:0000:9b:00)", "0000:9b:00"),
        ("gx-043", "gx-043"),
        ("", ""),
    ],
)
def test_a_pci_address_has_one_spelling(text: str, expected: str) -> None:
    assert normalise_pci(text) == expected
    assert normalise_pci(expected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lx-[07-08]", ("lx-07", "lx-08")),
        ("dgx-[014,016-018],login1", ("dgx-014", "dgx-016", "dgx-017", "dgx-018", "login1")),
        ("r[1-2]c[0-1]", ("r1c0", "r1c1", "r2c0", "r2c1")),
        ("a,b,a", ("a", "b")),
        ("gx-1.cluster.local", ("gx-1.cluster.local",)),
        ("two words", ()),
        ("n[1-x]", ()),
        ("n[1-2", ()),
        ("", ()),
    ],
)
def test_host_lists_expand(text: str, expected: tuple[str, ...]) -> None:
    assert expand_hostlist(text) == expected


def test_host_lists_are_bounded() -> None:
    assert len(expand_hostlist("n[0-999999999]")) <= MAX_HOSTS
    assert len(expand_hostlist("n[0-999]m[0-999]k[0-999]")) <= MAX_HOSTS
    assert expand_hostlist("n[0-99]", limit=3) == ("n0", "n1", "n2")
    assert short_name("10.0.4.43") == "10.0.4.43"


def test_nccl_says_rank_host_gpu_and_address() -> None:
    inventory = learned(
        "gx-043:8812:9013 [3] NCCL INFO Bootstrap : Using eth0:10.0.4.43<0>",
        "gx-043:8812:9013 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.4.43<0>",
        "gx-043:8812:9013 [3] NCCL INFO ncclCommInitRank comm 0x55d0 rank 11 nranks 16 cudaDev 3 nvmlDev 3 busId 5d000 commId 0x3d8f - Init START",
        "gx-043:8812:9013 [3] NCCL INFO comm 0x55d0 rank 11 nRanks 16 nNodes 2 localRanks 8 localRank 3 MNNVL 0",
    )  # fmt: skip
    unit = inventory.for_rank(11)
    assert unit is not None
    assert (unit.host, unit.local_rank, unit.gpu, unit.pci, unit.pid) == ("gx-043", 3, "3", "0000:5d:00", 8812)
    assert inventory.world_size == 16
    assert inventory.for_pci("gx-043", "PCI:0000:5D:00.0") == unit
    assert inventory.for_pid("gx-043", 8812) == unit
    assert inventory.rank_of("gx-043.cluster.local", 3) == 11
    assert inventory.canonical_host("10.0.4.43") == "gx-043"
    assert inventory.names("host", "gx-043") == ("10.0.4.43",)
    assert "rank 11" in inventory.names("gpu", "gx-043 GPU 3")
    assert "gx-043 GPU 3" in inventory.names("gpu", "0000:5d:00")
    assert "0000:5d:00" in inventory.names("rank", "11")
    assert inventory.names("nic", "mlx5_0") == ("mlx5_0:1",)
    assert inventory.names("nic", "gx-043 mlx5_0:1") == ("mlx5_0",)


def test_a_rank_within_a_smaller_communicator_is_not_a_global_rank() -> None:
    inventory = learned(
        "world_size=16",
        "a1:10:20 [0] NCCL INFO comm 0x1 rank 0 nranks 16 cudaDev 0 busId 1b000 commId 0x1 - Init COMPLETE",
        "a2:10:20 [0] NCCL INFO comm 0x1 rank 8 nranks 16 cudaDev 0 busId 1b000 commId 0x1 - Init COMPLETE",
        "a2:10:20 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 1b000 commId 0x2 - Init COMPLETE",
    )
    assert inventory.host_of_rank(8) == "a2"
    assert inventory.host_of_rank(1) is None
    only_small = learned(
        "a2:10:20 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 1b000 commId 0x2 - Init", "world size: 16"
    )
    assert only_small.host_of_rank(1) is None


def test_communicators_that_cannot_be_told_apart_say_nothing() -> None:
    inventory = learned(
        "a1:10:20 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1b000 - Init COMPLETE",
        "a2:10:20 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1b000 - Init COMPLETE",
    )
    assert inventory.host_of_rank(0) is None
    assert inventory.for_pci(None, "1b:00") is None


WORLDS = [
    ("torch 2.1 | backend nccl | world_size 16", 16),
    ("Using world size: 16, tensor parallel 1", 16),
    ("using world size: 32, data-parallel size: 4", 32),
    ("dist_world_size=8", 8),
    ("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/16", 16),
    ("All distributed processes registered. Starting with 16 processes", 16),
    ("WORLD_SIZE=64", 64),
    ("+ torchrun --nproc-per-node 8 --nnodes 2 train.py", 16),
    ("+ torchrun --nnodes=2 --nproc_per_node=4 train.py", 8),
    ("+ srun --nodes=4 --ntasks-per-node=4 python train.py", 16),
    ("mpirun -np 24 python train.py", 24),
    ("SLURM_NTASKS=16", 16),
    ("Starting with JobEnvironment(job_id=6, hostname=srv4, local_rank=0(4), node=0(2), global_rank=3(8))", 8),
    ("[INFO:swift] rank: 12, local_rank: 4, world_size: 16, local_world_size: 8", 16),
    ("local_world_size: 8", None),
    ("tensor model parallel world size: 2", None),
    ("group_world_size=2", None),
    ("--nnodes 1:4 --nproc-per-node 8", None),
    ("hello world", None),
]


@pytest.mark.parametrize(("text", "size"), WORLDS)
def test_the_size_of_the_world_is_read(text: str, size: int | None) -> None:
    assert learned(text).world_size == size


PLACES = [
    (("rank 0 local_rank 0 pid 1955 host tw1016 job f7712 attempt 0",), 0, Unit(rank=0, local_rank=0, host="tw1016", pid=1955)),
    (("[launcher] rank 173 is on tt-n21, gpu 5",), 173, Unit(rank=173, host="tt-n21", gpu="5")),
    (("Initializing distributed: rank 3 on host gx-7.lab",), 3, Unit(rank=3, host="gx-7")),
    (("| distributed init (rank 3): env://, gpu 3",), 3, Unit(rank=3, gpu="3")),
    (("  host      : ws-4.lab", "  rank      : 12 (local_rank: 4)", "  exitcode  : 1 (pid: 712)"), 12, Unit(rank=12, local_rank=4, host="ws-4", pid=712)),
    (("  host      : localhost", "  rank      : 1 (local_rank: 1)"), 1, Unit(rank=1, local_rank=1)),
    (("hostname=srv4, local_rank=1(4), node=0(2), global_rank=5(8)",), 5, Unit(rank=5, local_rank=1, host="srv4")),
    (("rank: 12, local_rank: 4, world_size: 16",), 12, Unit(rank=12, local_rank=4)),
    (("[Rank 3]  using GPU 3 to perform barrier as devices used by this process are currently unknown.",), 3, Unit(rank=3, gpu="3")),
    (("global_rank_mapping=defaultdict(<class 'list'>, {'c1': [0, 1], 'c2': [2, 3]})",), 3, Unit(rank=3, local_rank=1, host="c2")),
    (("cpu-bind=NULL - nid001024, task  0  0 [30000]: mask 0xff", "cpu-bind=NULL - nid001024, task  1  1 [30001]: mask 0xff"), 1,
     Unit(rank=1, local_rank=1, host="nid001024", pid=30001)),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "rank", "unit"), PLACES, ids=range(len(PLACES)))
def test_the_place_of_a_rank_is_read(texts: tuple[str, ...], rank: int, unit: Unit) -> None:
    inventory = learned(*texts)
    assert inventory.for_rank(rank) == unit
    assert not inventory.guessed(rank)
    assert rank in inventory.ranks_seen


def test_command_lines_and_exit_lines_place_nobody() -> None:
    inventory = learned(
        "['python', '-u', 'main.py', '--local_rank=7', '--host=a1'] exits with return code = -9",
        "failed (exitcode: 1) local_rank: 0 (pid: 17) of binary: /usr/bin/python3",
        "GC pause 13.19s on rank 45",
        "rank 3 on timeout",
    )
    assert inventory.units == ()


def test_one_launcher_per_host_makes_no_ranks_of_tasks() -> None:
    inventory = learned(
        "srun: error: dl-04: task 0: Exited with exit code 1", "srun: error: dl-05: task 1: Exited with exit code 1"
    )
    assert inventory.host_of_rank(1) is None
    assert inventory.hosts == ("dl-04", "dl-05")


def test_blocks_of_ranks_are_a_guess_that_says_so_and_gives_way() -> None:
    slurm = "SLURM_JOB_ID=6 SLURM_JOB_NODELIST=lx-[07-08] SLURM_NTASKS_PER_NODE=8"
    inventory = learned(slurm)
    assert (inventory.host_of_rank(11), inventory.rank_of("lx-08", 3)) == (None, None)
    assert inventory.guessed(11)
    assert inventory.names("rank", "11") == ("rank 11", "probably on lx-08")
    assert inventory.ranks_seen == frozenset()
    inventory.observe(line("rank 11 is on lx-07"))
    assert inventory.host_of_rank(11) == "lx-07"
    assert not inventory.guessed(11)
    cyclic = learned(slurm + " SLURM_DISTRIBUTION=cyclic")
    assert cyclic.names("rank", "11") == ("rank 11", "probably on lx-08")
    assert cyclic.names("rank", "10") == ("rank 10", "probably on lx-07")
    assert learned(slurm, "world_size=4").names("rank", "11") == ()
    assert learned("SLURM_JOB_NODELIST=lx-[07-08]").names("rank", "1") == ()


def test_devices_are_read_from_the_tools_that_list_them() -> None:
    source = LogSource("gx-1.log", host="gx-1")
    inventory = learned(
        "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-5b0c1f2e-1111-2a3e-4d55-666677778888)",
        "|   3  NVIDIA H100 80GB HBM3          On  | 00000000:5D:00.0 Off |                    0 |",
        "|    3   N/A  N/A     12345      C   /usr/bin/python3                  70000MiB |",
        "4, NVIDIA H100 80GB HBM3, 00000000:6D:00.0, GPU-5b0c1f2e-1111-2a3e-4d55-666677779999",
        "GPU[5]\t\t: PCI Bus: 0000:C3:00.0",
        source=source,
    )
    unit = inventory.for_pci("gx-1", "5d:00")
    assert unit is not None
    assert (unit.gpu, unit.uuid, unit.pid) == ("3", "GPU-5b0c1f2e-1111-2a3e-4d55-666677778888", 12345)
    assert inventory.for_pid(None, 12345) == unit
    assert inventory.for_pci("gx-1", "6d:00") == Unit(
        host="gx-1", gpu="4", pci="0000:6d:00", uuid="GPU-5b0c1f2e-1111-2a3e-4d55-666677779999"
    )
    assert "gx-1 GPU 5" in inventory.names("gpu", "0000:c3:00")


def test_the_kernel_names_devices() -> None:
    source = LogSource("gx-1.kern.log", kind="kernel", host="gx-1")
    inventory = learned(
        "NVRM: GPU at PCI:0000:5d:00: GPU-5b0c1f2e-1111-2a3e-4d55-666677778888",
        "NVRM: GPU Board Serial Number: 1654321000123",
        "NVRM: Xid (PCI:0000:5d:00): 79, pid=4400, name=python, GPU has fallen off the bus.",
        source=source,
    )
    unit = inventory.for_pid("gx-1", 4400)
    assert unit is not None
    assert (unit.pci, unit.serial) == ("0000:5d:00", "1654321000123")
    assert "1654321000123" in inventory.names("gpu", "gx-1 0000:5d:00")
    assert "gx-1 GPU" not in " ".join(inventory.names("gpu", "0000:5d:00"))


def test_pods_and_nodes_are_one_host() -> None:
    source = LogSource("describe.txt", kind="scheduler")
    inventory = learned(
        "Name:             vlm-worker-3",
        "Node:             k8-gpu-14/10.12.0.14",
        "  Normal  Scheduled  default-scheduler  Successfully assigned train/vlm-worker-2 to k8-gpu-13",
        source=source,
    )
    assert inventory.canonical_host("k8-gpu-14") == inventory.canonical_host("vlm-worker-3")
    assert set(inventory.names("host", "vlm-worker-3")) == {"k8-gpu-14", "10.12.0.14"}
    assert inventory.names("host", "vlm-worker-2") == ("k8-gpu-13",)


def test_names_of_a_host_are_brought_together() -> None:
    inventory = learned(host="gx-043.cluster.local", source=LogSource("a", host="gx-043"))
    inventory.observe(line("x", host="gx-043.cluster.local"))
    inventory.observe(line("x", host="ip-10-1-88-21"))
    assert inventory.canonical_host("gx-043.cluster.local") == "gx-043"
    assert inventory.names("host", "gx-043") == ("gx-043.cluster.local",)
    assert inventory.canonical_host("10.1.88.21") == "ip-10-1-88-21"
    assert inventory.canonical_host("never-seen.lab") == "never-seen"
    assert inventory.hosts == ("gx-043", "ip-10-1-88-21")


def test_process_groups_map_group_ranks_to_global_ones() -> None:
    inventory = learned(
        "[rank3]:[E000 ProcessGroupNCCL.cpp:632] [PG ID 2 PG GUID 17(DP_GROUP) Rank 1] failure detected",
        "[rank1]:[E000 ProcessGroupNCCL.cpp:632] [PG ID 2 PG GUID 17(DP_GROUP) Rank 0] failure detected",
        "[rank1]:[E000 ProcessGroupNCCL.cpp:632] [PG ID 3 PG GUID 18(TP_GROUP) Rank 0] failure detected",
        "[rank2]:[E000 ProcessGroupNCCL.cpp:632] [PG ID 3 PG GUID 19(TP_GROUP) Rank 0] failure detected",
        "[rank5]:[E000 ProcessGroupNCCL.cpp:1182] [PG 4 Rank 2] Timeout at NCCL work: 12",
        "[rank7]:[E000 ProcessGroupNCCL.cpp:1182] [PG ID 0 PG GUID 0(default_pg) Rank 7] failure detected",
        "[NeMo I 2025-05-06 megatron_init:234] Rank 0 has data parallel group : [0, 2, 4, 6]",
        "world_size=8",
    )
    groups = inventory.process_groups
    assert groups["17"] == {0: 1, 1: 3}
    assert groups["DP_GROUP"] == {0: 1, 1: 3}
    assert "TP_GROUP" not in groups
    assert groups["4"] == {2: 5}
    assert groups["data parallel group:0"] == {0: 0, 1: 2, 2: 4, 3: 6}
    assert groups["default_pg"] == {rank: rank for rank in range(8)}
    assert "default_pg" not in learned("[rank7]: [PG ID 0 PG GUID 0(default_pg) Rank 7]").process_groups


def test_a_group_whose_members_contradict_each_other_is_not_known() -> None:
    inventory = learned("[rank3]: [PG 2 Rank 1] x", "[rank4]: [PG 2 Rank 1] x")
    assert "2" not in inventory.process_groups


def test_what_the_user_gives_wins() -> None:
    inventory = learned("rank 3 is on a1, gpu 3")
    inventory.add([Unit(rank=3, host="b7", gpu="5", serial="S1")])
    unit = inventory.for_rank(3)
    assert unit is not None
    assert (unit.host, unit.gpu, unit.serial) == ("b7", "5", "S1")
    inventory.observe(line("rank 3 is on c9"))
    assert inventory.host_of_rank(3) == "b7"


def test_the_first_strong_fact_stays() -> None:
    inventory = learned("rank 3 is on a1, gpu 3", "rank 3 is on b1, gpu 4")
    unit = inventory.for_rank(3)
    assert unit is not None
    assert (unit.host, unit.gpu) == ("a1", "3")


def test_prefixes_place_ranks_but_quoted_lines_do_not() -> None:
    inventory = Inventory()
    inventory.observe(line("x", rank=3, local_rank=3, host="gx-1", pid=99))
    inventory.observe(line("rank 9 is on a1", quoted=True))
    assert inventory.for_rank(3) == Unit(rank=3, local_rank=3, host="gx-1", pid=99)
    assert inventory.ranks_seen == {3}


def test_literals_are_long_enough_and_keep_no_step_line() -> None:
    literals = inventory_literals()
    assert all(len(literal) >= 5 for literal in literals)
    assert not any(literal in "[rank 0/2] step 9/90 | loss 6.3 | lr 3e-4 | tokens 1" for literal in literals)


_FACTS = [
    "world_size=8",
    "rank 3 is on a1, gpu 3",
    "rank 4 is on a2, gpu 0",
    "  host      : a2.lab",
    "  rank      : 5 (local_rank: 1)",
    "a1:10:20 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 busId 1b000 commId 0x1 - Init COMPLETE",
    "a2:11:20 [1] NCCL INFO comm 0x1 rank 7 nranks 8 cudaDev 1 busId 5d000 commId 0x1 - Init COMPLETE",
    "[rank3]: [PG ID 2 PG GUID 17(DP_GROUP) Rank 1] x",
    "SLURM_JOB_NODELIST=a[1-2] SLURM_NTASKS_PER_NODE=4",
]


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, len(_FACTS) - 1)))
def test_fewer_lines_never_place_a_rank_elsewhere(kept: set[int]) -> None:
    full, part = learned(*_FACTS), learned(*(_FACTS[index] for index in sorted(kept)))
    for rank in range(8):
        host = part.host_of_rank(rank)
        assert host is None or host == full.host_of_rank(rank)
    assert part.world_size in {None, full.world_size}
    assert part.ranks_seen <= full.ranks_seen


_PIECES = st.sampled_from(
    [*_FACTS, "NCCL INFO comm 0x rank 99999999 nranks 5", "rank 99999999999999999999 local_rank 3 host a", "[PG 99 Rank 1]", "NodeList=n[0-99999]",
     "MEMBER: 1/0", "GPU 1: x (UUID: GPU-)", "global_rank_mapping={'a': [1, 2", "Node:  x/1.1.1.1", "exitcode  : 1 (pid: 5)"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=120)), max_size=30), st.text(max_size=20))
def test_no_text_breaks_the_inventory(texts: list[str], name: str) -> None:
    inventory = learned(*texts, host=name or None, rank=len(name))
    assert len(inventory.units) <= 65_536
    for kind in ("host", "gpu", "rank", "nic"):
        assert isinstance(inventory.names(kind, name), tuple)
    assert inventory.for_pci(name, name) is None or name
    assert normalise_pci(name) == normalise_pci(normalise_pci(name)) or name
    assert len(expand_hostlist(name)) <= MAX_HOSTS
    assert inventory.process_groups is not None


def test_a_pod_goes_under_the_name_of_its_node() -> None:
    known = Inventory()
    known.runs_on("worker-3", "gke-pool-7c1d-x2kq")
    assert known.canonical_host("worker-3") == "gke-pool-7c1d-x2kq"
    assert known.names("host", "gke-pool-7c1d-x2kq") == ("worker-3",)
    known.runs_on("worker-3", "gke-pool-7c1d-x2kq")
    assert known.hosts == ("gke-pool-7c1d-x2kq",)


TABLE = "|   3  NVIDIA H100 80GB HBM3          On  |   00000000:5D:00.0 Off |                    0 |"
CSV = ("index, pci.bus_id, uuid", "3, 00000000:5D:00.0, GPU-5b0c1f2e-1111-2a3e-4d55-666677778888")
STATED = "SLURMD_NODENAME=gx-043"


def labelled(*hosts: str) -> Inventory:
    """A table without a host, in a log whose later lines name some."""
    inventory = learned(TABLE)
    for host in hosts:
        inventory.observe(line(f"{host} step 5", host=host))
    return inventory


def test_a_table_that_names_no_host_is_of_the_only_one_that_its_log_names() -> None:
    assert [unit for unit in labelled("gx-043").units if unit.gpu] == [Unit(host="gx-043", gpu="3", pci="0000:5d:00")]
    assert learned(TABLE, STATED).names("gpu", "gx-043 0000:5d:00")[0] == "gx-043 GPU 3"


def test_a_table_in_a_log_of_several_hosts_or_of_none_is_nobody_s() -> None:
    for inventory in (labelled(), labelled("gx-043", "gx-044"), learned(TABLE, STATED, "--nnodes 2")):
        assert [unit.host for unit in inventory.units if unit.gpu] == [None]


def test_a_table_of_another_log_stays_its_own() -> None:
    inventory = labelled("gx-043")
    other = LogSource("other.log")
    inventory.observe(line(TABLE.replace("5D", "6D"), other))
    assert {(unit.host, unit.pci) for unit in inventory.units} == {("gx-043", "0000:5d:00"), (None, "0000:6d:00")}


@pytest.mark.parametrize(
    "rows",
    [
        CSV,
        CSV[1:],
        ("timestamp, name, pci.bus_id, index, temperature.gpu",
         "2026/03/02 09:59:02.112, NVIDIA H100 80GB HBM3, 00000000:5D:00.0, 3, 30"),
        ("index, gpu_bus_id, memory.used [MiB]", "3, 00000000:5D:00.0, 4 MiB"),
    ],
    ids=["plain", "no header", "index elsewhere", "units"],
)  # fmt: skip
def test_rows_of_a_query_are_read_by_their_header(rows: tuple[str, ...]) -> None:
    (unit,) = learned(STATED, *rows).units
    assert (unit.host, unit.gpu, unit.pci) == ("gx-043", "3", "0000:5d:00")


def test_a_query_without_an_index_names_no_gpu() -> None:
    assert learned(STATED, "pci.bus_id, uuid", "00000000:5D:00.0, GPU-5b0c1f2e-1111-2a3e-4d55-666677778888").units == ()
