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
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "eqr_requests", "Requests by route and status.", ["route", "status"], registry=registry
        )
        self.request_seconds = self._times("eqr_request_seconds", "a request's arrival to its last", "route")
        self.cancelled = Counter(
            "eqr_cancelled", "Requests whose rows were cancelled, by why.", ["why"], registry=registry
        )
        accepted = "Answers by whether the task's check accepts them."
        self._answers = Counter("eqr_answers", accepted, ["model", "valid"], registry=registry)
        self._seconds = self._times("eqr_puzzle_seconds", "a puzzle's arrival to its", "model")
        spent = "Segments spent on a puzzle."
        self._nfe = Histogram("eqr_puzzle_nfe", spent, ["model"], buckets=NFES, registry=registry)
        waiting = Gauge("eqr_queue_length", "Starts that wait for a slot.", ["model"], registry=registry)
        held = Gauge("eqr_puzzles_open", "Puzzles without an answer.", ["model"], registry=registry)
        busy = Gauge("eqr_slots_busy", "Slots at work.", ["model"], registry=registry)
        slots = Gauge("eqr_slots", "Slots there are.", ["model"], registry=registry)
        for service in services:
            session, engine = service.session, service.session.engine
            waiting.labels(service.name).set_function(partial(getattr, engine, "waiting"))
            busy.labels(service.name).set_function(partial(getattr, engine, "live"))
            held.labels(service.name).set_function(partial(getattr, session, "open"))
            slots.labels(service.name).set(engine.slots)
            service.answered = partial(self._note, service.name)

    def _times(self, name: str, between: str, label: str) -> Histogram:
        what = f"From {between} answer."
        return Histogram(name, what, [label], buckets=LATENCIES, registry=self.registry)

    def _note(self, model: str, answer: Answer) -> None:
        self._answers.labels(model, str(answer.valid).lower()).inc()
        self._seconds.labels(model).observe(answer.seconds)
        self._nfe.labels(model).observe(answer.nfe)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
