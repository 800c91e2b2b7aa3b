"""Inventories in the forms people have them."""

from __future__ import annotations

import pytest

from diagnose.errors import UsageError
from diagnose.models import Unit
from diagnose.settings import Limits
from diagnose.sources import load_inventory

GOOD = [
    ("i.csv", "rank,host,gpu,pci\n0,gx-1,0,0000:5d:00.0\n1,gx-1,1,9B:00\n"),
    ("i.tsv", "global_rank\thostname\tgpu_id\tbus_id\n0\tgx-1\t0\t00000000:5D:00.0\n\n1\tgx-1\t1\tPCI:0000:9b:00\n"),
    ("i.txt", "# site list\nRank; Node; Index; PCI Bus ID\n0; gx-1; 0; 5d:00\n1; gx-1; 1; 9b:00.0\n"),
    (
        "i.json",
        '[{"rank": 0, "host": "gx-1", "gpu": 0, "pci": "5d:00"}, {"rank": "1", "node": "gx-1", "gpu": 1, "pci": "9b:00"}]',
    ),
    (
        "i.jsonl",
        '{"rank": 0, "host": "gx-1", "gpu": 0, "pci": "5d:00"}\n{"rank": 1, "host": "gx-1", "gpu": 1, "pci": "9b:00"}\n',
    ),
    (
        "i.json",
        '{"nodes": [{"host": "gx-1", "gpus": [{"rank": 0, "index": 0, "pci": "5d:00"}, {"rank": 1, "index": 1, "pci": "9b:00"}]}]}',
    ),
    ("i.json", '{"0": {"host": "gx-1", "gpu": 0, "pci": "5d:00"}, "1": {"host": "gx-1", "gpu": 1, "pci": "9b:00"}}'),
    ("i.yaml", "gx-1:\n  - {rank: 0, gpu: 0, pci: '5d:00', serial: N/A}\n  - {rank: 1, gpu: 1, pci: '9b:00'}\n"),
    ("i", "- rank: 0\n  host: gx-1\n  gpu: 0\n  pci: '5d:00'\n- rank: 1\n  host: gx-1\n  gpu: 1\n  pci: '9b:00'\n"),
]


@pytest.mark.parametrize(("name", "text"), GOOD)
def test_forms_of_an_inventory(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert load_inventory(str(tmp_path / name)) == (
        Unit(rank=0, host="gx-1", gpu="0", pci="0000:5d:00.0"),
        Unit(rank=1, host="gx-1", gpu="1", pci="0000:9b:00.0"),
    )


def test_nvidia_smi_and_all_columns(tmp_path):
    path = tmp_path / "smi.csv"
    path.write_text(
        "index, uuid, serial, pci.bus_id, memory.total [MiB]\n0, GPU-1a, 165, 00000000:1B:00.0, 81559 MiB\n"
    )
    assert load_inventory(str(path)) == (Unit(gpu="0", uuid="GPU-1a", serial="165", pci="0000:1b:00.0"),)
    path.write_bytes("\ufeffrank,localid,hca,pid,ip_address\r\n8,0,mlx5_0,4711,10.0.0.2\r\n".encode("utf-16-le"))
    assert load_inventory(str(path)) == (Unit(rank=8, local_rank=0, nic="mlx5_0", pid=4711, ip="10.0.0.2"),)


BAD = [
    ("i.csv", "rank,host\n0,a\nx,b\n", r"i\.csv:3: rank must be a number"),
    ("i.csv", "rank,pci\n0,zz\n", r"i\.csv:2: pci must be an address"),
    ("i.csv", "rank,host\n0,1,2\n", r"i\.csv:2: 3 values but 2 columns"),
    ("i.csv", "foo,bar\n0,1\n", r"i\.csv:1: the first row names no known column"),
    ("i.csv", "rank,host\n", "lists no units"),
    ("i.json", '[{"rank": 0},\n {"rank": "x"}]', r"i\.json:2: rank must be a number"),
    ("i.json", '[{"rank": 0},\n {"rank": }]', r"i\.json:2: not JSON"),
    ("i.json", '[{"rank": 0},\n 7]', r"i\.json:2: expected a mapping"),
    ("i.yaml", "- rank: 0\n- rank: -1\n", r"i\.yaml:2: rank must be a number"),
    ("i.yaml", "- rank: 0\n- [\n", r"i\.yaml:\d: not YAML"),
    ("i.yaml", "a: b\n", "lists no units"),
    ("i.json", "", "empty"),
    ("i.json", "\x7fELF", "not an inventory but a program"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
def test_errors_say_where(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        load_inventory(str(tmp_path / name))


def test_missing_folder_and_large(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_inventory(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="must be a file"):
        load_inventory(str(tmp_path))
    (tmp_path / "i").write_text("rank\n" * 100)
    with pytest.raises(UsageError, match="larger than 10 bytes"):
        load_inventory(str(tmp_path / "i"), Limits(structured_bytes=10))


@pytest.mark.parametrize("text", ["- rank: 0x{0}\n  host: a\n", "- 0x{0}\n"])
def test_integers_of_thousands_of_digits_are_refused(tmp_path, text):
    path = tmp_path / "units.yaml"
    path.write_text(text.format("f" * 5000))
    with pytest.raises(UsageError, match="a number is not usable"):
        load_inventory(str(path))
