"""A desk per model: takes puzzles from the event loop, runs them in a thread, hands the answers back.

All requests for a model share the slots of one session. The session's thread never waits for a client: what
it has to say goes into an outbox that the event loop empties, and a stream whose reader is slow loses its
oldest segments, never its answer.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from eqr.errors import UserError
from eqr.model.config import ReasonerConfig
from eqr.serve.limits import Limits
from eqr.serve.problems import Problem, fault
from eqr.solve import Answer, Asked, Budget, Glimpse, Refused, Session

PUZZLES_AT_ONCE = 16
"""Puzzles read before the event loop may turn to other clients."""
RATE_MEMORY = 0.9
"""Share of the old rate that a new measurement leaves."""


Event = Answer | Refused | Glimpse
"""What can happen to a puzzle."""


class Order:
    """What one request waits for: the answers to its puzzles, and their segments if it watches."""

    def __init__(self, count: int, *, frames: int) -> None:
        self.answers: list[Answer | Refused | None] = [None] * count
        self.numbers: dict[int, int] = {}
        """Of each puzzle under way, its number in the request."""
        self._segments: deque[tuple[int, Glimpse]] = deque(maxlen=frames)
        self._answered: deque[int] = deque()
        self._open = count
        self._news = asyncio.Event()
        self.failed = False
        self.left = False
        """Whether whoever asked has gone."""

    @property
    def done(self) -> bool:
        """Whether every puzzle has its answer."""
        return self._open == 0

    @property
    def unread(self) -> bool:
        """Whether there is something that `news` has not returned yet."""
        return bool(self._segments or self._answered)

    def take(self, number: int, event: Event) -> None:
        """Note what happened to a puzzle."""
        if isinstance(event, Glimpse):
            self._segments.append((number, event))
        else:
            self.answers[number] = event
            self._answered.append(number)
            self._open -= 1
        self._news.set()

    def fail(self) -> None:
        """Say that no answer will come."""
        self.failed = True
        self._news.set()

    def leave(self) -> None:
        """Say that nobody waits any more."""
        self.left = True
        self._news.set()

    async def news(self) -> list[tuple[int, Event]]:
        """Wait for something new and return it: segments in order, then answers."""
        await self._news.wait()
        self._news.clear()
        if self.failed:
            raise Problem(500, "engine-failed", "the model's thread has ended; see the server's log")
        found: list[tuple[int, Event]] = list(self._segments)
        self._segments.clear()
        while self._answered:
            number = self._answered.popleft()
            answer = self.answers[number]
            assert answer is not None
            found.append((number, answer))
        return found


class Desk:
    """Serves one model; all but the session's own work happens on the event loop's thread."""

    def __init__(self, name: str, session: Session, limits: Limits, model: ReasonerConfig) -> None:
        self.name, self.session, self._limits, self._model = name, session, limits, model
        self._orders: dict[int, Order] = {}
        self._outbox: deque[Answer | Glimpse] = deque()
        self._called = False
        """Whether the event loop has been asked to empty the outbox."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name=f"desk {name}", daemon=True)
        self._closing = False
        self._rate, self._last_answer = 0.0, 0.0
        self.answered: Callable[[Answer], None] = lambda _: None
        """Called with every answer, on the event loop; the metrics listen here."""

    def open(self) -> None:
        """Begin to work for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def works(self) -> bool:
        """Whether the session's thread lives."""
        return self._thread.is_alive()

    async def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        self._closing = True
        self.session.close()
        while self._thread.is_alive():
            await asyncio.sleep(0.01)
        self._deliver()

    async def take(self, texts: Sequence[str], asked: Asked, *, watch: bool = False) -> Order:
        """Accept the puzzles of a request; `Problem` if there is no room for them."""
        self._require_room(len(texts))
        budget, select = self._budget(asked), asked.selection()
        order = Order(len(texts), frames=self._limits.frames)
        try:
            for number, text in enumerate(texts):
                if number and number % PUZZLES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                try:
                    index = self.session.submit(
                        text, budget=budget, select=select, identity=asked.identity, watch=watch
                    )
                except UserError as error:
                    order.take(number, Refused(index=number, reason=str(error)))
                    continue
                self._orders[index] = order
                order.numbers[index] = number
        except asyncio.CancelledError:
            self.cancel(order)
            raise
        return order

    def cancel(self, order: Order) -> None:
        """Let the rows of a request leave their slots."""
        for index in list(order.numbers):
            if self._orders.pop(index, None) is not None:
                self.session.cancel(index)

    def _budget(self, asked: Asked) -> Budget:
        budget, most = asked.budget(self._model), self._model.greatest_depth
        if most is not None and budget.depth > most:
            fix = f"{self.name} is feedforward and has depth {most}"
            raise Problem(422, "invalid-field", fix, errors=[fault("depth", budget.depth, fix)])
        return budget

    def _require_room(self, count: int) -> None:
        if self._closing:
            raise Problem(503, "shutting-down", "this server finishes what it has and takes no more work")
        if not self.works:
            raise Problem(503, "engine-failed", "the model's thread has ended; restart the server")
        held = self.session.open
        if held + count > self._limits.waiting:
            seconds = max(1, min(round(held / self._rate) if self._rate else 1, 60))
            raise Problem(
                429,
                "queue-full",
                f"{held} puzzles are under way and at most {self._limits.waiting} may be; "
                f"come back in {seconds} s with {count}",
                headers={"Retry-After": str(seconds)},
            )

    def _work(self) -> None:
        try:
            with self.session.engine.executor.alone():  # once for all turns, each of which asks for it
                for event in self.session.serve():
                    self._outbox.append(event)
                    if not self._called:
                        self._called = True
                        self._call(self._deliver)
        finally:  # also when the session raises: nobody shall wait for ever
            self._call(self._ended)

    def _call(self, what: Callable[[], None]) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is gone, and with it whoever would listen
            self._loop.call_soon_threadsafe(what)

    def _deliver(self) -> None:
        """Give what the session said to those who asked, on the event loop."""
        self._called = False  # before emptying: what comes from now on calls again
        while self._outbox:
            event = self._outbox.popleft()
            index = event.puzzle if isinstance(event, Glimpse) else event.index
            order = self._orders.get(index)
            if isinstance(event, Answer):
                self._orders.pop(index, None)
                self._measure()
            if order is None:  # cancelled meanwhile
                continue
            if isinstance(event, Answer):
                self.answered(event)
                order.take(order.numbers.pop(index), event)
            else:
                order.take(order.numbers[index], event)

    def _measure(self) -> None:
        """Keep the rate of answers, by which a client learns when to come back."""
        now = time.monotonic()
        passed, self._last_answer = now - self._last_answer, now
        self._rate = RATE_MEMORY * self._rate + (1 - RATE_MEMORY) / max(passed, 1e-4)

    def _ended(self) -> None:
        self._deliver()
        for order in set(self._orders.values()):
            order.fail()
        self._orders.clear()
