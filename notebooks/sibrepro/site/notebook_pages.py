"""Convert a notebook to the body of a page, with nbconvert, a small template, MathML and pictures as files."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import pass_context
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from traitlets.config import Config

from sibrepro.site.cleaning import clean
from sibrepro.site.maths import markdown

ASSETS = Path(__file__).parent / "assets"
ACRONYMS = ("elbo", "kl", "maml", "sib", "pacs")  # words of figures' names that captions show in capitals


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook as the report shows it.

    Attributes:
        name: the notebook's name, such as "03_few_shot_tables".
        title: its title without its number.
        origin: a text for readers that says where this copy comes from.
        body: its HTML.
        pictures: the contents of its pictures by file name.
        headings: its headings by anchor.
        figures: the anchors of the cells that draw figures, by the figure's name.
    """

    name: str
    title: str
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


def render(name: str, file: Path, origin: str, pages: Collection[str]) -> Notebook:
    """Convert a notebook.

    Args:
        name: its name.
        file: the notebook, which may be an executed copy.
        origin: a text for readers that says where this copy comes from.
        pages: the names of all notebooks that have a page. Links to other files lose their target.
    """
    content = nbformat.read(file, as_version=4)
    text = next((cell.source for cell in content.cells if cell.cell_type == "markdown"), "")
    first = next((line for line in text.splitlines() if line.startswith("# ")), f"# {name}")
    title = first.removeprefix("# ").lstrip("0123456789 ·").strip()  # the page shows the number
    figures = _prepare(content)
    options = Config({"ExtractOutputPreprocessor": {"enabled": True}})
    exporter = _Exporter(template_name="notebook", extra_template_basedirs=[str(ASSETS)], config=options)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
    body, resources = exporter.from_notebook_node(content, resources=resources)
    body = body.replace("<table", '<div class="scroll" tabindex="0"><table').replace("</table>", "</table></div>")
    number = itertools.count()
    body = re.sub(r"<h2[^>]*>", lambda _: f'<h2 id="section-{next(number)}">', body)
    body = clean(body, pages)  # last, so that nothing is added to the HTML after it was cleaned
    found = re.findall(r'<h2 id="(section-\d+)">(.*?)</h2>', body, flags=re.DOTALL)
    headings = {anchor: Markup(text) for anchor, text in found}
    return Notebook(name, title, origin, Markup(body), resources["outputs"], headings, figures)


def _prepare(content: nbformat.NotebookNode) -> dict[str, str]:
    """Give each cell an anchor and its pictures an alternative text, and return the anchors of figures by name."""
    figures = {}
    for number, cell in enumerate(content.cells):
        cell.metadata["anchor"] = f"cell-{number}"
        if cell.cell_type == "code":
            named = re.findall(r"[\"'](\d\d_\w+?)(?:\.gif)?[\"']", cell.source)
            figures |= dict.fromkeys(named, cell.metadata["anchor"])
            cell.metadata.setdefault("alt", f"Figure: {readable(named[0])}" if named else "Output of the code above")
    return figures


def readable(figure: str) -> str:
    """Return the name of a figure as a caption: "gain by episode" for "03_gain_by_episode"."""
    words = figure.partition("_")[2].split("_")
    return " ".join(word.upper() if word in ACRONYMS else word for word in words)
