"""An embeddings endpoint, asked over the wire: true requests, and every way in which a server may fail."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("llama_index.embeddings.openai")

import numpy as np

from diagnose.errors import UsageError
from diagnose.redaction import load_redactions
from diagnose.store.embeddings import Endpoint
from diagnose.store.opening import embedder_of, index_settings, open_index
from diagnose.store.patience import within
from tests.modelserver import Asked, ModelServer, Reply, model_server, refused
from tests.remembered import Remembered

pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.filterwarnings("ignore")]
KEY = "sk-" + "q7Zt" * 9


def vector(text: str, size: int = 8) -> list[float]:
    """A vector of its letters."""
    row = [0.01] * size
    for letter in text.lower():
        row[ord(letter) % size] += 1.0
    return row


def embeddings(asked: Asked, *, size: int = 8, count: int | None = None) -> Reply:
    """What OpenAI answers: numbers, or their bytes in base64 where those were asked for."""
    given = asked.body["input"]
    texts = [given] if isinstance(given, str) else given
    rows = [vector(text, size) for text in texts][:count]
    as_bytes = asked.body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(struct.pack(f"<{size}f", *row)).decode() if as_bytes else row,
        }
        for index, row in enumerate(rows)
    ]
    body = {
        "object": "list",
        "data": data,
        "model": asked.body["model"],
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    return Reply(json.dumps(body).encode(), headers={"Content-Type": "application/json"})


@contextlib.contextmanager
def endpoint(script: object, seconds: float = 5.0) -> Iterator[tuple[Endpoint, ModelServer]]:
    with model_server(script) as server:  # type: ignore[arg-type]
        made = Endpoint(server.url, "bge-small", KEY, seconds=seconds)
        try:
            yield made, server
        finally:
            made.close()


def test_what_goes_over_the_wire_and_what_comes_back() -> None:
    with endpoint(embeddings) as (made, server):
        rows = made.embed(["disk full", "nan", "disk full"])
        assert rows.shape == (3, 8)
        assert rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
        assert np.allclose(rows[0], rows[2])
        assert np.allclose(rows[1], np.array(vector("nan")) / np.linalg.norm(vector("nan")))
        assert made.dimensions == 8
        assert made.embed([]).shape == (0, 8)
        (asked,) = server.asked
        assert asked.head.startswith("POST /v1/embeddings HTTP/1.1")
        assert f"authorization: bearer {KEY}".lower() in asked.head.lower()
        assert asked.body["model"] == "bge-small"
        assert asked.body["input"] == ["disk full", "nan", "disk full"]


def test_what_is_asked_for_is_not_compressed() -> None:
    with endpoint(embeddings) as (made, server):
        made.embed(["disk full"])
        assert "accept-encoding: identity" in server.asked[0].head.lower()


def test_many_texts_go_in_batches() -> None:
    with endpoint(embeddings) as (made, server):
        assert made.embed([f"text {'abc'[n % 3]}" for n in range(250)]).shape == (250, 8)
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (lambda _: refused(500, f"boom {KEY}"), "does not answer: InternalServerError, HTTP 500"),
        (lambda _: refused(401, f"wrong key {KEY}"), "does not answer: AuthenticationError, HTTP 401"),
        (lambda _: refused(404, "no such model"), "does not answer: NotFoundError, HTTP 404"),
        (lambda _: Reply(b"", 302, {"Location": "http://127.0.0.1:9/v1/embeddings"}), "does not answer"),
        (lambda _: Reply(b"<html>", headers={"Content-Type": "text/html"}), "embeddings endpoint"),
        (lambda _: Reply(b'{"data": 7}', headers={"Content-Type": "application/json"}), "embeddings endpoint"),
        (lambda _: Reply(b"not http at all\r\n\r\n", raw=True), "does not answer"),
        (lambda _: Reply(b"", raw=True), "does not answer"),
        (lambda _: Reply(b"{}", headers={"Content-Length": str(10**12)}), "does not answer"),
        (lambda _: Reply(gzip.compress(bytes(10**6)), headers={"Content-Encoding": "gzip"}), "does not answer"),
        (lambda _: Reply(zlib.compress(bytes(10**6)), 400, {"Content-Type": "x; charset=zlib"}), "HTTP 400"),
        (lambda asked: embeddings(asked, count=1), "no list of vectors"),
        (lambda asked: embeddings(asked, count=0), "embeddings endpoint"),
    ],
)
def test_a_server_that_does_not_serve_is_told_in_one_line(script, message) -> None:
    with endpoint(script) as (made, _), pytest.raises(UsageError, match=message) as caught:
        made.embed(["one", "other"])
    said = str(caught.value)
    assert KEY not in said
    assert "\n" not in said
    assert "bge-small at http://127.0.0.1" in said
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("odd", ["NaN", "1e39", '"x"', "null"])
def test_rows_that_are_no_vectors_are_refused(odd: str) -> None:
    def script(asked: Asked) -> Reply:
        rows = ", ".join(
            f'{{"object": "embedding", "index": {n}, "embedding": [1.0, {value}]}}'
            for n, value in enumerate([odd, "2"])
        )
        body = (
            f'{{"object": "list", "data": [{rows}], "model": "m", "usage": {{"prompt_tokens": 1, "total_tokens": 1}}}}'
        )
        return Reply(body.encode(), headers={"Content-Type": "application/json"})

    with endpoint(script) as (made, _), pytest.raises(UsageError, match="embeddings endpoint"):
        made.embed(["one", "other"])


def test_vectors_of_another_length_than_before_are_refused() -> None:
    sizes = iter([8, 12, 12])
    with endpoint(lambda asked: embeddings(asked, size=next(sizes))) as (made, _):
        made.embed(["one"])
        with pytest.raises(UsageError, match="vectors of 12 values, before with 8"):
            made.embed(["other"])


def test_a_hung_server_and_one_that_drips_are_given_up() -> None:
    released = threading.Event()

    def hang(asked: Asked) -> Reply:
        released.wait(20)
        return embeddings(asked)

    def drip(asked: Asked) -> Reply:
        def pieces() -> Iterator[bytes]:
            for _ in range(200):
                yield b" "
                if released.wait(0.1):
                    return

        return Reply(pieces(), headers={"Content-Type": "application/json"})

    for script in (hang, drip):
        released.clear()
        with endpoint(script, seconds=0.4) as (made, _):
            with pytest.raises(UsageError, match=r"does not answer: (TimeoutError|APITimeoutError)"):
                made.embed(["one"])
            released.set()


def test_an_index_by_an_endpoint_sees_redacted_texts_only(tmp_path: Path) -> None:
    memory = Remembered()
    secret = "ghp_" + "Ab1" * 12
    memory.put("disk", "DiskFull", f"OSError: [Errno 28] No space left on device: /home/alice/x token {secret}")
    memory.put("oom", "OutOfMemoryError", "torch.OutOfMemoryError: CUDA out of memory")
    key = tmp_path / "key"
    key.write_text(KEY + "\n")
    with model_server(embeddings) as server:
        settings = index_settings(
            {
                "DIAGNOSE_EMBEDDINGS_URL": server.url,
                "DIAGNOSE_EMBEDDINGS_MODEL": "bge-small",
                "DIAGNOSE_EMBEDDINGS_API_KEY_FILE": str(key),
                "DIAGNOSE_VECTORS": "numpy",
            },
            str(tmp_path / "memory.sqlite3"),
        )
        index = open_index(settings, memory, load_redactions())
        assert index.sync() == 2
        found = index.similar(f"OSError: [Errno 28] No space left on device: /home/alice/y token {secret}")
        assert found[0].id == "disk"
        assert len(server.asked) >= 2
        assert secret.encode() not in server.wire
        assert b"alice" not in server.wire
        index.close()
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            if name != "key":
                assert KEY.encode() not in Path(folder, name).read_bytes()


@pytest.mark.parametrize("backend", ["numpy", "chroma"])
def test_another_model_under_the_same_name(tmp_path: Path, backend: str) -> None:
    """Its vectors do not compare with those of the index: words still find, and Chroma's refusal is told."""
    if backend == "chroma":
        pytest.importorskip("chromadb")
    memory = Remembered()
    memory.put("disk", "DiskFull", "OSError: [Errno 28] No space left on device")
    size = 8
    with model_server(lambda asked: embeddings(asked, size=size)) as server:
        named = {"DIAGNOSE_EMBEDDINGS_URL": server.url, "DIAGNOSE_EMBEDDINGS_MODEL": "m", "DIAGNOSE_VECTORS": backend}
        settings = index_settings(named, str(tmp_path / "memory.sqlite3"))
        index = open_index(settings, memory, ())
        index.sync()
        index.close()
        size = 12
        memory.put("oom", "OutOfMemoryError", "torch.OutOfMemoryError: CUDA out of memory")
        index = open_index(settings, memory, ())
        if backend == "chroma":
            with pytest.raises(UsageError, match="the vector store refused the vectors"):
                index.sync()
        else:
            assert index.sync() == 1
            assert index.similar("OSError: [Errno 28] No space left on device")[0].id == "disk"
        index.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x/v1", "is no address"),
        ("http://", "is no address"),
        ("http://x:port/v1", "is no address"),
        ("http://x/\x1b[2J", "is no address"),
        (f"http://bob:{KEY}@x/v1", "holds more than an address"),
        (f"http://x/v1?key={KEY}", "holds more than an address"),
    ],
)
def test_addresses_that_are_none_or_hold_a_key_are_refused(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        index_settings({"DIAGNOSE_EMBEDDINGS_URL": url, "DIAGNOSE_EMBEDDINGS_MODEL": "m"}, "memory.sqlite3")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("chroma:8000", "is no address"),
        ("http://[::1/", "is no address"),
        ("http://x:99999", "is no address"),
        (f"http://bob:{KEY}@x:8000", "holds more than an address.*DIAGNOSE_CHROMA_TOKEN_FILE"),
    ],
)
def test_addresses_of_chroma_likewise(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"DIAGNOSE_CHROMA_URL {message}") as caught:
        index_settings({"DIAGNOSE_CHROMA_URL": url}, "memory.sqlite3")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("name", ["DIAGNOSE_EMBEDDINGS_API_KEY_FILE", "DIAGNOSE_CHROMA_TOKEN_FILE"])
@pytest.mark.parametrize("given", [KEY, f"/none/{KEY}", KEY * 1_000, f"{KEY}\0", f"\udcff{KEY}"])
def test_a_key_file_that_cannot_be_read_is_told_by_its_settings_name(name: str, given: str) -> None:
    endpoint = {"DIAGNOSE_EMBEDDINGS_URL": "http://127.0.0.1:9/v1", "DIAGNOSE_EMBEDDINGS_MODEL": "m"}
    with pytest.raises(UsageError, match=f"the file of {name} cannot be read: .*; give the path") as caught:
        embedder_of(index_settings({**endpoint, name: given}, "memory.sqlite3"))
    assert KEY not in str(caught.value)  # some put the key itself there


def test_a_key_file_without_a_key_is_told(tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_text(f"{KEY}\nand more\n")
    with pytest.raises(UsageError, match="the file of DIAGNOSE_CHROMA_TOKEN_FILE holds no key") as caught:
        index_settings({"DIAGNOSE_CHROMA_TOKEN_FILE": str(place)}, "memory.sqlite3")
    assert KEY not in str(caught.value)


def test_an_index_whose_name_is_no_text_is_one(tmp_path: Path) -> None:
    memory = Remembered()
    memory.put("oom", "OutOfMemoryError", "torch.OutOfMemoryError: CUDA out of memory")
    given = {"DIAGNOSE_INDEX": f"{tmp_path}/\udcff", "DIAGNOSE_VECTORS": "numpy", "DIAGNOSE_EMBEDDINGS": "hashed"}
    with contextlib.closing(open_index(index_settings(given, "memory.sqlite3"), memory, ())) as index:
        assert index.sync() == 1
        assert index.similar("torch.OutOfMemoryError: CUDA out of memory")[0].id == "oom"


def test_patience() -> None:
    assert within(5.0, lambda: 7) == 7
    with pytest.raises(KeyError):
        within(5.0, lambda: {}["x"])
    gate = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.05, gate.wait)
    gate.set()


def test_a_chroma_server_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers the first question and no other: Chroma's own client would wait for ever."""
    pytest.importorskip("chromadb")
    from diagnose.store import vectors

    monkeypatch.setattr(vectors, "_SECONDS", 0.3)
    listening = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            held.append(connection)
            if b"/heartbeat" in connection.recv(4096):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with pytest.raises(UsageError, match=r"no Chroma server answers at 127\.0\.0\.1:\d+ \(TimeoutError\)"):
        vectors.server_client(f"http://127.0.0.1:{listening.getsockname()[1]}")
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    for each in held:
        each.close()
    thread.join(5)
