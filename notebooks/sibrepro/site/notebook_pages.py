"""A notebook as the body of a page: nbconvert with a small template, maths as MathML, pictures as files."""

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
ACRONYMS = ("elbo", "kl", "maml", "sib", "pacs")


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook as it is shown: HTML, pictures by file name, headings by anchor, and the anchors of its figures."""

    name: str
    title: str
    origin: str  # for readers: where this copy comes from
    body: Markup
    pictures: dict[str, bytes]
    headings: dict[str, Markup]
    figures: dict[str, str]

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]

    @property
    def page(self) -> str:
        return f"{self.name}.html"


class _Exporter(HTMLExporter):
    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        return markdown(source, attachments=context.get("cell", {}).get("attachments", {}))


def render(name: str, file: Path, origin: str, pages: Collection[str]) -> Notebook:
    """`pages` are the names of all notebooks that have one; links to others lose their target."""
    content = nbformat.read(file, as_version=4)
    text = next((cell.source for cell in content.cells if cell.cell_type == "markdown"), "")
    first = next((line for line in text.splitlines() if line.startswith("# ")), f"# {name}")
    title = first.removeprefix("# ").lstrip("0123456789 ·").strip()  # without a number of its own
    figures = _prepare(content)
    options = Config({"ExtractOutputPreprocessor": {"enabled": True}})
    exporter = _Exporter(template_name="notebook", extra_template_basedirs=[str(ASSETS)], config=options)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
    body, resources = exporter.from_notebook_node(content, resources=resources)
    body = body.replace("<table", '<div class="scroll" tabindex="0"><table').replace("</table>", "</table></div>")
    number = itertools.count()
    body = re.sub(r"<h2[^>]*>", lambda _: f'<h2 id="section-{next(number)}">', body)
    body = clean(body, pages)  # nothing is put together after it
    found = re.findall(r'<h2 id="(section-\d+)">(.*?)</h2>', body, flags=re.DOTALL)
    headings = {anchor: Markup(text) for anchor, text in found}
    return Notebook(name, title, origin, Markup(body), resources["outputs"], headings, figures)


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
