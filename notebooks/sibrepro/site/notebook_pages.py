"""Convert a notebook to the body of a page, with nbconvert, a small template, MathML and pictures as files."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import pass_context
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from traitlets.config import Config

from sibrepro.params import in_cells
from sibrepro.site.cleaning import clean
from sibrepro.site.links import Links, with_anchors
from sibrepro.site.maths import markdown, phrase

ASSETS = Path(__file__).parent / "assets"
CHECKED = 'class="parameters"'  # what `sibrepro.params.check` shows has this in its HTML
ACRONYMS = ("elbo", "kl", "maml", "sib", "pacs")  # words of figures' names that captions show in capitals


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook as the site shows it.

    Attributes:
        name: the notebook's name, such as "03_few_shot_tables".
        title: its title without its number.
        line: what it found, in a line.
        origin: a text for readers that says where this copy comes from.
        body: its HTML.
        pictures: the contents of its pictures by their address on the site.
        headings: its headings by anchor.
        figures: the anchors of the cells that draw figures, by the figure's name.
    """

    name: str
    title: str
    line: Markup
    origin: str
    body: Markup
    pictures: dict[str, bytes]
    headings: dict[str, Markup]
    figures: dict[str, str]

    @property
    def number(self) -> str:
        """Return the notebook's number, such as "03"."""
        return self.name.partition("_")[0]

    @property
    def page(self) -> str:
        """Return the name of its page's file."""
        return f"{self.name}.html"


class _Exporter(HTMLExporter):
    """nbconvert's exporter to HTML, with formulae as MathML."""

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        """Return the Markdown of a cell as HTML."""
        return markdown(source, attachments=context.get("cell", {}).get("attachments", {}))


@functools.cache
def _exporter() -> _Exporter:
    """Return the exporter of all notebooks. Making one takes a tenth of a second, for its templates."""
    options = Config({"ExtractOutputPreprocessor": {"enabled": True}})
    exporter = _Exporter(template_name="notebook", extra_template_basedirs=[str(ASSETS)], config=options)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    return exporter


def render(name: str, file: Path, origin: str, links: Links) -> Notebook:
    """Convert a notebook.

    Args:
        name: its name.
        file: the notebook, which may be an executed copy.
        origin: a text for readers that says where this copy comes from.
        links: where its links lead.
    """
    content = nbformat.read(file, as_version=4)
    texts = [cell.source for cell in content.cells if cell.cell_type == "markdown"]
    first = next((line for line in "".join(texts[:1]).splitlines() if line.startswith("# ")), f"# {name}")
    title = first.removeprefix("# ").lstrip("0123456789 ·").strip()  # the page shows the number
    figures = _prepare(content)
    resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
    body, resources = _exporter().from_notebook_node(content, resources=resources)
    drawn = resources["outputs"]
    body = scrollable(body)
    body = clean(body, links.target, lambda address: address if address in drawn else links.picture(address))
    body, headings = with_anchors(body)  # after cleaning, so that no other anchors are in their way
    return Notebook(name, title, line(texts), origin, Markup(body), drawn, headings, figures)


def scrollable(html: str) -> str:
    """Let wide tables and code of a page scroll by themselves, also by keyboard: each table in a box."""
    html = html.replace("<pre", '<pre tabindex="0"')
    html = html.replace("<table", '<div class="scroll" tabindex="0"><table')
    return html.replace("</table>", "</table></div>")


def line(texts: list[str]) -> Markup:
    """Return a notebook's result in a line: the paragraph that begins with **Result**, else the first one.

    Args:
        texts: the Markdown of its cells.
    """
    paragraphs = [part.strip() for text in texts for part in text.split("\n\n")]
    results = [part for part in paragraphs if part.startswith("**Result")]
    plain = [part for part in paragraphs if part and not part.startswith("#")]
    said = next(iter(results or plain), "")
    said = re.sub(r"^\*\*Result[.:]?\*\*[.:]?\s*", "", said)
    linkless = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", said)
    return Markup(clean(phrase(linkless), lambda _: None))


def _prepare(content: nbformat.NotebookNode) -> dict[str, str]:
    """Give each cell an anchor and its pictures an alternative text, and return the anchors of figures by name.

    Parameters are shown once. The cells that assign them are folded if the notebook shows them as a table, and a cell
    of papermill's that changes none of them is left out.
    """
    figures = {}
    as_table = any(CHECKED in html for cell in content.cells for html in _html_of(cell))
    defaults = in_cells(content.cells)
    content.cells = [cell for cell in content.cells if not _changes_nothing(cell, defaults)]
    for number, cell in enumerate(content.cells):
        cell.metadata["anchor"] = f"cell-{number}"
        if cell.cell_type == "code":
            named = re.findall(r"[\"'](\d\d_\w+?)(?:\.gif)?[\"']", cell.source)
            figures |= dict.fromkeys(named, cell.metadata["anchor"])
            cell.metadata.setdefault("alt", f"Figure: {readable(named[0])}" if named else "Output of the code above")
            cell.metadata["folded"] = "subject" not in cell.metadata.get("tags", [])
            cell.metadata["checks"] = any(CHECKED in html for html in _html_of(cell))
            if {"parameters", "injected-parameters"} & {*cell.metadata.get("tags", [])}:
                cell.metadata["folded"] = as_table
    return figures


def _html_of(cell: nbformat.NotebookNode) -> list[str]:
    """Return the HTML among the outputs of a cell."""
    return [output.get("data", {}).get("text/html", "") for output in cell.get("outputs", [])]


def _changes_nothing(cell: nbformat.NotebookNode, defaults: dict[str, Any]) -> bool:
    """Tell whether papermill wrote a cell that assigns the values which the parameters have anyway."""
    if "injected-parameters" not in cell.metadata.get("tags", []):
        return False
    values = in_cells([{"source": cell.source, "metadata": {"tags": ["parameters"]}}])
    return all(name in defaults and defaults[name] == value for name, value in values.items())


def readable(figure: str) -> str:
    """Return the name of a figure as a caption: "gain by episode" for "03_gain_by_episode"."""
    words = figure.partition("_")[2].split("_")
    return " ".join(word.upper() if word in ACRONYMS else word for word in words)
