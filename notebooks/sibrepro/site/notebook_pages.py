"""A notebook as the body of a page: nbconvert with a small template, maths as MathML, pictures as files."""

from __future__ import annotations

import dataclasses
import itertools
import re
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
ACRONYMS = ("elbo", "kl", "maml", "sib", "pacs")


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook and which of its copies is shown."""

    name: str
    content: nbformat.NotebookNode
    origin: str  # for readers: where this copy comes from

    @classmethod
    def read(cls, name: str, file: Path, origin: str) -> Notebook:
        return cls(name, nbformat.read(file, as_version=4), origin)

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]

    @property
    def title(self) -> str:
        """Its first heading, without a number of its own."""
        text = next((c.source for c in self.content.cells if c.cell_type == "markdown"), "")
        first = next((line for line in text.splitlines() if line.startswith("# ")), f"# {self.name}")
        return first.removeprefix("# ").lstrip("0123456789 ·").strip()

    @property
    def page(self) -> str:
        return f"{self.name}.html"


@dataclasses.dataclass(frozen=True)
class Page:
    """The HTML of a notebook, its pictures by file name, its headings by anchor, the anchors of its figures."""

    body: Markup
    pictures: dict[str, bytes]
    headings: dict[str, Markup]
    figures: dict[str, str]


class _Exporter(HTMLExporter):
    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        return markdown(source, attachments=context.get("cell", {}).get("attachments", {}))


def render(notebook: Notebook, pages: set[str]) -> Page:
    """`pages` are the names of all notebooks that have one; links to others lose their target."""
    content = nbformat.from_dict(notebook.content)
    figures = _prepare(content)
    options = Config({"ExtractOutputPreprocessor": {"enabled": True}})
    exporter = _Exporter(template_name="notebook", extra_template_basedirs=[str(ASSETS)], config=options)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    resources = {"unique_key": notebook.name, "output_files_dir": f"{notebook.name}_files"}
    body, resources = exporter.from_notebook_node(content, resources=resources)
    body = body.replace("<table", '<div class="scroll" tabindex="0"><table').replace("</table>", "</table></div>")
    number = itertools.count()
    body = re.sub(r"<h2[^>]*>", lambda _: f'<h2 id="section-{next(number)}">', body)
    body = clean(body, pages)  # nothing is put together after it
    headings = re.findall(r'<h2 id="(section-\d+)">(.*?)</h2>', body, flags=re.DOTALL)
    return Page(Markup(body), resources["outputs"], {anchor: Markup(text) for anchor, text in headings}, figures)


def _prepare(content: nbformat.NotebookNode) -> dict[str, str]:
    """Name cells, say what their pictures show; where each figure is."""
    figures = {}
    for number, cell in enumerate(content.cells):
        cell.metadata["anchor"] = f"cell-{number}"
        if cell.cell_type == "code":
            named = re.findall(r"[\"'](\d\d_\w+?)(?:\.gif)?[\"']", cell.source)
            figures |= dict.fromkeys(named, cell.metadata["anchor"])
            cell.metadata.setdefault("alt", f"Figure: {readable(named[0])}" if named else "Output of the code above")
    return figures


def readable(figure: str) -> str:
    """03_gain_by_episode -> gain by episode"""
    words = figure.partition("_")[2].split("_")
    return " ".join(word.upper() if word in ACRONYMS else word for word in words)
