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
from diagnose.rules.lint.base import Check, Context, Rule
from diagnose.rules.secrets import Secrets

# What a log says once, above lines of letters that no pattern could tell from others.
_PRIVATE_KEY: Final = "PRIVATE KEY-----"
_INVENTED: Final = re.compile(r"[*<x$\[{]")  # as a value begins that stands for one
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

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._secrets = Secrets(context.rule_set)

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, text in _texts(rule):
            for offset, line in enumerate(text.split("\n")):
                if what := private(line, self._secrets):
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


def private(line: str, secrets: Secrets) -> str | None:
    """What a line gives away, in words; None when nothing obvious."""
    if _PRIVATE_KEY in line:
        return "a private key"
    for part in secrets.found(line):
        if not _INVENTED.match(line, part.start):
            return f"a {part.kind} ({part.what})"
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
