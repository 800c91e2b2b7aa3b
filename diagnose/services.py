"""A run's services, built from settings: the memory of past runs, and whom to ask where no rule decides.

In: the environment (`DIAGNOSE_*`) and what the command line says. Out: `Opened`: what `pipeline.Services` takes beside
the rules. This is the only place that knows which parts make a service; it is imported only when something is
configured. A service that cannot be had is told and done without: the rules' answer never waits for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from diagnose.dataclass import dataclass, replace
from diagnose.errors import DiagnoseError, OutageError, StoreError, UsageError, installing
from diagnose.models import Line, Memory, Opinion, Report, RuleSet, SecondOpinion

if TYPE_CHECKING:
    from diagnose.agents.ledger import Ledger
    from diagnose.agents.log_agent import LogAgent
    from diagnose.agents.settings import ModelSettings
    from diagnose.models.learning import FilterAdviser
    from diagnose.store.database import Database
    from diagnose.store.memory import Owner, StoredMemory
    from diagnose.store.opening import IndexSettings
    from diagnose.store.recorder import Recorded

Tell = Callable[[str], None]

_YES, _NO = ("1", "yes", "on", "true"), ("", "0", "no", "off", "false", "none")
_SYNC_SECONDS = 5.0  # for incidents that the index does not know yet; others wait for the next time
_OUTAGES = 3  # in a row, after which the servers of the index are left alone for a while
_EVIDENCE = 500  # incidents whose lines no filter rule may hide


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Which services a run has.

    `database` is where the memory is, None for none; `records` whether runs are written down there. `nodes` is how many
    nodes the cluster has, for the budget of drains; `keep_days` for how long unconfirmed runs are kept;
    `index` is where past incidents are looked up by what they read like;
    `model` is whom to ask where nothing else decides. `log_agent` lets frequent lines become filter rules, which the
    memory keeps; without a model they are only proposed. In `state` processes share what they know of servers.
    """

    database: str | None = None
    records: bool = False
    nodes: int | None = None
    keep_days: float | None = None
    index: IndexSettings | None = None
    model: ModelSettings | None = None
    log_agent: bool = False
    state: str | None = None


def service_settings(
    environment: Mapping[str, str], *, record: bool = False, llm: bool = True, llm_model: str | None = None
) -> ServiceSettings:
    """What the environment and the command line ask for. Raises `UsageError` for values that cannot be meant."""
    settings = _memory_settings(environment, record=record)
    if settings.index is not None and settings.index.servers:
        from diagnose.agents.settings import state_of

        settings = replace(settings, state=state_of(environment))
    if not llm or not (llm_model or any(name.startswith("DIAGNOSE_LLM_") for name in environment)):
        return settings
    from diagnose.agents.settings import model_settings

    return replace(settings, model=model_settings(environment, model=llm_model))


def _memory_settings(environment: Mapping[str, str], *, record: bool) -> ServiceSettings:
    given = environment.get("DIAGNOSE_DATABASE", "").strip()
    wanted = environment.get("DIAGNOSE_RECORD", "").strip().lower()
    if wanted not in _YES + _NO:
        raise UsageError("DIAGNOSE_RECORD must be 1 or 0")
    records = record or wanted in _YES
    if given.lower() in ("none", "off") and not record:
        return ServiceSettings()
    learns = environment.get("DIAGNOSE_LOG_AGENT", "").strip().lower()
    if learns not in _YES + _NO:
        raise UsageError("DIAGNOSE_LOG_AGENT must be 1 or 0")
    database = database_place(environment) if given or records or learns in _YES else None
    return ServiceSettings(
        database=database,
        records=records,
        nodes=_number(environment, "DIAGNOSE_NODES", 1, 10_000_000),
        keep_days=_number(environment, "DIAGNOSE_KEEP_DAYS", 1, 100_000),
        index=None if database is None else _index(environment, database),
        log_agent=learns in _YES,
    )


def _index(environment: Mapping[str, str], database: str) -> IndexSettings:
    from diagnose.store.opening import index_settings

    return index_settings(environment, database)


def database_place(environment: Mapping[str, str]) -> str:
    """Where the memory is: `DIAGNOSE_DATABASE`, or a file in the user's folder of data."""
    given = environment.get("DIAGNOSE_DATABASE", "").strip()
    if given and given.lower() not in ("none", "off"):
        return given
    base = environment.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        home = environment.get("HOME", "") or os.path.expanduser("~")
        if not os.path.isabs(home):
            raise UsageError("there is no home directory to keep the memory in; set DIAGNOSE_DATABASE to a path")
        base = os.path.join(home, ".local", "share")
    return os.path.join(base, "diagnose", "memory.sqlite3")


def _number(environment: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    given = environment.get(name, "").strip()
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) < 12 and least <= int(given) <= most):
        raise UsageError(f"{name} must be a whole number from {least} to {most}")
    return int(given)


@dataclass(frozen=True, slots=True)
class Opened:
    """The services of one run; closed at the end of `services`."""

    memory: Memory | None = None
    second_opinion: SecondOpinion | None = None
    log_agent: FilterAdviser | None = None


@contextlib.contextmanager
def services(
    rules: RuleSet, settings: ServiceSettings, tell: Tell, on_recorded: Callable[[Recorded], None] | None = None
) -> Iterator[Opened]:
    """The services of one run. What cannot be had is told, and done without."""
    with contextlib.ExitStack() as stack:
        opened = Opened()
        if settings.database is not None:
            try:
                database = stack.enter_context(open_memory(settings.database))
                opened = stack.enter_context(services_on(database, rules, settings, tell, on_recorded))
            except DiagnoseError as error:
                tell(f"{'not recorded: ' if settings.records else ''}{error}; the report does without a memory")
        if settings.model is not None and opened.memory is None:
            ledger = _ledger(settings.model.state)
            opened = replace(opened, second_opinion=_with_model(opened.second_opinion, rules, settings.model, ledger))
        yield opened


@contextlib.contextmanager
def services_on(
    database: Database,
    rules: RuleSet,
    settings: ServiceSettings,
    tell: Tell,
    on_recorded: Callable[[Recorded], None] | None = None,
    project: str | None = None,
    owner: Owner | None = None,
) -> Iterator[Opened]:
    """The services of one run on a database that is open already, as a worker keeps it.

    Where a `project` is given, of other projects' incidents only type and outcome are told. `owner` says as what the
    run is recorded, see `StoredMemory`.
    """
    with contextlib.ExitStack() as stack:
        ledger = None if settings.model is None else _ledger(settings.model.state)
        memory = memory_of(database, rules, settings, tell, on_recorded, owner)
        opened = Opened(memory=memory, second_opinion=_advisers(database, rules, settings, project))
        if settings.log_agent:
            agent = log_agent_of(database, rules, settings, ledger)
            stack.callback(agent.close)
            opened = replace(opened, log_agent=agent)
        if settings.model is not None:
            opened = replace(opened, second_opinion=_with_model(opened.second_opinion, rules, settings.model, ledger))
        yield opened


def _advisers(
    database: Database, rules: RuleSet, settings: ServiceSettings, project: str | None = None
) -> SecondOpinion | None:
    if settings.index is None:
        return None
    from diagnose.agents.second_opinion import advisers
    from diagnose.store.healthy import HealthyTemplates

    past = _Past(database, rules, settings.index, settings.state, project)
    return advisers(rules, None, past, HealthyTemplates(database))


class _Past:
    """Past incidents, looked up when somebody asks: most runs do not, and Chroma takes a second to load."""

    def __init__(
        self, database: Database, rules: RuleSet, settings: IndexSettings, state: str | None, project: str | None
    ) -> None:
        self._database = database
        self._project = project
        self._rules = rules
        self._settings = settings
        self._state = state

    def opinion(self, text: str) -> Opinion:
        """What they say of a failure that reads like this. Servers that failed again and again are not waited for."""
        if not self._settings.servers:
            return self._looked_up(text)
        ledger = _ledger(self._state)
        with contextlib.closing(ledger):
            if left := ledger.left_alone(self._settings.servers, _OUTAGES):
                raise OutageError(
                    f"the servers of the index failed {left[0]} times in a row: they are not asked for another "
                    f"{left[1]} s; see DIAGNOSE_EMBEDDINGS_URL and DIAGNOSE_CHROMA_URL"
                )
            try:
                found = self._looked_up(text)
            except OutageError:
                ledger.failed(self._settings.servers)
                raise
            ledger.served(self._settings.servers)
            return found

    def _looked_up(self, text: str) -> Opinion:
        from diagnose.agents.retrieval import PastIncidents
        from diagnose.store.incidents import StoredIncidents
        from diagnose.store.opening import open_index

        incidents = StoredIncidents(self._database)
        if not len(incidents):
            return Opinion()
        with contextlib.closing(open_index(self._settings, incidents, self._rules.redactions)) as index:
            index.sync(seconds=_SYNC_SECONDS)
            if self._project is None:
                return PastIncidents(index).opinion(text)
            from diagnose.store.discreet import Discreet

            return PastIncidents(Discreet(index, incidents, self._project)).opinion(text)


def _ledger(state: str | None) -> Ledger:
    from diagnose.agents.ledger import Ledger

    return Ledger(state)


def _with_model(
    known: SecondOpinion | None, rules: RuleSet, model: ModelSettings, ledger: Ledger | None
) -> SecondOpinion:
    """Whom to ask, with a model beside what past incidents say."""
    from diagnose.agents.second_opinion import Advisers, advisers

    if not isinstance(known, Advisers):
        return advisers(rules, model, ledger=ledger)
    return advisers(rules, model, known.neighbours, known.healthy, ledger)


@contextlib.contextmanager
def open_memory(place: str) -> Iterator[Database]:
    """The database of a place, closed at the end. Raises `StoreError`."""
    try:
        from diagnose.store.database import open_database
    except ModuleNotFoundError as error:
        raise StoreError(f"a memory needs {error.name}, which is not installed: {installing('memory')}") from error
    with open_database(place) as database:
        yield database


def memory_of(
    database: Database,
    rules: RuleSet,
    settings: ServiceSettings,
    tell: Tell,
    on_recorded: Callable[[Recorded], None] | None = None,
    owner: Owner | None = None,
) -> StoredMemory:
    """The memory of runs in a database."""
    from diagnose.report.contract import to_json
    from diagnose.rules.secrets import Secrets
    from diagnose.store.healthy import HealthyTemplates
    from diagnose.store.memory import StoredMemory

    return StoredMemory(
        database,
        tell,
        Secrets(rules).hidden,
        records=settings.records,
        teller=lambda: Gathered(rules, HealthyTemplates(database)),
        document=to_json,
        on_recorded=on_recorded,
        nodes=settings.nodes,
        keep_days=settings.keep_days,
        owner=owner,
    )


def log_agent_of(
    database: Database, rules: RuleSet, settings: ServiceSettings, ledger: Ledger | None = None
) -> LogAgent:
    """Who proposes filter rules; what proves an incident, in a checkout or in the memory, none of them may hide."""
    from diagnose.agents.log_agent import LogAgent
    from diagnose.redaction import Redactor
    from diagnose.store.candidates import StoredCandidates
    from diagnose.store.incidents import StoredIncidents

    def evidence() -> Iterator[tuple[str, str]]:
        from diagnose.rules.lint.checkout import read_fixtures
        from diagnose.rules.lint.run import fixtures_beside
        from diagnose.rules.tree import shipped_rules

        yield from read_fixtures(fixtures_beside(shipped_rules())).evidence
        with contextlib.suppress(DiagnoseError):
            for incident in StoredIncidents(database).latest(confirmed=True, limit=_EVIDENCE):
                yield from ((incident.id, line) for line in incident.text.split("\n"))

    model = None
    if settings.model is not None:
        from diagnose.agents.model import ChatModel

        model = ChatModel(settings.model, ledger)
    return LogAgent(
        rules,
        StoredCandidates(database),
        redact=lambda: Redactor(rules.redactions).redact,
        model=model,
        evidence=evidence,
    )


class Gathered:
    """Tells the most telling lines of a run, redacted: what an incident is found again by."""

    def __init__(self, rules: RuleSet, healthy: Container[str] = frozenset()) -> None:
        from diagnose.agents.excerpt import Gatherer

        self._rules = rules
        self._gatherer = Gatherer(healthy)

    def observe(self, line: Line) -> None:
        """Takes a line."""
        self._gatherer.observe(line)

    def told(self, report: Report, hosts: Sequence[str], users: Sequence[str]) -> tuple[str, str]:
        """The deciding lines with their surroundings, and the cause in one sentence."""
        from diagnose.agents.excerpt import REMEMBERED_TOKENS, deciding_text
        from diagnose.redaction import Redactor

        blamed = (culprit.id for culprit in report.culprits if culprit.kind == "host")
        names = sorted({*self._gatherer.holder.hosts, *blamed, *hosts})
        redactor = Redactor(self._rules.redactions, hosts=names, users=users)
        text = deciding_text(report, self._gatherer.excerpt(report, REMEMBERED_TOKENS))
        summary = report.root_cause.summary if report.root_cause else ""
        return redactor.redact(text), redactor.redact(summary)
