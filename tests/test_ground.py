"""Laws of the ground: values compare by content and explain themselves, files appear whole or not at all."""

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from eqr.errors import UserError, brief, nearest
from eqr.files import (
    append,
    held,
    make_folder,
    new_file,
    new_folder,
    parse_word,
    read_json,
    read_object,
    require_own,
    write_json,
)
from eqr.value import Value


class Inner(Value):
    kind: Literal["inner"] = "inner"
    width: int = Field(default=2, ge=1)


class Other(Value):
    kind: Literal["other"] = "other"
    height: int = 3


class Outer(Value):
    name: str = "x"
    inner: Annotated[Inner | Other, Field(discriminator="kind")] = Inner()


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=8), st.integers(1, 99))
def test_a_value_survives_json_with_its_digest(name, width):
    value = Outer(name=name, inner=Inner(width=width))
    back = Outer.from_json(json.loads(json.dumps(value.to_json())))
    assert back == value
    assert back.digest() == value.digest()
    assert value.replace(name=name + "!").digest() != value.digest()


def test_a_value_is_frozen_and_validated_on_replace():
    with pytest.raises(ValueError, match="frozen"):
        Inner().width = 3  # type: ignore[misc]
    with pytest.raises(UserError, match="Inner: width = 0: Input should be greater than or equal to 1"):
        Inner().replace(width=0)
    with pytest.raises(UserError, match="Inner: unknown key 'widht'; did you mean 'width'"):
        Inner().replace(widht=3)


def test_mistakes_name_the_field_the_value_and_the_nearest_key():
    with pytest.raises(UserError, match=r"file\.json: unknown key 'nam'; did you mean 'name'"):
        Outer.from_json({"nam": "y"}, where="file.json")
    with pytest.raises(UserError, match=r"unknown key 'inner\.inner\.widht'; did you mean 'width'"):
        Outer.from_json({"inner": {"kind": "inner", "widht": 4}})
    with pytest.raises(UserError, match="width = 0"):
        Outer.from_json({"inner": {"kind": "inner", "width": 0}})


def test_nearest_suggests_or_lists():
    assert nearest("trian", ["train", "test"]) == "; did you mean 'train'?"
    assert nearest("zzz", ["b", "a"]) == "; known: a, b"


def write_half_of(target):
    with new_file(target) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "deep" / "a.txt"
    with pytest.raises(KeyboardInterrupt):
        write_half_of(target)
    assert list(target.parent.iterdir()) == []
    with new_file(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]
    assert target.read_text() == "whole"


def test_a_failed_write_keeps_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"old": True})
    with pytest.raises(UserError, match="No space left"), new_file(tmp_path / "a.json"):
        raise OSError(28, "No space left on device")
    assert read_json(tmp_path / "a.json") == {"old": True}


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "a") as folder:
        write_half_of(folder / "x")
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("one")
    with pytest.raises(UserError, match="already exists"), new_folder(tmp_path / "a"):
        pass
    with pytest.raises(UserError, match="stop"), new_folder(tmp_path / "a", replacing="x"):
        raise UserError("stop")
    assert (tmp_path / "a" / "x").read_text() == "one"
    with (
        pytest.raises(UserError, match=r"no dataset\.json in it"),
        new_folder(tmp_path / "a", replacing="dataset.json"),
    ):
        pass
    with new_folder(tmp_path / "a", replacing="x") as folder:
        (folder / "y").write_text("two")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["y"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(("replacing", "refusal"), [(None, "already exists"), ("x", "no x in it")])
def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path, replacing, refusal):
    def make_while_another_does() -> None:
        with new_folder(tmp_path / "a", replacing=replacing) as folder:
            (folder / "x").write_text("ours")
            (tmp_path / "a").mkdir()
            (tmp_path / "a" / "theirs").write_text("precious")

    with pytest.raises(UserError, match=refusal):
        make_while_another_does()
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "theirs"]


@pytest.fixture
def disk(monkeypatch):
    """Notes what is handed to the disk; `broken` names what it fails for."""

    class Disk:
        flushed: list[str] = []  # noqa: RUF012
        broken = None

    def fsync(handle):
        name = Path(f"/proc/self/fd/{handle}").readlink().name
        Disk.flushed.append(name)
        if Disk.broken is not None and Disk.broken in name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("os.fsync", fsync)
    Disk.flushed, Disk.broken = [], None
    return Disk


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_an_error_of_the_disk_keeps_the_old_file(tmp_path, disk):
    write_json(tmp_path / "a.json", {"old": True})
    with new_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("old")
    disk.broken = ".tmp"
    with pytest.raises(UserError, match=r"cannot write .*a\.json: Input/output error"):
        write_json(tmp_path / "a.json", {"old": False})
    for broken in ("x", ".tmp"):
        disk.broken = broken
        with (
            pytest.raises(UserError, match="Input/output error"),
            new_folder(tmp_path / "a", replacing="x") as folder,
        ):
            (folder / "x").write_text("new")
    assert read_json(tmp_path / "a.json") == {"old": True}
    assert (tmp_path / "a" / "x").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_folders_are_flushed_after_what_changes_in_them(tmp_path, disk):
    write_json(tmp_path / "deep" / "down" / "a.json", {})
    assert disk.flushed[:2] == ["deep", tmp_path.name], "folders that were made"
    assert disk.flushed[2].endswith(".tmp")
    assert disk.flushed[3:] == ["down"]
    disk.flushed.clear()
    with new_folder(tmp_path / "b") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "x").write_text("x")
    assert {"x", "inner"} < set(disk.flushed)
    assert disk.flushed[-1] == tmp_path.name
    disk.broken = tmp_path.name
    with pytest.raises(UserError, match="Input/output error"):
        write_json(tmp_path / "c.json", {})


def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(tmp_path, monkeypatch):
    with new_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("old")
    rename = Path.rename

    def failing(self, target):
        if self.name.endswith(".tmp"):
            raise OSError(errno.EIO, "no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(UserError), new_folder(tmp_path / "a", replacing="x") as folder:
        (folder / "x").write_text("new")
    assert [(path.name, path.read_text()) for path in (tmp_path / "a").iterdir()] == [("x", "old")]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(os.name != "posix", reason="has no umask")
@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_permissions_are_what_the_umask_leaves(tmp_path, mask):
    before = os.umask(mask)
    try:
        for _ in range(2):  # also where a file is replaced
            write_json(tmp_path / "a.json", {})
            append(tmp_path / "log", "a line\n")
            with new_folder(tmp_path / "b", replacing="x") as folder:
                (folder / "x").write_text("x")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"a.json": 0o666 & ~mask, "log": 0o666 & ~mask, "x": 0o666 & ~mask, "b": 0o777 & ~mask}


@pytest.mark.skipif(os.name != "posix", reason="has no such files")
def test_only_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/full")
    for name, kind in (("pipe", "pipe or device"), ("folder", "folder"), ("link", "pipe or device")):
        before = os.lstat(tmp_path / name)
        with pytest.raises(UserError, match=f"cannot write .*{name}: it is a {kind}, not a file"):
            write_json(tmp_path / name, {})
        assert os.path.samestat(os.lstat(tmp_path / name), before)
    with pytest.raises(UserError, match="it is a pipe or device"), new_file(tmp_path / "new"):
        os.mkfifo(tmp_path / "new")  # meanwhile
    assert stat.S_ISFIFO((tmp_path / "new").stat().st_mode)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.skipif(os.name != "posix", reason="has no such links")
def test_nothing_is_written_through_a_link(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "place").mkdir()
    link = tmp_path / "place" / "link"
    link.symlink_to(mine)
    with pytest.raises(UserError, match="cannot write"):
        append(link, "a line")
    with pytest.raises(
        UserError, match=r"link is a link to .*mine, and nothing is written or removed outside"
    ):
        require_own(tmp_path / "place", "link", "further")
    with pytest.raises(UserError, match="is a link, a pipe or a device, not a lock file"), held(link, "it"):
        pass
    second = tmp_path / "place" / "second"
    os.link(mine, second)
    with pytest.raises(UserError, match="is a link, a pipe or a device, not a lock file"), held(second, "it"):
        pass
    write_json(link, "ours")
    assert mine.read_text() == "mine"
    assert not link.is_symlink()
    require_own(tmp_path / "place", "link")


def test_whoever_waits_for_a_lock_gets_it(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from eqr.files import held\n"
        "with held(Path(sys.argv[1]), 'it'): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"it is in use by process {holder.pid} on"), held(path, "it"):
            pass
        holder.stdin.close()
        with held(path, "it", wait=True):
            assert path.is_file()
    assert not path.exists()


def abandoned(path):
    """Make a temporary file or folder look like that of a writer killed long ago."""
    os.utime(path, (0, 0))


def test_leftovers_of_killed_writers_go_with_the_next_write(tmp_path):
    (tmp_path / ".a.json.abcd1234.tmp").write_text("half")
    (tmp_path / ".a.json.young123.tmp").write_text("maybe not locked yet")
    (tmp_path / ".a.json.swp").write_text("an editor's")
    (tmp_path / ".b.json.abcd1234.tmp").write_text("of another target")
    for path in tmp_path.iterdir():
        if "young" not in path.name:
            abandoned(path)
    write_json(tmp_path / "a.json", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".a.json.swp",
        ".a.json.young123.tmp",
        ".b.json.abcd1234.tmp",
        "a.json",
    ]


def test_a_living_writer_keeps_its_temporary_file(tmp_path):
    with new_file(tmp_path / "a") as mine:
        mine.write_text("first")
        abandoned(mine)
        write_json(tmp_path / "a", "second")
    assert (tmp_path / "a").read_text() == "first"


def test_what_a_killed_replacement_had_moved_away_comes_back(tmp_path):
    for name in (".a.abcd1234.tmp", ".a.abcd1234.tmp.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
        abandoned(tmp_path / name)
    with pytest.raises(UserError, match="already exists"), new_folder(tmp_path / "a"):
        pass
    assert (tmp_path / "a" / "x").read_text() == ".a.abcd1234.tmp.old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_cannot_be_made_is_one_plain_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file"):
        make_folder(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), (b"{", "line 1 is not valid JSON"), (b'"\xff"', "not UTF-8 text .byte 1")],
)
def test_unreadable_json_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_json(tmp_path / "a.json")


DEEP = "[" * 200 + "]" * 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "nested more than 64 levels"),
        ("[" * 100_000, "nested more than 64 levels"),
        ("[" + "9" * 5000 + "]", "thousands of digits"),
    ],
)
def test_json_of_no_sensible_form_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_json(tmp_path / "a.json")
    with pytest.raises(UserError, match=message):
        parse_word(text, where="--set x")


def test_only_files_of_sensible_size_are_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.json")
    for path, message in (
        (tmp_path / "pipe.json", "pipe or device"),
        (Path("/dev/zero"), "pipe or device"),
        (tmp_path, "it is a folder"),
        (tmp_path / ("a" * 300), "File name too long"),
        (tmp_path / "a\0b", "null"),
    ):
        with pytest.raises(UserError, match=message):
            read_json(path)
    write_json(tmp_path / "a.json", {"long": "x" * 100})
    monkeypatch.setattr("eqr.files.LARGEST_TEXT", 100)
    with pytest.raises(UserError, match="bytes are more than 100"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("data", [None, 3, [1], "x"])
def test_an_object_is_one(tmp_path, data):
    write_json(tmp_path / "a.json", data)
    with pytest.raises(UserError, match="must hold an object"):
        read_object(tmp_path / "a.json")


def test_undecodable_arguments_survive_json(tmp_path):
    text = os.fsdecode(b"\xff name")
    write_json(tmp_path / "a.json", {"name": text})
    assert read_json(tmp_path / "a.json") == {"name": text}


def test_places_that_cannot_be_written_are_plain_errors(tmp_path):
    long = tmp_path / ("a" * 250)
    with pytest.raises(UserError, match="cannot write"):
        write_json(long, {})  # the name itself would do, the temporary one beside it does not
    with pytest.raises(UserError, match="cannot write"), new_folder(long):
        pass


def test_errors_stay_a_line_whatever_the_value():
    for huge in ("x" * 10**6, list(range(10**6)), {"a": {"b": {"c": {"d": {}}}}}, 1 << 10**5):
        assert len(brief(huge)) < 200
    with pytest.raises(UserError) as caught:
        Outer.from_json({"inner": {"kind": "inner", "width": "x" * 10**6}})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_of_values_are_finite(number):
    class Scale(Value):
        scale: float

    with pytest.raises(UserError, match="finite"):
        Scale.from_json({"scale": number})
