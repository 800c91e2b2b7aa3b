"""The matcher: what a rule says of a record, what a record says by itself, and what is only quoted."""

import pytest

from diagnose.lines import LineReader, RecordAssembler
from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import KeptLine, LogSource, Match, Record, RuleSet, Table
from diagnose.models.rule import Lookup, TableAction, TableRow
from diagnose.rules.aggregate import Aggregator
from diagnose.rules.findings import resolve
from diagnose.rules.judge import Judge
from diagnose.rules.matcher import HitStore, Matcher, decided_by_one
from diagnose.rules.sighting import EvidenceDraft
from diagnose.settings import Limits
from tests.made import FAMILIES, Sightings, line, rule, rules, sightings

RAISED = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    step(batch)
RuntimeError: the device went away
"""
AWAY = rule("device-away", signatures={"went away": r"RuntimeError: the device went away"}, error_type="CUDAError")


# A rule refines an exception.


def test_an_exception_speaks_for_itself_where_no_rule_does():
    (made,) = sightings(rules(), RAISED).kept
    assert (made.rule, made.error_type, made.role, made.line.number) == (None, "RuntimeError", "cause", 4)
    assert made.captures["message"] == "the device went away"
    assert made.survivable


def test_a_rule_says_what_the_exception_means():
    assert sightings(rules(AWAY), RAISED).told == [("device-away", "CUDAError", 4)]


def test_a_rules_sighting_knows_the_exception_and_its_file():
    (made,) = sightings(rules(AWAY), RAISED).kept
    assert made.captures["exception"] == "RuntimeError"
    assert made.captures["file"] == "/home/me/train.py:12"


def test_a_rule_for_another_kind_of_source_refines_nothing():
    kernel = rule(signatures={"went away": "went away"}, sources=("kernel",))
    assert sightings(rules(kernel), RAISED).told == [(None, "RuntimeError", 4)]


def test_a_rule_over_several_signatures_refines_nothing_before_it_is_decided():
    pair = rule(signatures={"went away": "went away", "never": "never"}, match=Match(all=("went away", "never")))
    assert sightings(rules(pair), RAISED).told == [(None, "RuntimeError", 4)]


# Teardown.

CLOSED = rule("closed", signatures={"gave up": "gave up"}, role="teardown", error_type="Terminated")


def test_a_teardown_rule_elsewhere_in_the_record_takes_nothing_from_the_exception():
    log = RAISED.replace("    step(batch)\n", "    step(batch)  # the peer gave up\n")
    assert sorted(sightings(rules(CLOSED), log).told, key=str) == sorted(
        [("closed", "Terminated", 3), (None, "RuntimeError", 4)], key=str
    )


def test_a_teardown_rule_in_the_words_of_the_exception_refines_it():
    log = RAISED.replace("the device went away", "the peer gave up")
    assert sightings(rules(CLOSED), log).told == [("closed", "Terminated", 4)]


def test_a_teardown_rule_on_the_wrapper_leaves_the_cause_to_speak():
    log = RAISED + (
        "\nThe above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/home/me/launch.py", line 3, in <module>\n    main()\nRuntimeError: worker gave up\n'
    )
    told = sightings(rules(CLOSED), log).told
    assert (None, "RuntimeError", 4) in told
    assert ("closed", "Terminated", 11) in told


def test_a_cause_rule_anywhere_in_the_record_refines_it():
    log = RAISED.replace("    step(batch)\n", "    went_away(batch)\n")
    anywhere = rule("anywhere", signatures={"went_away": "went_away"})
    assert sightings(rules(anywhere), log).told == [("anywhere", "CUDAError", 3)]


def test_an_exception_cites_the_other_half_of_its_chain_and_its_own_place():
    log = (
        'Traceback (most recent call last):\n  File "/home/me/data.py", line 5, in get\n    return d[k]\n'
        "KeyError: 'role'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + RAISED.replace("step(batch)", "get(k)")
    )
    (made,) = sightings(rules(), log).kept
    assert (made.error_type, made.line.number, [line.number for line in made.also]) == ("KeyError", 4, [11])
    assert made.captures["file"] == "/home/me/data.py:5"
    of_library = log.replace("/home/me/data.py", "/env/lib/python3.11/site-packages/data.py")
    (made,) = sightings(rules(), of_library).kept
    assert (made.error_type, made.line.number, [line.number for line in made.also]) == ("RuntimeError", 11, [4])
    assert made.captures["file"] == "/home/me/train.py:12"


# What stands beside.

BESIDE = rule(
    "lost",
    signatures={"serves at": r"serves at (?P<place>\S+)", "service lost": "service lost"},
    match=Match(any=("service lost",), beside=("serves at",)),
)


def test_what_was_said_earlier_beside_it_joins_the_captures():
    (made,) = sightings(rules(BESIDE), "serves at n1:80\nserves at n2:81\nservice lost\nserves at n3:82\n").kept
    assert (made.line.number, dict(made.captures)) == (3, {"place": "n2:81"})


def test_what_stands_beside_makes_no_finding_and_is_not_needed():
    assert sightings(rules(BESIDE), "serves at n1:80\n").kept == []
    assert [dict(made.captures) for made in sightings(rules(BESIDE), "service lost\n").kept] == [{}]


def test_what_another_log_said_does_not_stand_beside():
    made = sightings(rules(BESIDE), {"a.log": "serves at n1:80\n", "b.log": "service lost\n"}).kept
    assert [dict(one.captures) for one in made] == [{}]


# Look-up rows.

TABLE = Table(
    "codes",
    {
        "48": TableRow("48", "double bit error", "ECCError", columns={"unit": "memory"}),
        "13": TableRow("13", survivable=True, role="symptom", actions=(TableAction("read the job", "the manual"),)),
    },
)
GENERAL = rule(
    "any-code",
    signatures={"code": r"code=(?P<xid>\d+)"},
    lookup=Lookup("codes", "xid"),
    captures={"xid": "int"},
)


def test_a_row_says_what_a_code_is():
    (made,) = sightings(rules(GENERAL, tables=[TABLE]), "fault code=48\n").kept
    assert (made.error_type, made.role, made.survivable) == ("ECCError", "cause", False)
    assert made.captures == {"xid": 48, "unit": "memory", "title": "double bit error"}


def test_a_row_may_change_role_and_survival_alone():
    (made,) = sightings(rules(GENERAL, tables=[TABLE]), "fault code=13\n").kept
    assert (made.error_type, made.role, made.survivable) == ("CUDAError", "symptom", True)
    assert made.captures["table_action"] == "read the job (the manual)"


@pytest.mark.parametrize("tables", [[TABLE], []], ids=["no row", "no table"])
def test_without_a_row_the_rule_speaks(tables):
    (made,) = sightings(rules(GENERAL, tables=tables), "fault code=999\n").kept
    assert (made.error_type, dict(made.captures)) == ("CUDAError", {"xid": 999})


def test_a_rule_that_names_the_code_itself_stands_before_the_general_one():
    own = rule("own", signatures={"code=48": r"code=(?P<xid>48)\b"}, error_type="NetworkError")
    made = sightings(rules(GENERAL, own, tables=[TABLE]), "fault code=48\nfault code=13\n")
    assert made.told == [("own", "NetworkError", 1), ("any-code", "CUDAError", 2)]


def test_what_a_pattern_captured_stands_before_a_column():
    row = Table("codes", {"7": TableRow("7", columns={"unit": "memory"})})
    own = rule(signatures={"code": r"code=(?P<xid>\d+) (?P<unit>\w+)"}, lookup=Lookup("codes", "xid"))
    (made,) = sightings(rules(own, tables=[row]), "code=7 fabric\n").kept
    assert made.captures["unit"] == "fabric"


# Shadow.

SHADOW = rule("shadow", signatures={"went away": "went away"}, error_type="CUDAError", status="experimental")


def test_an_experimental_rule_is_seen_and_refines_nothing():
    assert sorted(sightings(rules(SHADOW), RAISED).told, key=str) == sorted(
        [("shadow", "CUDAError", 4), (None, "RuntimeError", 4)], key=str
    )


def judged(rule_set: RuleSet, log: str):
    """The judgement on one attempt that printed a log."""
    groups = Aggregator(Limits(), FAMILIES)
    for sighting in sightings(rule_set, log).kept:
        groups.add(sighting, EvidenceDraft(sighting.line), traceback=sighting.rule is None)
    found = resolve(groups, rule_set, {0: AttemptProgress()}, {}, Inventory()).findings
    return Judge(rule_set).judge(0, found, AttemptProgress()), found


def test_an_experimental_rule_decides_nothing():
    judgement, found = judged(rules(SHADOW), RAISED)
    assert {(one.rule, one.shadow) for one in found} == {("shadow", True), (None, False)}
    assert judgement.root.error_type == "RuntimeError"
    assert judgement.rivals == ()
    alone, _ = judged(rules(SHADOW), "it went away\n")
    assert (alone.status, alone.root) == ("inconclusive", None)


def test_the_same_rule_decides_once_it_is_no_experiment():
    judgement, _ = judged(rules(AWAY), RAISED)
    assert judgement.root.rule == "device-away"


@pytest.mark.parametrize(
    ("log", "how"),
    [
        (RAISED, {"error_type": "NCCLTimeoutError"}),
        ("slurmstepd: error: it went away\n" + RAISED, {"error_type": "ProcessKilled"}),
        ("it went away\n" + RAISED, {"error_type": "ChildFailed", "role": "teardown"}),
    ],
)
def test_an_experimental_rule_changes_no_verdict(log, how):
    without, _ = judged(rules(), log)
    shadow = rule("shadow", signatures={"went away": "went away"}, status="experimental", **how)
    beside, _ = judged(rules(shadow), log)
    assert (beside.status, beside.root.error_type) == (without.status, without.root.error_type)


def test_an_experimental_mismatch_is_no_cause():
    """Ranks' reports gathered by an experimental rule must not become a cause by way of their comparison."""
    signatures = {"stuck": r"stuck seq=(?P<seq>\d+) op=(?P<op>\w+)"}
    shadow = rule(
        "shadow", signatures=signatures, error_type="NCCLTimeoutError", status="experimental", captures={"seq": "int"}
    )
    judgement, _ = judged(rules(shadow), "[rank0]: stuck seq=7 op=ALLREDUCE\n[rank1]: stuck seq=7 op=BROADCAST\n")
    assert judgement.root is None


def shadow_of(error_type, **how):
    return rule("shadow", signatures={"went away": "went away"}, status="experimental", error_type=error_type, **how)


@pytest.mark.parametrize(
    "shadow",
    [
        pytest.param((), id="without"),
        pytest.param(
            (shadow_of("ChildFailed", role="teardown"),),
            id="beside",
        ),
    ],
)
def test_an_experimental_rule_proves_no_failure(shadow):
    judgement, _ = judged(rules(*shadow), "it went away\n")
    assert (judgement.status, judgement.root) == ("inconclusive", None)


@pytest.mark.parametrize(
    "shadow",
    [
        pytest.param((), id="without"),
        pytest.param(
            (shadow_of("KeyError"),),
            id="beside",
        ),
    ],
)
def test_an_experimental_rule_acquits_nothing(shadow):
    """A survivable finding is not outlived because of what only an experiment saw after it."""
    trouble = rule("trouble", signatures={"link lost": "link lost"}, error_type="NetworkError", survivable=True)
    judgement, _ = judged(rules(trouble, *shadow), "link lost\nit went away\n")
    assert judgement.root is not None
    assert judgement.root.rule == "trouble"


def test_an_experimental_rule_does_not_stand_before_the_general_one():
    own = rule("own", signatures={"code=48": r"code=(?P<xid>48)\b"}, status="experimental")
    assert ("any-code", "ECCError", 1) in sightings(rules(GENERAL, own, tables=[TABLE]), "fault code=48\n").told


def test_a_deprecated_rule_is_not_tried():
    old = rule(signatures={"went away": "went away"}, status="deprecated")
    assert sightings(rules(old), RAISED).told == [(None, "RuntimeError", 4)]
    assert Matcher(rules(old), Sightings(), Limits()).keywords == ()


# Quoted lines.

LOUD = rule("loud", signatures={"went away": "went away"}, sources=("job",))


@pytest.mark.parametrize(
    "log",
    [
        "target    | RuntimeError: the device went away",
        "doc 12 prediction: the device went away",
        '{"prompt": "why has the device went away", "completion": "it did"}',
        "+ echo the device went away",
        "usage: train.py [--when the device went away]",
    ],
)
def test_quoted_lines_never_match(log):
    assert sightings(rules(LOUD), log + "\n").told == []


def test_what_is_not_quoted_matches_beside_what_is():
    log = "target    | it went away\nERROR it went away\n"
    assert sightings(rules(LOUD), log).lines == [("job.log", 2)]


def test_quoted_lines_count_in_no_rule_over_several_signatures():
    pair = rule(
        signatures={"went away": "went away", "came back": "came back"}, match=Match(all=("went away", "came back"))
    )
    assert sightings(rules(pair), "it went away\ntarget    | it came back\n").told == []


# The rest.


def test_the_last_stage_reads_every_line_that_matches():
    log = "".join(f"[rank{rank}]: it went away\n" for rank in range(64))
    made = sightings(rules(LOUD), log)
    assert [one.rank for one in made.kept] == list(range(64))


def test_captures_default_to_what_the_prefix_says():
    (made,) = sightings(rules(LOUD), "[rank5]: it went away\n").kept
    assert made.captures["rank"] == 5
    own = rule(signatures={"went away": r"rank (?P<rank>\d+) went away"})
    (made,) = sightings(rules(own), "[rank5]: rank 2 went away\n").kept
    assert made.rank == 2


def test_a_pattern_that_takes_too_long_is_stopped_and_counted():
    slow = rule("slow", signatures={"aaa": r"(a|aa)+$"})
    matcher = Matcher(rules(slow), Sightings(), Limits(pattern_seconds=0.01))
    (signature,) = matcher._gate.candidates("aaa", "job")
    assert matcher.search(signature, "a" * 5000 + "b") == []
    assert matcher.timeouts == {("slow", "aaa"): 1}
    assert matcher.unmatched == ["some of what rule slow looks for: its pattern aaa ran out of time 1x"]


def test_a_pattern_that_is_stopped_again_and_again_is_given_up():
    slow = rule("slow", signatures={"aaa": r"(a|aa)+$"})
    matcher = Matcher(rules(slow, LOUD), Sightings(), Limits(pattern_seconds=0.01))
    (signature,) = matcher._gate.candidates("aaa", "job")
    for _ in range(5):
        assert matcher.search(signature, "a" * 5000 + "b") == []
    assert matcher.timeouts == {("slow", "aaa"): 3}
    assert matcher.unmatched == [
        "some of what rule slow looks for: its pattern aaa ran out of time 3x and was given up"
    ]
    (other,) = matcher._gate.candidates("went away", "job")
    assert len(matcher.search(other, "it went away")) == 1


def test_of_very_many_rules_that_match_one_line_the_most_specific_are_heard():
    many = [rule(f"r{n:03}", signatures={"away": "away"}) for n in range(90)]
    exact = rule("z-exact", signatures={"it went away": "it went away"})
    sink = Sightings()
    matcher = Matcher(rules(*many, exact), sink, Limits())
    source = matcher.source(line().source)
    for number in (1, 2):
        source.record(Record("line", (line(number=number, text="it went away"),), "it went away"), 0)
    assert len(sink.kept) == 2 * 64
    assert ("z-exact", "CUDAError", 1) in sink.told
    (told,) = matcher.unmatched
    assert told.startswith("some of what rules look for in job.log:1 (the first of 2 such places): more than 64 ")


def test_matches_per_record_are_bounded():
    matcher = Matcher(rules(LOUD), Sightings(), Limits())
    (signature,) = matcher._gate.candidates("went away", "job")
    assert len(matcher.search(signature, "went away " * 1000)) == 32


def test_a_store_keeps_the_first_and_the_latest():
    store = HitStore()
    for number in range(5000):
        store.add(number)
    kept = store.all()
    assert (len(kept), kept[0], kept[511], kept[512], kept[-1], store.count) == (1024, 0, 511, 4488, 4999, 5000)


def test_only_a_plain_any_is_decided_at_once():
    names = {"x": "x", "y": "y"}
    assert decided_by_one(rule(signatures=names))
    for match in (Match(all=("x", "y")), Match(any=("x",), unless=("y",)), Match(any=("x",), min_count=2)):
        assert not decided_by_one(rule(signatures=names, match=match))


def test_context_stands_around_the_evidence():
    log = "".join(f"line {number}\n" for number in range(1, 11)).replace("line 6", "it went away")
    drafts = []

    class Sink(Sightings):
        def add(self, sighting, draft, *, traceback):
            drafts.append(draft)

    matcher = Matcher(rules(LOUD), Sink(), Limits())
    source = LogSource("job.log")
    reader, records, matching = LineReader(source, Limits()), RecordAssembler(source, Limits()), matcher.source(source)
    for number, raw in enumerate(log.splitlines(), 1):
        for one in reader.read(KeptLine(number, raw.encode())):
            matching.line(one)
            for record in records.feed(one):
                matching.record(record, 0)
    (draft,) = drafts
    assert draft.before == ("line 3", "line 4", "line 5")
    assert draft.after == ["line 7", "line 8", "line 9", "line 10"]
