"""Secrets of a log do not reach a report, and what only looks a little like one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.models import RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.report import render
from diagnose.report.render import FORMATS
from diagnose.rules.secrets import hidden, without_secrets

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
    assert without_secrets(report) is report
