"""A short, seeded run of `benchmarks/fuzz.py`: odd input is taken or refused in words; nothing escapes."""

import importlib.util
import sys
from pathlib import Path

FUZZ = Path(__file__).parent.parent / "benchmarks" / "fuzz.py"


def load_fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", FUZZ)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    return module


def test_nothing_but_plain_refusals_escapes(tmp_path):
    fuzz = load_fuzz()
    readers = fuzz.make_files(tmp_path)
    whole = fuzz.Tally()
    for kind, read in readers.items():
        whole.call(kind, read, kind)
    assert set(whole.taken) == set(readers) - {"convert"}, "what is not damaged is read"
    tally = fuzz.fuzz(seconds=0, seed=0, rounds=60)
    assert tally.escaped == []
    assert tally.refused.total() > 300
    assert tally.taken.total() > 10


def test_what_escapes_is_counted():
    fuzz = load_fuzz()
    tally = fuzz.Tally()
    tally.call("kind", lambda: 1 / 0, "told")
    assert [kind for kind, _ in tally.escaped] == ["kind"]
    assert "ZeroDivisionError" in tally.escaped[0][1]
