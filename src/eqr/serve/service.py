"""A service per model: takes puzzles from the event loop, runs them in a thread, hands the answers back.

All requests for a model share the slots of one session. The session's thread never waits for a client: what
it has to say goes into an outbox that the event loop empties, and a stream whose reader is slow loses its
oldest segments, never its answer.
"""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from eqr.errors import UserError, brief
from eqr.model.config import ReasonerConfig
from eqr.serve.messages import MOST_CHARACTERS, Limits, Problem, fault
from eqr.solve import Answer, Budget, Refused, Session, Snapshot, SolveOptions

TURN = 0.005
"""Seconds for which a request may hold the event loop before others have their turn."""
RATE_MEMORY = 0.9
"""Share of the old rate that a new measurement leaves."""

Event = Answer | Refused | Snapshot
"""What can happen to a puzzle."""


class Pace:
    """Lets the event loop turn to others while a request has many small things to do."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Let others have the loop if this has held it for long enough."""
        if time.perf_counter() - self._began > TURN:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


class Pending:
    """What one request waits for: the answers to its puzzles, and their segments if it watches."""

    def __init__(self, count: int, *, frames: int, client: str = "") -> None:
        self.client = client
        self.answers: list[Answer | Refused | None] = [None] * count
        self.numbers: dict[int, int] = {}
        """Of each puzzle under way, its number in the request."""
        self._segments: deque[tuple[int, Snapshot]] = deque(maxlen=frames)
        self._answered: deque[int] = deque()
        self._open = count
        self._changed = asyncio.Event()
        self.failed = False
        self.abandoned = False
        """Whether the client has gone."""

    @property
    def done(self) -> bool:
        """Whether every puzzle has its answer."""
        return self._open == 0

    @property
    def unread(self) -> bool:
        """Whether there is something that `events` has not returned yet."""
        return bool(self._segments or self._answered)

    def note(self, number: int, event: Event) -> None:
        """Note what happened to a puzzle."""
        if isinstance(event, Snapshot):
            self._segments.append((number, event))
        else:
            self.answers[number] = event
            self._answered.append(number)
            self._open -= 1
        self._changed.set()

    def fail(self) -> None:
        """Say that no answer will come."""
        self.failed = True
        self._changed.set()

    def close(self) -> int:
        """Wait for no more answers; return how many were still to come."""
        count, self._open = self._open, 0
        return count

    def abandon(self) -> None:
        """Say that the client has gone."""
        self.abandoned = True
        self._changed.set()

    async def events(self) -> list[tuple[int, Event]]:
        """Wait for something new and return it: segments in order, then answers."""
        await self._changed.wait()
        self._changed.clear()
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


class Service:
    """Serves one model; all but the session's own work happens on the event loop's thread."""

    def __init__(self, name: str, session: Session, limits: Limits, model: ReasonerConfig) -> None:
        self.name, self.session, self._limits, self._model = name, session, limits, model
        self._pending: dict[int, Pending] = {}
        self._open: Counter[str] = Counter()
        """Puzzles without an answer, by client."""
        self._outbox: deque[Answer | Snapshot] = deque()
        self._called = False
        """Whether the event loop has been asked to empty the outbox."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name=f"eqr {name}", daemon=True)
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

    async def accept(
        self, puzzles: Sequence[object], settings: SolveOptions, *, client: str = "", watch: bool = False
    ) -> Pending:
        """Accept the puzzles of a client's request; `Problem` if there is no room for them."""
        self._require_room(len(puzzles), client)
        budget, select = self._budget(settings), settings.selection()
        pending = Pending(len(puzzles), frames=self._limits.frames, client=client)
        self._open[client] += len(puzzles)
        pace = Pace()
        with ExitStack() as undo:  # a client that goes while it asks leaves nothing behind
            undo.callback(self.cancel, pending)
            for number, puzzle in enumerate(puzzles):
                await pace.pause()
                try:
                    index = self.session.submit(
                        _text(puzzle),
                        budget=budget,
                        select=select,
                        identity=settings.identity,
                        watch=watch,
                        client=client,
                    )
                except UserError as error:
                    pending.note(number, Refused(index=number, reason=str(error)))
                    self._release(client, 1)
                    continue
                self._pending[index] = pending
                pending.numbers[index] = number
            undo.pop_all()
        return pending

    def cancel(self, pending: Pending) -> None:
        """Let the rows of a request leave their slots."""
        for index in list(pending.numbers):
            if self._pending.pop(index, None) is not None:
                self.session.cancel(index)
        self._release(pending.client, pending.close())

    def _release(self, client: str, count: int) -> None:
        self._open[client] -= count
        if self._open[client] <= 0:
            del self._open[client]

    def _budget(self, settings: SolveOptions) -> Budget:
        budget, most = settings.budget(self._model), self._model.greatest_depth
        allowed = min(self._limits.depth, self._limits.segments // budget.breadth)
        if settings.depth is None and budget.depth > allowed:
            budget = budget.replace(depth=allowed)
        if most is not None and budget.depth > most:
            fix = f"{self.name} is feedforward and has depth {most}"
            raise Problem(422, "invalid-field", fix, errors=[fault("depth", budget.depth, fix)])
        return budget

    def _require_room(self, count: int, client: str) -> None:
        """Each client may have as many puzzles under way as room is left for others."""
        if self._closing:
            raise Problem(503, "shutting-down", "this server finishes what it has and takes no more work")
        if not self.works:
            raise Problem(503, "engine-failed", "the model's thread has ended; restart the server")
        held, mine = self._open.total(), self._open[client]
        room = self._limits.waiting - held - mine
        if count > room:
            seconds = max(1, min(round(held / self._rate) if self._rate else 1, 60))
            raise Problem(
                429,
                "queue-full",
                f"{held} puzzles are under way, {mine} of them yours; of at most {self._limits.waiting} this "
                f"leaves {max(room, 0)} to you: come back in {seconds} s with {count}",
                headers={"Retry-After": str(seconds)},
            )

    def _work(self) -> None:
        try:
            with self.session.engine.backend.alone():  # once for all turns, each of which asks for it
                for event in self.session.serve():
                    if isinstance(event, Answer):
                        event.examine()  # here, for a search may take longer than the event loop can be held
                    self._outbox.append(event)
                    if not self._called:
                        self._called = True
                        self._call(self._deliver)
        finally:  # also when the session raises: no request may wait for ever
            self._call(self._ended)

    def _call(self, what: Callable[[], None]) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what)

    def _deliver(self) -> None:
        """Hand the events of the session to their requests, on the event loop."""
        self._called = False  # before emptying: what comes from now on calls again
        while self._outbox:
            event = self._outbox.popleft()
            if isinstance(event, Snapshot):
                pending = self._pending.get(event.puzzle)
                if pending is not None:  # else cancelled meanwhile
                    pending.note(pending.numbers[event.puzzle], event)
                continue
            self._measure()
            pending = self._pending.pop(event.index, None)
            if pending is not None:
                self.answered(event)
                pending.note(pending.numbers.pop(event.index), event)
                self._release(pending.client, 1)

    def _measure(self) -> None:
        """Keep the rate of answers, by which a client learns when to come back."""
        now = time.monotonic()
        passed, self._last_answer = now - self._last_answer, now
        self._rate = RATE_MEMORY * self._rate + (1 - RATE_MEMORY) / max(passed, 1e-4)

    def _ended(self) -> None:
        self._deliver()
        for pending in set(self._pending.values()):
            pending.fail()
        self._pending.clear()


def _text(puzzle: object) -> str:
    """Return a puzzle as text; `UserError` if it is none, which costs the others of its request nothing."""
    if not isinstance(puzzle, str):
        raise UserError(f"a puzzle is text, not {brief(puzzle)}")
    if len(puzzle) > MOST_CHARACTERS:
        raise UserError(f"a puzzle has at most {MOST_CHARACTERS:,} characters, this one {len(puzzle):,}")
    try:
        puzzle.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"character {error.start + 1} is half of a surrogate pair, which is no character"
        ) from None
    return puzzle
