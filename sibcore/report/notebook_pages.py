"""A notebook as the body of a page: nbconvert with a small template, maths as MathML, pictures as files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import nbformat
from bs4 import BeautifulSoup
from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import MarkdownWithMath
from traitlets.config import Config

from sibcore.report.maths import MathmlRenderer
from sibcore.report.sources import Notebook

ASSETS = Path(__file__).parent / "assets"


@dataclasses.dataclass(frozen=True)
class Page:
    """The HTML of a notebook, its pictures by file name, its headings by anchor, the anchors of its figures."""

    body: str
    pictures: dict[str, bytes]
    headings: dict[str, str]
    figures: dict[str, str]


class _Exporter(HTMLExporter):
    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        attachments = context.get("cell", {}).get("attachments", {})
        return MarkdownWithMath(renderer=MathmlRenderer(escape=False, attachments=attachments)).render(source)


def render(notebook: Notebook, pages: set[str]) -> Page:
    """`pages` are the names of all notebooks that have one; links to others lose their target."""
    content = nbformat.from_dict(notebook.content)
    figures = _prepare(content)
    options = Config({"ExtractOutputPreprocessor": {"enabled": True}})
    exporter = _Exporter(template_name="notebook", extra_template_basedirs=[str(ASSETS)], config=options)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    resources = {"unique_key": notebook.name, "output_files_dir": f"{notebook.name}_files"}
    text, resources = exporter.from_notebook_node(content, resources=resources)
    soup = BeautifulSoup(text, "html.parser")
    _tidy(soup, pages)
    return Page(str(soup), resources["outputs"], _headings(soup), figures)


def _prepare(content: nbformat.NotebookNode) -> dict[str, str]:
    """Name cells, say what their pictures show, drop progress lines; where each figure is."""
    figures = {}
    for number, cell in enumerate(content.cells):
        cell.metadata["anchor"] = f"cell-{number}"
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            named = re.findall(r"[\"'](\d\d_\w+?)(?:\.gif)?[\"']", cell.source)
            figures |= dict.fromkeys(named, cell.metadata["anchor"])
            cell.metadata["alt"] = f"Figure: {readable(named[0])}" if named else "Output of the code above"
    return figures


def readable(figure: str) -> str:
    """03_task_in_the_plane -> task in the plane"""
    return figure.partition("_")[2].replace("_", " ")


def _tidy(soup: BeautifulSoup, pages: set[str]) -> None:
    for tag in soup.find_all(["style", "script"]):  # pandas brings a style with each table
        tag.decompose()
    for table in soup.find_all("table"):
        for name in ("border", "style"):
            del table[name]
        table.wrap(soup.new_tag("div", attrs={"class": "scroll", "tabindex": "0"}))
    for link in soup.find_all("a", href=True):
        target, _, anchor = link["href"].partition("#")
        name = Path(target).stem
        if target.endswith(".ipynb") and name in pages:
            link["href"] = f"{name}.html" + (f"#{anchor}" if anchor else "")
        elif target and not re.match(r"https?:|mailto:", target):
            link.unwrap()  # a file of the checkout: the report stands alone


def _headings(soup: BeautifulSoup) -> dict[str, str]:
    """The second-level headings, each given an anchor."""
    found = {}
    for number, heading in enumerate(soup.find_all("h2")):
        heading["id"] = f"section-{number}"
        found[heading["id"]] = heading.decode_contents()
    return found
