"""Hostile clients and files against the real thing, in bounded numbers and on this machine only.

    python benchmarks/attack.py            # every part
    python benchmarks/attack.py files      # one of them: server, files

Each attack prints how often it was tried and what it found; a finding is something that `SECURITY.md` says
cannot happen. The exit code is 0 if there are none, else 1.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fuzz import fuzz, run_command

from eqr.errors import UserError
from eqr.runs import INSIDE, LOCK
from serve import OTHER, resident, server

PATIENCE = 1.0
"""Seconds in which a small request must be answered, whatever else is going on."""


@dataclass
class Found:
    """What attacks tried and what they found."""

    tried: int = 0
    findings: list[str] = field(default_factory=list)

    def note(self, name: str, count: int, findings: list[str]) -> None:
        """Count an attack and print its result."""
        self.tried += count
        self.findings += [f"{name}: {one}" for one in findings]
        print(f"{name}: {count:,} tried, {len(findings)} found", flush=True)
        for one in findings[:10]:
            print(f"    {one}")


@dataclass(frozen=True)
class Target:
    """A server under attack; other clients have other addresses of this machine, where it has several."""

    host: str
    port: int
    pid: int

    def ask(
        self, path: str, body: bytes | None = None, *, seconds: float = 60.0, address: str = "127.0.0.1"
    ) -> tuple[int, bytes]:
        """Send one request as a client of an address."""
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=seconds, source_address=(address, 0)
        )
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def hold(self, stack: ExitStack, said: bytes) -> socket.socket:
        """Open a connection and say something, until the stack ends."""
        connection = stack.enter_context(socket.create_connection((self.host, self.port)))
        connection.sendall(said)
        return connection

    def slowest_health(self, stop: threading.Event) -> float:
        """Ask for health until told to stop; return the longest that it took, infinity without an answer."""
        slowest = 0.0
        while not stop.is_set():
            began = time.perf_counter()
            try:
                status, _ = self.ask("/healthz", seconds=10.0, address=OTHER)
            except OSError:
                status = 0
            slowest = max(slowest, time.perf_counter() - began) if status == 200 else float("inf")
            time.sleep(0.02)
        return slowest

    def small_request(self) -> list[str]:
        """Solve a small puzzle as another client; return what is wrong with that."""
        began = time.perf_counter()
        try:
            status, _ = self.ask("/v1/solve", SMALL, address=OTHER)
        except OSError as error:
            return [f"another client's request failed: {error}"]
        seconds = time.perf_counter() - began
        wrong = [f"another client got {status}"] if status != 200 else []
        return wrong + ([f"another client waited {seconds:.2f} s"] if seconds > PATIENCE else [])


PUZZLE = "1..4........2..3"
SMALL = json.dumps({"puzzle": PUZZLE, "depth": 8}).encode()
HEAVY = {"puzzles": [PUZZLE] * 256, "depth": 128, "breadth": 64}
GREEDY = (
    {**HEAVY, "halt": "never", "select": "residual"},
    {**HEAVY, "halt": "never"},  # rounds of starts that begin together
    {**HEAVY, "halt": "residual:1e-30", "race": True},
)
HEAD = b"POST /v1/solve HTTP/1.1\r\nHost: localhost\r\n"
ODD = ("\ud800", "\x00", "²" * 16, "١" * 16, "", "\u2028")


def bodies(target: Target, count: int) -> list[str]:
    """Spoilt, random and enormous bodies: none is the server's error, none gets a long answer."""
    chance = random.Random(0)
    good = json.dumps({"puzzle": PUZZLE, "depth": 2, "halt": "head", "seed": 1}).encode()
    room = 1 << 18
    large = [
        b'{"puzzles":[' + b"0," * (room // 2 - 10) + b"0]}",
        b'{"puzzles":[' + b"[]," * (room // 3 - 10) + b"[]]}",
        b"{" + b",".join(b'"k%d":0' % number for number in range(room // 12)) + b"}",
        b'{"' + b"k" * (room - 10) + b'":1}',
        b'{"puzzle":"1","model":"' + b"m" * (room - 40) + b'"}',
        b"[" * room,
        b'{"seed":' + b"9" * (room - 20) + b"}",
        b'{"puzzles":[' + b"0," * (1 << 20) + b"0]}",
    ]

    def one(number: int) -> bytes:
        if number % 50 == 0:
            return large[number // 50 % len(large)]
        if number % 3 == 0:
            fields = ("puzzle", "puzzles", "depth", "breadth", "halt", "select", "noise", "model", "seed")
            values = (*ODD, None, -1, 1 << 70, 1e308, [], {}, "head", "residual:nan")
            return json.dumps(
                {"depth": 1, **{chance.choice(fields): chance.choice(values) for _ in "123"}}
            ).encode()
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randint(0, len(data))])

    wrong: list[str] = []
    stop, slowest = threading.Event(), [0.0]
    probe = threading.Thread(target=lambda: slowest.__setitem__(0, target.slowest_health(stop)))
    probe.start()
    for number in range(count):
        path = ("/v1/solve", "/v1/solve/stream", "/v1/check")[number % 3]
        with suppress(BrokenPipeError, ConnectionResetError):  # a body far too large is not read to its end
            status, reply = target.ask(path, one(number))
            if status >= 500 and status != 504:
                wrong.append(f"{status} for {one(number)[:80]!r}")
            if status != 200 and len(reply) > 4_000:
                wrong.append(f"an answer of {len(reply):,} bytes")
    stop.set()
    probe.join()
    return wrong + ([f"health took {slowest[0]:.2f} s meanwhile"] if slowest[0] > PATIENCE else [])


def batches(target: Target, count: int) -> list[str]:
    """Bad puzzles among good ones cost the good ones nothing."""
    wrong = []
    for number in range(count):
        body = {"puzzles": [PUZZLE, ODD[number % len(ODD)], None, 7, PUZZLE], "depth": 8}
        status, reply = target.ask("/v1/solve", json.dumps(body).encode())
        answers = json.loads(reply).get("answers", []) if status == 200 else []
        tried = [one["status"] != "refused" for one in answers]
        if tried != [True, False, False, False, True]:
            wrong.append(f"{status} for a batch with {body['puzzles'][1]!r}")
    return wrong


def idle(target: Target, count: int) -> list[str]:
    """More connections than there may be, each with a part of a request or none, held open."""
    wrong = []
    for said in (b"", b"POST /v1/so", HEAD, HEAD + b"Content-Length: 50\r\n\r\n{"):
        with ExitStack() as stack:
            for _ in range(count // 4):
                with suppress(ConnectionResetError, BrokenPipeError):
                    target.hold(stack, said)
            wrong += target.small_request()
            for path in ("/healthz", "/metrics", "/v1/models"):
                status, _ = target.ask(path, seconds=10.0)
                wrong += [f"{path} is {status}"] if status != 200 else []
    return wrong


def headers(target: Target, count: int) -> list[str]:
    """Header lines without end: the connection is closed, the memory stays."""
    before, wrong = resident(target.pid), []
    for number in range(count):
        with ExitStack() as stack:
            connection = target.hold(stack, HEAD)
            sent, line = 0, b"X-%d: " % number + b"a" * 1000 + b"\r\n"
            with suppress(ConnectionResetError, BrokenPipeError):
                while sent < 8 << 20:
                    sent += connection.send(line * 64)
                wrong.append(f"{sent:,} bytes of headers were taken")
    grown = resident(target.pid) - before
    return wrong + ([f"memory grew by {grown:.0f} MB"] if grown > 50 else [])


def greedy(target: Target, count: int) -> list[str]:
    """One client asks for more than there is; another's small request is answered in time."""
    refused = Counter[int]()

    def ask(number: int) -> None:
        with suppress(OSError):
            body = json.dumps(GREEDY[number % len(GREEDY)]).encode()
            status, _ = target.ask("/v1/solve", body, seconds=8.0)
            refused[status] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    wrong = [one for _ in range(20) for one in target.small_request()]
    for thread in threads:
        thread.join()
    return wrong + ([] if refused[429] else ["a client could fill the queue"])


def attack_server(found: Found, *, scale: int = 1) -> None:
    """A server of a process of its own against hostile clients."""
    attacks: dict[Callable[[Target, int], list[str]], int] = {
        bodies: 1500 * scale,
        batches: 60 * scale,
        idle: 2400,
        headers: 5 * scale,
        greedy: 6,
    }
    with server("sudoku-4x4") as (url, pid):
        place = urlsplit(url)
        target = Target(str(place.hostname), int(place.port or 0), pid)
        for attack, count in attacks.items():
            found.note(f"server, {attack.__name__}", count, attack(target, count))
            found.note("server, afterwards", 1, target.small_request())


def eqr(*words: object) -> bool:
    """Run `eqr` in this process; return whether it did as told, and did not refuse in words."""
    try:
        run_command([str(word) for word in words])
    except UserError:
        return False
    return True


def odd_files(_: Path, count: int) -> list[str]:
    """Damaged files of every kind, odd settings and odd words (`benchmarks/fuzz.py`)."""
    return [f"{kind}: {told[:200]}" for kind, told in fuzz(seconds=0, seed=1, rounds=count).escaped]


def flipped(place: Path, count: int) -> list[str]:
    """A trained model with bits flipped: it is refused, and never answers otherwise than before."""
    chance, wrong = random.Random(0), []
    weights = place / "run" / "best" / "model.safetensors"
    whole = weights.read_bytes()
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 20))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        weights.write_bytes(data)
        wrong += [f"{data[:40]!r} was taken"] if eqr("solve", place / "run", PUZZLE) else []
    weights.write_bytes(whole)
    return wrong


def links(place: Path, count: int) -> list[str]:
    """A stranger's run folder whose parts are links: what they lead to stays as it was."""
    wrong, names = [], [LOCK, *INSIDE, "metrics.jsonl", "summary.json", "recipe.json"]
    for number in range(count):
        run, name = place / f"linked-{number}", names[number % len(names)]
        shutil.copytree(place / "run", run)
        mine = place / f"mine-{number}"
        part = run / name
        if part.is_dir():
            part.rename(mine)
        else:
            mine.write_text("mine", encoding="utf-8")
            part.unlink(missing_ok=True)
        part.symlink_to(mine)
        before = contents(mine)
        way = ("--overwrite", "--resume")[number // len(names) % 2]
        eqr("train", TASK, "--steps", STEPS, "--out", run, way, "--json")
        wrong += [f"{way} changed what {name} links to"] if contents(mine) != before else []
    return wrong


def contents(place: Path) -> dict[str, bytes]:
    """Return the bytes of a file, or of the files of a folder."""
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files}


def targets(place: Path, count: int) -> list[str]:
    """Outputs onto pipes, devices and folders: they stay what they are."""
    wrong, pipe = [], place / "pipe"
    os.mkfifo(pipe)
    for number in range(count):
        target = (pipe, Path("/dev/full"), place, Path("/dev/null"))[number % 4]
        before = target.stat().st_mode
        eqr("solve", TASK, PUZZLE, "--gif", target)
        wrong += [f"{target} was replaced"] if target.stat().st_mode != before else []
    return wrong


TASK, STEPS = "sudoku-4x4", 2


def attack_files(found: Found) -> None:
    """Files and folders that a stranger made."""
    attacks: dict[Callable[[Path, int], list[str]], int] = {odd_files: 200, flipped: 40}
    if os.name == "posix":
        attacks |= {links: 16, targets: 12}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        assert eqr("train", TASK, "--steps", STEPS, "--out", place / "run", "--json")
        for attack, count in attacks.items():
            found.note(f"files, {attack.__name__}", count, attack(place, count))


PARTS: dict[str, Callable[[Found], None]] = {"server": attack_server, "files": attack_files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    given = parser.parse_args()
    unknown = set(given.parts) - PARTS.keys()
    if unknown:
        parser.error(f"no part {sorted(unknown)[0]!r}: choose of {', '.join(PARTS)}")
    found = Found()
    for name in given.parts or PARTS:
        PARTS[name](found)
    print(f"{found.tried:,} attacks, {len(found.findings)} findings")
    sys.exit(1 if found.findings else 0)


if __name__ == "__main__":
    main()
