"""What `--on ray` begins on this machine listens to this machine only, in every process of it."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqr[cluster]'")
pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")

LISTED = """
import json, os, socket, sys
from pathlib import Path
from eqr.cluster.connect import connected
from eqr.cluster.serving import deploy
from eqr.serve.messages import Limits

def address(hexed):
    data = bytes.fromhex(hexed)
    words = b"".join(data[place : place + 4][::-1] for place in range(0, len(data), 4))
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, words)

def listeners():
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                found[f"socket:[{inode}]"] = address(local.split(":")[0])
    return found

def target(link):
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed meanwhile
        return ""

def opened(before):
    known = listeners()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if "ray" in (process / "cmdline").read_text():
                held = {target(link) for link in (process / "fd").iterdir()}
                yield from (known[socket] for socket in (held - before) & known.keys())
        except OSError:
            continue

before = set(listeners())
with connected("ray"):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    deploy([sys.argv[1]], Limits(), host="127.0.0.1", port=port, replicas=(1, 1), slots=1)
    print(json.dumps(list(opened(before))))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="listeners are read from /proc")
def test_a_cluster_begun_here_listens_to_this_machine_only():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with (
        tempfile.TemporaryDirectory() as apart
    ):  # in the usual place Ray would find the cluster of other tests
        found = subprocess.run(
            [sys.executable, "-c", LISTED, "sudoku-4x4"],
            env={**environment, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": apart},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert found.returncode == 0, found.stderr
    addresses = json.loads(found.stdout.splitlines()[-1])
    assert len(addresses) > 10, "the nodes' services, Serve's and the replica's"
    assert set(addresses) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
