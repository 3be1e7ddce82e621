"""One way to extend: what is registered from outside works wherever a built-in one does."""

import json
import runpy
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal

import pytest
import torch
from typer.testing import CliRunner

import eqr.registry
from docs_pages import ROOT
from eqr.cli import app
from eqr.dynamics.iterate import iterate
from eqr.errors import UserError
from eqr.model.mixers import MIXERS, Mixer
from eqr.model.operator import Move, Recurrence
from eqr.model.reasoner import Reasoner
from eqr.recipes import RECIPES, recipe_named
from eqr.registry import Registry, register
from eqr.solve import load, parse_halting, parse_selection
from eqr.solve.budget import Budget
from eqr.solve.selection import First
from eqr.tasks.registry import TASKS
from eqr.train.optimizer import OPTIMIZERS, AdamW
from eqr.train.recipe import Recipe

EXAMPLES = ROOT / "examples"
PUZZLE = ".2.. ...3 ...1 4..."
SETTINGS = "rows=4 data.train=8 data.validation=4 data.test=4 evaluation.puzzles=4 evaluation.depths=[1,2]"
TINY = ["--steps", "2", *(word for one in SETTINGS.split(" ") for word in ("--set", one))]


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """What a test registers is forgotten after it."""
    for registry in Registry._all:
        monkeypatch.setattr(registry, "_known", dict(registry._known))


def run(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(done.exception, UserError):
        raise done.exception
    assert done.exit_code in (0, 1), done.output
    return done.stdout


def test_an_optimizer_from_outside(tmp_path):
    load = ("--load", EXAMPLES / "optimizer.py")
    run(*load, "train", "sudoku-4x4", "--out", tmp_path / "a", "--set", "optimizer=lion", *TINY)
    saved = tmp_path / "a" / "recipe.json"
    assert json.loads(saved.read_text())["optimizer"]["kind"] == "lion"
    recipe = Recipe.from_json(json.loads(saved.read_text()))
    assert type(recipe.optimizer).__name__ == "Lion"
    assert recipe.to_json() == json.loads(saved.read_text())
    run(*load, "train", saved, "--out", tmp_path / "b", *TINY)
    weights = [Reasoner.from_pretrained(tmp_path / name / "last") for name in "ab"]
    assert all(torch.equal(*pair) for pair in zip(*(w.parameters() for w in weights), strict=True))


def test_lion_equals_its_formula():
    Lion = runpy.run_path(str(EXAMPLES / "optimizer.py"))["Lion"]
    rule = Lion(rate=0.1, weight_decay=0.5, betas=(0.9, 0.99))
    flat = type("Flat", (), {"vector": torch.tensor([1.0, -2.0])})()
    memory, mean, weights = rule.start(flat), torch.zeros(2), torch.tensor([1.0, -2.0])
    for step, gradient in enumerate(torch.tensor([[1.0, -3.0], [-20.0, 0.5]]), start=1):
        rule.step(flat, gradient, memory, step, 0.1)
        weights = weights * (1 - 0.1 * 0.5) - 0.1 * torch.sign(0.9 * mean + 0.1 * gradient)
        mean = 0.99 * mean + 0.01 * gradient
    torch.testing.assert_close(flat.vector, weights)


def test_a_halting_rule_from_outside():
    load = ("--load", EXAMPLES / "halting_rule.py")
    sure = json.loads(run(*load, "solve", "sudoku-4x4", PUZZLE, "--json", "--halt", "confident:0.99"))
    lax = json.loads(run(*load, "solve", "sudoku-4x4", PUZZLE, "--json", "--halt", "confident:0.26"))
    assert lax["depth"] <= sure["depth"]
    assert lax["depth"] == 1
    rule = parse_halting("confident:0.9+stable:1")
    budget = Budget(depth=4, halting=rule)
    assert Budget.from_json(budget.to_json()) == budget
    with pytest.raises(UserError, match="did you mean 'confident'"):
        parse_halting("confidnet")
    with pytest.raises(UserError, match="takes share, not 2 numbers"):
        parse_halting("confident:0.9:3")
    with pytest.raises(UserError, match="share"):
        parse_halting("confident:2")


def test_a_mixer_from_outside(tmp_path):
    loading, own = (
        ("--load", EXAMPLES / "mixer.py"),
        ("--set", "model.mixer=pooled", "--set", "model.mixer.hidden=8"),
    )
    run(*loading, "train", "sudoku-4x4-tokens", "--out", tmp_path / "run", *own, *TINY)
    run(*loading, "solve", tmp_path / "run", PUZZLE)
    config = load(tmp_path / "run").config
    assert config.mixer.to_json() == {"kind": "pooled", "hidden": 8}
    MIXERS._known.pop("pooled")
    with pytest.raises(UserError, match=r"mixer.*'pooled'.*--load"):
        load(tmp_path / "run")


def test_a_recurrence_from_outside():
    @register
    class Alternating(Recurrence):
        """Scratch and answer in turns."""

        kind: Literal["alternating"] = "alternating"
        turns: int = 2

        def moves(self) -> tuple[Move, ...]:
            return (Move.SCRATCH, Move.ANSWER) * self.turns

    settings = ["model.recurrence=alternating", "model.recurrence.turns=3"]
    recipe = recipe_named("sudoku-4x4-tokens").with_settings(settings)
    assert Recipe.from_json(recipe.to_json()) == recipe
    config = recipe.model
    assert (config.applications, config.two_states, config.greatest_depth) == (6, True, None)
    model = Reasoner(config)
    x = model.embed(torch.ones(2, config.cells, dtype=torch.long))
    *_, last = iterate(model, x, model.start(x), depth=2)
    assert last.reading.logits.isfinite().all()
    with pytest.raises(UserError, match="did you mean 'alternating'"):
        recipe.with_settings(["model.recurrence=alternatin"])


def test_a_mistyped_kind_or_field_is_told_the_nearest():
    recipe = recipe_named("sudoku-4x4")
    with pytest.raises(UserError, match=r"optimizer.*did you mean 'adamw'"):
        recipe.with_settings(["optimizer=adamv"])
    with pytest.raises(UserError, match=r"unknown key 'optimizer.rat'; did you mean 'rate'"):
        recipe.with_settings(["optimizer.rat=1"])
    with pytest.raises(UserError, match=r"recipe: optimizer.rate = -1"):
        recipe.with_settings(["optimizer.rate=-1"])
    with pytest.raises(UserError, match="unknown rule 'frist'; did you mean 'first'"):
        parse_selection("frist")


def test_names_that_eqr_comes_with_stay_its_own():
    class Mine(AdamW):
        kind: Literal["adamw"] = "adamw"

    with pytest.raises(UserError, match="already registered"):
        register(Mine)
    with pytest.raises(UserError, match="already registered"):
        RECIPES.add("sudoku-6x6", recipe_named)


def test_what_cannot_be_registered_is_refused():
    class Nameless(Mixer):
        pass

    with pytest.raises(UserError, match="needs a kind"):
        register(Nameless)
    with pytest.raises(UserError, match="cannot register"):
        register(3)


def test_a_cell_can_be_run_twice():
    for _ in range(2):
        runpy.run_path(str(EXAMPLES / "optimizer.py"))
    assert OPTIMIZERS["lion"].__name__ == "Lion"


def test_a_function_is_a_recipe_of_its_name():
    @register
    def my_recipe() -> Recipe:
        return recipe_named("sudoku-4x4").replace(steps=3)

    assert recipe_named("my-recipe").steps == 3
    assert recipe_named("my-recipe/trm").model.start.kind == "fixed"


def test_a_selection_rule_is_known_by_its_kind():
    @register
    class Last(First):
        kind: Literal["last"] = "last"

    assert isinstance(parse_selection("last"), Last)


@pytest.mark.parametrize("registry", [OPTIMIZERS, TASKS, RECIPES], ids=lambda registry: registry.sort)
def test_an_installed_package_adds_to_it(registry, monkeypatch, tmp_path):
    module = tmp_path / "my_package.py"
    text = (EXAMPLES / "optimizer.py").read_text().replace("@register\n", "")
    module.write_text(text + "\nfrom toy_task import Toy\n\ndef my_recipe():\n    return 'a recipe'\n")
    monkeypatch.syspath_prepend(tmp_path)
    name, thing = {
        "optimizers": ("lion", "Lion"),
        "tasks": ("toy", "Toy"),
        "recipes": ("own", "my_recipe"),
    }[registry.sort]
    point = EntryPoint(name, f"my_package:{thing}", f"eqr.{registry.sort}")
    monkeypatch.setattr(eqr.registry, "entry_points", lambda group: [point] if group == point.group else [])
    registry._known.pop(name, None)
    assert name in list(registry)
    assert registry[name] is registry[name]
    wrong = EntryPoint("wrong", "math:pi", f"eqr.{registry.sort}")
    monkeypatch.setattr(eqr.registry, "entry_points", lambda group: [wrong])
    with pytest.raises(UserError, match="plug-in 'wrong'"):
        registry["wrong"]
