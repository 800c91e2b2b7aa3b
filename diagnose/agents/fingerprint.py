"""Which jobs print alike: what the head of a log says of image and framework, and the job's name without numbers.

In: what is known of the job, the first lines of its logs. Out: its `Fingerprint`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from diagnose.models.learning import Fingerprint
from diagnose.models.memory import JobContext
from diagnose.patterns import Lazy

HEAD_BYTES: Final = 256 * 1024
_CHARS: Final = 120
_IMAGE: Final = Lazy(
    rb"(?:\b[Ii]mage(?: ID)?[:=]\s{0,8}|docker://|importing docker image: ?|--container-image[= ]|Pulling image \")"
    rb"\"?([A-Za-z0-9][\w.-]{0,80}(?::\d{1,5})?(?:[/#][\w./-]{1,160}){0,4}(?::[\w.-]{1,80})?)"
)
_FRAMEWORKS: Final[Sequence[tuple[bytes, str]]] = (
    (b"megatron", "megatron"), (b"deepspeed", "deepspeed"), (b"[nemo ", "nemo"), (b"nemo_logger", "nemo"),
    (b"pytorch_lightning", "lightning"), (b"lightning.pytorch", "lightning"), (b"torchtitan", "torchtitan"),
    (b"[titan]", "torchtitan"), (b"internevo", "internevo"), (b"internlm", "internevo"), (b"mmengine", "mmengine"),
    (b"composer", "composer"), (b"colossalai", "colossalai"), (b"transformers", "transformers"), (b"jax", "jax"),
    (b"tensorflow", "tensorflow"), (b"horovod", "horovod"), (b"vllm", "vllm"), (b"(pid=", "ray"), (b"torch", "torch"),
)  # fmt: skip


class Sniffer:
    """Learns a job's fingerprint from what its logs begin with."""

    def __init__(self, context: JobContext) -> None:
        self._name = plain_name(context.name)
        self._image = context.image
        self._found: dict[str, int] = {}
        self._left = HEAD_BYTES

    def source(self, name: str) -> None:
        """Take the name of a source where the job's own is not known."""
        if not self._name:
            self._name = plain_name(os.path.basename(name).partition(".")[0])

    def lines(self, lines: Sequence[bytes]) -> None:
        """Take some of the first lines."""
        if self._left <= 0:
            return
        head = b"\n".join(lines)[: self._left]
        self._left -= len(head)
        if not self._image and (found := _IMAGE.search(head)):
            self._image = found[1].decode("ascii", "replace")
        lowered = head.lower()
        for word, name in _FRAMEWORKS:
            if count := lowered.count(word):
                self._found[name] = self._found.get(name, 0) + count

    @property
    def fingerprint(self) -> Fingerprint:
        """What is known so far. Of several frameworks the first of the list counts: torch is in all of them."""
        names = [name for _, name in _FRAMEWORKS if name in self._found]
        return Fingerprint(self._name[:_CHARS], self._image[:_CHARS], names[0] if names else "")


def plain_name(name: str) -> str:
    """A job's name without what another run of it would call otherwise."""
    return re.sub(r"[0-9]+", "0", "".join(char for char in name if char.isprintable()))[:_CHARS]
