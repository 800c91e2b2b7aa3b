"""What is counted of a service, in Prometheus's format.

In: requests, changes of state. Out: `Metrics`, with a registry of its own, and `page` for `GET /metrics`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "diagnose_http_requests_total", "Requests", ("method", "route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "diagnose_http_request_seconds",
            "Time until a response began",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.states = Counter(
            "diagnose_states_total", "Changes of state seen by this process", ("state",), registry=self.registry
        )
        self.uploaded = Counter("diagnose_uploaded_bytes_total", "Bytes uploaded", registry=self.registry)
        self.submissions = Gauge("diagnose_submissions", "Submissions by state", ("state",), registry=self.registry)
        self.depth = Gauge("diagnose_queue_depth", "Jobs waiting or in work in this process", registry=self.registry)
        self.pending = Gauge(
            "diagnose_journal_entries", "What waits for the database to be back", registry=self.registry
        )
        self.up = Gauge("diagnose_database_up", "Whether the database can be used", registry=self.registry)
        self.lost = Gauge("diagnose_audit_lost", "Audit rows that could not be kept", registry=self.registry)

    def page(self) -> bytes:
        """All of it, as text."""
        return generate_latest(self.registry)
