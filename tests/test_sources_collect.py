"""What is read, under which name, as what; and what is not, in words."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import json
import lzma
import os
import re
import socket
import struct
import sys
import tarfile
import threading
import tracemalloc
import zipfile
from dataclasses import replace

import pytest
from backports import zstd

from diagnose.errors import LimitExceeded, SourceError
from diagnose.settings import Limits
from diagnose.sources import collect
from diagnose.sources.streams import Spool

LIMITS = Limits()
LOG = b"step 1 loss 2.0\nstep 2 loss 1.9\n"
KERNEL = b"Mar  2 17:20:37 lx-08 systemd[830]: Finished Rotate.\nMar  2 17:21:16 lx-08 kernel: [1790476.8] x: y\n" * 3


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, data=LOG):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def read(source_set):
    return {item.source.name: b"".join(item.blocks()) for item in source_set.inputs}


def until_error(source_set):
    """Return what the first input gives, and the error that ends it."""
    good = b""
    try:
        for block in source_set.inputs[0].blocks():
            good += block
    except SourceError as error:
        return good, error
    return good, None


def sources(*paths, limits=LIMITS, **more):
    return {item.source.name: item.source for item in collect(paths, limits=limits, **more).inputs}


def tar(members, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


PACKERS = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": lambda d: bz2.compress(d, 1),
    "zst": zstd.compress,
    "lzma": lambda d: d,
}


# Which files


def test_folder_is_walked_in_natural_order_and_arguments_do_not_matter():
    for rank in (10, 9, 2):
        write(f"logs/rank{rank}.log")
    write("job.log")
    names = [item.source.name for item in collect(["logs", "job.log"], limits=LIMITS).inputs]
    assert names == ["job.log", "logs/rank2.log", "logs/rank9.log", "logs/rank10.log"]
    assert names == [i.source.name for i in collect(["job.log", "./logs/", "logs/rank9.log"], limits=LIMITS).inputs]
    assert [i.source.name for i in collect(["."], limits=LIMITS).inputs] == names


def test_glob_that_the_shell_left():
    write("logs/a1.log")
    write("logs/a2.log")
    assert list(sources("logs/a*.log")) == ["logs/a1.log", "logs/a2.log"]


def test_name_with_glob_characters_is_a_file_first():
    write("a[1].log")
    assert list(sources("a[1].log")) == ["a[1].log"]


def test_same_file_once_also_through_links():
    write("a.log")
    os.symlink("a.log", "latest.log")
    os.symlink(".", "loop")
    found = collect(["a.log", "./a.log", "latest.log", ".", "loop"], limits=LIMITS)
    assert [item.source.name for item in found.inputs] == ["a.log"]


def test_same_file_once_also_by_its_other_name():
    write("a.log")
    os.link("a.log", "b.log")
    write("c.log")
    assert list(sources(".")) == ["a.log", "c.log"]


def test_many_inputs_take_little_memory():
    for number in range(200):
        write(f"logs/{number}.log", LOG * 2000)
    collect(["logs"], limits=LIMITS)
    tracemalloc.start()
    try:
        found = collect(["logs"], limits=LIMITS)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(found.inputs) == 200
    assert held < 200 * 4096


def test_kernel_log_inside_a_folder_that_is_given_too():
    write("all/gx-043.txt", b"hello\n")
    found = sources("all", kernel_logs=["all/gx-043.txt"])
    assert found["all/gx-043.txt"].kind == "kernel"
    assert found["all/gx-043.txt"].host == "gx-043"


def test_missing_file_among_good_ones_is_listed():
    write("a.log")
    found = collect(["a.log", "b.log", "c*.log"], limits=LIMITS)
    assert len(found.inputs) == 1
    assert found.not_read == (
        "b.log: does not exist (any more); check the path",
        "c*.log: matches nothing; check the pattern",
    )


@pytest.mark.parametrize("paths", [[], ["nothing.log"], ["empty"], ["-"], ["a\0b"], ["\ud800"]])
def test_nothing_at_all_is_an_error_that_says_what_to_do(paths):
    os.mkdir("empty")
    with pytest.raises(SourceError, match=r"give the job's log files|give log files"):
        collect(paths, limits=LIMITS)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file():
    write("a.log")
    write("b.log")
    os.chmod("b.log", 0)
    assert "permission denied" in collect(["."], limits=LIMITS).not_read[0]


def test_vanished_file_and_lost_folder():
    write("a.log")
    found = collect(["a.log"], limits=LIMITS)
    os.remove("a.log")
    with pytest.raises(SourceError, match=r"a\.log: does not exist"):
        read(found)
    os.mkdir("a.log")
    with pytest.raises(SourceError, match="no longer a regular file"):
        read(found)


def test_folder_named_like_a_log_and_odd_names():
    write("x.log/inner.log")
    write("x.log/new\nline.log")
    write(os.fsdecode(b"x.log/\xff.log"))
    assert list(sources("x.log")) == ["x.log/\\xff.log", "x.log/inner.log", "x.log/new\\nline.log"]


def test_pipes_sockets_and_devices_in_a_folder_are_not_waited_for():
    write("d/a.log")
    os.mkfifo("d/p")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("d/s")
        found = collect(["d"], limits=LIMITS)
    assert len(found.inputs) == 1
    assert any("pipe" in why for why in found.not_read)
    assert any("socket" in why for why in found.not_read)


def test_endless_device_is_refused_and_null_is_empty():
    with pytest.raises(SourceError, match="device"):
        collect(["/dev/zero"], limits=LIMITS)
    assert read(collect(["/dev/null"], limits=LIMITS)) == {"/dev/null": b""}


@pytest.mark.skipif(not os.path.exists("/proc/version"), reason="a system without /proc")
def test_a_file_that_says_it_is_empty_is_read_when_named():
    assert b"".join(read(collect(["/proc/version"], limits=LIMITS)).values()).strip()


def test_named_pipe_is_read_like_stdin():
    os.mkfifo("p")
    writer = threading.Thread(target=write, args=("p", gzip.compress(LOG)))
    writer.start()
    found = collect(["p"], limits=LIMITS)
    writer.join()
    assert read(found) == {"p": LOG}


def test_stdin_text_passes_through_once():
    data = LOG * 100_000
    found = collect(["-"], stdin=io.BytesIO(data), limits=LIMITS)
    blocks = list(found.inputs[0].blocks())
    assert b"".join(blocks) == data
    assert max(map(len, blocks)) <= 2 * LIMITS.block_bytes
    with pytest.raises(SourceError, match="only once"):
        read(found)


def test_stdin_archive():
    data = gzip.compress(tar([("rank0.log", LOG), ("rank1.log", LOG)]))
    found = collect(["-"], stdin=io.BytesIO(data), limits=LIMITS)
    assert read(found) == {"-!rank0.log": LOG, "-!rank1.log": LOG}
    assert [item.source.rank for item in found.inputs] == [0, 1]


def test_endless_stdin_ends():
    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            buffer[:] = b"\n" * len(buffer)
            return len(buffer)

    found = collect(["-"], stdin=Endless(), limits=replace(LIMITS, expanded_bytes=5_000_000))
    with pytest.raises(LimitExceeded):
        read(found)


def test_code_weights_settings_and_hidden_files_in_a_folder_are_left_out_in_few_words():
    for name in ("a.log", "t.py", "config.yaml", ".git/x", ".hid", *(f"ckpt/m{i}.pt" for i in range(50))):
        write(name)
    write("config.json", b'{\n "a": 1\n}\n')
    write("error.json", b'{\n "message": "x"\n}\n')
    write("metrics.jsonl", b'{"step": 1}\n{"step": 2}\n')
    found = collect(["."], limits=LIMITS)
    assert list(read(found)) == ["a.log", "error.json", "metrics.jsonl"]
    assert len(found.not_read) <= 8
    assert any("ckpt/m0.pt, ckpt/m1.pt, ckpt/m2.pt and 47 more" in why for why in found.not_read)
    assert list(sources("config.yaml", "t.py")) == ["config.yaml", "t.py"]


def test_limits_on_files_and_depth():
    for index in range(10):
        write(f"d/{'e/' * index}a{index}.log")
    found = collect(["d"], limits=replace(LIMITS, depth=3))
    assert len(found.inputs) == 4
    assert "folders deep" in found.not_read[0]
    found = collect(["d"], limits=replace(LIMITS, files=5))
    assert len(found.inputs) == 5
    assert "more than 5 files" in found.not_read[0]


# What bytes


@pytest.mark.parametrize("packer", ["gz", "xz", "bz2", "zst"])
class TestPacked:
    def test_members_padding_and_garbage(self, packer):
        packed = PACKERS[packer](LOG) + PACKERS[packer](b"more\n")
        for index, tail in enumerate((b"", b"\0" * 600_000, b"garbage at the end", b"\0\0junk")):
            write(f"a{index}.log", packed + tail)
        assert set(read(collect(["."], limits=LIMITS)).values()) == {LOG + b"more\n"}

    def test_large_data_in_small_blocks(self, packer):
        data = b"".join(b"%d the quick brown fox\n" % number for number in range(30_000))
        write("a", PACKERS[packer](data))
        blocks = list(collect(["a"], limits=replace(LIMITS, block_bytes=10_000)).inputs[0].blocks())
        assert b"".join(blocks) == data
        assert max(map(len, blocks)) <= 20_000

    def test_cut_off_gives_what_is_good_and_then_an_error(self, packer):
        import random

        data = bytes(random.Random(1).choices(b"abcdefgh\n", k=400_000))
        packed = PACKERS[packer](data)
        write("a", packed[: len(packed) * 2 // 3])
        good, error = until_error(collect(["a"], limits=LIMITS))
        assert "damaged or incomplete" in str(error)
        assert data.startswith(good)
        assert good or packer == "xz"

    def test_bomb(self, packer, monkeypatch):
        monkeypatch.setattr("diagnose.sources.streams._RATIO_FROM", 1_000_000)
        write("a", PACKERS[packer](b"a" * 8_000_000))
        found = collect(["a"], limits=replace(LIMITS, expansion_ratio=50))
        with pytest.raises(LimitExceeded, match="50-fold"):
            read(found)

    def test_expanded_bytes(self, packer):
        write("a", PACKERS[packer](LOG * 1000))
        write("b", PACKERS[packer](LOG * 1000))
        found = collect(["."], limits=replace(LIMITS, expanded_bytes=40_000))
        assert read(found) == read(found) == {"a": LOG * 1000}
        assert "exceed 40000 bytes" in found.not_read[0]
        write("b", PACKERS[packer](LOG * 10_000))
        found = collect(["b"], limits=replace(LIMITS, expanded_bytes=100_000))
        with pytest.raises(LimitExceeded, match="exceed 100000 bytes"):
            read(found)


def test_flipped_bit_in_gzip_loses_nothing_that_stands_before():
    data = b"".join(b"%d abc\n" % number for number in range(100_000))
    packed = bytearray(gzip.compress(data))
    packed[-6] ^= 1  # the checksum
    write("a", bytes(packed))
    good, error = until_error(collect(["a"], limits=LIMITS))
    assert error is not None
    assert good == data


def test_packed_over_and_over():
    data = LOG
    for _ in range(5):
        data = gzip.compress(data)
    write("a.gz", data)
    write("b.log")
    assert "times over" in collect(["."], limits=LIMITS).not_read[0]
    write("a.gz", gzip.compress(gzip.compress(LOG)))
    assert read(collect(["a.gz"], limits=LIMITS)) == {"a.gz": LOG}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_wide_text_becomes_utf8(encoding):
    text = "step 1 läuft\r\n日本 \U0001f600\n" + "plain ascii text of a log\n" * 5000
    write("a.log", text.encode(encoding))
    found = collect(["a.log"], limits=replace(LIMITS, block_bytes=1001))
    blocks = list(found.inputs[0].blocks())
    assert b"".join(blocks) == text.encode()
    assert max(map(len, blocks)) <= 2002


def test_two_bytes_do_not_make_a_text_wide():
    write("a.log", b"\xff\xfe" + LOG * 3)
    assert LOG in read(collect(["a.log"], limits=LIMITS))["a.log"]


def test_nuls_crlf_and_empty_files_are_kept():
    write("nul.log", b"\0" * 5000)
    write("hole.log", LOG + b"\0" * 4096 + LOG)
    write("crlf.log", b"a\r\nb\r\n")
    write("empty.log", b"")
    write("bell.log", b"\x1b[31mred\x1b[0m\b\a\n")
    for name, data in read(collect(["."], limits=LIMITS)).items():
        with open(name, "rb") as file:
            assert file.read() == data
    assert len(collect(["."], limits=LIMITS).inputs) == 5


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x7fELF\2\1\1" + b"\0" * 90, "program"),
        (b"SQLite format 3\0" + b"\0" * 90, "SQLite"),
        (b"\x80\x04\x95" + b"\0" * 90, "pickle"),
        (b"\x89PNG\r\n\x1a\n", "image"),
        (b"LPKSHHRH" + b"\0" * 90, "journalctl"),
        (bytes(range(256)) * 20, "binary data"),
        (b"\x04\x22\x4d\x18abc", "lz4"),
    ],
)
def test_binary_files_are_named_not_read(data, what):
    write("a", data)
    write("b.log")
    found = collect(["a", "b.log"], limits=LIMITS)
    assert list(read(found)) == ["b.log"]
    assert what in found.not_read[0]


def test_growing_file_ends():
    write("a.log", LOG)
    found = collect(["a.log"], limits=replace(LIMITS, block_bytes=16))
    (item,) = found.inputs
    assert item.grown() == 0
    for blocks in (item.blocks(), item.window(0)):
        total = b""
        for block in blocks:
            total += block
            with open("a.log", "ab") as file:
                file.write(b"x" * 64)
        assert total == LOG
    assert item.grown() > 0
    assert list(item.window(len(LOG) + 64)) == []


def test_disk_error_in_the_middle(monkeypatch):
    write("a.log", LOG * 200_000)
    found = collect(["a.log"], limits=LIMITS)
    real = os.pread

    def failing(descriptor, size, offset):
        if offset > 2_000_000:
            raise OSError(5, "Input/output error")
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    good, error = until_error(found)
    assert re.match(r"a\.log: cannot be read past byte \d+ \(Input/output error\)", str(error))
    assert len(good) > 2_000_000


def test_no_descriptor_is_left_open():
    write("a.log", LOG * 100_000)
    write("b.tgz", gzip.compress(tar([(f"r{n}.log", LOG) for n in range(20)])))
    write("c.zip", zipped([("x.log", LOG)]))
    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    found = collect(["."], limits=LIMITS)
    read(found)
    blocks = found.inputs[0].blocks()
    next(blocks)
    blocks.close()
    del found, blocks
    after = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    assert after == before


# Archives


@pytest.mark.parametrize("packer", ["plain", "gz", "zst", "xz", "bz2"])
@pytest.mark.parametrize("spooled", [True, False])
def test_tar_members_are_inputs(packer, spooled, monkeypatch):
    if not spooled:
        monkeypatch.setattr("tempfile.TemporaryFile", _full_disk)
    inner = gzip.compress(tar([("deep/rank1.log", LOG)]))
    long = "very/" * 40 + "rank2.log"
    members = [
        ("logs/rank0.log", LOG * 5000),
        ("inner.tgz", inner),
        (long, LOG),
        ("z.zip", zipped([("rank3.log", LOG)])),
    ]
    data = tar(members)
    write("a.tar", PACKERS.get(packer, bytes)(data))
    found = collect(["a.tar"], limits=LIMITS)
    got = read(found)
    expected = {"a.tar!logs/rank0.log": LOG * 5000, "a.tar!inner.tgz!deep/rank1.log": LOG, f"a.tar!{long}": LOG}
    if spooled or packer == "plain":
        expected["a.tar!z.zip!rank3.log"] = LOG
    assert got == expected
    assert read(found) == got
    assert {item.source.rank for item in found.inputs} >= {0, 1, 2}


def _full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def test_members_are_never_followed_or_unpacked(here):
    link = tarfile.TarInfo("passwd")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device = tarfile.TarInfo("zero")
    device.type = tarfile.CHRTYPE
    write("a.tar", tar([(link, b""), (device, b""), ("../../escape.log", LOG), ("/abs.log", LOG)]))
    found = collect(["a.tar"], limits=LIMITS)
    assert read(found) == {"a.tar!../../escape.log": LOG, "a.tar!/abs.log": LOG}
    assert sorted(os.listdir(here)) == ["a.tar"]
    assert len(found.not_read) == 2


def test_archive_limits():
    write("a.tar", tar([(f"a{n}.log", LOG) for n in range(10)]))
    found = collect(["a.tar"], limits=replace(LIMITS, archive_members=4))
    assert len(found.inputs) == 4
    assert "more than 4 members" in found.not_read[0]
    data = LOG
    for level in range(5):
        data = tar([(f"t{level}", data)])
    write("b.tar", data)
    write("b.log")
    assert "archives deep" in collect(["b.tar", "b.log"], limits=LIMITS).not_read[0]


def test_cut_off_and_damaged_tar():
    data = tar([("a.log", LOG), ("b.log", LOG * 1000)])
    write("cut.tar", data[:10_000])
    write("cut.tgz", gzip.compress(data)[:-60])
    damaged = bytearray(data)
    damaged[1024 + 10] ^= 0xFF
    write("bad.tar", bytes(damaged))
    for name in ("cut.tar", "cut.tgz", "bad.tar"):
        found = collect([name], limits=LIMITS)
        assert b"".join(found.inputs[0].blocks()) == LOG
        if len(found.inputs) == 2:
            with pytest.raises(SourceError):
                b"".join(found.inputs[1].blocks())
        else:
            assert found.not_read


def test_zip_of_weights_is_no_archive_and_bad_zips_say_so():
    write("m.pt", zipped([("archive/data.pkl", b"x")]))
    write("cut.zip", zipped([("a.log", LOG * 1000)])[:60])
    write("b.log")
    why = " ".join(collect(["m.pt", "cut.zip", "b.log"], limits=LIMITS).not_read)
    assert "weights" in why
    assert "cut off" in why


def test_zip_bomb(monkeypatch):
    monkeypatch.setattr("diagnose.sources.streams._RATIO_FROM", 1_000_000)
    write("a.zip", zipped([("a.log", b"\n" * 8_000_000)]))
    with pytest.raises(LimitExceeded):
        read(collect(["a.zip"], limits=replace(LIMITS, expansion_ratio=100)))


# Which kind, host, rank


def test_zip_members_that_share_their_bytes_are_read_once():
    data = zipped([("a.log", LOG)])
    table = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[table:end]
    tail = bytearray(data[end:])
    tail[8:12] = struct.pack("<HH", 50, 50)
    tail[12:16] = struct.pack("<I", len(entry) * 50)
    write("a.zip", data[:table] + entry * 50 + bytes(tail))
    found = collect(["a.zip"], limits=LIMITS)
    assert read(found) == {"a.zip!a.log": LOG}
    assert "49" in found.not_read[0] or "46 more" in found.not_read[0]


def test_packed_members_are_kept_packed(monkeypatch):
    # Kept as they are they would not fit, and each be found again by expanding the archive from its start.
    monkeypatch.setattr(Spool.__init__, "__defaults__", (LIMITS.block_bytes,))
    members = [(f"rank{number}.log", LOG * 10_000) for number in range(20)]
    write("a.tgz", gzip.compress(tar(members)))
    found = collect(["a.tgz"], limits=LIMITS)
    os.unlink("a.tgz")
    assert read(found) == {f"a.tgz!{name}": data for name, data in members}


def test_a_member_cut_off_behind_compression_gives_what_there_is():
    write("a.tgz", gzip.compress(tar([("a.log", LOG * 10_000)])[:5000]))
    good, error = until_error(collect(["a.tgz"], limits=LIMITS))
    assert len(good) == 5000 - 512
    assert "ends inside this member" in str(error)


def test_expanding_ends_with_the_time():
    write("a.gz", gzip.compress(LOG * 100_000))
    with pytest.raises(SourceError, match="time limit"):
        collect(["a.gz"], limits=replace(LIMITS, seconds=-1.0))


def test_kind_by_content():
    write("a.txt", KERNEL)
    write("d.txt", b"[    0.062459] Linux version 5\n[    4.1] x\n[    4.062459] DMI: Q\n")
    write("e.txt", b"JobID|JobName|State|ExitCode\n41|x|FAILED|1:0\n")
    write("f.txt", b"JobId=81 JobName=asr\n   UserId=u(1) GroupId=g(2)\n   JobState=PREEMPTED Reason=None\n")
    write("g.yaml", b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n")
    write("h.json", json.dumps({"jobs": [{"job_id": 1, "exit_code": {}}]}, indent=1).encode())
    write("i.txt", b"Name:             w-3\nNamespace:        ml\nStatus:           Failed\n")
    write("j.json", b'{"__REALTIME_TIMESTAMP":"1","_HOSTNAME":"gx-1","_TRANSPORT":"kernel","MESSAGE":"NVRM: Xid"}\n')
    write("k.json", b'{"version": "2.4", "pg_config": {}, "entries": []}')
    write("l.txt", b"Process 812: python train.py\nPython v3.11\n\nThread 812 (idle)\n")
    write("m.log", b"JobId=81 JobName=asr\nstep 1 loss 3\nstep 2 loss 2\n")
    write("n.log", b"2026-03-02T17:20:37+0000 gx-1 python[12]: step 1\n" * 4)
    write("o.txt", b"LAST SEEN   TYPE      REASON\n5m   Warning   Evicted\n")
    got = {name[0]: source.kind for name, source in sources(".").items()}
    assert got == {
        **dict.fromkeys("adj", "kernel"), **dict.fromkeys("efghio", "scheduler"), **dict.fromkeys("kl", "dump"),
        **dict.fromkeys("mn", "job"),
    }  # fmt: skip
    assert sources("a.txt")["a.txt"].host == "lx-08"
    assert sources("j.json")["j.json"].host == "gx-1"


def test_a_kernel_log_has_a_host_and_no_rank():
    write("pn-31.console.log", b"[    0.062459] Linux version 5\n[    4.162459] x\n")
    write("train.console.log", b"step 1\n")
    found = sources(".")
    assert found["pn-31.console.log"].kind == "kernel"
    assert found["pn-31.console.log"].host == "pn-31"
    assert found["train.console.log"].kind == "job"


@pytest.mark.parametrize(
    ("numbers", "ranked"),
    [(range(16), True), (range(1, 16), True), (range(1, 11), False), ([7], False), ([3, 900], False), ([0, 5], True)],
)
def test_a_number_is_a_rank_only_in_a_set_of_ranks(numbers, ranked):
    for number in numbers:
        write(f"pl-818820-{number}.log")
    found = sources(".")
    expected = list(numbers) if ranked else [None] * len(numbers)
    assert sorted((s.rank for s in found.values()), key=lambda rank: (rank is None, rank)) == expected


def test_a_node_s_launcher_log_is_no_rank_s():
    for task in (0, 1):
        write(f"slurm-99_{task}.out", b"[rank%d]: x\n[rank%d]: y\n" % (task * 8, task * 8 + 1))
    assert {source.rank for source in sources(".").values()} == {None}


def test_the_same_rank_on_two_hosts_is_local():
    for host in ("node-01", "node-02"):
        for rank in (0, 1):
            write(f"{host}/rank{rank}.log")
    for name, source in sources(".").items():
        assert source.rank is None
        assert source.local_rank == int(name[-5])
        assert source.host == name[:7]


def test_hosts_need_a_proof():
    write("c001.log")
    write("fb-06.log", b"fb-06:4400:5011 [0] NCCL INFO Bootstrap\n")
    write("xy-1_rank0.log")
    write("xy-2_rank1.log")
    found = sources(".")
    assert found["c001.log"].host is None
    assert found["fb-06.log"].host == "fb-06"
    assert found["xy-2_rank1.log"].host == "xy-2"


DMESG = b"[    0.062459] Linux version 5\n[    4.162459] x\n"


def hosts(*paths, **more):
    return {name: source.host for name, source in sources(*paths, **more).items()}


@pytest.mark.parametrize("above", ["node-01", "alice01/h100", "home/mira01"])
def test_a_folder_that_holds_everything_is_no_host(above, monkeypatch, here):
    write(f"{above}/rank0.log")
    write(f"{above}/rank1.log")
    write(f"{above}/gx-04.dmesg", DMESG)
    wanted = {"rank0.log": None, "rank1.log": None, "gx-04.dmesg": "gx-04"}
    assert {name.rpartition("/")[2]: host for name, host in hosts(str(here)).items()} == wanted
    monkeypatch.chdir(above)
    assert hosts(".") == wanted


def test_folders_that_tell_inputs_apart_are_hosts(here):
    for host in ("gx-01", "gx-02"):
        write(f"user12/{host}/rank{host[-1]}.log")
        write(f"user12/{host}/var/log/dmesg", DMESG)
    for paths in (["."], [str(here)], ["user12/gx-01", "user12/gx-02"], [str(here / "user12" / "gx-0*")]):
        found = hosts(*paths)
        assert len(found) == 4
        assert all(host is not None and f"/{host}/" in f"/{name}" for name, host in found.items())


def test_a_kernel_log_from_elsewhere_makes_no_host_of_the_folders_above_the_job(here):
    write("scratch1/node02/job/rank0.log")
    write("scratch1/node02/job/rank1.log")
    write("nfs2/kern/gx-04.dmesg", DMESG)
    write("nfs2/kern/dmesg.txt", DMESG)
    write("nfs2/gx-07/dmesg.txt", DMESG)
    write("home/mira01/dmesg.txt", DMESG)
    job = str(here / "scratch1" / "node02" / "job")
    for log, host in (
        ("nfs2/kern/gx-04.dmesg", "gx-04"),
        ("nfs2/kern/dmesg.txt", None),
        ("nfs2/gx-07/dmesg.txt", "gx-07"),
        ("home/mira01/dmesg.txt", None),
    ):
        assert list(hosts(job, kernel_logs=[log]).values()) == [None, None, host]


def test_a_host_that_the_log_states_beats_the_folder():
    write("node-01/rank0.log", b"pod-a-0:17:99 [0] NCCL INFO Bootstrap : Using eth0\n")
    write("node-02/rank1.log", b"srun: error: gx-02: task 1: Killed\n")
    write("node-03/rank2.log", b"hostname: node-03.cluster\n")
    write("node-04/rank3.log")
    assert list(hosts(".").values()) == [None, None, "node-03", "node-04"]


def test_a_kernel_log_proves_only_the_likeliest_name():
    write("team4/gx-04.dmesg", DMESG)
    write("team4/kern.txt", KERNEL)
    write("lab3/rank0.log")
    write("team5/rank1.log")
    assert hosts(".") == {"lab3/rank0.log": None, "team5/rank1.log": None, "team4/gx-04.dmesg": "gx-04",
                          "team4/kern.txt": "lx-08"}  # fmt: skip


def test_out_is_stdout_only_beside_err():
    for name in ("rank0.out", "rank0.err", "slurm-12.out"):
        write(name)
    streams = {name: source.stream for name, source in sources(".").items()}
    assert streams == {"rank0.out": "stdout", "rank0.err": "stderr", "slurm-12.out": None}
