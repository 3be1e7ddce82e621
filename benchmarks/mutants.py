"""Change `solve`, `train` and `measure`, one small mutation at a time, and see whether their tests notice.

Run: python -m pip install cosmic-ray==8.7.0
     python benchmarks/mutants.py [--each 60] [--seed 0] [--only dynamics/halting ...] [--session FILE]

Mutations come from cosmic-ray, and its `cr-report` and `cr-html` read the session, from which another call
goes on. Of each package `--each` places are drawn at random and one mutation of each, as eleven ways to spoil
one plus would count eleven times; annotations are left out, for they do nothing. A mutant meets the tests of
its module only (`TESTS`), in a process forked from one that has loaded everything but eqr. How things look
(plots, report pages, benches) is not mutated.
"""

import argparse
import ast
import compileall
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import hypothesis  # noqa: F401  what tests need and mutants do not change, so that forks have it
import numba  # noqa: F401
import numpy  # noqa: F401  # noqa: ICN001
import pydantic  # noqa: F401
import pytest
import safetensors.torch  # noqa: F401
import torch  # noqa: F401
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

ROOT = Path(__file__).parents[1]
CPU_SECONDS, SECONDS = 120, 1800
"""Of processor and clock, after which a mutant that never ends counts as noticed."""
TESTS: dict[str, str] = {
    "solve/budget": "solve/test_solver solve/test_rollout",
    "solve/candidates": "solve/test_selection solve/test_engine solve/test_answers",
    "solve/queue": "solve/test_queue solve/test_engine solve/test_serving",
    "solve/engine": "solve/test_engine solve/test_serving",
    "dynamics/iterate": "dynamics/test_iterate solve/test_rollout",
    "dynamics/rows": "dynamics/test_trees",
    "dynamics/halting": "solve/test_halting",
    "solve/rollout": "solve/test_rollout solve/test_engine",
    "solve/selection": "solve/test_selection solve/test_solver",
    "solve/solver": "solve/test_solver solve/test_serving",
    "train/checkpoint": "train/test_checkpoint train/test_run",
    "train/validation": "train/test_precision train/test_hint train/test_run",
    "train/halting": "train/test_rows train/test_schedule",
    "train/journal": "train/test_journal",
    "train/loss": "train/test_loss",
    "train/optimizer": "train/test_optimizer",
    "train/recipe": "test_recipes train/test_run",
    "train/rows": "train/test_rows",
    "train/run": "train/test_run train/test_hint",
    "train/schedule": "train/test_schedule",
    "train/sources": "train/test_identities train/test_run",
    "train/step": "train/test_schedule train/test_rows",
    "train/trainer": "train/test_rows train/test_schedule train/test_run",
    "results/costs": "results/test_costs results/test_training_cost",
    "report/compare": "report/test_compare",
    "diagnostics/cycles": "diagnostics/test_cycles",
    "diagnostics/landscape": "diagnostics/test_landscape",
    "results/evaluate": "results/test_evaluate",
    "results/metrics": "results/test_metrics",
    "figures/moving": "diagnostics/test_moving",
    "diagnostics/over_training": "diagnostics/test_over_training",
    "diagnostics/scaling": "diagnostics/test_scaling",
    "result": "results/test_evaluate cli/test_evaluate_and_solve",
    "diagnostics/stability": "diagnostics/test_stability",
    "results/statistics": "results/test_metrics report/test_compare",
    "results/table": "results/test_evaluate",
    "diagnostics/traces": "diagnostics/test_traces",
}


def main() -> None:
    """Draw mutants, try those that have no result yet, and say what became of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=60, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="parts, such as dynamics/halting")
    parser.add_argument("--session", type=Path, default=Path("mutants.sqlite"))
    options = parser.parse_args()
    modules = [name for name in TESTS if name.startswith(tuple(options.only))]
    with use_db(options.session, WorkDB.Mode.create) as session, tempfile.TemporaryDirectory() as place:
        if session.num_work_items == 0:
            session.add_work_items(drawn(modules, options.each, options.seed))
        tree = Path(place).resolve()
        for part in ("src", "tests", "benchmarks", "examples", "pyproject.toml"):
            (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, tree / part)
        os.chdir(tree)
        compileall.compile_dir(tree, quiet=1)
        os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        sound = set[str]()
        for item in session.pending_work_items:
            (mutation,) = item.mutations
            tests = TESTS[module_name(mutation)]
            if tests not in sound and not passes(tests):
                raise SystemExit(f"{tests} fails without any mutation")
            sound.add(tests)
            session.set_result(item.job_id, tried(mutation, tests))
        print("\n".join(report(session)))


def drawn(modules: list[str], each: int, seed: int) -> list[WorkItem]:
    """Draw so many places of each package, and a mutation of each; their order is random too."""
    found = list[WorkItem]()
    for package in sorted({name.split("/")[0] for name in modules}):
        rng = random.Random(f"{seed} {package}")
        paths = [Path("src/eqr") / f"{name}.py" for name in modules if name.startswith(f"{package}/")]
        places: dict[tuple[Path, tuple[int, int], str], list[WorkItem]] = {}
        for item in _all_work_items(paths, {}):
            (mutation,) = item.mutations
            family = mutation.operator_name.split("_")[0]
            if not any(begin <= mutation.start_pos < end for begin, end in annotations(mutation.module_path)):
                places.setdefault((mutation.module_path, mutation.start_pos, family), []).append(item)
        chosen = rng.sample(sorted(places), min(each, len(places)))
        found += [rng.choice(places[place]) for place in chosen]
    return random.Random(seed).sample(found, len(found))


@cache
def annotations(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where the annotations of a module begin and end."""
    found = list[tuple[tuple[int, int], tuple[int, int]]]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for name in ("annotation", "returns"):
            if isinstance(said := getattr(node, name, None), ast.expr):
                end = (said.end_lineno or said.lineno, said.end_col_offset or said.col_offset)
                found.append(((said.lineno, said.col_offset), end))
    return found


def module_name(mutation: MutationSpec) -> str:
    return str(mutation.module_path.relative_to("src/eqr").with_suffix(""))


def tried(mutation: MutationSpec, tests: str) -> WorkResult:
    """Apply a mutation, run the tests, and take it back."""
    began = time.monotonic()
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (before, after):
        outcome = TestOutcome.SURVIVED if passes(tests) else TestOutcome.KILLED
    line = (before or "").splitlines()[mutation.start_pos[0] - 1].strip()
    now = (after or "").splitlines()[mutation.start_pos[0] - 1].strip()
    said = f"{module_name(mutation)}:{mutation.start_pos[0]}: {line}  ->  {now}"
    print(f"{outcome.value:<9} {time.monotonic() - began:5.0f} s  {said}", flush=True)
    return WorkResult(WorkerOutcome.NORMAL, test_outcome=outcome, diff=said)


def passes(tests: str) -> bool:
    """Whether tests pass, in a process of their own."""
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        sys.dont_write_bytecode = True  # two mutants within a second would be taken for one another
        sys.path.insert(0, str(Path("src").resolve()))
        files = [f"tests/{name}.py" for name in tests.split()]
        os._exit(pytest.main(["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *files]))
    limit = time.monotonic() + SECONDS
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status == 0
        if time.monotonic() > limit:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.05)


def report(session: WorkDB) -> list[str]:
    """Return the counts by package, and the survivors."""
    results = dict(session.results)
    packages: dict[str, list[bool]] = {}
    lines = list[str]()
    for item in session.work_items:
        if item.job_id in results:
            result = results[item.job_id]
            name = module_name(item.mutations[0])
            packages.setdefault(name.split("/")[0], []).append(result.is_killed)
            if not result.is_killed:
                lines.append(f"survived  {result.diff}")
    for package, killed in packages.items():
        share = sum(killed) / len(killed)
        lines.append(f"{package:<8} {len(killed):>5,} mutants, {sum(killed):>5,} noticed, {share:.0%}")
    return lines


if __name__ == "__main__":
    main()
