"""`eqr push` sends a model's own files to the Hub; a local folder stands in for it."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi
from typer.testing import CliRunner

import eqr
from eqr.cli import app
from eqr.errors import UserError
from eqr.model.lookup import shipped

PUZZLE = ".2.. ...3 ...1 4..."


def push(*words: object):
    return CliRunner().invoke(app, ["push", *map(str, words)])


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """A folder that receives what is uploaded, by the client's own calls."""
    there = tmp_path / "hub"

    def create(self, repo_id, *, private=None, exist_ok=False, **_):
        (there / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        (there / "private").write_text(str(private))
        return SimpleNamespace(repo_id=repo_id)

    def upload(self, *, repo_id, folder_path, **_):
        shutil.copytree(folder_path, there / repo_id, dirs_exist_ok=True)
        return f"https://hub/{repo_id}"

    monkeypatch.setattr(HfApi, "create_repo", create)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    return there


def test_what_is_uploaded_solves_puzzles(hub):
    done = push("sudoku-4x4", "someone/four")
    assert done.exit_code == 0, done.output
    assert "https://hub/someone/four" in done.output
    assert (hub / "private").read_text() == "None"
    sent = hub / "someone" / "four"
    ours = shipped()["sudoku-4x4"]
    for name in ("config.json", "model.safetensors", "measured.json", "training.json"):
        assert (sent / name).read_bytes() == (ours / name).read_bytes()
    assert "| exact accuracy |" in (sent / "README.md").read_text()
    assert eqr.Solver(sent).solve(PUZZLE).valid


def test_a_private_repository_is_asked_for(hub):
    assert push("sudoku-4x4", "someone/four", "--private").exit_code == 0
    assert (hub / "private").read_text() == "True"


def test_a_dry_run_writes_the_same_files_and_uploads_nothing(hub, tmp_path):
    assert push("sudoku-4x4", "someone/four", "--dry-run", tmp_path / "dry").exit_code == 0
    assert not hub.exists()
    push("sudoku-4x4", "someone/four")
    names = sorted(path.name for path in (tmp_path / "dry").iterdir())
    assert names == sorted(path.name for path in (hub / "someone" / "four").iterdir())
    for name in names:
        assert (tmp_path / "dry" / name).read_bytes() == (hub / "someone" / "four" / name).read_bytes()


@pytest.mark.parametrize("name", ["four", "a/b/c", "/four", "someone/"])
def test_what_is_no_name_on_the_hub_is_refused(name):
    done = push("sudoku-4x4", name)
    assert isinstance(done.exception, UserError)
    assert "give OWNER/NAME" in str(done.exception)


def test_a_hub_that_refuses_is_one_clear_error(monkeypatch):
    def refuse(self, *_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(HfApi, "create_repo", refuse)
    done = push("sudoku-4x4", "someone/four")
    assert isinstance(done.exception, UserError)
    assert "cannot upload to someone/four: no route to host" in str(done.exception)
