"""What many tests need: the shipped rules, loaded once, and a cache of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from diagnose.models import RuleSet
from diagnose.rules.load import load_rules


@pytest.fixture(scope="session")
def rule_set() -> RuleSet:
    return load_rules()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave nothing in the home directory of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
