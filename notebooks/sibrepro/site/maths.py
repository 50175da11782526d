"""Markdown with LaTeX as HTML with MathML, which browsers draw themselves: no script, no network."""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

ROWS = ("math", "mrow", "msqrt", "mtd", "mstyle")
OPENING = frozenset("([{=<>,;+−≤≥→∈∼≈⟨")  # after one of these a minus is a sign, and a bar opens
BARS = frozenset("|∣‖∥")
LIMITS = ("min", "max", "sup", "inf", "lim")


def mathml(latex: str, display: str = "inline") -> str:
    """One formula; `display` is "inline" or "block". What cannot be converted is shown as it was written."""
    try:
        braced = re.sub(r"(\\math[a-z]+) ([A-Za-z])", r"\1{\2}", latex.strip())  # the converter wants braces
        formula = ElementTree.fromstring(convert(braced, xmlns="", display=display))  # HTML knows what <math> is
    except Exception:  # the converter raises many kinds, also plain IndexError, on LaTeX that it does not know
        return f'<code class="latex">{html.escape(latex)}</code>'
    for element in list(formula.iter()):
        if element.tag in ROWS:
            _space(element)
        elif display == "block" and element.tag == "msub" and element[0].text in LIMITS:
            element.tag = "munder"
        elif element.text == "~":  # \sim, which the converter takes for a letter
            element.tag, element.text = "mo", "∼"
    return ElementTree.tostring(formula, encoding="unicode")


def markdown(text: str, **options: Any) -> str:
    """A text of several paragraphs. No line begins with the comma after a formula."""
    page = MarkdownWithMath(renderer=MathmlRenderer(escape=False, exclude_anchor_links=True, **options)).render(text)
    return re.sub(r'(<math [^>]*"inline">(?:(?!</math>).)*</math>[,.;:?)’”-]+)', r'<span class="tied">\1</span>', page)


def phrase(text: str) -> str:
    """A text without paragraphs of its own, such as a cell of a table."""
    return markdown(text).strip().removeprefix("<p>").removesuffix("</p>")


class MathmlRenderer(IPythonRenderer):
    """nbconvert's own renderer of Markdown, apart from the maths, which it leaves to MathJax."""

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def block_math(self, body: str) -> str:
        return f'<span class="display">{mathml(body, "block")}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")


def _space(row: ElementTree.Element) -> None:
    """TeX's spacing, where the converter leaves the browser to guess and it would guess wrongly."""
    before, bar_is_open = None, False
    for child in list(row):
        text = (child.text or "").strip() if child.tag == "mo" else ""
        begins = before is None or (before.text or "").strip() in OPENING
        if text == "/":
            child.attrib |= {"lspace": "0", "rspace": "0"}
        elif text == "−" and begins:
            child.set("form", "prefix")
        elif text in BARS and (begins or bar_is_open):  # |x|; a bar elsewhere is "given"
            child.attrib |= {"form": "prefix" if begins else "postfix", "stretchy": "false"}
            bar_is_open = not bar_is_open
        elif text in BARS:
            child.set("stretchy", "false")
        if before is not None and _is_function(before) and not text and child.tag != "mspace":
            row.insert(list(row).index(child), ElementTree.Element("mspace", width="0.167em"))
        before = child


def _is_function(element: ElementTree.Element) -> bool:
    """log, det, exp: a name of several letters."""
    return element.tag == "mi" and len((element.text or "").strip()) > 1
