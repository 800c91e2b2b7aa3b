"""A model behind any OpenAI-compatible address: one question, one answer, whatever happens on the way.

In: `ModelSettings`, messages, the JSON Schema of the answer, an `Allowance`. Out: a `ModelAnswer`, whose state says
what became of the question. Nothing is raised for a server that is away, slow, broken or hostile, and no text of the
server's gets into a message. What is asked must be redacted already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from diagnose.agents.allowance import Allowance, tokens_of
from diagnose.agents.answers import Json, Schema, object_of
from diagnose.agents.ledger import Ledger, LedgerError
from diagnose.agents.settings import ModelSettings
from diagnose.agents.wire import Exchange, Late, within
from diagnose.dataclass import dataclass, replace
from diagnose.models.report import AgentState

Form = Literal["json_schema", "json_object_schema", "json_object", "text"]

_FORMS: tuple[Form, ...] = ("json_schema", "json_object_schema", "json_object", "text")
_LEAST_SECONDS = 0.05
_STEPS = 7  # forms and parameters to try until a server's dialect is known
_UNKNOWN_PARAMETER = (400, 415, 422, 500, 501)  # llama-cpp-python's server says 500 to a form it does not know
_TRANSIENT = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_CALLER_WAITS = 30.0  # the longest that a server may ask to wait, in seconds
_MESSAGE = 64  # what a message costs beside its text, in bytes


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What became of a question. `data` fits the schema and is there only where `state` is `answered`.

    `rejected` is an answer that is no such object; `text` is what it was instead. `reason` says in words why there is
    no answer, and what to do. Tokens are those of all attempts; none where the answer was known already (`cached`).
    """

    state: AgentState
    data: Json | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    model: str | None = None
    reason: str = ""
    text: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What a server understands."""

    form: Form = "json_schema"
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: bool = True

    @classmethod
    def read(cls, text: str) -> _Dialect | None:
        form, limit, temperature = (*text.split(" "), "", "", "")[:3]
        for known in _FORMS:
            if form == known and limit in ("max_tokens", "max_completion_tokens"):
                return cls(
                    known, "max_tokens" if limit == "max_tokens" else "max_completion_tokens", temperature == "1"
                )
        return None

    def __str__(self) -> str:
        return f"{self.form} {self.limit} {int(self.temperature)}"

    def next(self) -> _Dialect | None:
        """The same with the next plainer form."""
        at = _FORMS.index(self.form) + 1
        return replace(self, form=_FORMS[at]) if at < len(_FORMS) else None


@dataclass(frozen=True, slots=True)
class _Reply:
    """What one HTTP exchange brought: a text, or a status and why there is none."""

    text: str | None = None
    status: int = 0
    why: str = ""
    cut_off: bool = False
    said: str = ""  # the server's words: read for names of parameters, shown to nobody
    wait: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def failed(self) -> bool:
        """Whether the server did not serve, rather than refuse."""
        return self.text is None and (self.status <= 0 or self.status in _TRANSIENT)


class _Again(Exception):
    """An attempt failed in a way that may pass."""

    def __init__(self, reply: _Reply) -> None:
        super().__init__(f"HTTP {reply.status}" if reply.status else "no connection")
        self.reply = reply


class _Broke(Exception):
    """The budget does not allow another attempt."""


class ChatModel:
    """Asks one model. Keeps nothing but its settings and the ledger; may be used by several threads."""

    def __init__(self, settings: ModelSettings, ledger: Ledger | None = None) -> None:
        self.settings = settings
        self._ledger = ledger or Ledger(settings.state)
        self._server = hashlib.sha256(f"{settings.base_url} {settings.model}".encode("utf-8", "replace")).hexdigest()

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.settings.model

    def allowance(self) -> Allowance:
        """What one diagnosis may use."""
        return Allowance(self.settings.seconds, self.settings.tokens)

    def ask(
        self,
        messages: Sequence[Message],
        schema: Schema,
        allowance: Allowance,
        *,
        sample: int = 0,
        temperature: float | None = None,
    ) -> ModelAnswer:
        """The answer to a conversation, as an object that fits the schema.

        `sample` tells apart questions that are put several times over, each to get an answer of its own.
        """
        warmth = self.settings.temperature if temperature is None else temperature
        key = self._key(messages, schema, sample, warmth)
        if self.settings.cache and (known := self._ledger.answer(key)) is not None:
            data = object_of(known, schema)
            if data is not None:
                return ModelAnswer("answered", data, model=self.name, text=known, cached=True)
        if left := self._ledger.left_alone(self._server, self.settings.outages):
            why = (
                f"the model's server failed {left[0]} times in a row: it is not asked for another {left[1]} s "
                "(DIAGNOSE_LLM_OUTAGES=0 asks all the same)"
            )
            return ModelAnswer("unavailable", model=self.name, reason=why)
        before = (allowance.tokens_in, allowance.tokens_out)
        try:
            answer = self._asked(messages, schema, allowance, warmth)
        except _Broke as error:
            answer = ModelAnswer("over_budget", reason=str(error))
        except LedgerError as error:
            answer = ModelAnswer("unavailable", reason=str(error))
        if answer.state == "answered" and self.settings.cache:
            self._ledger.keep(key, answer.text)
        return replace(
            answer,
            tokens_in=allowance.tokens_in - before[0],
            tokens_out=allowance.tokens_out - before[1],
            model=self.name,
        )

    def _key(self, messages: Sequence[Message], schema: Schema, sample: int, warmth: float) -> str:
        asked = [self._server, self.settings.answer_tokens, sample, warmth, schema]
        asked.extend([message.role, message.content] for message in messages)
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def _asked(self, messages: Sequence[Message], schema: Schema, allowance: Allowance, warmth: float) -> ModelAnswer:
        """Asks in the server's dialect, or finds out which that is."""
        remembered = self._ledger.dialect(self._server)
        known = _Dialect.read(remembered) if remembered else None
        dialect = known or _Dialect()
        answer = ModelAnswer("unavailable", reason=f"no answer within {allowance.seconds:g} s")
        for _ in range(_STEPS):
            reply = self._tried(messages, schema, dialect, allowance, warmth, patient=known is not None)
            self._note(reply, allowance)
            if reply.text is not None:
                data = object_of(reply.text, schema)
                if data is not None:
                    if dialect != known:
                        self._ledger.learn(self._server, str(dialect))
                    return ModelAnswer("answered", data, text=reply.text)
                why = (
                    f"cut off after {self.settings.answer_tokens} tokens" if reply.cut_off else "not what was asked for"
                )
                answer = ModelAnswer("rejected", reason=f"the answer was {why}", text=reply.text)
                if dialect.form == "text" or known is not None or reply.cut_off:
                    return answer
                dialect = replace(dialect, form="text")  # a server that passes over what it does not know
                continue
            if answer.state != "rejected":
                answer = ModelAnswer("unavailable", reason=reply.why)
            if reply.status not in _UNKNOWN_PARAMETER:
                return answer
            if known is not None:
                self._ledger.learn(self._server, None)  # another server answers there now
                known = None
            plainer = _plainer(dialect, reply.said)
            if plainer is None:
                return answer
            dialect = plainer
        return answer

    def _note(self, reply: _Reply, allowance: Allowance) -> None:
        """Remembers whether the server serves. A refusal at once costs nobody time: it says nothing of that."""
        if reply.text is not None:
            self._ledger.served(self._server)
        elif reply.failed and not allowance.waited_in_vain:
            allowance.waited_in_vain = True
            self._ledger.failed(self._server)

    def _tried(
        self,
        messages: Sequence[Message],
        schema: Schema,
        dialect: _Dialect,
        allowance: Allowance,
        warmth: float,
        *,
        patient: bool,
    ) -> _Reply:
        """One question, put again where the failure may pass. `patient`: also after a plain 500."""
        import stamina.instrumentation

        # Its own hooks write where a report goes to, on standard output; what went wrong is told in the answer.
        stamina.instrumentation.set_on_retry_hooks(())
        last = _Reply(why=f"no answer within {allowance.seconds:g} s")

        def again(error: Exception) -> bool | float:
            if not isinstance(error, _Again) or allowance.seconds_left <= _LEAST_SECONDS:
                return False
            if error.reply.wait is None:
                return True
            return error.reply.wait if error.reply.wait < allowance.seconds_left else False

        try:
            for attempt in stamina.retry_context(
                on=again,
                attempts=self.settings.attempts,
                timeout=max(_LEAST_SECONDS, allowance.seconds_left),
                wait_initial=self.settings.retry_wait,
                wait_jitter=self.settings.retry_wait,
                wait_max=_CALLER_WAITS,
            ):
                with attempt:
                    if allowance.seconds_left <= _LEAST_SECONDS:
                        return last
                    last = self._once(messages, schema, dialect, allowance, warmth)
                    lasting = last.status == 500 and not patient and dialect.form != "text"
                    if last.failed and last.status >= 0 and not lasting:
                        raise _Again(last)  # noqa: TRY301 - how stamina is told to try again
        except _Again as error:
            return error.reply
        return last

    def _once(
        self,
        messages: Sequence[Message],
        schema: Schema,
        dialect: _Dialect,
        allowance: Allowance,
        warmth: float,
    ) -> _Reply:
        """One HTTP exchange, paid for: what it may cost is put down before, what it has cost after."""
        body = _body(messages, schema, dialect)
        asked = tokens_of("".join(message.content for message in body)) + _MESSAGE * len(body) // 3
        reserved = asked + self.settings.answer_tokens
        if reserved > allowance.tokens_left:
            raise _Broke(
                f"the next question takes {reserved} tokens, and {max(0, allowance.tokens_left)} are left for this "
                "diagnosis: raise DIAGNOSE_LLM_TOKENS"
            )
        day = self._ledger.reserve(reserved, self.settings.day_tokens)
        if day is None:
            raise _Broke(
                f"the next question takes {reserved} tokens, and today's {self.settings.day_tokens} do not allow them: "
                "raise DIAGNOSE_LLM_DAY_TOKENS, or wait until tomorrow (UTC)"
            )
        reply = _Reply(tokens_in=asked, tokens_out=self.settings.answer_tokens)  # where nobody says what it has cost
        try:
            reply = self._exchanged(body, schema, dialect, allowance, warmth, asked)
        finally:
            self._ledger.settle(day, reserved, reply.tokens_in + reply.tokens_out)
            allowance.spend(reply.tokens_in, reply.tokens_out)
        return reply

    def _exchanged(
        self,
        messages: Sequence[Message],
        schema: Schema,
        dialect: _Dialect,
        allowance: Allowance,
        warmth: float,
        asked: int,
    ) -> _Reply:
        import httpx
        import openai

        settings = self.settings
        seconds = allowance.seconds_left
        exchange = Exchange(settings.answer_bytes, f"Bearer {settings.key.reveal()}" if settings.key else None)
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": [{"role": each.role, "content": each.content} for each in messages],
            dialect.limit: settings.answer_tokens,
        }
        if dialect.temperature:
            body["temperature"] = warmth
        if dialect.form != "text":
            body["response_format"] = _response_format(dialect.form, schema)

        def call() -> bytes:
            with exchange.client(seconds) as http:
                client = openai.OpenAI(
                    base_url=settings.base_url,
                    api_key="none",  # the exchange adds the real one to the request, and to nothing else
                    max_retries=0,
                    timeout=seconds,
                    http_client=http,
                )
                # Not by `chat.completions.create`: what comes back is read here, as far as it can be believed.
                reply = client.post("/chat/completions", body=body, cast_to=httpx.Response)
                return bytes(reply.content)

        unpaid = _Reply()
        unknown = replace(unpaid, tokens_in=asked, tokens_out=settings.answer_tokens)
        try:
            return self._read(within(seconds, call, exchange.cut), asked)
        except Late:
            return replace(unknown, why=f"no answer within {allowance.seconds:g} s")
        except openai.APIStatusError as error:
            status = error.status_code
            said = error.response.text[:4_000].lower()
            return _Reply(status=status, why=_words(status), said=said, wait=_wait(error.response.headers))
        except openai.APITimeoutError:
            return replace(unknown, why=f"no answer within {allowance.seconds:g} s")
        except openai.APIConnectionError as error:
            cause = type(error.__cause__).__name__
            if cause == "ConnectError":
                return replace(unpaid, why="the model's server cannot be reached: is DIAGNOSE_LLM_BASE_URL right?")
            if cause == "Refused":
                return replace(unknown, status=-1, why=f"the model's server sent {error.__cause__}")
            return replace(unknown, why="the model's server broke the connection off")
        except Exception as error:  # noqa: BLE001 - whatever a hostile server makes the library do
            return replace(
                unknown, status=-1, why=f"the model's server could not be understood ({type(error).__name__})"
            )

    def _read(self, content: bytes, asked: int) -> _Reply:
        """What a completion says. Its own count of tokens is believed as far as it can be true."""
        most = self.settings.answer_tokens
        unusable = _Reply(status=-1, why="the model's server sent no completion", tokens_in=asked, tokens_out=most)
        try:
            reply = json.loads(content)
            choice = reply["choices"][0]
            text = choice["message"]["content"]
        except (ValueError, RecursionError, LookupError, TypeError):
            return unusable
        usage = reply.get("usage")
        paid_in, paid_out = _count(usage, "prompt_tokens", 4 * asked), _count(usage, "completion_tokens", 50 * most)
        if text is None:
            text = ""  # a refusal, or a thought that took all of the tokens
        if not isinstance(text, str):
            return unusable
        return _Reply(
            text,
            200,
            cut_off=choice.get("finish_reason") == "length",
            tokens_in=asked if paid_in is None else paid_in,
            tokens_out=min(most, tokens_of(text)) if paid_out is None else paid_out,
        )


def _body(messages: Sequence[Message], schema: Schema, dialect: _Dialect) -> Sequence[Message]:
    """The conversation as it is sent: a server that takes no schema is told it in words."""
    if dialect.form in ("json_schema", "json_object_schema"):
        return messages
    told = f"Answer with one JSON object that fits this JSON Schema, and with nothing else:\n{json.dumps(schema)}"
    first, rest = messages[0], messages[1:]
    if first.role == "system":
        return [replace(first, content=f"{first.content}\n\n{told}"), *rest]
    return [Message("system", told), *messages]


def _response_format(form: Form, schema: Schema) -> Mapping[str, Any]:
    if form == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    return {"type": "json_object", "schema": schema} if form == "json_object_schema" else {"type": "json_object"}


def _plainer(dialect: _Dialect, said: str) -> _Dialect | None:
    """What to try after a refusal, by the parameter that it names, else with a plainer form."""
    if dialect.limit == "max_tokens" and "max_completion_tokens" in said:
        return replace(dialect, limit="max_completion_tokens")
    if dialect.temperature and "temperature" in said:
        return replace(dialect, temperature=False)
    return dialect.next()


def _words(status: int) -> str:
    """What to tell people of a status; never the server's own words."""
    if status in (401, 403):
        return f"the model's server refused the key (HTTP {status}): look at DIAGNOSE_LLM_API_KEY_FILE"
    if status == 404:
        return "the model's server knows no such path or model (HTTP 404): look at DIAGNOSE_LLM_BASE_URL and _MODEL"
    if status == 429:
        return "the model's server is at its limit (HTTP 429): try again later"
    if 300 <= status < 400:
        return f"the model's server sent a redirect (HTTP {status}), which is not followed: set the final address"
    if status in (400, 413, 422):
        return (
            f"the model's server refused the question (HTTP {status}): if its context is small, lower "
            "DIAGNOSE_LLM_EXCERPT_TOKENS"
        )
    return f"the model's server failed (HTTP {status})"


def _wait(headers: Mapping[str, str]) -> float | None:
    given = headers.get("retry-after", "")
    return min(float(given), _CALLER_WAITS * 10) if given.isascii() and given.isdigit() and len(given) < 7 else None


def _count(usage: object, name: str, most: int) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value <= most else None
