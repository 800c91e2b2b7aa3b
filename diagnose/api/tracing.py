"""Traces of requests by OpenTelemetry, where its extra is installed and an endpoint is set.

In: `OTEL_EXPORTER_OTLP_ENDPOINT` and its like, as OpenTelemetry reads them. Out: a span for each request, that goes on
with the caller's trace. Nothing of a log and no key goes there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from starlette.types import Scope

from diagnose.errors import UsageError, installing

_ASKED: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Tracing:
    """Makes spans, or nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._tracer: Any = None
        self._provider: Any = None
        if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(
            environment.get(name) for name in _ASKED
        ):
            return
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise UsageError(f"traces need {error.name}, which is not installed: {installing('otel')}") from error
        name = environment.get("OTEL_SERVICE_NAME") or "diagnose"
        self._provider = TracerProvider(resource=Resource.create({"service.name": name}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("diagnose")

    @contextlib.contextmanager
    def request(self, scope: Scope) -> Iterator[Callable[[int, str | None], None]]:
        """A span for a request; what it yields takes the status and the route."""
        if self._tracer is None:
            yield lambda _status, _route: None
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._tracer.start_as_current_span(
            scope["method"], context=extract(headers), kind=SpanKind.SERVER
        ) as span:

            def told(status: int, route: str | None) -> None:
                span.update_name(f"{scope['method']} {route or 'none'}")
                span.set_attribute("http.request.method", scope["method"])
                span.set_attribute("http.route", route or "")
                span.set_attribute("http.response.status_code", status)
                span.set_attribute("diagnose.request_id", scope["request_id"])

            yield told

    def close(self) -> None:
        """Sends what waits."""
        if self._provider is not None:
            self._provider.shutdown()
