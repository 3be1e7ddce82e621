"""Arrays of the same sizes, made and dropped over and over, do not come from the system anew each time."""

import subprocess
import sys

import pytest

CODE = """
import resource
from eqr.backends.cpu.row_executor import keep_freed_memory
{first}
import torch
def work():
    kept = [torch.ones(100_000) for _ in range(8)]
    return sum(float(part[0]) for part in kept)
work(), work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(first: str) -> int:
    code = CODE.format(first=first)
    return int(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of Linux's C library")
def test_freed_memory_is_kept():
    kept, returned = faults("assert keep_freed_memory()"), faults("")
    assert kept < 1000, "eight arrays of a hundred pages, twenty times, would be 16,000"
    if returned >= 1000:  # some versions of the library keep these without being asked
        assert kept < returned / 4
