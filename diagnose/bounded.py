"""What is taken of a stranger's answer: so many bytes, as they are, read as UTF-8.

In: a limit. Out: a hook for the responses of an HTTP client (httpx), which raises `Refused` where an answer is more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Refused(Exception):
    """The server sent what is not taken: too much, or compressed."""


def bounded(most: int) -> Callable[[Any], None]:
    """A hook that lets an answer of at most so many bytes pass, none that is compressed."""

    def limit(response: Any) -> None:
        import httpx

        # Whoever reads this as text would look up the server's word for an encoding: some unpack a bomb, others take
        # hours for a megabyte.
        response.encoding = "utf-8"
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise Refused("a compressed answer, which was not asked for")
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and (len(declared) > 15 or int(declared) > most):
            raise Refused(f"an answer of more than {most} bytes")
        whole = response.stream

        class Bounded(httpx.SyncByteStream):
            """The body, up to the limit."""

            def __iter__(self) -> Iterator[bytes]:
                read = 0
                for chunk in whole:
                    read += len(chunk)
                    if read > most:
                        raise Refused(f"an answer of more than {most} bytes")
                    yield chunk

            def close(self) -> None:
                whole.close()

        response.stream = Bounded()

    return limit
