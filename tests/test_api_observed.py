"""What an operator sees of requests: one JSON line each, and traces where a collector is named."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.serving import KEY_ERROR
from tests.topology import site

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector(HTTPServer):
    """An OTLP collector that keeps what it is sent."""

    got: list[tuple[str, bytes]]


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        self.server.got.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector(("127.0.0.1", 0), _Answer) as server:
        server.got = []
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def test_a_request_is_a_json_line_and_a_span(tmp_path: Path, collector: Collector) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    at = f"http://127.0.0.1:{collector.server_port}"
    with site(tmp_path, str(tmp_path / "memory.sqlite3"), OTEL_EXPORTER_OTLP_ENDPOINT=at) as made:
        api = made.serve()
        headers = {
            "Prefer": "wait=60", "Authorization": "Bearer dk_000000000000_secretsecretsecret",
            "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
        }  # fmt: skip
        answer = made.submit("4711", KEY_ERROR.encode(), headers=headers)
        known = answer.headers["x-request-id"]
        api.send_signal(signal.SIGTERM)
        assert api.wait(60) == 0, made.said()
        lines = [json.loads(line) for line in (tmp_path / "serve-0.log").read_text().splitlines()]
    (mine,) = [line for line in lines if line.get("request_id") == known]
    assert {"method": "POST", "route": "/v1/diagnoses", "status": answer.status_code}.items() <= mine.items()
    assert {"event", "level", "timestamp"} <= set(mine)

    spans = []
    for path, body in collector.got:
        assert path == "/v1/traces"
        assert b"secret" not in body
        assert b"KeyError" not in body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            spans += [span for scope in resource.scope_spans for span in scope.spans]
    (span,) = [span for span in spans if span.trace_id.hex() == TRACE]
    said = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
    assert span.name == "POST /v1/diagnoses"
    assert said["diagnose.request_id"] == known
    assert said["http.response.status_code"] == answer.status_code
