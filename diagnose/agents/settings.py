"""Which model to ask, how, and at what cost: one frozen object, made of `DIAGNOSE_LLM_*` at the edge.

In: a mapping of names to values (the environment), and what the command line overrides. Out: `ModelSettings`, or None
where no model is configured. Raises `UsageError` for values that cannot be meant. The key is read from the environment
or a file, never from a command line, and shows itself nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError

_KEY_BYTES = 8 * 1024
_OFF = ("", "0", "no", "off", "false", "none")


class Secret:
    """A key that is given away only when it is asked for by name."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The key itself, for the one header that carries it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        raise TypeError("a key is not written anywhere")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model behind one OpenAI-compatible address, and what a diagnosis may cost.

    `seconds` and `tokens` are for one diagnosis, all rounds and samples together; `day_tokens` for all processes that
    share `state` (a file; None: this process alone), by UTC days. `excerpt_tokens` bound what is shown of a log,
    `answer_tokens` what is taken from one answer, `answer_bytes` what is taken from the wire. A server that
    failed in so many diagnoses in a row (`outages`, 0 for never) is left alone for some minutes.
    """

    base_url: str
    model: str
    key: Secret | None = None
    seconds: float = 60.0
    tokens: int = 60_000
    day_tokens: int = 5_000_000
    excerpt_tokens: int = 6_000
    answer_tokens: int = 1_500
    answer_bytes: int = 1024 * 1024
    samples: int = 1
    temperature: float = 0.0
    attempts: int = 3
    outages: int = 3
    retry_wait: float = 0.5
    state: str | None = None
    cache: bool = True


def model_settings(environment: Mapping[str, str], *, model: str | None = None) -> ModelSettings | None:
    """The model that `DIAGNOSE_LLM_*` describes; None where there is none. `model` overrides the environment's."""

    def given(name: str) -> str:
        return environment.get(f"DIAGNOSE_LLM_{name}", "").strip()

    base_url, name = given("BASE_URL"), model or given("MODEL")
    if not base_url and not name:
        return None
    if not base_url:
        raise UsageError(
            f"a model is named ({_shown(name)}) but no server: set DIAGNOSE_LLM_BASE_URL, such as "
            "http://localhost:8000/v1 or https://api.openai.com/v1"
        )
    if not name:
        raise UsageError("DIAGNOSE_LLM_BASE_URL is set but no model: set DIAGNOSE_LLM_MODEL, or give --llm-model")
    default = ModelSettings("", "")
    return ModelSettings(
        _address(base_url),
        _name(name),
        _key(environment),
        seconds=_number(given("SECONDS"), "SECONDS", default.seconds, 0.1, 3_600.0),
        tokens=_count(given("TOKENS"), "TOKENS", default.tokens, 500),
        day_tokens=_count(given("DAY_TOKENS"), "DAY_TOKENS", default.day_tokens, 0),
        excerpt_tokens=_count(given("EXCERPT_TOKENS"), "EXCERPT_TOKENS", default.excerpt_tokens, 200, 1_000_000),
        answer_tokens=_count(given("ANSWER_TOKENS"), "ANSWER_TOKENS", default.answer_tokens, 64, 100_000),
        samples=_count(given("SAMPLES"), "SAMPLES", default.samples, 1, 15),
        temperature=_number(given("TEMPERATURE"), "TEMPERATURE", default.temperature, 0.0, 2.0),
        outages=_count(given("OUTAGES"), "OUTAGES", default.outages, 0, 1_000),
        state=state_of(environment),
        cache=given("CACHE").lower() not in _OFF if "DIAGNOSE_LLM_CACHE" in environment else True,
    )


def _address(given: str) -> str:
    try:
        parts = urlsplit(given)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or any(ord(char) < 33 or ord(char) == 127 for char in given):
        raise UsageError("DIAGNOSE_LLM_BASE_URL is no address: give one such as http://localhost:8000/v1")
    if parts.query or parts.fragment or parts.username is not None:
        raise UsageError(
            "DIAGNOSE_LLM_BASE_URL holds more than an address: leave out user, password, ? and #, and give the key by "
            "DIAGNOSE_LLM_API_KEY_FILE"
        )
    return given.rstrip("/")


def _name(given: str) -> str:
    if len(given) > 256 or not given.isprintable():
        raise UsageError("DIAGNOSE_LLM_MODEL is no name of a model: give one such as qwen2.5-72b-instruct")
    return given


def _key(environment: Mapping[str, str]) -> Secret | None:
    path = environment.get("DIAGNOSE_LLM_API_KEY_FILE", "").strip()
    value = environment.get("DIAGNOSE_LLM_API_KEY", "").strip()
    where = "DIAGNOSE_LLM_API_KEY"
    if path:
        where = "the file of DIAGNOSE_LLM_API_KEY_FILE"
        try:
            with open(path, "rb") as file:
                value = file.read(_KEY_BYTES + 1).decode("ascii", errors="replace").strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it has no usable name"
            raise UsageError(f"{where} cannot be read: {why}") from None
        if not value:
            raise UsageError(f"{where} is empty: put the key on its first line")
    if not value:
        return None
    if len(value) > _KEY_BYTES or not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError(f"{where} holds no key: one line of plain characters is expected")
    return Secret(value)


def state_of(environment: Mapping[str, str]) -> str | None:
    """Where processes share what they know of models and other servers; None for nowhere."""
    given = environment.get("DIAGNOSE_LLM_STATE", "").strip()
    if given.lower() == "none":
        return None
    if given:
        return os.path.abspath(os.path.expanduser(given))
    base = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "diagnose", "llm.sqlite3")


def _number(given: str, name: str, default: float, least: float, most: float) -> float:
    if not given:
        return default
    try:
        value = float(given)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(f"DIAGNOSE_LLM_{name} must be a number from {least:g} to {most:g}")
    return value


def _count(given: str, name: str, default: int, least: int, most: int = 1_000_000_000) -> int:
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 12 and least <= int(given) <= most):
        raise UsageError(f"DIAGNOSE_LLM_{name} must be a whole number from {least} to {most}")
    return int(given)


def _shown(text: str) -> str:
    from diagnose.sources.printable import printable

    return printable(text[:80])
