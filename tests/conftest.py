"""What many tests need: the shipped rules, loaded once, and a cache of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from diagnose.models import RuleSet
from diagnose.rules.load import load_rules

if TYPE_CHECKING:
    from tests.stores import Lab


@pytest.fixture(scope="session")
def rule_set() -> RuleSet:
    return load_rules()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave nothing in the home directory of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        for name in [name for name in os.environ if name.startswith("DIAGNOSE_")]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def _same_directory() -> Iterator[None]:
    """A test that leaves the working directory changes what the next ones are shown."""
    before = os.getcwd()
    yield
    after = os.getcwd()
    if after != before:
        os.chdir(before)
        pytest.fail(f"the working directory was {before} and is {after}")


@pytest.fixture(autouse=True)
def _same_logging() -> Iterator[None]:
    """A service that a test ran in its own process has logged to what is closed when the test is over."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a Postgres server of this session's own."""
    from tests.stores import postgres_server

    with postgres_server() as uri:
        yield uri


@pytest.fixture(params=["sqlite", "postgres"])
def database_address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty memory, on each kind of database."""
    if request.param == "sqlite":
        yield str(tmp_path / "memory.sqlite3")
        return
    from tests.stores import new_database

    with new_database(request.getfixturevalue("postgres")) as uri:
        yield uri


@pytest.fixture
def lab(database_address: str, rule_set: RuleSet, tmp_path: Path) -> Iterator[Lab]:
    """A memory, and the means to run jobs that it remembers."""
    from diagnose.store.database import open_database
    from tests.stores import Lab

    (tmp_path / "logs").mkdir()
    with open_database(database_address) as database:
        yield Lab(database, rule_set, tmp_path / "logs")
