"""What a server says about itself to Prometheus."""

from collections.abc import Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from eqr.serve.service import Service
from eqr.solve import Answer

LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
NFES = tuple(float(1 << power) for power in range(14))


class Metrics:
    """Counters of one application, in a registry of its own."""

    def __init__(self, services: Iterable[Service]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "eqr_requests", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "eqr_request_seconds",
            "From a request's arrival to its last answer.",
            ["route"],
            buckets=LATENCIES,
            registry=self.registry,
        )
        self.cancelled = Counter(
            "eqr_cancelled",
            "Requests whose rows were cancelled, by why.",
            ["why"],
            registry=self.registry,
        )
        self._answers = Counter(
            "eqr_answers",
            "Answers by whether the task's check accepts them.",
            ["model", "valid"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "eqr_puzzle_seconds",
            "From a puzzle's arrival to its answer.",
            ["model"],
            buckets=LATENCIES,
            registry=self.registry,
        )
        self._nfe = Histogram(
            "eqr_puzzle_nfe", "Segments spent on a puzzle.", ["model"], buckets=NFES, registry=self.registry
        )
        waiting = Gauge("eqr_queue_length", "Starts that wait for a slot.", ["model"], registry=self.registry)
        held = Gauge("eqr_puzzles_open", "Puzzles without an answer.", ["model"], registry=self.registry)
        busy = Gauge("eqr_slots_busy", "Slots at work.", ["model"], registry=self.registry)
        slots = Gauge("eqr_slots", "Slots there are.", ["model"], registry=self.registry)
        for service in services:
            session, engine = service.session, service.session.engine
            waiting.labels(service.name).set_function(partial(getattr, engine, "waiting"))
            busy.labels(service.name).set_function(partial(getattr, engine, "live"))
            held.labels(service.name).set_function(partial(getattr, session, "open"))
            slots.labels(service.name).set(engine.slots)
            service.answered = partial(self._note, service.name)

    def _note(self, model: str, answer: Answer) -> None:
        self._answers.labels(model, str(answer.valid).lower()).inc()
        self._seconds.labels(model).observe(answer.seconds)
        self._nfe.labels(model).observe(answer.nfe)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
