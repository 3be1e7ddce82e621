"""What serving costs: clients against the bare engine, latency against load, fairness, memory, bad bodies.

    python benchmarks/serve.py                      # throughput and latency, the shipped 9x9 model
    python benchmarks/serve.py --requests 100000    # also memory over so many requests
    python benchmarks/serve.py --malformed 10000    # also so many bodies that are no request

The server is a process of its own, started here; the bare engine runs in this one, in turns with it, on the
same puzzles. Clients are as cheap as they can be (one prepared request per puzzle over kept connections), but
they do take a share of the same cores.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from eqr.solve import Solver

OTHER = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""The address of a second client."""
LOADS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


@dataclass
class Heard:
    """What clients saw."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def percentile(self, share: float) -> float:
        return float(np.quantile(self.seconds, share)) if self.seconds else float("nan")


class Connection:
    """One kept connection that posts prepared bytes."""

    def __init__(self, url: str, address: str = "127.0.0.1") -> None:
        """`address` is the client's, one of this machine's own."""
        self._place, self._address = urlsplit(url), address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is not None:
            try:
                return await self._exchange(*self._streams, request)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass  # closed by the server while it was idle
        self._streams = await asyncio.open_connection(
            self._place.hostname, self._place.port, local_addr=(self._address, 0)
        )
        return await self._exchange(*self._streams, request)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> tuple[int, bytes]:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        body = await reader.readexactly(length)
        if b"connection: close" in lines:
            writer.close()
            self._streams = None
        return int(head.split(b" ", 2)[1]), body


def prepared(body: bytes) -> bytes:
    lines = ("POST /v1/solve HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    return "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body


@contextmanager
def server(model: str, *options: str) -> Iterator[tuple[str, int]]:
    """A server process; gives its address and process id."""
    command = [sys.executable, "-m", "eqr", "serve", model, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield line.split(" on ")[1].split()[0].replace("localhost", "127.0.0.1"), process.pid
        finally:
            process.terminate()


async def closed_loop(url: str, requests: Sequence[bytes], clients: int) -> tuple[float, Heard]:
    """So many clients, each asking again as soon as it is answered; returns requests per second."""
    heard, waiting = Heard(), iter(requests)

    async def client() -> None:
        connection = Connection(url)
        for request in waiting:
            began = time.perf_counter()
            status, _ = await connection.post(request)
            heard.statuses[status] += 1
            heard.seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return len(requests) / (time.perf_counter() - began), heard


async def open_loop(url: str, requests: Sequence[bytes], rate: float) -> Heard:
    """Requests that come when they come (Poisson), whether or not the last were answered."""
    heard, idle, tasks = Heard(), [], []
    chance = random.Random(0)

    async def ask(request: bytes) -> None:
        connection = idle.pop() if idle else Connection(url)
        began = time.perf_counter()
        status, _ = await connection.post(request)
        heard.statuses[status] += 1
        if status == 200:
            heard.seconds.append(time.perf_counter() - began)
        idle.append(connection)

    due = time.perf_counter()
    for request in requests:
        due += chance.expovariate(rate)
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        tasks.append(asyncio.ensure_future(ask(request)))
    await asyncio.gather(*tasks)
    return heard


def bare(solver: Solver, puzzles: Sequence[str]) -> float:
    began = time.perf_counter()
    count = sum(1 for _ in solver.solve_many(puzzles, in_order=False))
    return count / (time.perf_counter() - began)


def resident(pid: int) -> float:
    """Megabytes that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def throughput(
    url: str, solver: Solver, puzzles: Sequence[str], clients: Sequence[int], rounds: int
) -> dict[str, float]:
    requests = [prepared(json.dumps({"puzzle": puzzle}).encode()) for puzzle in puzzles]
    asyncio.run(closed_loop(url, requests[:64], 16))  # both sides warm
    bare(solver, puzzles[:64])
    rates: dict[str, list[float]] = {"bare": [], **{str(count): [] for count in clients}}
    for _ in range(rounds):
        rates["bare"].append(bare(solver, puzzles))
        for count in clients:
            rate, heard = asyncio.run(closed_loop(url, requests, count))
            assert set(heard.statuses) == {200}, heard.statuses
            rates[str(count)].append(rate)
    found = {name: statistics.median(values) for name, values in rates.items()}
    print(f"bare engine, 64 slots: {found['bare']:8.1f} puzzles/s")
    for count in clients:
        # of the same round: a machine's rate wavers more from minute to minute than the two differ
        shares = [rate / base for rate, base in zip(rates[str(count)], rates["bare"], strict=True)]
        print(
            f"{count:4d} clients:          {found[str(count)]:8.1f} puzzles/s, "
            f"{statistics.median(shares):.2f} of bare ({min(shares):.2f} to {max(shares):.2f})"
        )
    return found


def latency(url: str, puzzles: Sequence[str], saturation: float, seconds: float) -> list[dict[str, float]]:
    rows = []
    for load in LOADS:
        rate = load * saturation
        chosen = [puzzles[place % len(puzzles)] for place in range(max(int(rate * seconds), 20))]
        heard = asyncio.run(
            open_loop(url, [prepared(json.dumps({"puzzle": p}).encode()) for p in chosen], rate)
        )
        refused = heard.statuses[429] / sum(heard.statuses.values())
        row = {"load": load, "p50": heard.percentile(0.5), "p99": heard.percentile(0.99), "refused": refused}
        rows.append(row)
        print(
            f"load {load:4.2f} ({rate:7.1f}/s): p50 {1e3 * row['p50']:8.1f} ms, "
            f"p99 {1e3 * row['p99']:8.1f} ms, refused {refused:.1%}"
        )
    return rows


async def fairness(url: str, puzzles: Sequence[str]) -> dict[str, float]:
    """Small requests while another client has three of 256 puzzles under way, each for 8,192 segments."""
    work = {"depth": 128, "breadth": 64, "halt": "never", "select": "residual", "seconds": 30}
    large = prepared(json.dumps({"puzzles": list(puzzles[:256]), **work}).encode())
    greedy = [asyncio.ensure_future(Connection(url).post(large)) for _ in range(3)]
    await asyncio.sleep(1.0)
    heard, small = Heard(), Connection(url, OTHER)
    for puzzle in puzzles[:20]:
        began = time.perf_counter()
        status, _ = await small.post(prepared(json.dumps({"puzzle": puzzle}).encode()))
        heard.statuses[status] += 1
        heard.seconds.append(time.perf_counter() - began)
    for one in greedy:
        one.cancel()
    assert set(heard.statuses) == {200}, heard.statuses
    row = {"p50": heard.percentile(0.5), "longest": max(heard.seconds)}
    print(f"beside a greedy client: p50 {1e3 * row['p50']:.1f} ms, longest {1e3 * row['longest']:.1f} ms")
    return row


def memory(total: int) -> list[float]:
    """Many short requests against the smallest model: what the server holds after each tenth."""
    with server("sudoku-4x4") as (url, pid):
        body = json.dumps({"puzzle": "1...............", "depth": 1, "halt": "never"}).encode()
        held = []
        for _ in range(10):
            asyncio.run(closed_loop(url, [prepared(body)] * (total // 10), 64))
            held.append(resident(pid))
        print(f"memory over {total:,} requests, MB: {', '.join(f'{value:.0f}' for value in held)}")
        return held


def malformed(total: int) -> dict[int, int]:
    """Bodies that are no request: cut, flipped and random bytes; none may be a server's error."""
    chance = random.Random(0)
    good = json.dumps({"puzzle": "1...............", "depth": 4, "halt": "head", "seed": 1}).encode()

    def spoilt() -> bytes:
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randint(0, len(data))]) if chance.random() < 0.5 else bytes(data)

    with server("sudoku-4x4") as (url, _):
        _, heard = asyncio.run(closed_loop(url, [prepared(spoilt()) for _ in range(total)], 16))
    print(f"{total:,} malformed bodies: {dict(sorted(heard.statuses.items()))}")
    assert not any(status >= 500 for status in heard.statuses)
    return dict(heard.statuses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="sudoku-9x9")
    parser.add_argument("--puzzles", type=int, default=512)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--malformed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    solver = Solver(given.model)
    generated = solver.task.generate(np.random.default_rng(0))
    symbols = solver.task.symbols
    puzzles = ["".join(symbols[t - 1] for t in next(generated).puzzle) for _ in range(given.puzzles)]
    found: dict[str, object] = {}
    with server(given.model) as (url, _):
        found["throughput"] = rates = throughput(url, solver, puzzles, given.clients, given.rounds)
        found["fairness"] = asyncio.run(fairness(url, puzzles))
        found["latency"] = latency(url, puzzles, rates[str(max(given.clients))], given.seconds)
    if given.requests:
        found["memory"] = memory(given.requests)
    if given.malformed:
        found["malformed"] = malformed(given.malformed)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
