"""A process that does jobs one after another: `python -m eqr.experiments.worker STORE`.

It reads jobs as lines of JSON and answers each with one line. When its input closes, because whoever
started it is gone, it asks itself to stop; a training then writes a checkpoint first. A mistake of the
program ends the process, and the executor reads the reason from what it left on stderr.
"""

import json
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from eqr.errors import UserError
from eqr.experiments.jobs import Interrupted, Job, run_job
from eqr.experiments.store import Store
from eqr.signals import Stopped, stoppable


def main(folder: str) -> None:
    """Do jobs until the input closes."""
    import torch

    torch.set_num_threads(1)
    store, lines = Store(Path(folder)), queue.SimpleQueue[str | None]()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    _say({"ready": os.getpid()})
    while (line := lines.get()) is not None:
        job = Job.from_json(json.loads(line))
        try:
            run_job(job, store)
        except UserError as error:
            _say({"key": job.key, "failed": str(error)})
        except (Interrupted, Stopped):
            _say({"key": job.key, "stopped": True})
            return
        else:
            _say({"key": job.key, "done": True})


def _listen(lines: "queue.SimpleQueue[str | None]") -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    with stoppable(), suppress(Stopped):
        main(sys.argv[1])
