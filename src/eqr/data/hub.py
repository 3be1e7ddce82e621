"""The public datasets on the Hugging Face hub, by name.

Everything else in eqr works offline; this module alone needs the network, and says so plainly without it.
"""

import ssl
import threading
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

from eqr.errors import UserError, nearest

HUB = {
    "sapientinc/sudoku-extreme": "sudoku-9x9",
    "sapientinc/maze-30x30-hard-1k": "maze-1k",
}
"""Dataset name: the task it is of. Each has a train.csv and a test.csv."""

FILES = {"train": "train.csv", "test": "test.csv"}


def is_hub_name(source: str) -> bool:
    """Whether a source is a known dataset name, with or without its owner."""
    return full_name(source) in HUB


def full_name(source: str) -> str:
    """Return `owner/name` for a known short name, otherwise the source itself."""
    return next((name for name in HUB if source == name.split("/")[1]), source)


WAIT = 4.0
"""Seconds the hub has to answer at all; its own client would try again for half a minute."""


@cache
def reachable() -> bool:
    """Ask once whether the hub answers."""
    from huggingface_hub import constants

    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.append(_answers(constants.ENDPOINT)), daemon=True)
    asking.start()  # a thread, since looking up a name knows no time limit
    asking.join(WAIT)
    return found == [True]


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=WAIT).close()
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError as error:
        return isinstance(error.reason, ssl.SSLError)  # it is there; its client may know the certificate
    except OSError:
        return False
    return True


def download(repository: str, file: str, **options: Any) -> Path:
    """Return a file of the hub, from the cache alone when the hub does not answer."""
    import huggingface_hub

    if not reachable():
        options["local_files_only"] = True
    return Path(huggingface_hub.hf_hub_download(repository, file, **options))


def fetch(source: str) -> dict[str, Path]:
    """Download (once; later from the cache) the CSV file of each split."""
    name = full_name(source)
    if name not in HUB:
        raise UserError(f"unknown hub dataset {source!r}{nearest(source, HUB)}")
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return {split: download(name, file, repo_type="dataset") for split, file in FILES.items()}
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        raise UserError(
            f"cannot fetch {name} from the Hugging Face hub ({type(error).__name__}); check the connection, "
            "or download train.csv and test.csv elsewhere and import the file: eqr data import train.csv "
            "--test-from test.csv --out DIR"
        ) from None
