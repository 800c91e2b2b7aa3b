"""Facts of a run that may differ from its last good attempt: what the lines of its start say.

In: lines in the order of reading. Out: `Facts`: arguments, environment, packages, image, driver, nodes by kind and
name, and the templates of all lines with where each was first seen. Bounded: facts are looked for among the first lines
of each source, and of everything no more than a fixed number is held. Values that hold secrets are masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Final

from diagnose.dataclass import dataclass, field
from diagnose.models import Line
from diagnose.patterns import Lazy

KINDS: Final = ("arguments", "environment", "packages", "image", "driver", "nodes")
_SOURCES = 512
_LINES = 4_000  # of each source, in which facts are looked for
_FACTS = 2_000
_VALUES = 16  # of one name: what ranks differ in is no fact of the run
_TEMPLATES = 8_192
_TEXT, _VALUE, _SHOWN = 4_000, 200, 160
_BEGINNING = 12  # lines of each source that tell runs apart

# Nothing is looked for in lines without one of these.
_SIGNS = (
    "==", "ersion", "river", " set by environment to ", "export ", "mage", "Namespace(", " --", " ....",
    "Kernel Module", "NCCL_", "CUDA_", "TORCH_", "OMP_",
)  # fmt: skip
_PACKAGE = (
    r"torch|pytorch|torchvision|torchaudio|transformers|deepspeed|megatron[-_]?\w{0,12}|flash[-_]attn|apex|"
    r"transformer[-_]engine|lightning|pytorch[-_]lightning|accelerate|datasets|numpy|jax|jaxlib|tensorflow|nemo|vllm|"
    r"xformers|triton|bitsandbytes|peft|trl|ray|composer|cudnn|cuda|rocm|nccl|rccl|python|mpi|openmpi|ucx"
)
_FROZEN = Lazy(r"(?:\A|\s)([A-Za-z][\w.-]{1,60})==(\d[\w.+!-]{0,40})")
_STATED = Lazy(
    rf"(?<![\w/.-])({_PACKAGE})(?:[ _]version)?\s{{0,3}}(?:is |[:= ]\s{{0,8}})v?(\d+\.\d+[\w.+-]{{0,30}})",
    re.IGNORECASE,
)
_DRIVER = Lazy(
    r"(?:[Dd]river [Vv]ersion:?|Kernel Module(?: for \w{1,12})?|NVRM version:.{0,60}Module)\s{1,8}"
    r"(\d{3}\.\d{1,4}(?:\.\d{1,4})?)"
)
_VARIABLE = Lazy(
    r"(?:\A\+{0,3}\s{0,8}|\bexport\s{1,4}|\bdeclare -x\s{1,4})((?:NCCL|RCCL|CUDA|TORCH|PYTORCH|OMP|UCX|FI|MKL|HF|"
    r"TRANSFORMERS|TOKENIZERS|XLA|JAX|NVTE|GLOO|RAY|DS|MEGATRON|HSA|MIOPEN|NVSHMEM|PYTHON|LD|TRITON|OMPI)_[A-Z0-9_]{1,60})"
    r"=([^\s;]{1,400})"
)
_BY_NCCL = Lazy(r"\b(NCCL_[A-Z0-9_]{1,60}) set by environment to (\S{1,200}?)\.?(?:\s|\Z)")
_IMAGE = Lazy(
    r"(?:--container-image[= ]|[Pp]ulling image |[Ii]mporting docker image: |\b[Ii]mage(?: ID)?:\s{1,16})[\"']?"
    r"([\w.-]{1,100}[/:@][\w./:@+#-]{1,300})"
)
_DOTTED = Lazy(r"\A\s{0,8}([a-z]\w{1,60}) \.{3,80} (.{0,200}?)\s{0,8}\Z")
_NAMESPACE = Lazy(r"\bNamespace\((.{1,3900})\)")
_ASSIGNED = Lazy(r"(\w{1,60})=('[^']{0,200}'|\"[^\"]{0,200}\"|\[[^\]]{0,200}\]|[^,()]{1,200})")
_COMMAND = Lazy(
    r"\A(?:[+$#>]{1,3} |.{0,40}\b(?:[Cc]ommand|cmd)\b\W{1,6})?(?:\S{0,200}/)?"
    r"(?:torchrun|python[\d.]{0,5}|deepspeed|accelerate|srun|mpirun|horovodrun|ray|lightning)\b(.{1,3900})"
)
_FLAG = Lazy(
    r"(?<!\S)--?([A-Za-z][\w.-]{0,60})(?:=|\s{1,4}(?!-{1,2}[A-Za-z]))?(\"[^\"]{0,200}\"|'[^']{0,200}'|\S{1,200})?"
)
# What is another in every run says nothing.
_PER_RUN = Lazy(
    r"(?:\A|_)(?:rank|local_rank|node_rank|world_rank|master_port|master_addr|port|rdzv_id|rdzv_endpoint|job_?id|run_?id|"
    r"pid|hostname|nodelist|addr|address|endpoint|visible_devices|time|date|timestamp|uuid|ifname_.*|process_id)\Z",
    re.IGNORECASE,
)
_FIGURE = Lazy(r"0x[0-9a-fA-F]{1,16}|\b[0-9a-f]{7,64}\b|\d+(?:\.\d+)?")
_PATH = Lazy(r"(?:/[\w.@+=~-]{1,100}){2,40}")
_OWN = frozenset({"job", "launcher"})  # kinds of sources that are one run's own


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a template was first seen."""

    order: int
    source: str
    number: int
    text: str
    time: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a run: by kind and name the values, sorted; templates by their digest."""

    by_kind: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    templates: Mapping[bytes, Seen] = field(default_factory=dict)


class FactReader:
    """Reads facts from the lines of one run. `hide` masks secrets."""

    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide
        self._facts: dict[str, dict[str, dict[str, None]]] = {kind: {} for kind in KINDS}
        self._count = 0
        self._read: dict[str, int] = {}
        self._beginning: dict[str, list[str]] = {}
        self._timed: dict[str, str] = {}
        self._templates: dict[bytes, Seen] = {}
        self._digests: dict[str, bytes] = {}
        self._order = 0

    def observe(self, line: Line) -> None:
        """Takes a line."""
        source = line.source.name
        read = self._read.get(source)
        if read is None:
            if len(self._read) >= _SOURCES:
                return
            read = 0
            self._beginning[source] = []
        self._read[source] = read + 1
        if line.source.kind in _OWN:
            self._begin(source, line)
        self._order += 1
        if line.source.kind in _OWN and not line.quoted:
            self._template(line)
        if read < _LINES and self._count < _FACTS and any(sign in line.text for sign in _SIGNS):
            for kind, name, value in facts_of(line.body[:_TEXT]):
                self._add(kind, name, value)

    def _begin(self, source: str, line: Line) -> None:
        """Remembers how a source begins: what a log that grows keeps, and no other run's has."""
        first = self._beginning[source]
        if line.time is not None and source not in self._timed:
            self._timed[source] = line.text[:_SHOWN]
        elif line.progress is None and len(first) < _BEGINNING:
            first.append(line.text[:_SHOWN])

    def add(self, kind: str, name: str, value: str) -> None:
        """Takes a fact that is known otherwise, such as the image that was named on the command line."""
        self._add(kind, name, value)

    def _add(self, kind: str, name: str, value: str) -> None:
        if _PER_RUN.search(name):
            return
        values = self._facts[kind].setdefault(name[:_VALUE], {})
        shown = self._hide(f"{name}={value}"[: 2 * _VALUE]).partition("=")[2][:_VALUE]
        if shown not in values and len(values) <= _VALUES:
            values[shown] = None
            self._count += 1

    def _template(self, line: Line) -> None:
        text = line.body[:_SHOWN]
        known = self._digests.get(text)
        if known is None:
            known = digest_of(text)
            if len(self._digests) < _TEMPLATES:
                self._digests[text] = known
        if known not in self._templates and len(self._templates) < _TEMPLATES:
            self._templates[known] = Seen(self._order, line.source.name, line.number, self._hide(text), line.time)

    @property
    def beginning(self) -> str:
        """What tells this run's logs from those of other runs, however much they have grown since.

        The first line with a time; of logs without times the first lines.
        """
        digest = blake2b(digest_size=16)
        told = [self._timed.get(name) or "\n".join(lines) for name, lines in self._beginning.items()]
        for lines in sorted(told):
            digest.update(lines.encode("utf-8", "backslashreplace") + b"\0")
        return digest.hexdigest()

    def facts(self) -> Facts:
        """What is known now. What the ranks differ in is left out."""
        by_kind = {
            kind: {name: tuple(sorted(values)) for name, values in names.items() if len(values) <= _VALUES}
            for kind, names in self._facts.items()
        }
        return Facts(by_kind, self._templates)


def facts_of(text: str) -> Iterator[tuple[str, str, str]]:
    """The facts that one line states: kind, name, value."""
    if "==" in text:
        yield from (("packages", found[1].lower(), found[2]) for found in _FROZEN.finditer(text))
    if "ersion" in text or ": " in text:
        for found in _DRIVER.finditer(text):
            yield "driver", "driver", found[1]
        for found in _STATED.finditer(text):
            yield "packages", found[1].lower().replace("pytorch", "torch"), found[2].rstrip(".-")
    elif "Kernel Module" in text:
        yield from (("driver", "driver", found[1]) for found in _DRIVER.finditer(text))
    if "_" in text:
        yield from (("environment", found[1], found[2].strip("\"'")) for found in _VARIABLE.finditer(text))
        yield from (("environment", found[1], found[2]) for found in _BY_NCCL.finditer(text))
    if "mage" in text:
        yield from (("image", "image", found[1]) for found in _IMAGE.finditer(text))
    if (dotted := _DOTTED.match(text)) is not None:
        yield "arguments", dotted[1], dotted[2]
    elif (namespace := _NAMESPACE.search(text)) is not None:
        yield from (("arguments", found[1], found[2].strip("\"' ")) for found in _ASSIGNED.finditer(namespace[1]))
    elif " -" in text and (command := _COMMAND.match(text)) is not None:
        for found in _FLAG.finditer(command[1]):
            yield "arguments", found[1].replace("-", "_"), (found[2] or "").strip("\"'")


def digest_of(text: str) -> bytes:
    """A template as eight bytes: the text with figures and paths masked."""
    masked = _FIGURE.sub("0", _PATH.sub("/", text))
    return blake2b(masked.strip().encode("utf-8", "backslashreplace"), digest_size=8).digest()


def packed(facts: Facts) -> bytes:
    """The digests of a run's templates, one after another."""
    return b"".join(facts.templates)


def unpacked(digests: bytes) -> set[bytes]:
    """The digests that `packed` put together."""
    return {digests[start : start + 8] for start in range(0, len(digests), 8)}
