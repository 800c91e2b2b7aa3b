"""What lines speak of that prove an error type: who names a type must quote lines about it.

In: an error type. Out: a pattern that the quoted lines, or those right beside them, must match. The words are wide, so
that a failure in words that no rule knows still passes, and narrow enough that a line about one thing proves no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from diagnose.models.rule import ErrorType

_XID = r"xid\W{1,4}(?:\([^)]{0,40}\)\W{0,3})?(?:%s)\b"
_WORDS: Final[Mapping[str, str]] = {
    "NVLinkError": r"nv-?link|nvswitch|sxid|xgmi|" + _XID % "74|137|14[4-9]|150|155",
    "ECCError": r"\becc\b|uncorrect|row.?remap|double.?bit|\bdbe\b|\bhbm|\bumc\b|\bras\b|poison|page.?retire|"
    r"memory error|" + _XID % "48|63|64|92|94|95|140|171|172",
    "GPUFallenOffBus": r"fallen off|(?:gpu|device|card)\W.{0,40}(?:lost|missing|gone|disappear|not found)|"
    r"device handle|"
    r"lost.{0,20}(?:gpu|device)|no devices|rev ff|device count|(?:found|visible|expected|only|got).{0,20}(?:gpu|"
    r"device)|" + _XID % "79",
    "GPUDriverError": r"\bgsp\b|driver|firmware|nvrm|\brm_?init|amdgpu|nvml|" + _XID % r"\d+",
    "DriverMismatch": r"mismatch|insufficient|too old|forward compat|driver.{0,40}version|version.{0,40}driver|"
    r"80[34]\b",
    "GPUUnavailable": r"busy|unavailable|in use|exclusive|prohibited|no (?:cuda|gpu|nvidia|hip|devices?)|"
    r"visible.devices|"
    r"cuda-capable|invalid device|not available|not allocated|out of range.{0,20}device|device.{0,20}ordinal",
    "GPUThermalThrottle": r"therm|slow-?down|throttl|temperature|\bpower\b|clocks?\b|overheat|°c",
    "FabricManagerError": r"fabric|\b802\b|system not yet init",
    "CUDAError": r"cuda|cublas|cudnn|\bhip|rocm|miopen|nvrtc|cufft|cusolver|\bacl\b|\bxid\b|device-side|illegal memory|"
    r"launch failure",
    "NetworkError": r"infiniband|\bib[_v]|\bib\b|mlx\d|rdma|roce|\befa\b|libfabric|\bofi\b|\bucx|\bnic\b|\beth\d|"
    r"\bbond\d|"
    r"ethernet|network|no route|unreachable|(?:link|port).{0,30}(?:down|inactive|error|flap|err)|wc error|completion|"
    r"vendor.?err|status=?\s?\d|transport|\bhca\b|\bgid\b|carrier|packet|net/|interface|socket|retry.{0,9}exceed|cqe",
    "ConnectionError": r"connect|time[ds]?.?out|rendezvous|rdzv|tcpstore|\bhttps?\b|max retries|resolve|resolution|"
    r"\bdns\b|ssl|"
    r"name or service|unreachable|\b50[234]\b|gloo|socket|store|reach|broken pipe|peer",
    "NCCLTimeoutError": r"time[ds]?.?out|watchdog|barrier|in \d+ ?ms",
    "NCCLRemoteError": r"remote|peer|closed by|connection (?:was )?(?:closed|reset|aborted)|broken pipe|heartbeat|gone",
    "NCCLSystemError": r"nccl|rccl|hccl|oneccl|ucc\b",
    "CollectiveHang": r"h[au]ng\b|stuck|stall|no progress|time[ds]?.?out|watchdog|heartbeat|collective|waiting|"
    r"all_?reduce|"
    r"all_?gather|barrier|broadcast|not respond|blocked for more",
    "NodeFailure": r"\bnode|\bhost\b|reboot|panic|slurmd|not.?ready|kubelet|machine check|\bmce\b|hardware error|"
    r"lockup|"
    r"power loss|heartbeat",
    "ContainerRuntimeError": r"contain|docker|\brunc\b|enroot|pyxis|apptainer|singularity|\boci\b|\bcdi\b|podman|nvml|"
    r"\bcri\b|squashfs|image",
    "SchedulerLaunchError": r"prolog|launch|credential|orted|mpirun|prterun|\bprte|step creation|invalid (?:account|"
    r"partition|qos)|"
    r"(?:unable|fail\w*|cannot|could not) (?:to )?(?:create|start|launch|contact|confirm|allocate|run|spawn|exec)|"
    r"image ?pull|errimage|plugin|unschedul|imagepull|slurmd\W|requested node|no such (?:task|node)|scheduling",
    "S3StorageError": r"\bs3|boto|bucket|\bobject|\bblob|\bgcs\b|\bgs:|azure|minio|\boss\b|slow ?down|endpoint|storage|"
    r"presign|upload|download",
    "StorageIOError": r"i/o|(?:read|writ)\w* (?:\w+ )?(?:fail|error)|fail\w* (?:to )?(?:read|writ)|input/output|"
    r"stale|lustre|nfs|gpfs|read-?only|remote i|transport endpoint|file ?system|"
    r"mount|"
    r"estale|\bost\d|beegfs|ceph|\bfuse|\beio\b|errno (?:5|30|116|121|107)\b|disk|nvme|ext4|xfs|blk|bus error",
    "DiskFull": r"no space|enospc|disk.{0,20}full|\bfull\b|errno 28|space left|inode|disk.?pressure|"
    r"not enough.{0,20}space",
    "CheckpointCorrupt": r"corrupt|truncat|central directory|unpickl|pickle|safetensor|zip|eof|incomplete|checksum|"
    r"header|streamreader|magic|not a (?:valid )?|bytes|damaged|checkpoint|ckpt|crc",
    "HostOutOfMemory": r"memory|\boom|cgroup|bad_alloc|cannot alloc|\brss\b|malloc|\bkill",
    "SharedMemoryFull": r"shm|shared memory|bus error|sigbus",
    "ResourceLimitError": r"memlock|too many|open files|ulimit|\blimit|resource temporarily|nofile|nproc|\bthread|"
    r"errno (?:11|24|12)\b|\bpids?\b|register|locked memory|ibv_reg|fork",
    "ClockSkewError": r"clock|skew|\bntp\b|chrony|in the future|not yet valid|expired|time (?:is|differ|drift|went)|"
    r"too large.{0,20}time|difference",
    "JobCancelled": r"cancel|sighup|hangup|hang up|sigint|keyboard ?interrupt|interrupt|scancel|revoked|delet|"
    r"user request|"
    r"received (?:sig|signal ?)(?:term|15|int|2|hup|1)|(?:stopp|abort|kill|terminat)\w+ (?:by|on|"
    r"at) (?:the )?(?:user|owner|request)",
    "Preempted": r"preempt|requeue|\bspot\b|reclaim|interruption|evict",
    "TimeLimitExceeded": r"time.?limit|walltime|wall.?clock|deadline|due to time|max.?(?:run)?time|timeout|"
    r"time is (?:up|over)",
    "PodEvicted": r"evict|\bpod|taint|pressure|ephemeral|kubelet",
    "AttributeError": r"attributeerror|has no attribute",
    "OutOfMemoryError": r"out.?of.?memory|\boom\b|cuda.{0,40}memory|memory.{0,40}(?:cuda|gpu|device|alloc)|alloc",
    "RuntimeError": r"runtimeerror|assert|traceback|exception|^\s*file \"|raise ",
    "AssertionError": r"assert",
    "ValueError": r"valueerror|value",
    "ZeroDivisionError": r"division|divide|zerodiv",
    "ModelLoadingError": r"load|state_dict|missing key|unexpected key|size mismatch|safetensor|weights|from_pretrained|"
    r"checkpoint|ckpt|shape|param",
    "CollectiveMismatch": r"mismatch|desync|differ|inconsisten|sequence|op ?count|collective|not equal|unequal|uneven|"
    r"incorrect|out of order|order of|all_?reduce|broadcast|all_?gather",
    "DeviceSideAssert": r"device.side assert|assertion.{0,200}failed|srcindex|out of (?:bounds|range)|scattergather|"
    r"indexing|\bt >= 0",
    "SegmentationFault": r"seg(?:mentation|fault|v)|sigsegv|signal 11|core dumped|not mapped|(?<!\w)-11\b|\b139\b",
    "ExtensionBuildError": r"nvcc|ninja|compil|build|g\+\+|gcc|cpp_extension|undefined symbol|undefined reference|"
    r"cannot find -l|triton|cmake|ptxas|\bld:|\.cu\b|jit",
    "TeardownHang": r"destroy|shut.?down|teardown|finali|atexit|\bhang|\bhung|stuck|process ?group|clean.?up|"
    r"after (?:the )?(?:end|training)",
    "DataloaderKilled": r"data ?loader|worker|bus error",
    "DatasetLoadingError": r"data|parquet|arrow|tfrecord|shard|parse|pars|json|tokeni|sample|decode|\btar\b|csv|corpus|"
    r"\.idx|\.bin|record",
    "TrainingAnomaly": r"\bnan\b|\binf(?:inity)?\b|overflow|diverg|spike|anomal|non-?finite|loss.?scale|(?:loss|"
    r"grad)\w*.{0,30}(?:too|explod|jump|invalid|bad)",
    "ProcessKilled": r"kill|signal 9\b|-9\b|\b137\b",
    "FileNotFoundError": r"no such file|未找到|filenotfound|not (?:be )?found|(?:does|did)(?: not|n't) exist|errno 2\b|"
    r"missing|"
    r"(?:cannot|can't|unable to) (?:find|open|access|locate|stat)",
    "OSError": r"no space left|oserror|ioerror|errno|os error|i/o|no such device",
    "TypeError": r"typeerror|argument|\btype",
    "NameError": r"nameerror|not defined|unboundlocal|referenced before",
    "PermissionError": r"permission|denied|errno 13\b|not permitted|eacces|forbidden",
    "ImportError": r"import|no module|modulenotfound|undefined symbol|shared object|\.so\b|glibc|librar|cannot open",
    "KeyError": r"keyerror|\bkey\b",
    "SyntaxError": r"syntax|indent|taberror|unterminated|was never closed",
    "ArgumentError": r"argument|command not found|usage:|unrecognized|\boption|\bflag|invalid choice|required|--\w",
    "CalledProcessError": r"calledprocess|not found|未找到|code \d|exit (?:status|code)|non-?zero|subprocess|command|"
    r"returned",
    "IndexError": r"indexerror|\bindex|out of (?:range|bounds)",
    "UnicodeDecodeError": r"unicode|codec|decod|utf-?8",
    "JSONDecodeError": r"json|expecting|delimiter|extra data",
    "ConfigurationError": r"config|setting|invalid|must|divisible|unsupported|not support|incompatib|should|parameter|"
    r"world.?size|\boption|yaml|hydra|omegaconf|requires?\b|expected|batch.?size|environment variable|not set|unknown|"
    r"does not match|cannot be|interface",
    "AddressInUse": r"address|in use|eaddrinuse|\bbind",
    "AuthenticationError": r"auth|token|\b40[13]\b|gated|log ?in|credential|api.?key|access|forbidden|kerberos|ticket",
    "QuotaExceeded": r"quota|edquot|errno 122\b|exceed",
}
_FILLERS = "with that from this when nothing more known error errors other than cannot their only"


_STATED: Final[Mapping[str, str]] = {
    "RuntimeError": r"(?:Error|Exception)\b(?=:)",  # what nothing more telling is known of
    "NCCLTimeoutError": r"[Ww]atchdog|[Tt]ime[ds]?.?[Oo]ut",
    "CollectiveHang": r"[Ww]atchdog|[Tt]ime[ds]?.?out|\bhung\b|blocked for more",
}


# What follows is what a program thinks that it may have been: all of it at once, whatever it was.
_SUPPOSED: Final = re.compile(
    r"\b(?:potential|possible|probable|likely|common|typical) (?:root[ -])?(?:cause|reason|explanation)s?\b.*",
    re.IGNORECASE,
)


def told(text: str) -> str:
    """A line without what its writer only supposes."""
    return _SUPPOSED.sub("", text)


def stated(entry: ErrorType) -> re.Pattern[str] | None:
    """What says in so many words that this is how the job ended, though it is no cause: any line may."""
    if entry.name in _STATED:
        return re.compile(_STATED[entry.name])
    if entry.family in ("framework", "script", "data") and entry.name.endswith("Error"):
        return re.compile(rf"\b{re.escape(entry.name)}\b(?=:|$)")
    return None


def telling(entry: ErrorType) -> re.Pattern[str]:
    """What lines that prove this type match; a type of a site's own is known by the words of its name and meaning."""
    known = _WORDS.get(entry.name)
    if known is None:
        parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", entry.name)
        words = {word.lower() for word in (*parts, *re.findall(r"[A-Za-z]{4,}", entry.meaning))} - set(_FILLERS.split())
        known = "|".join(sorted(map(re.escape, words))) or re.escape(entry.name)
    return re.compile(known, re.IGNORECASE | re.MULTILINE)
