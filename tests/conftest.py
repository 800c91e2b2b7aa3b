"""What many tests need: the shipped rules, loaded once."""

from __future__ import annotations

import pytest

from diagnose.models import RuleSet
from diagnose.rules.load import load_rules


@pytest.fixture(scope="session")
def rule_set() -> RuleSet:
    return load_rules()
