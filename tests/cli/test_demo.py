"""The demo at a tiny scale: every stage runs, a second call reuses everything."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from eqr.cli import app
from eqr.errors import UserError

TINY = ["--steps", "4", "--puzzles", "8", "--starts", "2", "--depth", "4"]


@pytest.fixture(autouse=True)
def one_thread():
    """Beside other tests, two threads on two cores wait for each other most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_what_the_report_lacks_is_said_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("eqr.cli.demo.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs matplotlib: pip install 'eqr\[plots\] @ git\+"):
        CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "run")], catch_exceptions=False)
    assert not (tmp_path / "run").exists()


def test_the_demo_trains_scales_solves_and_reports_then_reuses_it_all(tmp_path: Path) -> None:
    run = tmp_path / "demo"
    first = CliRunner().invoke(app, ["demo", "--out", str(run), *TINY], catch_exceptions=False)
    assert first.exit_code == 0
    assert "depth D" in first.output
    assert "segment 4" in first.output
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    weights = (run / "best" / "model.safetensors").read_bytes()

    again = CliRunner().invoke(app, ["demo", "--out", str(run), *TINY], catch_exceptions=False)
    assert "is trained already" in again.output
    assert (run / "best" / "model.safetensors").read_bytes() == weights
