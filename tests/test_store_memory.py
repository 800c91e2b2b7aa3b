"""Runs as the memory keeps them: recorded once, told of later, labelled by what came after."""

from __future__ import annotations

from diagnose.models import JobContext
from diagnose.store.incidents import StoredIncidents, confirm, correct
from tests.stores import ECC, KEY_ERROR, Lab

PRETRAIN = JobContext(name="pretrain", user="ada", image="train:1")


def only(lab: Lab):
    (incident,) = StoredIncidents(lab.database)
    return incident


def test_a_failed_run_becomes_an_incident(lab: Lab) -> None:
    report = lab.run(lab.log(range(5), KEY_ERROR), context=PRETRAIN)
    incident = only(lab)
    assert (incident.error_type, incident.status, incident.decided_by) == ("KeyError", "failed", "rules")
    assert "KeyError: 'role'" in incident.text
    assert incident.context.name == "pretrain"
    assert not incident.confirmed
    assert incident.recovered is None
    assert incident.job == report.recovery.job == "fix_and_resubmit"
    assert not lab.told


def test_the_same_logs_again_change_nothing(lab: Lab) -> None:
    log = lab.log(range(5), KEY_ERROR)
    lab.run(log, context=PRETRAIN)
    before = only(lab)
    again = lab.run(log, context=PRETRAIN)
    assert only(lab) == before
    assert not any("failed alike" in reason for reason in again.root_cause.reasons)


def test_logs_that_have_grown_are_the_same_attempt(lab: Lab) -> None:
    log = lab.log(range(20))
    lab.run(log, context=PRETRAIN)
    first = only(lab)
    assert (first.status, first.error_type) == ("inconclusive", None)
    log.write_text(log.read_text() + KEY_ERROR)
    lab.run(log, context=PRETRAIN)
    assert (only(lab).id, only(lab).error_type) == (first.id, "KeyError")


def test_a_workload_that_fails_alike_is_told_so_and_is_not_restarted_for_ever(lab: Lab) -> None:
    killed = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.\n"
    )
    del killed
    end = "RuntimeError: the frobnicator is jammed\n"
    trace = f'Traceback (most recent call last):\n  File "/job/train.py", line 3, in f\n    g()\n{end}'
    reports = [lab.run(lab.log(range(30), trace, day=day), context=PRETRAIN) for day in (1, 2, 3)]
    assert not any("failed alike" in reason for reason in reports[0].root_cause.reasons)
    assert "this workload failed alike once before and has come no further since" in reports[1].root_cause.reasons
    assert any("failed alike 2 times" in reason for reason in reports[2].root_cause.reasons)
    other = lab.run(lab.log(range(30), trace, day=4), context=JobContext(name="finetune", user="ada"))
    assert not any("failed alike" in reason for reason in other.root_cause.reasons)


def test_progress_beyond_the_failed_step_sets_the_count_back(lab: Lab) -> None:
    for day, last in ((1, 10), (2, 10), (3, 20)):
        lab.run(lab.log(range(last), KEY_ERROR, day=day), context=PRETRAIN)
    report = lab.run(lab.log(range(20), KEY_ERROR, day=4), context=PRETRAIN)
    assert any("failed alike once before" in reason for reason in report.root_cause.reasons)


def test_the_next_attempt_labels_the_recovery(lab: Lab) -> None:
    lab.run(lab.log(range(10), KEY_ERROR, day=1), context=PRETRAIN)
    first = only(lab)
    assert first.recovered is None
    lab.run(lab.log(range(10), KEY_ERROR, day=2), context=PRETRAIN)
    store = StoredIncidents(lab.database)
    assert store.get(first.id).recovered is False
    second = next(one for one in store if one.id != first.id)
    assert second.recovered is None
    lab.run(lab.log(range(30), "training completed\nexit code: 0\n", day=3), context=PRETRAIN)
    assert store.get(second.id).recovered is True
    assert store.get(first.id).recovered is False
    assert store.get(second.id).revision > second.revision


def test_what_a_person_said_of_an_outcome_stands(lab: Lab) -> None:
    lab.run(lab.log(range(10), KEY_ERROR, day=1), context=PRETRAIN)
    confirm(lab.database, only(lab).id, recovered=True, by="ada")
    lab.run(lab.log(range(10), KEY_ERROR, day=2), context=PRETRAIN)
    assert next(one for one in StoredIncidents(lab.database) if one.confirmed).recovered is True


def test_an_older_log_read_late_labels_too(lab: Lab) -> None:
    lab.run(lab.log(range(10), KEY_ERROR, day=5), context=PRETRAIN)
    late = only(lab).id
    lab.run(lab.log(range(10), KEY_ERROR, day=1), context=PRETRAIN)
    store = StoredIncidents(lab.database)
    early = next(one for one in store if one.id != late)
    assert early.recovered is False
    assert store.get(late).recovered is None


def test_what_people_confirmed_is_not_overwritten(lab: Lab) -> None:
    log = lab.log(range(5), KEY_ERROR)
    lab.run(log, context=PRETRAIN)
    made = correct(lab.database, only(lab).id, error_type="DiskFull", attribution="infrastructure", by="ada", note="df")
    assert (made.error_type, made.confirmed, made.decided_by, made.rule) == ("DiskFull", True, "person", None)
    lab.run(log, context=PRETRAIN)
    assert only(lab) == made
    (said,) = StoredIncidents(lab.database).said(made.id)
    assert (said.kind, said.by, said.note, said.error_type) == ("correct", "ada", "df", "DiskFull")


def failing_node(lab: Lab, job: str, day: int, host: str = "gx-043"):
    """A job on one host whose GPU 0000:52:00 dies, by the kernel's word."""
    log = lab.log(range(10), "RuntimeError: CUDA error: uncorrectable ECC error encountered\n", day=day)
    kernel = lab.folder / f"{host}-{job}.dmesg"
    kernel.write_text(ECC.format(time="00:09:30").replace("Sep 14", f"Oct {day:2}"))
    named = lab.folder / f"{job}" / f"{host}.dmesg"
    named.parent.mkdir(exist_ok=True)
    kernel.rename(named)
    return lab.run(log, kernel=(named,), context=JobContext(id=job, name=f"n{job}", user="ada"))


def test_a_node_that_failed_other_jobs_is_told_and_replaced(lab: Lab) -> None:
    first = failing_node(lab, "1", 1)
    assert first.error_type == "ECCError"
    assert first.recovery.policy == "ecc"
    second = failing_node(lab, "2", 3)
    assert second.recovery.policy == "ecc-again"
    assert [node.action for node in second.recovery.nodes] == ["replace"]
    assert any(
        reason.startswith("gx-043") and reason.endswith("was the culprit of 1 other job in 7 days, same error type")
        for reason in second.root_cause.reasons
    )
    elsewhere = failing_node(lab, "3", 3, host="gx-044")
    assert elsewhere.recovery.policy == "ecc"


def test_only_so_many_nodes_are_drained_within_an_hour(lab: Lab) -> None:
    first = failing_node(lab, "1", 1, host="gx-001")
    assert "drain" in {node.action for node in first.recovery.nodes}
    second = failing_node(lab, "2", 2, host="gx-002")
    assert {node.action for node in second.recovery.nodes} == {"inspect"}
    assert "Not drained: gx-002" in second.recovery.hint
    lab.now += 3700
    third = failing_node(lab, "3", 3, host="gx-003")
    assert "drain" in {node.action for node in third.recovery.nodes}


def test_the_same_verdict_again_asks_for_the_same_drain(lab: Lab) -> None:
    for _ in range(2):
        report = failing_node(lab, "1", 1)
        assert report.recovery.policy == "ecc"
        assert "drain" in {node.action for node in report.recovery.nodes}
        lab.count = 0


def test_what_changed_since_the_last_good_attempt(lab: Lab) -> None:
    start = "PyTorch version: 2.4.0\nexport NCCL_IB_HCA=mlx5_0\n+ torchrun --nproc 8 train.py --lr 1e-4\n"
    more = "".join(f"INFO loading {word}\n" for word in ("tokenizer", "dataset", "weights", "optimizer", "schedule"))
    done = "training completed\nexit code: 0\n"
    lab.run(lab.log(range(10), done, start=start + more, day=1), context=PRETRAIN)
    other = start.replace("2.4.0", "2.5.1").replace("1e-4", "3e-4").replace("mlx5_0", "mlx5_1")
    log = lab.log(range(5), "WARNING frobnicator is off\n" + KEY_ERROR, start=other + more, day=2)
    report = lab.run(log, context=PRETRAIN)
    text = "\n".join(report.changes)
    assert "lr 1e-4 -> 3e-4" in text
    assert "torch 2.4.0 -> 2.5.1" in text
    assert "NCCL_IB_HCA mlx5_0 -> mlx5_1" in text
    assert "frobnicator is off" in text
    assert "2026-10-01" in text
    assert len(report.changes) <= 5
    same = lab.run(lab.log(range(5), KEY_ERROR, start=start + more, day=3), context=PRETRAIN)
    assert not [line for line in same.changes if not line.startswith("first line")]


def test_the_image_is_compared_though_it_makes_another_workload(lab: Lab) -> None:
    lab.run(lab.log(range(10), "exit code: 0\n", day=1), context=JobContext(name="a", user="u", image="train:1"))
    report = lab.run(lab.log(range(5), KEY_ERROR, day=2), context=JobContext(name="a", user="u", image="train:2"))
    assert any("image: train:1 -> train:2" in line for line in report.changes)


def test_a_run_without_a_name_has_no_workload_but_its_own_job(lab: Lab) -> None:
    for day in (1, 2):
        report = lab.run(lab.log(range(5), KEY_ERROR, day=day))
        assert not any("failed alike" in reason for reason in report.root_cause.reasons)
    assert len(StoredIncidents(lab.database)) == 2


def test_a_requeued_job_is_the_same_workload(lab: Lab) -> None:
    for day in (1, 2):
        report = lab.run(lab.log(range(5), KEY_ERROR, day=day), context=JobContext(id="4711"))
    assert any("failed alike once" in reason for reason in report.root_cause.reasons)


def test_a_run_that_ended_well_is_no_incident(lab: Lab) -> None:
    log = lab.log(range(20))
    lab.run(log, context=PRETRAIN)
    assert len(StoredIncidents(lab.database)) == 1
    log.write_text(log.read_text() + "training completed\nexit code: 0\n")
    lab.run(log, context=PRETRAIN)
    assert len(StoredIncidents(lab.database)) == 0


def test_hostile_text_is_kept_without_harm(lab: Lab) -> None:
    words = "bell\x07 nul\x00 \udcff 雪 " + "x" * 70_000
    log = lab.log(range(3), KEY_ERROR, start=words + "\n" + f"step {10**40}\n")
    lab.run(log, context=JobContext(name=words[:300], user="a\x00b"))
    assert only(lab).error_type == "KeyError"
    assert not lab.told


def test_history_alone_writes_nothing(lab: Lab) -> None:
    lab.run(lab.log(range(5), KEY_ERROR), context=PRETRAIN, records=False)
    assert len(StoredIncidents(lab.database)) == 0


def test_what_is_kept_to_be_found_again_names_nobody(lab: Lab) -> None:
    end = KEY_ERROR.replace("'role'", "'the role of adalove on gx-043, token ghp_0123456789abcdefghij0123'")
    log = lab.log(range(3), end, start="gx-043:7:7 [0] NCCL INFO cudaDriverVersion 12040\n")
    lab.run(log, context=JobContext(name="a", user="adalove"))
    incident = only(lab)
    for text in (incident.text, incident.summary):
        assert "the role of" in text or text is incident.summary
        assert not [name for name in ("adalove", "gx-043", "ghp_0123") if name in text]
