"""What other jobs left in a folder is set aside by name; what may be the job's own, or is named, is read."""

from pathlib import Path

import pytest

from diagnose.settings import Limits
from diagnose.sources import collect
from diagnose.sources.otherjobs import claim_of

STEP = "2026-03-01 10:00:00 iteration 1/ 9 | loss 2.5\n"


def read(folder: Path, files: dict[str, str], *named: str) -> tuple[set[str], list[str]]:
    """The names of the inputs that would be read of a folder, and the sentences on others' logs."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text or STEP)
    sources = collect([str(folder), *[str(folder / name) for name in named]], limits=Limits())
    told = [sentence for sentence in sources.not_read if "another job's" in sentence]
    return {Path(one.source.name).name for one in sources.inputs}, told


def test_of_two_slurm_jobs_the_latest_is_read(tmp_path):
    kept, told = read(tmp_path, {"slurm-99.out": "", "slurm-100.out": "", "dmesg.txt": ""})
    assert kept == {"slurm-100.out", "dmesg.txt"}
    (sentence,) = told
    assert sentence.endswith(
        "slurm-99.out: set aside as another job's (99): the latest, 100, is diagnosed; to read it, name the file"
    )


@pytest.mark.parametrize(
    "names",
    [
        ("slurm-100_1.out", "slurm-100_2.out"),  # tasks of an array
        ("slurm-100.out", "slurm-100.err"),
        ("slurm-100.out", "slurm-100-3.out", "rank0.log"),
        ("job-0.log", "job-1.log", "job-2.log"),
        ("job-100.log", *(f"job-{number:03}.log" for number in range(90))),  # ranks
        ("train-4711.out", "train-4711.err"),
        ("worker-4711.out", "worker-4712.out"),  # processes
        ("train-20260301.out", "train-20260302.out"),  # days
        ("gx-4711.out", "gx-4712.out"),  # hosts
        ("train-4711.out", "monitor-9090.out"),
        ("train.log", "other_job_777.log"),
    ],
)
def test_what_may_be_one_job_is_read_whole(tmp_path, names):
    assert read(tmp_path, dict.fromkeys(names, "")) == (set(names), [])


@pytest.mark.parametrize(
    ("other", "own"),
    [
        ("train-4711.out", "train-4712.out"),
        ("train_4711.err", "train_4712.err"),
        ("job_100.log", "job_200.log"),
        ("train.o4711", "train.o4712"),
        ("llama-slurm-99.log", "llama-slurm-100.log"),
        ("slurm-99_1.out", "slurm-100_1.out"),
    ],
)
def test_names_of_jobs(tmp_path, other, own):
    kept, told = read(tmp_path, {other: "", own: ""})
    assert (kept, len(told)) == ({own}, 1)


def test_a_number_that_a_log_states_tells_whose_it_is(tmp_path):
    files = {
        "slurm-100.out": "",
        "rank0.log": f"SLURM_JOB_ID=100\n{STEP}",
        "old0.log": f"SLURM_JOB_ID=99\n{STEP}",
        "both.log": f"SLURM_JOB_ID=98\n{STEP}SLURM_JOB_ID=99\n",
        "task.log": f"SLURM_JOB_ID=103\nSLURM_ARRAY_JOB_ID=100\n{STEP}",
    }
    kept, told = read(tmp_path, files)
    assert kept == set(files) - {"old0.log"}
    assert len(told) == 1


def test_what_is_named_is_read_and_says_which_job_is_meant(tmp_path):
    files = dict.fromkeys(("slurm-99.out", "slurm-99.err", "slurm-100.out", "rank0.log"), "")
    kept, told = read(tmp_path, files, "slurm-99.out")
    assert kept == {"slurm-99.out", "slurm-99.err", "rank0.log"}
    assert "(100): the job of the named files is diagnosed" in told[0]
    both = collect([str(tmp_path / "slurm-99.out"), str(tmp_path / "slurm-100.out")], limits=Limits())
    assert len(both.inputs) == 2


def test_a_name_without_a_number_claims_nothing():
    assert claim_of("rank0.log", STEP.encode()) is None
    assert claim_of("logs!slurm-7.out", b"").job == 7
