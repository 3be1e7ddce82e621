"""Reading our own pages: fenced blocks, inline code, links and headings of README, CONTRIBUTING and docs."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = ("bash", "console")


class Block(NamedTuple):
    """One fenced block."""

    language: str
    text: str

    def commands(self) -> list[list[str]]:
        """The shell lines of the block as words, comments and prompts left out."""
        if self.language not in _SHELL:
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
        return [line for line in words if line]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks in order."""
    return [Block(*found) for found in _FENCE.findall(page.read_text(encoding="utf-8"))]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def spans(page: Path) -> list[str]:
    """All inline code."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def links(page: Path) -> list[str]:
    """Targets of links that stay inside the project."""
    found = re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", prose(page))
    return [target for target in found if "://" not in target]


def figures(page: Path) -> list[Path]:
    """Files of the images that a page shows."""
    return [page.parent / target for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", prose(page))]


def anchors(page: Path) -> set[str]:
    """What `page.md#...` may say: headings the way GitHub spells them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def eqr_words(command: list[str]) -> list[str] | None:
    """The words behind `eqr` of a command that runs it, directly or by torchrun; None for other commands."""
    if command[0] == "eqr":
        return command[1:]
    if command[0] == "torchrun" and "eqr" in command:
        return command[command.index("eqr") + 1 :]
    return None
