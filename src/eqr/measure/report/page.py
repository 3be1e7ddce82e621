"""The page: sections poured into `page.html`, figures and styles inside it, nothing fetched from anywhere."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from eqr.errors import UserError
from eqr.measure.report.parts import ReportPicture, Section, Sheet

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Fact:
    """One line of the summary."""

    name: str
    text: str


def render(
    title: str,
    facts: Sequence[Fact],
    head: Sheet,
    sections: Sequence[Section],
    commands: Mapping[str, Sequence[str]],
) -> str:
    """Return the whole page as text."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UserError("the report needs jinja2; pip install 'eqr[plots]'") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["embedded"] = embedded
    environment.filters["formula"] = formula
    environment.tests["picture"] = lambda part: isinstance(part, ReportPicture)
    template = environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(title=title, facts=facts, head=head, sections=sections, commands=commands.items())


def formula(text: str) -> "Markup":
    """Set the indices of symbols such as c_B^trunc low and high; anything else stays as it is."""
    from markupsafe import Markup, escape

    lowered = re.sub(r"\b([ac])_(\w)(?![\w])", r"\1<sub>\2</sub>", str(escape(text)))
    return Markup(re.sub(r"\^(\w+)", r"<sup>\1</sup>", lowered))  # escaped above


def embedded(picture: ReportPicture) -> str:
    """Return a figure as an address that holds the figure itself."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture.svg).decode()
