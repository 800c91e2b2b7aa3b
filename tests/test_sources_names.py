"""What names say: one row per form that launchers, schedulers and people use."""

from __future__ import annotations

import pytest

from diagnose.sources.names import facts_of, host_like
from diagnose.sources.printable import natural_key, printable

ROWS = [
    # torchelastic
    ("logs/none_ab12/attempt_1/3/stdout.log", {"attempt": 1, "local_rank": 3, "stream": "stdout"}),
    ("logs/none_ab12/attempt_0/12/stderr.log", {"attempt": 0, "local_rank": 12, "stream": "stderr"}),
    ("logs/none_ab12/attempt_0/12/error.json", {"attempt": 0, "local_rank": 12}),
    ("gx-043/run/attempt_2/0/stderr.log", {"attempt": 2, "local_rank": 0, "folder_hosts": ((1, "gx-043"),)}),
    # Slurm
    ("slurm-4711.out", {"rank": None, "task": None, "out": True}),
    ("slurm-4711_3.out", {"rank": None, "task": 3}),
    ("out/pl-818820-12.log", {"rank": None, "task": 12}),
    ("818820-gx-043-12.log", {"task": 12, "host_guesses": ("gx-043",)}),
    ("moe-818820-gx-043.out", {"task": None, "host_guesses": ("gx-043",)}),
    # what a host was asked with
    ("tr-h100-413-nvidia-smi-q.txt", {"host": "tr-h100-413", "rank": None}),
    ("nvidia-smi-gx-01.txt", {"host": "gx-01", "rank": None}),
    ("gx043_ibstat.log", {"host": "gx043"}),
    ("nvidia-smi.txt", {"host": None, "host_guesses": ()}),
    # rank in words
    ("rank_37.log", {"rank": 37}),
    ("rank37.err", {"rank": 37, "stream": "stderr"}),
    ("rank-3.txt", {"rank": 3}),
    ("rank00.err", {"rank": 0, "stream": "stderr"}),
    ("r5.err", {"rank": 5, "stream": "stderr"}),
    ("train_rank_3_of_8.log", {"rank": 3}),
    ("stderr_rank12.txt", {"rank": 12, "stream": "stderr"}),
    ("log.rank=4.txt", {"rank": 4}),
    ("global_rank_9.log", {"rank": 9}),
    ("rank0-3.log", {"rank": None, "task": None, "host_guesses": ()}),
    ("train_rank8-15.log", {"rank": None}),
    ("rank_0_to_7.log", {"rank": None}),
    ("ranks0-3.log", {"rank": None}),
    ("rank3-20260102.log", {"rank": 3}),
    ("rank_3_1.log", {"rank": 3}),
    ("local_rank0-3.log", {"local_rank": None, "rank": None}),
    ("local_rank_3.log", {"rank": None, "local_rank": 3}),
    ("rank_11_local_rank_3.log", {"rank": 11, "local_rank": 3}),
    ("rank.07/stderr", {"rank": 7, "stream": "stderr"}),
    ("nemo_log_globalrank-10_localrank-2.txt", {"rank": 10, "local_rank": 2}),
    ("20260101_120000_gx-043_device2_rank10.log", {"rank": 10, "local_rank": 2, "host_guesses": ("gx-043",)}),
    ("rank3.log.gz", {"rank": 3}),
    ("logs.tar.gz!run/rank3.log", {"rank": 3}),
    # host and rank
    ("nd-53_rank16.log", {"rank": 16, "host_guesses": ("nd-53",)}),
    ("pn-31.rank19.out", {"rank": 19, "host_guesses": ("pn-31",), "out": True}),
    ("node-01/rank0.log", {"rank": 0, "host_guesses": (), "folder_hosts": ((1, "node-01"),)}),
    ("rank3_gx-043.log", {"rank": 3, "host_guesses": ("gx-043",)}),
    ("fb-06.log", {"host_guesses": ("fb-06",)}),
    ("gx-043_dp=0_tp=1_pp=0.log", {"host_guesses": ("gx-043",)}),
    # pods
    ("worker-3.log", {"rank": None, "task": None, "host": "worker-3"}),
    ("vlm-worker-3.log", {"rank": None, "host": "vlm-worker-3"}),
    ("ns_vlm-worker-3_0d5b2c1a-77aa-4c7e-9f0e-0123456789ab/pytorch/2.log", {"host": "vlm-worker-3", "attempt": 2}),
    # kernel
    ("gx-043.kernel.log", {"kind": "kernel", "host_guesses": ("gx-043",)}),
    ("b200-03.kern.log", {"kind": "kernel", "host_guesses": ("b200-03",)}),
    ("cn-044.dmesg.txt", {"kind": "kernel", "host_guesses": ("cn-044",)}),
    ("dmesg-cn-044.txt", {"kind": "kernel", "host_guesses": ("cn-044",)}),
    ("hb-1.journal", {"kind_guess": "kernel", "host_guesses": ("hb-1",)}),
    ("lx-08.messages", {"kind_guess": "kernel", "host_guesses": ("lx-08",)}),
    ("pn-31.console.log", {"kind_guess": "kernel", "host_guesses": ("pn-31",)}),
    ("syslog.1.gz", {"kind_guess": "kernel"}),
    ("gpu-c11.dmesg", {"kind": "kernel", "host_guesses": ("gpu-c11",)}),
    ("dmesg_gpu01.txt", {"kind": "kernel", "host_guesses": ("gpu01",)}),
    ("n012.kern.log", {"kind": "kernel", "host_guesses": ("n012",)}),
    ("g0123.dmesg", {"kind": "kernel", "host_guesses": ("g0123",)}),
    ("gpu-f01.cluster.local.dmesg", {"kind": "kernel", "host_guesses": ("gpu-f01",)}),
    ("aks-gpu-1234-vmss000003.dmesg.txt", {"kind": "kernel", "host_guesses": ("aks-gpu-1234-vmss000003",)}),
    ("slurm-h100-207-089.kernel.log", {"kind": "kernel", "host_guesses": ("slurm-h100-207-089",)}),
    ("gke-train-pool-3f2a-x1zq.dmesg", {"kind": "kernel", "host_guesses": ("gke-train-pool-3f2a-x1zq",)}),
    ("gpu-c11/dmesg.txt", {"kind": "kernel", "host_guesses": (), "folder_hosts": ((1, "gpu-c11"),)}),
    ("gpu-c11.journal", {"kind_guess": "kernel", "host_guesses": ("gpu-c11",)}),
    ("run-7.dmesg", {"kind": None, "kind_guess": None, "host_guesses": ()}),
    ("slurm-4711.dmesg", {"host_guesses": ()}),
    ("llama-7/dmesg", {"kind": "kernel", "host_guesses": ()}),
    ("dmesg", {"kind": "kernel"}),
    ("kern.log", {"kind": "kernel"}),
    ("gx-043/dmesg.txt", {"kind": "kernel", "folder_hosts": ((1, "gx-043"),)}),
    ("/home/u12/gx-04.cluster.local/x/a.log", {"folder": ("home", "u12", "gx-04.cluster.local", "x")}),
    ("/home/user12/gx-04.cluster.local/x/a.log", {"folder_hosts": ((3, "gx-04"), (2, "user12"))}),
    ("jobs.tgz!gx-04/a.log", {"folder": ("jobs.tgz", "gx-04"), "folder_hosts": ((2, "gx-04"),)}),
    # schedulers and dumps
    ("sacct.txt", {"kind_guess": "scheduler"}),
    ("scontrol_show_job.txt", {"kind_guess": "scheduler"}),
    ("describe-worker-3.txt", {"kind_guess": "scheduler", "host": None}),
    ("nccl_trace_rank_12", {"kind": "dump", "rank": 12}),
    ("nccl_trace_rank_12.json", {"kind": "dump", "rank": 12}),
    ("pyspy_rank3.txt", {"kind_guess": "dump", "rank": 3}),
    # what says nothing
    ("train.log", {"rank": None, "host": None, "host_guesses": ()}),
    ("step-1200.log", {"rank": None, "task": None, "host_guesses": ()}),
    ("run-7.log", {"rank": None, "host_guesses": ()}),
    ("llama3-8b.log", {"rank": None, "host_guesses": ()}),
    ("job-12.log", {"rank": None, "host_guesses": ()}),
    ("crank3000x.log", {"rank": None}),
    ("console.log", {"kind": None, "kind_guess": "kernel"}),
    ("", {"rank": None}),
    ("a" * 4000, {"rank": None, "host_guesses": ()}),
]


@pytest.mark.parametrize(("path", "expected"), ROWS, ids=[row[0][:60] or "empty" for row in ROWS])
def test_names_say_what_they_say(path, expected):
    facts = facts_of(path)
    assert {key: getattr(facts, key) for key in expected} == expected


@pytest.mark.parametrize("text", ["gx-043", "node01", "ip-10-0-3-7", "dgx-a100-3", "fb-06", "nid001234", "aur-g11"])
def test_hosts_look_like_hosts(text):
    assert host_like(text)


@pytest.mark.parametrize(
    "text", ["", "rank3", "run-7", "llama-70", "gpt3", "epoch-10", "run-s3", "s3", "train", "a" * 70 + "1"]
)
def test_other_words_with_numbers_do_not(text):
    assert not host_like(text)


def test_numbers_sort_as_numbers():
    names = ["rank10", "rank9", "rank1", "rank01", "rank" + "9" * 5000]
    assert sorted(names, key=natural_key) == ["rank01", "rank1", "rank9", "rank10", "rank" + "9" * 5000]


def test_names_are_printable():
    assert printable("a b/ü.log") == "a b/ü.log"
    assert printable("a\nb\x1b[31m\udcff\u202e") == "a\\nb\\x1b[31m\\xff\\u202e"
