"""Checks that examples give nobody away.

In: rules. Out: problems `secret`: keys, tokens, mail addresses, public IP addresses, people's home directories.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.lint.base import Check, Rule

_SECRETS: Final = (
    ("an AWS key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})")),
    ("a GitLab token", re.compile(r"\bglpat-[\w-]{20,}")),
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{30,}\b")),
    ("a Slack token", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("an API key", re.compile(r"\bsk-(?:[a-z]+-)?[A-Za-z0-9_-]{32,}")),
    ("a Google key", re.compile(r"\bAIza[\w-]{35}\b")),
    ("a web token", re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}")),
    ("a private key", re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")),
    ("a password in an address", re.compile(r"\b[a-z][a-z0-9+]{1,10}://[^\s/:@]{1,64}:[^\s/:@*<{$]{3,64}@")),
    (
        "a password",
        re.compile(
            r"(?:password|passwd|secret_key|api_key)['\"]?\s*[=:]\s*['\"]?(?![*<x$\[])[\w+/-]{12,}", re.IGNORECASE
        ),
    ),
)
_MAIL: Final = re.compile(r"\b[\w.+-]{1,64}@([\w-]{1,63}(?:\.[\w-]{1,63}){1,5})\b")
_INVENTED_DOMAINS: Final = (".example", ".test", ".invalid", ".local", ".internal", ".localhost")
_EXAMPLE_DOMAIN: Final = re.compile(r"(?:^|\.)example\.(?:com|org|net|edu)$")
_IPV4: Final = re.compile(r"(?<![\w.=-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
# Addresses that stand for themselves in documentation and programs: resolvers, wildcards.
_WELL_KNOWN: Final = frozenset({"8.8.8.8", "1.1.1.1", "0.0.0.0", "255.255.255.255"})  # noqa: S104 # names, not bound
_HOME: Final = re.compile(r"/(?:home|Users)/([a-z]{2,}[._][a-z]{2,})(?=/|\b)")


class NothingPrivate(Check):
    """Examples hold no secrets, names or addresses: what is needed is invented."""

    name = "secret"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, text in _texts(rule):
            for offset, line in enumerate(text.split("\n")):
                if what := private(line):
                    at = f" (line {offset + 1} of it)" if "\n" in text.rstrip("\n") else ""
                    yield self.problem(rule, where, f"holds {what}{at}; invent one: example.com, 10.0.0.1, user")
                    break


def _texts(rule: Rule) -> Iterator[tuple[str, str]]:
    if isinstance(rule, DiagnosisRule):
        for index, positive in enumerate(rule.examples.positive):
            yield f"examples.positive[{index}].log", positive.log
        for index, negative in enumerate(rule.examples.negative):
            yield f"examples.negative[{index}].log", negative.log
        return
    for index, line in enumerate(rule.examples.noise):
        yield f"examples.noise[{index}]", line
    for index, line in enumerate(rule.examples.signal):
        yield f"examples.signal[{index}]", line


def private(line: str) -> str | None:
    """What a line gives away, in words; None when nothing obvious."""
    for what, pattern in _SECRETS:
        if pattern.search(line):
            return what
    for found in _MAIL.finditer(line):
        domain = found[1].lower()
        if domain.endswith(_INVENTED_DOMAINS) or _EXAMPLE_DOMAIN.search(domain) or _is_address(domain):
            continue
        top = domain.rpartition(".")[2]
        if not domain[-1].isdigit() and len(top) >= 2 and "_" not in top:
            return f"the mail address {found[0]}"
    for found in _IPV4.finditer(line):
        if found[0] not in _WELL_KNOWN and _is_public(found[0]):
            return f"the public address {found[0]}"
    if found_home := _HOME.search(line):
        return f"what looks like a person's name, {found_home[1]}"
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_public(text: str) -> bool:
    """Whether an IPv4 address is one that somebody owns; small numbers are versions (2.18.3.1), not addresses."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return address.is_global and not address.is_multicast and max(address.packed) > 40
