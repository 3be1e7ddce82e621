"""`eqr tasks`: what kinds of puzzles there are."""

import json
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def tasks(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """List the kinds of puzzles there are."""
    from eqr.tasks import task_named, task_names

    known = [task_named(name) for name in task_names()]
    if as_json:
        rows = [
            {
                "name": task.name,
                "shape": list(task.shape),
                "vocabulary": task.vocabulary,
                "summary": task.summary,
                "rating": task.rating_name,
                "options": task.generate_options.model_json_schema().get("properties", {}),
            }
            for task in known
        ]
        print(json.dumps(rows, indent=2))
        return
    for task in known:
        size = f"{task.shape[0]}x{task.shape[1]}"
        print(f"{task.name:<14} {size:>6}  {task.vocabulary - 1:>2} symbols  {task.summary}")
    print(
        "\nMazes of other sizes: maze-11x11, maze-unique-15x15, maze-1k-12x12. Your own: docs/custom-tasks.md"
    )
