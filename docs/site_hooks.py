"""Makes links to files outside `docs/` (code, README) lead to the repository on the site, and a page of
`results/README.md` with its figures.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

RESULTS = Path(__file__).resolve().parents[1] / "results"
FIGURE, PAGE = re.compile(r"(!\[[^]]*\]\()([^):]+\))"), re.compile(r"(?<!!)(\[[^]!]+\]\()(?!\.\./)([^):]+\))")
WIDE = ("lab-notes.md", "models.md", "benchmarks.md")
"""Pages whose tables need the room of the table of contents."""
LINK = re.compile(r"(\]\()(\.\./[^)\s]+)(\))")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Rewrite `](../path)` to the file on the main branch, and give wide pages the room they need."""

    def there(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), found[2]))
        return f"{found[1]}{config.repo_url}/blob/main/{path}{found[3]}"

    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    return LINK.sub(there, markdown)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the page of all results and the figures that it shows."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    for figure in FIGURE.findall(text):
        name = figure[1].removesuffix(")")
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(RESULTS / name)))
    text = PAGE.sub(r"\1../results/\2", FIGURE.sub(r"\1results/\2", text))
    wide = "---\nhide: [toc]\n---\n\n"  # a table of plots needs the room
    files.append(File.generated(config, "results.md", content=wide + text))
    return files
