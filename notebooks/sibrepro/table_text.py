"""Tables as text, Markdown and LaTeX (booktabs), with numbers rounded for reading.

A cell's text may hold `**bold**`, ± and η; all else is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

MISSING = "–"
DECIMALS = 2
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "{}$&#_%"},
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    **{sign: f"${sign}$" for sign in "<>|"},
    "[": "{[}",  # at the start of a row LaTeX would take it for an option of the row before
    "-": "-{}",  # before another hyphen, else the two become a dash
    "±": r"$\pm$",
    "×": r"$\times$",
    "η": r"$\eta$",
    "–": "--",
}


def markdown(table: pd.DataFrame) -> str:
    """The table in GitHub's Markdown, without its index."""
    header = [str(name) for name in table]
    rule = ["---:" if _is_number(table[name]) else "---" for name in table]
    lines = [[_markdown_cell(cell) for cell in row] for row in (header, *_rows(table))]
    lines.insert(1, rule)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(table: pd.DataFrame) -> str:
    """The table as a `tabular` with the rules of the package booktabs, without its index."""
    aligned = "".join("r" if _is_number(table[name]) else "l" for name in table)
    header, *rows = [
        " & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in (map(str, table.columns), *_rows(table))
    ]
    lines = [rf"\begin{{tabular}}{{{aligned}}}", r"\toprule", header, r"\midrule", *rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _rows(table: pd.DataFrame) -> list[tuple[str, ...]]:
    return list(zip(*(_readable(table[name]) for name in table), strict=True))


def _readable(column: pd.Series) -> list[str]:
    show = _rounded(column.dropna()) if pd.api.types.is_float_dtype(column) else _plain
    return [MISSING if missing else show(value) for value, missing in zip(column, column.isna(), strict=True)]


def _rounded(column: pd.Series) -> Callable[[float], str]:
    """How to show the numbers of a column: all with as many decimals as they need, but at most `DECIMALS`.

    A column with small numbers, such as step sizes, is shown in significant digits.
    """
    if ((column != 0) & (column.abs() < 0.01)).any():
        return "{:.3g}".format
    needed = next((d for d in range(DECIMALS) if (column.round(d) == column).all()), DECIMALS)
    return f"{{:.{needed}f}}".format


def _plain(value: object) -> str:
    return {True: "yes", False: "no"}[bool(value)] if pd.api.types.is_bool(value) else str(value)


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _markdown_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _latex_cell(text: str) -> str:
    signs = "".join(map(re.escape, LATEX.keys() - {"-"}))
    escaped = re.sub(rf"-(?=-)|[{signs}]", lambda found: LATEX[found[0]], " ".join(text.split()))
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escaped)
