"""Secrets of a log do not reach a report, and what only looks a little like one does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from diagnose.dataclass import replace
from diagnose.models import RuleSet
from diagnose.models.rule import RedactionRule
from diagnose.pipeline import Request, Services, diagnose
from diagnose.report import render
from diagnose.report.render import FORMATS
from diagnose.rules.lint.redactions import JOINT
from diagnose.rules.load import load_rules
from diagnose.rules.redactions import Finder, merged
from diagnose.rules.secrets import Secrets, without_secrets
from tests.test_redaction_leaks import secrets

RULES = load_rules()  # with their examples
hidden = Secrets(RULES).hidden
# Put together here, so that no scanner takes them for real ones.
LETTERS = "AbCdEfGhIj0123456789KlMnOpQrStUvWxYz"


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("git clone https://bob:", "hunter2" + LETTERS, "@example.com/x.git"),
        ("git clone https://", "ghp_" + LETTERS, "@example.com/x.git"),
        ("redis://:", "hunter2", "@cache:6379/0 refused"),
        ("pushing with hf_", LETTERS[:34], " failed"),
        ("key AK", "IA" + "ABCDEFGH01234567", " is not valid"),
        ("OPENAI_API_KEY=", "sk-" + LETTERS, " was refused"),
        ("Authorization: Bearer ", LETTERS, ""),
        ("headers {'Authorization': 'Basic ", LETTERS, "'}"),
        ("jwt ey", "J" + LETTERS + ".eyJ" + LETTERS + "." + LETTERS, " expired"),
        ("password=", "hunter2", " user=bob"),
        ("AWS_SECRET_ACCESS_KEY='", LETTERS + "/" + LETTERS, "'"),
        ('{"api_key": "', LETTERS, '", "n": 1}'),
        ("for url: /x?token=", LETTERS, "&page=2"),
        ("X-Amz-Signature=", "deadbeef01234567deadbeef01234567", "&X-Amz-Date=20260101"),
    ],
)
def test_a_secret_is_hidden_and_the_rest_stays(before: str, secret: str, after: str) -> None:
    shown = hidden(before + secret + after)
    assert secret[-16:] not in shown
    assert "***" in shown
    assert shown.endswith(after)
    assert shown.startswith(before[:4])


@pytest.mark.parametrize(
    "text",
    [
        "tokens: 4096, num_tokens=123456789012, pad_token=<|endoftext|>",
        "KeyError: 'secret_key'",
        "Token indices sequence length is longer than 4096 tokens: 123456",
        "tokenizer=/models/llama-3-70b-instruct-v2 token_type_ids",
        "password=None token=True api_key=***",
        "http://10.0.0.1:29500/x@y and tcp://node-01:1234",
        "commit 0123456789abcdef0123456789abcdef01234567 loaded",
        "sha256:" + "ab12" * 16,
        "Bearer of bad news: NCCL error",
        "access key: the bucket policy denies it",
        "Permission denied: /etc/secret/keys",
        "hf_hub_download failed; sk-learn is missing",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hidden(text) == text


def test_looking_is_linear() -> None:
    for piece in ("password", "secret_", "token=", "://a", "a-_", "eyJ", "Bearer ", "A1"):
        hidden("password=" + piece * 20_000)


def test_no_rendering_shows_a_secret(tmp_path: Path, rule_set: RuleSet) -> None:
    log = tmp_path / "job.log"
    address = f"https://bob:{LETTERS}@hub.example/x?token={LETTERS[::-1]}"
    log.write_text(
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/train.py", line 3, in <module>\n'
        "[rank0]:     main()\n"
        f"[rank0]: requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: {address}\n"
    )
    report = diagnose(Request([str(log)]), Services(rule_set))
    assert report.status == "failed"
    for form in FORMATS:
        text = render(report, form, explain=True, verbose=True)
        assert LETTERS not in text
        assert LETTERS[::-1] not in text
        assert "hub.example" in text
    assert without_secrets(report, rule_set) is report


SECRET_RULES = [rule for rule in RULES.redactions if rule.kind in ("key", "password") and rule.keywords]


@pytest.mark.parametrize("rule", SECRET_RULES, ids=lambda rule: rule.id)
def test_reports_hide_what_the_redaction_rules_call_a_secret(rule: RedactionRule) -> None:
    for example in rule.examples.positive:
        shown = hidden(example.text.replace(JOINT, ""))
        assert "***" in shown
        assert not any(part.replace(JOINT, "") in shown for part in example.hidden)


def test_both_engines_find_the_same() -> None:
    """Reports search by `re`, which keeps what it compiles; what leaves the process is searched against a clock."""
    texts = [
        example.text.replace(JOINT, "")
        for rule in RULES.redactions
        for example in (*rule.examples.positive, *rule.examples.negative)
    ]
    texts += [planted for seed in range(5) for planted, _ in secrets(seed).values()]
    texts += [f"rank 3: é {text}\nnext" for text in texts]
    quick, patient = Finder(SECRET_RULES, timed=False), Finder(SECRET_RULES)
    for text in texts:
        assert merged(quick.find(text)) == merged(patient.find(text)), text


def test_a_sites_rule_hides_in_reports_and_cannot_hang_them() -> None:
    rule = replace(SECRET_RULES[0], id="badge", keywords=("badge",), ignore_case=False, must=None)
    site = replace(RULES, version=f"{RULES.version}+0123abcd")
    known = Secrets(replace(site, redactions=(replace(rule, pattern=r"badge (?P<hidden>B-\d{4})"),)))
    assert known.hidden("shown badge B-1234 to the gate") == "shown badge *** to the gate"
    slow = Secrets(replace(site, redactions=(replace(rule, pattern=r"badge (?:a|aa)+$"),)))
    assert slow.hidden("x\nbadge " + "a" * 60 + "b\ny") == "x\n***\ny"


def test_a_text_without_a_keyword_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diagnose.rules.redactions", None)  # importing it would raise
    assert Secrets(RULES).hidden("RuntimeError: CUDA error: an illegal memory access") == (
        "RuntimeError: CUDA error: an illegal memory access"
    )
    with pytest.raises(ImportError):
        Secrets(RULES).hidden("password=hunter2x")
