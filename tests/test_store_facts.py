"""Facts of a run as lines state them, what is masked in them, and what makes runs comparable."""

from __future__ import annotations

import pytest

from diagnose.models import Line, LogSource
from diagnose.rules.bundle import load_bundled
from diagnose.rules.secrets import Secrets
from diagnose.store.changes import Good, changes
from diagnose.store.facts import FactReader, Facts, Seen, digest_of, facts_of, packed, unpacked

SOURCE = LogSource("job.log")
HIDE = Secrets(load_bundled()).hidden


def line(text: str, number: int = 1, **how: object) -> Line:
    return Line(SOURCE, number, text, text, "job.log", **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("torch==2.4.0", ("packages", "torch", "2.4.0")),
        ("PyTorch version: 2.4.0+cu124", ("packages", "torch", "2.4.0+cu124")),
        ("NCCL version 2.21.5+cuda12.4", ("packages", "nccl", "2.21.5+cuda12.4")),
        ("Driver Version: 550.54.15   CUDA Version: 12.4", ("driver", "driver", "550.54.15")),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri", ("driver", "driver", "550.90.07")),
        ("export NCCL_IB_HCA=mlx5_0", ("environment", "NCCL_IB_HCA", "mlx5_0")),
        ("NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0.", ("environment", "NCCL_SOCKET_IFNAME", "eth0")),
        ('Pulling image "nvcr.io/nvidia/pytorch:24.05-py3"', ("image", "image", "nvcr.io/nvidia/pytorch:24.05-py3")),
        ("  lr ............................ 0.0003", ("arguments", "lr", "0.0003")),
        ("Namespace(lr=0.1, data='x, y', layers=[1, 2])", ("arguments", "data", "x, y")),
        ("+ torchrun --nproc-per-node=8 train.py --lr 1e-4 --bf16", ("arguments", "lr", "1e-4")),
        ("+ torchrun --nproc-per-node=8 train.py --lr 1e-4 --bf16", ("arguments", "bf16", "")),
        ("+ torchrun --nproc-per-node=8 train.py --lr 1e-4 --bf16", ("arguments", "nproc_per_node", "8")),
    ],
)
def test_facts_are_read(text: str, fact: tuple[str, str, str]) -> None:
    assert fact in list(facts_of(text))


@pytest.mark.parametrize(
    "text",
    [
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "step 3 loss 2.0 version 3",
        "the image was blurred",
        '  File "/job/train.py", line 3, in python --x',
        "Traceback (most recent call last):",
    ],
)
def test_what_is_no_fact_is_none(text: str) -> None:
    assert list(facts_of(text)) == []


def test_secrets_are_masked_and_what_is_per_run_is_left_out() -> None:
    reader = FactReader(HIDE)
    reader.observe(
        line("+ python train.py --api-key sk-abcdefghijklmnopqrstuv --master_port 29500 --password=hunter22x")
    )
    known = reader.facts().by_kind["arguments"]
    assert "master_port" not in known
    assert not any("abcdefghij" in value or "hunter22" in value for values in known.values() for value in values)


def test_what_ranks_differ_in_is_no_fact_of_the_run() -> None:
    reader = FactReader(HIDE)
    for rank in range(40):
        reader.observe(line(f"export NCCL_DEVICE=mlx5_{rank}", rank + 1))
    assert reader.facts().by_kind["environment"] == {}


def test_templates_mask_figures_and_paths() -> None:
    assert digest_of("loaded /data/a/b in 3.2 s at 0xdeadbeef") == digest_of("loaded /scratch/x/y in 41 s at 0x12ab")
    assert digest_of("loaded weights") != digest_of("loaded optimizer")
    reader = FactReader(HIDE)
    for number in range(100):
        reader.observe(line(f"step {number} loss {number}.5", number + 1))
    facts = reader.facts()
    assert len(facts.templates) == 1
    assert unpacked(packed(facts)) == set(facts.templates)


def test_everything_is_bounded() -> None:
    reader = FactReader(HIDE)
    for number in range(30_000):
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        reader.observe(line(f"export NCCL_{word.upper()}=x {word} --{word}={word}", number + 1))
    facts = reader.facts()
    assert sum(len(names) for names in facts.by_kind.values()) <= 2_100
    assert len(facts.templates) <= 8_192


@pytest.mark.parametrize(
    "piece", ["a=", "--a ", "Namespace(", ". ", "export NCCL_A=", "[", "'", "/a", "image: ", "torch "]
)
def test_no_line_holds_it_up(piece: str) -> None:
    for _ in range(5):  # a pattern that hangs would do so here
        FactReader(HIDE).observe(line(f"+ python x --version {piece * 4000}"))


def test_logs_that_grow_begin_alike_and_other_runs_do_not() -> None:
    def beginning(*texts: str, stamp: float | None = None) -> str:
        reader = FactReader(HIDE)
        for number, text in enumerate(texts, 1):
            reader.observe(line(text, number, time=stamp))
        return reader.beginning

    assert beginning("10:00 start", "a", stamp=1.0) == beginning("10:00 start", "a", "b", "c", stamp=1.0)
    assert beginning("10:00 start", stamp=1.0) != beginning("11:00 start", stamp=2.0)
    assert beginning("start", "pid 1") != beginning("start", "pid 2")


def test_no_more_than_five_lines_are_told() -> None:
    names = ("arguments", "environment", "packages", "image", "driver")
    before = {kind: {f"x{number}": ("1",) for number in range(9)} for kind in names} | {"nodes": {"n1": ("",)}}
    after = {kind: {f"x{number}": ("2",) for number in range(9)} for kind in names} | {"nodes": {"n2": ("",)}}
    good = Good(1.8e9, "41", before, frozenset(digest_of(word) for word in "abcdef"))
    new = {digest_of("a"): Seen(1, "l", 1, "a", None), digest_of("new"): Seen(2, "l", 2, "new words", None)}
    told = changes(Facts(after, new), good)
    assert len(told) == 5
    assert told[0].startswith("arguments: x0 1 -> 2, x1 1 -> 2, x2 1 -> 2 and 6 more (since job 41, 2027-01-15")
    assert told[-1] == "first line of a kind not seen before: new words (l:2)"
    assert changes(Facts(before, {}), good) == ()
