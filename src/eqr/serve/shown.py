"""What is known about a served model: its card for programs and for the page."""

from pathlib import Path
from typing import Any

from eqr.model.export import noise_scales
from eqr.model.reasoner import Reasoner
from eqr.serve.limits import Limits
from eqr.serve.looks import examples, look, title
from eqr.solve.asked import USUAL_DEPTH, Asked
from eqr.tasks.base import Task

STATIC = Path(__file__).parent / "static"
SHOWN_SETTINGS = ("depth", "breadth", "halt", "select", "race", "noise", "seed", "identity")


def card(name: str, reasoner: Reasoner, task: Task, limits: Limits) -> dict[str, Any]:
    """Describe a model: task, size, what was measured, what may be asked, and examples."""
    noise = noise_scales(reasoner)[0]
    deepest = min(limits.depth, reasoner.config.greatest_depth or limits.depth)
    defaults = Asked(depth=min(USUAL_DEPTH, deepest)).to_json()
    return {
        "name": name,
        "title": title(task) if name in task.name else name,
        "said": _said(reasoner),
        "task": look(task),
        "parameters": reasoner.parameter_count(),
        "identities": reasoner.config.identities,
        "config": reasoner.config.to_json(),
        "measured": [number.to_json() for number in reasoner.measured],
        "noise": noise,
        "noisy": True,
        "defaults": {field: defaults[field] for field in SHOWN_SETTINGS},
        "limits": {
            "depth": deepest,
            "breadth": limits.breadth,
            "segments": limits.segments,
            "puzzles": limits.puzzles,
        },
        "examples": examples(task),
    }


def _said(reasoner: Reasoner) -> str:
    """The best number known about a model, in words."""
    found = [number for number in reasoner.measured if number.metric == "exact accuracy"]
    if not found:
        return ""
    best = max(found, key=lambda number: number.value)
    return (
        f"It solves {100 * best.value:.1f} % of {best.count:,} held-out puzzles "
        f"at depth {best.depth}, breadth {best.breadth}."
    )
