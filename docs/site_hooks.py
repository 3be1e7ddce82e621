"""Makes the pages' links to files outside `docs/` (code, README) lead to the repository on the site."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(\]\()(\.\./[^)\s]+)(\))")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Rewrite `](../path)` to the file on the main branch."""

    def there(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), found[2]))
        return f"{found[1]}{config.repo_url}/blob/main/{path}{found[3]}"

    return LINK.sub(there, markdown)
