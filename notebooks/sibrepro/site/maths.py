"""Convert Markdown with LaTeX formulae to HTML with MathML, which browsers draw without a script or a network."""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

ROWS = ("math", "mrow", "msqrt", "mtd", "mstyle")  # elements whose children stand in a row
OPENING = frozenset("([{=<>,;+−≤≥→∈∼≈⟨")  # after one of these a minus is a sign, and a bar opens
BARS = frozenset("|∣‖∥")
LIMITS = ("min", "max", "sup", "inf", "lim")


def mathml(latex: str, display: str = "inline") -> str:
    """Return a formula as MathML, or as it was written if it cannot be converted.

    Args:
        latex: the formula.
        display: "inline" or "block".
    """
    try:
        braced = re.sub(r"(\\math[a-z]+) ([A-Za-z])", r"\1{\2}", latex.strip())  # the converter needs braces
        formula = ElementTree.fromstring(convert(braced, xmlns="", display=display))  # HTML needs no namespace
    except Exception:  # of many kinds, even IndexError, if the converter does not know some LaTeX
        return f'<code class="latex">{html.escape(latex)}</code>'
    for element in list(formula.iter()):
        if element.tag in ROWS:
            _space(element)
        elif display == "block" and element.tag == "msub" and element[0].text in LIMITS:
            element.tag = "munder"
        elif element.text == "~":  # \sim, which the converter treats as a letter
            element.tag, element.text = "mo", "∼"
    return ElementTree.tostring(formula, encoding="unicode")


def markdown(text: str, **options: Any) -> str:
    """Return Markdown as HTML. Punctuation after a formula is tied to it, so that no line begins with a comma.

    Args:
        text: the Markdown.
        options: options of nbconvert's renderer, such as `attachments`.
    """
    page = MarkdownWithMath(renderer=MathmlRenderer(escape=False, exclude_anchor_links=True, **options)).render(text)
    return re.sub(r'(<math [^>]*"inline">(?:(?!</math>).)*</math>[,.;:?)’”-]+)', r'<span class="tied">\1</span>', page)


def phrase(text: str) -> str:
    """Return Markdown that is part of a paragraph, such as a cell of a table, as HTML."""
    return markdown(text).strip().removeprefix("<p>").removesuffix("</p>")


class MathmlRenderer(IPythonRenderer):
    """nbconvert's renderer of Markdown, except that formulae become MathML instead of being left to MathJax."""

    def inline_math(self, body: str) -> str:
        """Return a formula within a line."""
        return mathml(body)

    def block_math(self, body: str) -> str:
        """Return a formula on a line of its own."""
        return f'<span class="display" tabindex="0">{mathml(body, "block")}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        """Return a formula that is an environment, such as `align`."""
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")


def _space(row: ElementTree.Element) -> None:
    """Set the spacing of a row as TeX does, at those signs where a browser by itself would set it differently."""
    before, bar_is_open = None, False
    for child in list(row):
        text = (child.text or "").strip() if child.tag == "mo" else ""
        begins = before is None or (before.text or "").strip() in OPENING
        if text == "/":
            child.attrib |= {"lspace": "0", "rspace": "0"}
        elif text == "−" and begins:
            child.set("form", "prefix")
        elif text in BARS and (begins or bar_is_open):  # as in |x|; any other bar means "given"
            child.attrib |= {"form": "prefix" if begins else "postfix", "stretchy": "false"}
            bar_is_open = not bar_is_open
        elif text in BARS:
            child.set("stretchy", "false")
        if before is not None and _is_function(before) and not text and child.tag != "mspace":
            row.insert(list(row).index(child), ElementTree.Element("mspace", width="0.167em"))
        before = child


def _is_function(element: ElementTree.Element) -> bool:
    """Tell whether an element is the name of a function, such as log or det: a name of several letters."""
    return element.tag == "mi" and len((element.text or "").strip()) > 1
