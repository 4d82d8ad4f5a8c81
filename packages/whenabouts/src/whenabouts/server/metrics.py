"""Counts the server's requests, jobs and cached files, and writes the metrics in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Metrics of one server, in a separate registry because a process may run several servers."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "whenabouts_requests",
            "answers by route, method and status",
            ("route", "method", "status"),
            registry=registry,
        )
        self.seconds = Histogram(
            "whenabouts_request_seconds",
            "seconds from the request to the end of the answer",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("whenabouts_requests_in_flight", "requests being answered", registry=registry)
        self.cache = Counter(
            "whenabouts_cache", "files requested from the cache", ("kind", "outcome"), registry=registry
        )
        self.cache_bytes = Gauge("whenabouts_cache_bytes", "bytes of files in the cache", registry=registry)
        self.waiting = Gauge("whenabouts_jobs", "jobs that run or wait", ("kind",), registry=registry)
        self.refused = Gauge(
            "whenabouts_jobs_refused", "jobs refused with status 429 so far", ("kind",), registry=registry
        )
        self.videos = Gauge("whenabouts_videos", "videos in the corpus", registry=registry)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format, UTF-8."""
        return bytes(generate_latest(self._registry))
