"""Lines that state which rank, host, GPU and process belong together.

In: lines. Out: calls on a `Facts` sink: units with a strength, names of hosts, sizes of the world, process groups.
One literal pass decides whether a line is looked at; each kind of statement is a small method.
"""

from __future__ import annotations

import re
from typing import Protocol

import ahocorasick_rs

from diagnose.lines.hostlists import expand_hostlist
from diagnose.lines.unit_store import STRONG, WEAK
from diagnose.lines.units import is_pci, normalise_pci
from diagnose.models import Line, LogSource, Unit
from diagnose.patterns import Lazy

SEARCHED = 4096
MAX_STREAMS = 8192
MAX_RANK = 1_000_000

# Literal to the method that reads such a line; a line is read by every method it opens.
OPENERS = {
    "NCCL INFO": "nccl", "NCCL WARN": "nccl", "PG GUID": "group", "[PG ": "group", " group": "member_list",
    "orld_size": "world", "orld size": "world", "WORLD_SIZE": "world", "MEMBER:": "world",
    "Starting with": "world", "nproc": "launch", "nnodes": "launch", "num_gpus": "launch", "ntasks": "launch",
    "local_rank": "pairs", "LOCAL_RANK": "pairs", "GLOBAL_RANK": "pairs", "hostname": "pairs", "host:": "pairs",
    " host ": "pairs", "global_rank_mapping": "mapping", "distributed init (rank": "pairs", " on ": "placed",
    "rank      :": "summary", "host      :": "summary", "exitcode  :": "summary", "using GPU": "device",
    "CUDA_VISIBLE_DEVICES": "device", "cpu-bind": "task", "cpu_bind": "task", "srun: error": "task",
    "SLURM_": "slurm", "NodeList=": "slurm", "NODELIST": "slurm", "nodes=": "slurm", "UUID": "device_list",
    "GPU at PCI": "kernel", "Board Serial": "kernel", "NVRM: Xid": "kernel", "00000000:": "device_list",
    "PCI Bus": "device_list", "index, ": "device_list", ", index": "device_list", "N/A  N/A": "device_list",
    "pci.bus_id, ": "device_list", "Successfully assigned": "pod", "Node: ": "pod",
    "Name: ": "pod", "mpirun": "launch",
}  # fmt: skip

LITERALS = tuple(OPENERS)

_NCCL = Lazy(r"(?P<host>[A-Za-z0-9][\w.\-]*):(?P<pid>\d{1,9}):\d{1,9} \[(?P<dev>\d{1,3})\] ")
_ACTOR = Lazy(r"\W{0,12}(?:\[\d{1,3}m)?\([\w.<>:-]{1,80} pid=(?P<pid>\d{1,9}), ip=(?P<ip>\d{1,3}(?:\.\d{1,3}){3})\)")
_COMM = Lazy(
    r"\bcomm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,7}) n[rR]anks (?P<nranks>\d{1,7})"
    r"(?: nNodes (?P<nodes>\d{1,6}) localRanks \d{1,4}"
    r" localRank (?P<local>\d{1,4}))?(?: cudaDev (?P<cuda>\d{1,3}))?(?: nvmlDev (?P<nvml>\d{1,3}))?(?: busId "
    r"(?P<bus>[0-9a-f]{1,12}))?"
    r"(?:[^\n]{0,200}? commId (?P<id>0x[0-9a-f]{1,16}))?"
)
_NCCL_IP = Lazy(r"(?:Bootstrap : Using|OOB|NET/Socket : Using \[0\])\s?[\w.\-]{1,32}:(\d{1,3}(?:\.\d{1,3}){3})<")
_NCCL_NIC = Lazy(r"\[\d{1,3}\]([A-Za-z]\w{1,30}:\d{1,3})/(?:IB|RoCE)")
_RANK_TAG = Lazy(r"\[rank(\d{1,7})\]")
_GROUP = Lazy(
    r"\[PG (?:ID (?P<id>\d{1,9}) PG GUID (?P<guid>[\w.\-]{1,64})(?:\((?P<name>[^()\]]{1,80})\))?"
    r"|(?P<old>\d{1,9})(?: \((?P<oldname>[^()\]]{1,80})\))?)"
    r" Rank (?P<rank>\d{1,7})\]"
)
_MEMBERS = Lazy(
    r"\bRank (\d{1,7}) has (?P<name>[a-z][\w /\-]{2,60}?(?:group"
    r"|parallel)[\w /\-]{0,60}?)\s?: \[(?P<ranks>[\d, ]{1,4000})\]"
)
_WORLD = Lazy(
    r"(?:^|[^\w.\-])(?:dist_|global_)?world[_ ]size['\"]?\s*(?:[:=]|is|of)?\s*['\"]?(\d{1,7})\b"
    r"|MEMBER: \d{1,7}/(\d{1,7})"
    r"|\bStarting with (\d{1,7}) process|\bWORLD_SIZE['\"]?\s*[=:]\s*['\"]?(\d{1,7})\b",
    re.IGNORECASE,
)
_PART_OF_WORLD = Lazy(
    r"(?:parallel|local|group|data|tensor|pipeline|context|expert|model|node|tp|dp|pp|ep|cp)[ _]*$", re.IGNORECASE
)
_NNODES = Lazy(r"(?:--nnodes|\bnnodes|--num_nodes|--nodes|\bSLURM_NNODES)[= ]+['\"]?(\d{1,5})(?:[^\d:]|$)")
_NPROC = Lazy(
    r"(?:--nproc[-_]per[-_]node|\bnproc_per_node|--num_gpus|--ntasks-per-node|num_local_procs"
    r"|\bSLURM_NTASKS_PER_NODE)[= ]+['\"]?(\d{1,4})(?:[^\d(]|$)"
)
_MPI = Lazy(r"\bmpi(?:run|exec)\b[^\n]{0,400}? (?:-np|-n|--np) (\d{1,7})\b")
_PAIR = Lazy(
    r"(?:^|[^\w\-.])(?P<key>global_rank|global rank|local_rank|local rank|world_size|rank|hostname|host|pid"
    r"|gpu)\b['\"]?\s?(?::\s|[:= ])\s?['\"]?"
    r"(?P<value>[A-Za-z0-9][\w.\-]{0,127})(?:\((?P<of>\d{1,7})\))?",
    re.IGNORECASE,
)
_INIT_RANK = Lazy(r"distributed init \(rank (\d{1,7})\)[^\n]{0,80}?gpu (\d{1,3})")
_PLACED = Lazy(
    r"\b[Rr]ank (?P<rank>\d{1,7}) (?:is |runs |running |started |launched )?on (?:host "
    r"|node )?(?P<host>[A-Za-z][\w.\-]*\d[\w.\-]*)"
    r"(?:[, ]{1,2}(?:gpu|GPU|device|local rank) ?(?P<gpu>\d{1,3}))?"
)
_MAPPING = Lazy(r"'([A-Za-z0-9][\w.\-]{0,127})': \[([\d, ]{0,4000})\]")
_SUMMARY = Lazy(
    r"^\s*(?:host\s+: (?P<host>[\w.\-]{1,253})|rank\s+: (?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,4})\)"
    r"|exitcode\s+: -?\d{1,4} \(pid: (?P<pid>\d{1,9})\))\s*$"
)
_USING_GPU = Lazy(r"\b[Rr]ank (\d{1,7})\]?\s+[^\n]{0,20}?using GPU (\d{1,3})\b")
_VISIBLE = Lazy(r"LOCAL_RANK: (\d{1,4}) - CUDA_VISIBLE_DEVICES: \[([\d,]{1,200})\]")
_BIND = Lazy(
    r"\bcpu[-_]bind=\S+ - (?P<host>[\w.\-]{1,253}), task\s+(?P<task>\d{1,7})\s+(?P<local>\d{1,4}) \[(?P<pid>\d{1,9})\]"
)
_SRUN = Lazy(r"\bsrun: error: (?P<host>[A-Za-z0-9][\w.\-]{0,127}): tasks? (?P<tasks>[\d,\-]{1,400}): ")
_NODES = Lazy(r"(?:SLURM_(?:JOB_|STEP_)?NODELIST|\bNodeList|\bnodes)=(?P<list>[A-Za-z][\w.,\-\[\]]{0,4000})")
_SLURM_NUMBER = Lazy(r"\bSLURM_(?P<key>NTASKS|NPROCS|NTASKS_PER_NODE|GPUS_ON_NODE)[=:]\s?(?P<value>\d{1,7})\b")
_SLURM_SPREAD = Lazy(r"\bSLURM_DISTRIBUTION=(\w{3,12})|using (block|cyclic|plane|arbitrary) distribution")
_SMI_LIST = Lazy(r"\bGPU (\d{1,3}): [^\n()]{1,80} \(UUID: (GPU-[0-9a-fA-F\-]{8,40})\)")
_SMI_TABLE = Lazy(r"^\|\s+(\d{1,3})\s+\S[^|]{0,80}\|\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s")
_SMI_PROCESS = Lazy(r"^\|\s+(\d{1,3})\s+(?:N/A|\d+)\s+(?:N/A|\d+)\s+(\d{1,9})\s+[CG+M]{1,3}\s")
# `nvidia-smi --query-gpu=... --format=csv`: the names of the columns, then a row for each GPU.
_SMI_HEADER = Lazy(r"(?:[a-z_.]{2,40}(?: \[\w{1,4}\])?, ?){1,40}[a-z_.]{2,40}(?: \[\w{1,4}\])?\s*$")
_LONGEST_ROW = 320
_PCI_LONG = Lazy(r"\b[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b")
_UUID = Lazy(r"\bGPU-[0-9a-f]{8}-[0-9a-f\-]{8,28}")
_ROCM = Lazy(r"^GPU\[(\d{1,3})\]\s*: PCI Bus: ([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_KERNEL_GPU = Lazy(r"NVRM: GPU at PCI:([0-9a-fA-F:]{7,16}): (GPU-[0-9a-fA-F\-]{8,40})")
_KERNEL_SERIAL = Lazy(r"NVRM: GPU Board Serial Number: (\w{4,32})")
_KERNEL_XID = Lazy(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{5,16})\): \d{1,4}, pid=(\d{1,9})\b")
_POD_NODE = Lazy(r"^Node:\s+([A-Za-z0-9][\w.\-]{1,252})/(\d{1,3}(?:\.\d{1,3}){3})")
_POD_NAME = Lazy(r"^Name:\s+([a-z0-9][\w.\-]{1,252})\s*$")
_POD_ASSIGNED = Lazy(r"Successfully assigned [\w.\-]{1,100}/([\w.\-]{1,252}) to ([\w.\-]{1,252})")


class Facts(Protocol):
    """Where facts go."""

    def unit(self, fact: Unit, strength: int) -> None:
        """A fact of one unit."""
        ...

    def runs_here(self, host: str) -> None:
        """A host on which the one who writes the line runs."""
        ...

    def nodes(self, count: int, *, all_of_them: bool) -> None:
        """How many nodes the job, or one group of its ranks, has."""
        ...

    def listed(self, source: LogSource, fact: Unit) -> None:
        """A GPU in a list of a host's devices; its host where the line or the source names it."""
        ...

    def same_host(self, one: str, other: str) -> None:
        """Two names of one machine."""
        ...

    def runs_on(self, pod: str, node: str) -> None:
        """A pod and the machine it runs on."""
        ...

    def nic(self, host: str, nic: str) -> None:
        """A network device of a host."""
        ...

    def world(self, size: int, strength: int) -> None:
        """A size of the world."""
        ...

    def nccl_rank(self, comm: str, nranks: int, rank: int, fact: Unit) -> None:
        """A rank within a communicator, and whose it is."""
        ...

    def group_member(self, group: str, name: str | None, group_rank: int, rank: int) -> None:
        """A member of a process group."""
        ...

    def group_list(self, name: str, ranks: tuple[int, ...]) -> None:
        """A process group's members in order."""
        ...

    def task(self, task: int, fact: Unit) -> None:
        """A Slurm task and its place."""
        ...

    def host_order(self, hosts: tuple[str, ...]) -> None:
        """The job's hosts in the order of its nodes."""
        ...

    def per_host(self, count: int) -> None:
        """How many ranks each host has."""
        ...

    def spread(self, how: str) -> None:
        """How tasks are laid on hosts."""
        ...


class FactReader:
    """Reads facts of units from lines; remembers what a block of lines (a summary, a pod) began with."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._gate = ahocorasick_rs.AhoCorasick(LITERALS)
        self._methods = tuple(getattr(self, f"_{OPENERS[literal]}") for literal in LITERALS)
        self._open: dict[tuple[str, str], str] = {}

    def read(self, line: Line) -> None:
        """Take what a line says of units."""
        text = line.text if len(line.text) <= SEARCHED else line.text[:SEARCHED]
        hits = self._gate.find_matches_as_indexes(text, overlapping=True)
        if not hits or (line.quoted and not line.body.startswith("SLURM_")):  # an echo of the job's own variables
            return
        done = set()
        for hit in hits:
            method = self._methods[hit[0]]
            if method not in done:
                done.add(method)
                method(line, text)

    def _nccl(self, line: Line, text: str) -> None:
        head = _NCCL.search(text)
        if head is None:
            return
        host, pid = head["host"], int(head["pid"])
        if "NCCL WARN" in text or "Bootstrap : Using" in text:  # which no filter takes away
            self._facts.runs_here(host)
        if (actor := _ACTOR.match(text)) is not None and int(actor["pid"]) == pid:
            self._facts.same_host(host, actor["ip"])  # Ray names the machine by its address, NCCL by its name
        if (comm := _COMM.search(text, head.end())) is not None:
            if comm["nodes"] is not None:
                self._facts.nodes(int(comm["nodes"]), all_of_them=False)
            local, nvml = comm["local"], comm["nvml"] or comm["cuda"]
            bus = comm["bus"]
            fact = Unit(
                host=host, pid=pid, local_rank=int(local) if local is not None else None, gpu=nvml,
                pci=normalise_pci(bus) if bus is not None and len(bus) >= 4 else None,
            )  # fmt: skip
            self._facts.unit(fact, STRONG)
            # Without a commId a communicator is known by its size alone, and only while its ranks do not clash.
            self._facts.nccl_rank(comm["id"] or "", int(comm["nranks"]), int(comm["rank"]), fact)
            return
        if (address := _NCCL_IP.search(text, head.end())) is not None:
            self._facts.same_host(host, address[1])
        if "NET/IB : Using" in text:
            for nic in _NCCL_NIC.findall(text, head.end())[:64]:
                self._facts.nic(host, nic)

    def _group(self, line: Line, text: str) -> None:
        match = _GROUP.search(text)
        if match is None:
            return
        tag = _RANK_TAG.search(text, 0, match.start())
        rank = int(tag[1]) if tag is not None else line.rank
        group = match["guid"] or match["old"]
        name = match["name"] or match["oldname"]
        if group == "0" or name == "default_pg":
            if rank is None:
                self._facts.unit(Unit(rank=int(match["rank"])), STRONG)
            return
        if rank is not None:
            self._facts.group_member(group, name, int(match["rank"]), rank)

    def _member_list(self, line: Line, text: str) -> None:
        if (match := _MEMBERS.search(text)) is not None:
            self._facts.group_list(match["name"].strip(), _numbers(match["ranks"]))

    def _world(self, line: Line, text: str) -> None:
        for match in _WORLD.finditer(text):
            if _PART_OF_WORLD.search(text, max(0, match.start() - 24), match.start() + 1) is None:
                size = int(next(group for group in match.groups() if group is not None))
                self._facts.world(size, STRONG)
                return

    def _launch(self, line: Line, text: str) -> None:
        processes, nodes = _NPROC.search(text), _NNODES.search(text)
        if nodes is not None:
            self._facts.nodes(int(nodes[1]), all_of_them=True)
        if processes is not None:
            self._facts.per_host(int(processes[1]))
            if nodes is not None:
                self._facts.world(int(processes[1]) * int(nodes[1]), WEAK)
        elif (match := _MPI.search(text)) is not None:
            self._facts.world(int(match[1]), WEAK)

    def _pairs(self, line: Line, text: str) -> None:
        """`rank 0 local_rank 0 pid 1955 host tw1016` in any order and any of the usual notations."""
        if "exitcode" in text or "of binary" in text:
            return
        found: dict[str, str] = {}
        for pair in _PAIR.finditer(text, 0, 600):
            key = pair["key"].lower().replace(" ", "_")
            found.setdefault({"global_rank": "rank", "hostname": "host"}.get(key, key), pair["value"])
            if key == "global_rank" and pair["of"] is not None:
                self._facts.world(int(pair["of"]), STRONG)
        if (match := _INIT_RANK.search(text)) is not None:
            found |= {"rank": match[1], "gpu": match[2]}
        host = found.get("host")
        if host is not None and not (any(char.isdigit() for char in host) and not host.isdigit()):
            host = None
        rank = _number(found.get("rank")) if "rank" in found else line.rank
        local = _number(found.get("local_rank"))
        fact = Unit(
            rank=rank, local_rank=local if local is not None else line.local_rank,
            host=host or line.host or line.source.host,
            gpu=found["gpu"] if found.get("gpu", "").isdigit() else None, pid=_number(found.get("pid")),
        )  # fmt: skip
        if rank is not None and (host is not None or local is not None or fact.gpu is not None):
            self._facts.unit(fact, STRONG)

    def _placed(self, line: Line, text: str) -> None:
        if (match := _PLACED.search(text)) is not None:
            self._facts.unit(Unit(rank=int(match["rank"]), host=match["host"], gpu=match["gpu"]), STRONG)

    def _mapping(self, line: Line, text: str) -> None:
        """DeepSpeed's launcher prints every host's global ranks."""
        at = text.find("global_rank_mapping")
        hosts = []
        for host, ranks in _MAPPING.findall(text, at)[:4096]:
            hosts.append(host)
            for local, rank in enumerate(_numbers(ranks)):
                self._facts.unit(Unit(rank=rank, host=host, local_rank=local), STRONG)
        self._facts.host_order(tuple(hosts))

    def _summary(self, line: Line, text: str) -> None:
        """Torchrun's summary of failures: host, rank, exit code on lines of their own."""
        match = _SUMMARY.match(line.body) or _SUMMARY.match(text)
        if match is None:
            return
        host_key, rank_key = (line.source.name, line.stream + " host"), (line.source.name, line.stream + " rank")
        if match["host"] is not None:
            self._remember(host_key, match["host"])
            self._open.pop(rank_key, None)
        elif match["rank"] is not None:
            self._remember(rank_key, match["rank"])
            host = self._open.get(host_key)
            self._facts.unit(Unit(rank=int(match["rank"]), local_rank=int(match["local"]), host=host), STRONG)
        elif (rank := self._open.pop(rank_key, None)) is not None:
            self._facts.unit(Unit(rank=int(rank), pid=int(match["pid"]), host=self._open.pop(host_key, None)), STRONG)

    def _device(self, line: Line, text: str) -> None:
        if (match := _USING_GPU.search(text)) is not None:
            self._facts.unit(Unit(rank=int(match[1]), gpu=match[2]), WEAK)
        elif (match := _VISIBLE.search(text)) is not None and line.rank is not None:
            local, devices = int(match[1]), match[2].split(",")
            gpu = devices[local] if local < len(devices) else None
            self._facts.unit(Unit(rank=line.rank, local_rank=local, gpu=gpu or None, host=line.host), STRONG)

    def _task(self, line: Line, text: str) -> None:
        """Slurm's task numbers; whether they are ranks is for the inventory to judge."""
        if (match := _BIND.search(text)) is not None:
            fact = Unit(host=match["host"], local_rank=int(match["local"]), pid=int(match["pid"]))
            self._facts.task(int(match["task"]), fact)
        elif (match := _SRUN.search(text)) is not None:
            for task in expand_hostlist(f"[{match['tasks']}]", limit=4096):
                self._facts.task(int(task), Unit(host=match["host"]))

    def _slurm(self, line: Line, text: str) -> None:
        if (match := _NODES.search(text)) is not None:
            self._facts.host_order(expand_hostlist(match["list"].rstrip(",.")))
        for number in _SLURM_NUMBER.finditer(text):
            value = int(number["value"])
            if number["key"] in {"NTASKS", "NPROCS"}:
                self._facts.world(value, WEAK - 1)
            elif value > 1:
                self._facts.per_host(value)
        if (match := _SLURM_SPREAD.search(text)) is not None:
            self._facts.spread(match[1] or match[2])

    def _device_list(self, line: Line, text: str) -> None:
        """nvidia-smi's list, table, processes and CSV, and rocm-smi's list."""
        host, body = line.host or line.source.host, line.body
        columns = (line.source.name, "columns")
        if (match := _SMI_LIST.search(text)) is not None:
            self._facts.listed(line.source, Unit(host=host, gpu=match[1], uuid=match[2]))
        elif (match := _SMI_TABLE.match(body)) is not None or (match := _ROCM.match(body)) is not None:
            self._facts.listed(line.source, Unit(host=host, gpu=match[1], pci=normalise_pci(match[2])))
        elif (match := _SMI_PROCESS.match(body)) is not None:
            self._facts.listed(line.source, Unit(host=host, gpu=match[1], pid=int(match[2])))
        elif ("uuid" in body or "bus_id" in body) and _SMI_HEADER.match(body) is not None:
            names = [name.strip() for name in body.split(",")]
            self._remember(columns, str(names.index("index")) if "index" in names else "")
        else:
            cells = [cell.strip() for cell in body[:_LONGEST_ROW].split(",")]
            at = self._open.get(columns, "0")
            index = cells[int(at)] if at and int(at) < len(cells) > 1 else ""
            pci, uuid = _PCI_LONG.search(body), _UUID.search(body)
            if index.isascii() and index.isdigit() and len(index) <= 3 and (pci is not None or uuid is not None):
                address = normalise_pci(pci[0]) if pci is not None else None
                self._facts.listed(line.source, Unit(host=host, gpu=index, pci=address, uuid=uuid[0] if uuid else None))

    def _kernel(self, line: Line, text: str) -> None:
        host = line.host or line.source.host
        key = (line.source.name, "pci")
        if (match := _KERNEL_GPU.search(text)) is not None:
            pci = normalise_pci(match[1])
            self._remember(key, pci)
            self._facts.unit(Unit(host=host, pci=pci, uuid=match[2]), STRONG)
        elif (match := _KERNEL_SERIAL.search(text)) is not None:
            if (known := self._open.get(key)) is not None:
                self._facts.unit(Unit(host=host, pci=known, serial=match[1]), STRONG)
        elif (match := _KERNEL_XID.search(text)) is not None and host is not None and is_pci(normalise_pci(match[1])):
            self._facts.unit(Unit(host=host, pci=normalise_pci(match[1]), pid=int(match[2])), WEAK)

    def _pod(self, line: Line, text: str) -> None:
        """`kubectl describe pod`: which node a pod runs on."""
        key = (line.source.name, "pod")
        if (match := _POD_ASSIGNED.search(text)) is not None:
            self._facts.runs_on(match[1], match[2])
        elif line.source.kind == "scheduler" and (match := _POD_NAME.match(line.body)) is not None:
            self._remember(key, match[1])
        elif (match := _POD_NODE.match(line.body)) is not None:
            self._facts.same_host(match[1], match[2])
            if (pod := self._open.pop(key, None)) is not None:
                self._facts.runs_on(pod, match[1])

    def _remember(self, key: tuple[str, str], value: str) -> None:
        if len(self._open) >= MAX_STREAMS:
            self._open.pop(next(iter(self._open)))
        self._open[key] = value


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 9 else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace(" ", "").split(",") if part.isdigit() and len(part) <= 7)
