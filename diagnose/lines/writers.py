"""Prefixes that say who wrote a line: task labels, rank and role tags, pods, containers, hosts, Ray actors.

In: a line and where to look. Out: where the prefix ends, or -1; what it says goes into the `Head`.
"""

from __future__ import annotations

from diagnose.lines.heads import Head, Prefixes, pid_of
from diagnose.patterns import Lazy

HOST = r"[A-Za-z0-9](?:[\w.-]{0,62}[A-Za-z0-9])?"
_RANK = Lazy(r"\[[Rr]ank[ _:=]{0,2}([0-9]{1,6})(?: ?/ ?[0-9]{1,6})?\](?:: ?| )")
_RANK_COUNTED = Lazy(r"\[RANK[ _:=]{0,2}([0-9]{1,6})(?: ?/ ?[0-9]{1,6})?\](?:: ?| )")
_ROLE = Lazy(r"\[(default|trainer|worker|actor|learner|local_rank|gpu|proc)_?([0-9]{1,4})\]: ?")
_ROLE_RANK = Lazy(r"\[[A-Za-z_][\w-]{0,40}?([0-9]{1,4})\|rank_?([0-9]{1,6})\]:? ?")
_POD = Lazy(r"\[pod/([\w.-]{1,253})/([\w.-]{1,63})\] ?")
_MPI = Lazy(
    r"\[(?:[\w.@-]{1,80}@)?(?:[0-9]{1,6},)?(?:mpirank:)?([0-9]{1,6})(?:,([\w.-]{1,63}))?\]<(stdout|stderr|stddiag)>: ?"
)
_BRACKET_LABEL_FORM = Lazy(r"\[([0-9]{1,5})\](?:: ?| )")
_LABEL = Lazy(r"([0-9]{1,5}): ")
_RAY = Lazy(
    r"\((?:([A-Za-z_][\w.<>:\[\]-]{0,80}) )?(?:rank=([0-9]{1,6}) )?pid=([\w.-]{1,40})"
    r"(?:, ip=([0-9a-fA-F.:]{3,45}))?\) ?"
    r"|\((raylet|autoscaler|gcs_server|dashboard)(?:, ip=([0-9a-fA-F.:]{3,45})| [+0-9hms]{2,12})?\) ?"
)
_REPEATED = Lazy(r" ?\[repeated [0-9]+x across (?:all workers|cluster)\].{0,200}$")
_HOST_COLON = Lazy(rf"({HOST}): ")
_HOST_TASK = Lazy(rf"({HOST})\[([0-9]{{1,4}})\]: ")
_SERVICE = Lazy(r"([A-Za-z0-9][\w.-]{0,80}?) {0,20}\| ?")
_STERN = Lazy(r"(?:[\w-]{1,63} )?([a-z0-9][a-z0-9.-]{1,80}) ([a-z][a-z0-9-]{0,40}) (?:\| )?")
_REPLICA = Lazy(r"([A-Za-z][\w.-]{0,63})/([0-9]{1,4}) ")
_ADDRESS = Lazy(r"([0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}): ")
_TASK = Lazy(r"(?:task|rank) {1,6}([0-9]{1,6}) \| ")
_DIGIT = Lazy(r"[0-9]")
_WORD_RANK = Lazy(r"[Rr]ank ?([0-9]{1,6}) ?[:|] ")
_BRACKET_HOST_PID = Lazy(rf"\[({HOST}):([0-9]{{2,7}})(?: ?:([0-9]{{1,4}})(:[0-9]{{1,8}})?)?\] ?")

# Words with a digit before a colon that are no hosts: units of work, devices, programs, codes of errors. `gpu3` is a
# device, `gpu03` and `gpu41` are hosts.
_NOT_HOSTS = Lazy(
    r"(?i:epoch|step|iter|layer|cuda|rank|block|stage|trial|fold|top|mlx|eth|enp|ens|eno|ib|nvme|sd|docker|veth|bond"
    r"|loss|acc|level|task|test|part|shard|batch|sample|thread|cpu|node_?rank|nvidia|python|phase|module|dev"
    r"|line|col|run|seed|expert|head|bucket|group|version|v|r|l|p|h|sha|md|utf|int|fp|bf|float|hsn|bge|igb|usb|ata|pci)"
    r"[_-]?[0-9x]+(?:[a-z][0-9]*)?\Z|(?i:gpu)[_-]?(?:[0-9]|1[0-5])\Z|[A-Z]{1,4}[0-9]{2,6}\Z"
)
_FILE_END = (
    ".py",
    ".cc",
    ".cpp",
    ".cu",
    ".c",
    ".h",
    ".hpp",
    ".cuh",
    ".go",
    ".rs",
    ".ts",
    ".js",
    ".sh",
    ".yaml",
    ".json",
)


def looks_like_host(token: str) -> bool:
    """Whether a token has the shape of a machine's name: letters and a digit, and is no file, device or counter."""
    return (
        token[:1].isalpha()
        and _DIGIT.search(token) is not None
        and not token.endswith(_FILE_END)
        and _NOT_HOSTS.match(token) is None
    )


def rank_tag(text: str, pos: int, head: Head) -> int:
    """`[rank3]: `, `[rank 0/3] `, `[rank: 3] `: a global rank."""
    found = (_RANK_COUNTED if text.startswith("[RANK", pos) else _RANK).match(text, pos)
    if found is None or (text[pos + 1] == "R" and text[pos + 2] == "a"):
        return -1
    rank = int(found.group(1))
    head.rank = rank
    # Behind a logger's head it is part of the logger's format, which the lines of a traceback do not carry.
    if head.stage < 2:
        head.writer_rank = rank
        head.tagged = True
    return found.end()


def role_tag(text: str, pos: int, head: Head) -> int:
    """`[default3]:` of torchrun's tee, `[trainer1|rank9]:` of its templates."""
    found = _ROLE.match(text, pos)
    if found:
        head.local_rank = int(found.group(2))
    else:
        found = _ROLE_RANK.match(text, pos)
        if found is None:
            return -1
        head.local_rank = int(found.group(1))
        head.rank = head.writer_rank = int(found.group(2))
    head.writer_local = head.local_rank
    # torchrun adds no space: what follows the colon is the program's own indentation.
    end = found.end()
    return end - 1 if text[end - 1] == " " and text.startswith("  ", end - 1) else end


def pod_tag(text: str, pos: int, head: Head) -> int:
    """`[pod/NAME/CONTAINER] ` of kubectl logs --prefix."""
    found = _POD.match(text, pos)
    if found is None:
        return -1
    head.host = head.host or found.group(1)
    head.at(f"{found.group(1)}/{found.group(2)}")
    return found.end()


def mpi_tag(text: str, pos: int, head: Head) -> int:
    """`[1,3]<stderr>:` of mpirun, `[1,mpirank:3,algo-1]<stdout>:` of SageMaker, `[3]<stdout>:` of Horovod."""
    found = _MPI.match(text, pos)
    if found is None:
        return -1
    head.rank = head.writer_rank = int(found.group(1))
    if found.group(2):
        head.host = found.group(2)
    head.flow = found.group(3)
    end = found.end()
    return end - 1 if text[end - 1] == " " else end


def ray_tag(text: str, pos: int, head: Head) -> int:
    """`(TaskRunner pid=37702, ip=10.0.0.3) ` of Ray, `(Worker_TP0 pid=12) ` of vLLM."""
    found = _RAY.match(text, pos)
    if found is None:
        return -1
    name, rank, pid, ip, service, service_ip = found.groups()
    if pid and pid.isascii() and pid.isdigit():
        head.pid = pid_of(pid)
    if rank:
        head.rank = int(rank)
    head.at(f"{name or service or ''}:{pid or ''}@{ip or service_ip or ''}")
    head.process = service is None
    if ip or service_ip:
        head.host = head.host or ip or service_ip
    return found.end()


def without_repeats(body: str) -> str:
    """`body` without Ray's note that other workers said the same."""
    if "[repeated " in body[-300:]:
        cut = body.rfind("[repeated ")
        if _REPEATED.match(body, cut):
            return body[:cut].rstrip()
    return body


def label(text: str, pos: int, head: Head, known: Prefixes) -> int:
    """`12: ` of srun --label: the rank, where the source shows it to be one."""
    found = _LABEL.match(text, pos)
    if found is None:
        # An empty line of a task; the space at its end is often lost.
        colon = text.find(":", pos, pos + 6)
        digits = text[pos:colon]
        if known.labelled and colon + 1 == len(text) and digits.isascii() and digits.isdigit():
            _task(int(digits), head, known)
            return len(text)
        return -1
    if not known.label(found.group(1), text[found.end() : found.end() + 160]):
        return -1
    _task(int(found.group(1)), head, known)
    return found.end()


def label_behind(text: str, pos: int, head: Head, known: Prefixes) -> int:
    """`12: ` of srun --label behind a collector's stamp, where a program's output follows, here or earlier."""
    found = _LABEL.match(text, pos)
    if found is None or not known.label_behind(text[found.end() : found.end() + 160]):
        return -1
    _task(int(found.group(1)), head, known)
    return found.end()


def _task(number: int, head: Head, known: Prefixes) -> None:
    head.task = number
    if known.tasks_are_nodes:
        head.at(f"task {number}")
    else:
        head.rank = head.writer_rank = number


def bracket_label(text: str, pos: int, head: Head, known: Prefixes) -> int:
    """`[3]:` of a torchrun template, `[3] ` of Hydra's launcher: a rank, where the text after it proves it."""
    if head.stage:
        return -1
    found = _BRACKET_LABEL_FORM.match(text, pos)
    if found is None or not known.proven("[]", text[found.end() : found.end() + 160], 1 << 30):
        return -1
    head.rank = head.writer_rank = int(found.group(1))
    return found.end()


def host_process(text: str, pos: int, head: Head) -> int:
    """`[host:pid] ` of Open MPI and UCX, `[host:pid:local_rank] `."""
    found = _BRACKET_HOST_PID.match(text, pos)
    if found is None:
        return -1
    host = found.group(1)
    if host.endswith(_FILE_END) or (head.stage and not looks_like_host(host)):
        return -1
    head.host, head.pid = host, pid_of(found.group(2))
    if found.group(3) and not found.group(4) and " :" not in found.group():
        head.local_rank = int(found.group(3))
    return found.end()


def address(text: str, pos: int, head: Head, known: Prefixes) -> int:
    """`10.0.0.3: ` of pdsh and talosctl, where machines go by their addresses."""
    found = _ADDRESS.match(text, pos)
    if found is None:
        return -1
    rest = text[found.end() : found.end() + 160]
    if not (known.proven(found.group(1) + ":", rest, 3) or rest.startswith("kern: ")):
        return -1
    head.host = found.group(1)
    head.at(head.host)
    return found.end()


def task(text: str, pos: int, head: Head) -> int:
    """`task  12 | `, `rank 3 | `."""
    found = _TASK.match(text, pos)
    if found is None:
        return -1
    head.rank = head.writer_rank = int(found.group(1))
    return found.end()


def word(text: str, pos: int, head: Head, known: Prefixes, space: int) -> int:
    """Prefixes that begin like a word: `host: `, `host[2]: `, `worker-1  | `, `pod container `, `role/0 `.

    `space` is where the first word ends. Whether it is a prefix at all is decided by what follows and by repetition.
    """
    if head.writer_rank is not None or head.writer_local is not None:
        # A process was named already: what stands behind it is its own.
        return -1
    last = text[space - 1]
    if last == ":":
        found = _HOST_COLON.match(text, pos)
        if found:
            host = found.group(1)
            if looks_like_host(host) and known.proven(host + ":", text[found.end() : found.end() + 160], 3):
                head.host = host
                head.at(host)
                return found.end()
            return -1
        found = _HOST_TASK.match(text, pos)
        if found and looks_like_host(found.group(1)):
            head.host, head.local_rank = found.group(1), int(found.group(2))
            head.writer_local = head.local_rank
            head.at(head.host)
            return found.end()
        return _word_rank(text, pos, head, known)
    bar = text.find("|", space, space + 24)
    if bar > 0 and not text[space:bar].strip(" "):
        found = _SERVICE.match(text, pos)
        if found is None:
            return -1
        name = found.group(1)
        if "." in name and not looks_like_host(name):
            return -1
        rest = text[found.end() : found.end() + 160]
        if not known.proven(name + "|", rest, 2 if looks_like_host(name) else 6) or _table_row(rest):
            return -1
        head.host = head.host or name
        head.at(name)
        return found.end()
    slash = text.find("/", pos, space)
    if slash > 0:
        found = _REPLICA.match(text, pos)
        if found and known.proven(found.group()[:-1], text[found.end() : found.end() + 160], 4):
            head.at(found.group()[:-1])
            return found.end()
        return -1
    if text.startswith(("rank ", "Rank "), pos):
        return _word_rank(text, pos, head, known)
    token = text[pos:space]
    if looks_like_host(token) and known.proven(token + " ", text[space + 1 : space + 161], 1 << 30):
        # `gx-01 2026-02-03 11:00:00 step`: a host before each line.
        head.host = token
        head.at(token)
        return space + 1
    if "-" in text[pos:space]:
        found = _STERN.match(text, pos)
        if found and looks_like_host(found.group(1)):
            rest = text[found.end() : found.end() + 160]
            if known.proven(f"{found.group(1)} {found.group(2)}", rest, 5):
                head.host = head.host or found.group(1)
                head.at(f"{found.group(1)}/{found.group(2)}")
                return found.end()
    return -1


def stamped_host(text: str, pos: int, head: Head, known: Prefixes) -> int:
    """`2026-02-03T11:00:00Z gx-01 ` of collectors: a host behind the stamp, where a program's output follows once."""
    space = text.find(" ", pos, pos + 64)
    token = text[pos:space] if space > 0 else ""
    if head.host is not None or token.endswith(":") or not looks_like_host(token):
        return -1
    if not known.proven(f"@ {token}", text[space + 1 : space + 161], 1 << 30):
        return -1
    head.host = token
    head.at(token)
    return space + 1


def host_behind(text: str, pos: int, head: Head, known: Prefixes) -> int:
    """`gx-01: ` behind a stamp or a process: one that stood before a program's output, here or earlier."""
    found = _HOST_COLON.match(text, pos)
    if found is None or not looks_like_host(found.group(1)):
        return -1
    if not known.proven(found.group(1) + ":", text[found.end() : found.end() + 160], 1 << 30):
        return -1
    head.host = head.host or found.group(1)
    head.at(found.group(1))
    return found.end()


def _table_row(rest: str) -> bool:
    return "|" in rest[:40] and "%|" not in rest[:40]


def _word_rank(text: str, pos: int, head: Head, known: Prefixes) -> int:
    found = _WORD_RANK.match(text, pos)
    # "Rank 3: no answer" may be said by another: only before what is plainly a program's own output.
    if found is None or not known.proven("rank:", text[found.end() : found.end() + 160], 1 << 30):
        return -1
    head.rank = head.writer_rank = int(found.group(1))
    return found.end()
