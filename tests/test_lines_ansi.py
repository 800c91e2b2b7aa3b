"""Text of raw lines: many together are what each is alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diagnose.lines.ansi import decode, decode_all

PIECES = [
    b"step 7", b"\t", b"\x1b[31m", b"[0m", b"[39m", b"#033[1m", b"\xe6\xad\xa5", b"\xe6\xad", b"\xff", b"\xc2", b"\x80",
    "\u2028".encode(), "\u202e".encode(), "\ufeff".encode(), b"\x85", "\x85".encode(), b"\x0b", b"\x1c", b"\r", b" ", b"",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join), max_size=6))
def test_lines_together_are_what_each_is_alone(raws: list[bytes]) -> None:
    assert decode_all(raws) == [decode(raw) for raw in raws]


@given(st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"")), max_size=6))
def test_bytes_of_any_kind_are_as_well(raws: list[bytes]) -> None:
    assert decode_all(raws) == [decode(raw) for raw in raws]


def test_what_needs_no_cleaning_is_given_as_it_is() -> None:
    assert decode_all([b"a [b]", b"", b"caf\xc3\xa9"]) == ["a [b]", "", "café"]
    assert decode_all([]) == []
    assert decode_all([b"two\nlines", b"one"]) == [decode(b"two\nlines"), "one"]
