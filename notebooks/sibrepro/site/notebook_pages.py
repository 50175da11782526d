"""A notebook as the body of a page: nbconvert with a small template, maths as MathML, pictures as files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import MarkdownWithMath
from traitlets.config import Config

from sibrepro.site.cleaning import clean
from sibrepro.site.maths import MathmlRenderer, tied
from sibrepro.site.sources import Notebook

ASSETS = Path(__file__).parent / "assets"
ACRONYMS = ("elbo", "kl", "maml", "sib", "pacs")


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
        return tied(MarkdownWithMath(renderer=MathmlRenderer(escape=False, attachments=attachments)).render(source))


def render(notebook: Notebook, pages: set[str]) -> Page:
    """`pages` are the names of all notebooks that have one; links to others lose their target."""
    content = nbformat.from_dict(notebook.content)
    figures = _prepare(content)
    options = Config({"ExtractOutputPreprocessor": {"enabled": True}})
    exporter = _Exporter(template_name="notebook", extra_template_basedirs=[str(ASSETS)], config=options)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    resources = {"unique_key": notebook.name, "output_files_dir": f"{notebook.name}_files"}
    body, resources = exporter.from_notebook_node(content, resources=resources)
    body, headings = _with_anchors(_standing_alone(_in_boxes(body), pages))
    headings = {anchor: clean(heading) for anchor, heading in headings.items()}
    return Page(clean(body), resources["outputs"], headings, figures)  # cleaned last: nothing is put together after it


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
    """03_gain_by_episode -> gain by episode"""
    words = figure.partition("_")[2].split("_")
    return " ".join(word.upper() if word in ACRONYMS else word for word in words)


def _in_boxes(body: str) -> str:
    """Every table in a box that scrolls."""
    boxed = body.replace("<table", '<div class="scroll" tabindex="0"><table')
    return boxed.replace("</table>", "</table></div>")


def _standing_alone(body: str, pages: set[str]) -> str:
    """Links between notebooks lead to their pages; links to other files of the checkout become plain text."""

    def link(found: re.Match[str]) -> str:
        target, text = found["target"], found["text"]
        name = Path(target.partition("#")[0]).stem
        if re.match(r"https?:|mailto:|#", target):
            return found[0]
        return f'<a href="{name}.html">{text}</a>' if ".ipynb" in target and name in pages else text

    return re.sub(r'<a\b[^>]*?\bhref="(?P<target>[^"]*)"[^>]*>(?P<text>.*?)</a>', link, body, flags=re.DOTALL)


def _with_anchors(body: str) -> tuple[str, dict[str, str]]:
    """Second-level headings with an anchor each, and what they say."""
    headings: dict[str, str] = {}

    def anchor(found: re.Match[str]) -> str:
        name = f"section-{len(headings)}"
        headings[name] = found[1]
        return f'<h2 id="{name}">{found[1]}</h2>'

    return re.sub(r"<h2[^>]*>(.*?)</h2>", anchor, body, flags=re.DOTALL), headings
