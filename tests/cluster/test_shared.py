"""A run at an address can go on from there, whatever file system it is on and whenever its worker is lost."""

import uuid

import pytest

fsspec = pytest.importorskip("fsspec", reason="pip install 'eqr[cluster]'")

from eqr.cluster.shared import SharedPlace  # noqa: E402
from eqr.errors import UserError  # noqa: E402
from eqr.experiments.store import Store  # noqa: E402

KEY = "run"


@pytest.fixture(params=["memory", "file"])
def place(request, tmp_path, monkeypatch) -> SharedPlace:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = tmp_path / "far" if request.param == "file" else f"/{uuid.uuid4().hex}"
    return SharedPlace(f"{request.param}://{address}")


def write(store: Store, name: str, content: str) -> None:
    path = store[KEY].folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def files(store: Store) -> dict[str, str]:
    folder = store[KEY].folder
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def test_what_a_worker_leaves_is_what_the_next_one_finds(place, tmp_path):
    with place.working_copy(KEY) as store:
        write(store, "run/checkpoints/step-2.safetensors", "two")
        write(store, "run/metrics.jsonl", "a line")
        write(store, "run/.half-written", "no")
    with place.working_copy(KEY) as store:
        assert files(store) == {
            "run/checkpoints/step-2.safetensors": "two",
            "run/metrics.jsonl": "a line",
        }
        write(store, "run/checkpoints/step-4.safetensors", "four")
        (store[KEY].folder / "run/checkpoints/step-2.safetensors").unlink()
    back = Store(tmp_path / "back")
    place.pull(KEY, back)
    assert files(back) == {"run/checkpoints/step-4.safetensors": "four", "run/metrics.jsonl": "a line"}
    light = Store(tmp_path / "light")
    place.pull(KEY, light, checkpoints=False)
    assert files(light) == {"run/metrics.jsonl": "a line"}


def test_a_worker_lost_between_two_copies_leaves_a_whole_checkpoint(place, tmp_path):
    with place.working_copy(KEY) as store:
        write(store, "run/checkpoints/step-2.safetensors", "two")
    try:
        with place.working_copy(KEY) as store:
            write(store, "run/checkpoints/step-4.safetensors", "four")
            place.drop = place.put = lost  # the machine is gone before its last copy
    except OSError:
        pass
    back = Store(tmp_path / "back")
    SharedPlace(place.address).pull(KEY, back)
    assert files(back) == {"run/checkpoints/step-2.safetensors": "two"}


def lost(*_):
    raise OSError("no network")


def test_a_mark_is_seen_until_it_is_taken_away(place):
    assert not place.has("mark")
    place.mark("mark")
    assert SharedPlace(place.address).has("mark")
    place.unmark("mark")
    assert not place.has("mark")


@pytest.mark.parametrize("address", ["nosuch://bucket/runs", "file:///proc/nowhere"])
def test_an_address_that_cannot_be_used_is_named(address):
    with pytest.raises(UserError, match=f"--shared {address}"):
        SharedPlace(address)
