"""Any bytes, as files and as archives: never another error than the project's own, never more than the limits."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile

import pytest
from backports import zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.errors import DiagnoseError, SourceError, UsageError
from diagnose.settings import Limits
from diagnose.sources import collect, load_inventory
from diagnose.sources.names import facts_of
from diagnose.sources.printable import printable
from diagnose.sources.settle import named, settle
from diagnose.sources.streams import file_origin

LIMITS = Limits(block_bytes=4096, expanded_bytes=2_000_000, archive_members=50, structured_bytes=100_000)
EXAMPLES = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXT = st.lists(
    st.sampled_from([b"step 1\n", b"\0", b"\r", b"\xff\xfe", b"kernel: ", b"{", b"a\0", b"\x80\x04", b"\x1b["])
).map(b"".join)
ANY = st.one_of(st.binary(max_size=600), TEXT)


def tarred(data, name="x.log"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.log", data)
    return out.getvalue()


PACKED = st.recursive(
    ANY,
    lambda inner: st.builds(
        lambda pack, data: pack(data),
        st.sampled_from([gzip.compress, bz2.compress, lzma.compress, zstd.compress, tarred, zipped]),
        inner,
    ),
    max_leaves=4,
)


@st.composite
def damaged(draw):
    """Packed bytes with some of them changed, cut off or repeated."""
    data = bytearray(draw(PACKED))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        how = draw(st.sampled_from("fcrz"))
        if how == "f":
            data[at] = draw(st.integers(0, 255))
        elif how == "c":
            del data[at:]
        elif how == "r":
            data += data[at : at + 600]
        else:
            data[at : at + 8] = b"7" * 8
    return bytes(data)


def read_all(paths, **more):
    try:
        found = collect(paths, limits=LIMITS, **more)
    except SourceError:
        return
    for said in found.not_read:
        assert said.isprintable()
    for item in found.inputs:
        assert item.source.name.isprintable()
        total = 0
        try:
            for block in item.blocks():
                assert 0 < len(block) <= 2 * LIMITS.block_bytes
                total += len(block)
        except DiagnoseError:
            pass
        assert total < 4_000_000


@EXAMPLES
@given(damaged())
def test_any_bytes_as_a_file_and_as_stdin(tmp_path, data):
    path = tmp_path / "f"
    path.write_bytes(data)
    read_all([str(path)])
    read_all(["-"], stdin=io.BytesIO(data))


@EXAMPLES
@given(
    st.binary(min_size=1, max_size=40).filter(
        lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
    )
)
def test_any_file_name(tmp_path, name):
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as file:
        file.write(b"step 1\n")
    try:
        read_all([str(tmp_path)])
        read_all([os.fsdecode(path)])
    finally:
        os.remove(path)


@EXAMPLES
@given(st.text(max_size=80))
def test_any_name_gives_facts(text):
    facts_of(text)
    assert printable(text).isprintable()


WORDS = st.sampled_from(
    ["rank", "7", "0", "-", "_", "/", ".log", "gx-04", "attempt_1", "slurm", "123456", ".err", "node-01", "!"]
)


@EXAMPLES
@given(st.lists(st.lists(WORDS, max_size=7).map("".join), max_size=8), st.permutations(range(8)))
def test_settling_does_not_depend_on_order(names, order):
    inputs = [named(name, "job", facts_of(name), b"gx-04 [rank7]: x") for name in dict.fromkeys(names)]
    shuffled = [inputs[index] for index in order if index < len(inputs)]
    assert {source.name: source for source in settle(inputs)} == {source.name: source for source in settle(shuffled)}


@EXAMPLES
@given(
    st.one_of(ANY, st.text(alphabet="[]{}-:,\n ranks0h|&*a!<\t\"'", max_size=200).map(str.encode)),
    st.sampled_from(["", ".csv", ".yaml", ".json"]),
)
def test_any_inventory(tmp_path, data, extension):
    path = tmp_path / f"inventory{extension}"
    path.write_bytes(data)
    with contextlib.suppress(UsageError):
        load_inventory(str(path), LIMITS)


def test_deep_nesting_is_an_error(tmp_path):
    for extension, text in (
        (".json", "[" * 90_000),
        (".yaml", "[" * 90_000),
        (".yaml", "- " * 40_000),
        (".yaml", "".join(" " * n + "a:\n" for n in range(400))),
        (".yaml", "? " * 40_000),
        (".yaml", "a: &a [1]\nb: &b [*a,*a,*a]\n"),
    ):
        path = tmp_path / f"i{extension}"
        path.write_text(text)
        try:
            load_inventory(str(path), LIMITS)
        except UsageError:
            continue
        raise AssertionError(text[:20])


def test_a_zip_member_without_a_name_is_told(tmp_path):
    local = b"PK\x03\x04" + struct.pack("<5H3I2H", 20, *[0] * 9)
    central = b"PK\x01\x02" + struct.pack("<6H3I5H2I", 20, 20, *[0] * 14)
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, len(central), len(local), 0)
    path = tmp_path / "logs.zip"
    path.write_bytes(local + central + end)
    with pytest.raises(SourceError, match="without a name"):
        collect([str(path)], limits=LIMITS)


@pytest.mark.parametrize("swapped", ["file", "folder"])
@pytest.mark.parametrize("proc", [True, False])
def test_what_leads_elsewhere_by_the_time_it_is_opened_is_not_read(tmp_path, monkeypatch, swapped, proc):
    """Judged while it lay below the root, replaced by a link before it was opened: what is open is judged once more."""
    root, job, elsewhere = tmp_path / "root", tmp_path / "root" / "job", tmp_path / "elsewhere"
    for folder, text in ((job, "step 1\n"), (elsewhere, "secret\n")):
        folder.mkdir(parents=True)
        (folder / "a.log").write_text(text)
    if not proc:  # as on a system without /proc

        def gone(_path):
            raise FileNotFoundError

        monkeypatch.setattr("diagnose.sources.confine.os.readlink", gone)
    path = str(job / "a.log")
    origin = file_origin(path, "a.log", 7, roots=(str(root.resolve()),))
    with origin.open() as stream:
        assert stream.read(7) == b"step 1\n"
    if swapped == "file":
        (job / "a.log").unlink()
        (job / "a.log").symlink_to(elsewhere / "a.log")
    else:
        job.rename(root / "old")
        job.symlink_to(elsewhere)
    with pytest.raises(SourceError, match="outside the folders"):
        origin.open()
