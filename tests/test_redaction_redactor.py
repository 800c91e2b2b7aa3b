"""Placeholders take the place of what is private, and only this diagnosis's own are taken back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.redaction import Redactor, load_redactions

RULES = load_redactions()


def test_the_same_name_gets_the_same_placeholder_and_comes_back() -> None:
    redactor = Redactor(RULES, hosts=["gx-043", "titan.cluster.example"])
    first = redactor.redact("gx-043: connect to 10.1.2.3 failed\ntitan died")
    assert first == "<host-1>: connect to <ip-1> failed\n<host-2> died"
    assert redactor.redact("10.1.2.3 is gx-043") == "<ip-1> is <host-1>"
    assert redactor.restore("<host-1> lost <ip-1>") == "gx-043 lost 10.1.2.3"


def test_a_planted_placeholder_is_never_taken_for_one() -> None:
    redactor = Redactor(RULES, hosts=["gx-043"])
    text = "gx-043 says <host-1> and <host-2> and <key-7>"
    redacted = redactor.redact(text)
    assert redacted == "<host-1> says <literal-1> and <literal-2> and <literal-3>"
    assert redactor.restore(redacted) == text
    assert redactor.restore("<host-2> <host-9> <HOST-1>") == "<host-2> <host-9> <HOST-1>"


def test_whom_a_path_names_is_hidden_elsewhere() -> None:
    redactor = Redactor(RULES)
    redacted = redactor.redact('File "/home/alice/lm/train.py", line 3\nalice cancelled it')
    assert redacted == 'File "<path-1>/train.py", line 3\n<user-1> cancelled it'


_PIECES = st.sampled_from(
    ["<host-1>", "<", ">", "host-", "1", "gx-043", "10.0.0.1", " ", "\n", "/home/bob/", "password=", "İ", "ß", "a@b.co"]
)


@given(st.lists(_PIECES, max_size=30).map("".join))
@settings(max_examples=200, deadline=None)
def test_what_is_redacted_can_be_restored(text: str) -> None:
    redactor = Redactor(RULES, hosts=["gx-043"], users=["bob"])
    redacted = redactor.redact(text)
    assert redactor.restore(redacted) == text
    assert "gx-043" not in redacted.split()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_shipped_rules_are_told_apart(rule) -> None:
    assert rule.kind
