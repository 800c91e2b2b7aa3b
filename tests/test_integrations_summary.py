"""The verdict in short: from any JSON, and the words made of it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.dataclass import replace
from diagnose.integrations.kubernetes.workloads import failures_of, pruned, workload_of
from diagnose.integrations.summary import NodeAdvice, Summary, cut, cut_bytes, summary_of

SOME = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
REPORT = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("status", "error_type", "attribution", "root_cause", "culprits", "recovery", "sureness"), JSON
    ),
)
POD = st.fixed_dictionaries({}, optional=dict.fromkeys(("metadata", "spec", "status"), JSON))
ECC = Summary(
    "failed", "ECCError", "infrastructure", "confirmed", "Xid 95", job="restart_elsewhere", hosts=("gx-043",),
    units=("gx-043", "gpu 0000:5d:00"), nodes=(NodeAdvice("gx-043", "drain"),), from_checkpoint="/ckpt/18400",
)  # fmt: skip


@SOME
@given(JSON | REPORT)
def test_any_json_has_a_summary(given_json: object) -> None:
    summary = summary_of(given_json)
    line = summary.line(120)
    assert len(line.encode()) <= 120
    assert line.isprintable()
    assert summary.effect in ("stop", "restart", "elsewhere", "no opinion")


@SOME
@given(POD)
def test_any_json_may_be_a_pod(pod: dict[str, object]) -> None:
    workload_of(pod)
    failures_of(pod)
    pruned(pod)


@SOME
@given(st.text(), st.integers(0, 200))
def test_texts_are_cut_between_characters(text: str, most: int) -> None:
    assert len(cut_bytes(text, most).encode()) <= most
    assert len(cut(text, most + 3).encode()) <= most + 3


def test_the_line() -> None:
    assert ECC.line() == (
        "FAILED infrastructure ECCError gx-043, gpu 0000:5d:00: Xid 95; job: restart elsewhere from /ckpt/18400 without gx-043; "
        "gx-043: drain; confirmed"
    )
    assert Summary("no_failure", job="none").line() == "NO FAILURE"
    assert Summary("inconclusive", job="restart").line() == "INCONCLUSIVE; job: restart"
    assert (
        replace(ECC, attribution="user", error_type="JobCancelled")
        .headline()
        .startswith("FAILED the user JobCancelled")
    )


def test_what_a_launcher_should_do() -> None:
    assert ECC.effect == "elsewhere"
    assert replace(ECC, job="fix_and_resubmit").effect == "stop"
    assert replace(ECC, job="none").effect == "stop"
    assert replace(ECC, job="fix_and_resubmit", sureness="possible").effect == "no opinion"
    assert replace(ECC, job="wait_and_retry").effect == "restart"
    assert replace(ECC, error_type=None, job="restart").effect == "no opinion"
    assert replace(ECC, status="inconclusive").effect == "no opinion"
