from __future__ import annotations

import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sibrepro.table_text import latex, markdown


def body(table: pd.DataFrame) -> list[list[str]]:
    """The cells of the Markdown table's rows."""
    return [re.split(r" (?<!\\)\| ", line[2:-2]) for line in markdown(table).splitlines()[2:]]


def test_a_markdown_table_has_a_header_a_rule_and_rows():
    table = pd.DataFrame({"method": ["a", "b"], "K": pd.array([1, None], dtype="Int64"), "x": [1.5, 2.25]})
    assert markdown(table) == "| method | K | x |\n| --- | ---: | ---: |\n| a | 1 | 1.50 |\n| b | – | 2.25 |\n"


def test_a_latex_table_has_the_rules_of_booktabs():
    table = pd.DataFrame({"method": ["a"], "yes": [True], "x": [1.0]})
    expected = r"\begin{tabular}{llr} \toprule method & yes & x \\ \midrule a & yes & 1 \\ \bottomrule \end{tabular}"
    assert latex(table).split() == expected.split()


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([70.0, 59.2], ["70.0", "59.2"]),
        ([71.3168, 70.0], ["71.32", "70.00"]),
        ([0.1, 0.0001, float("nan")], ["0.1", "0.0001", "–"]),
        ([40000.0, 3.0], ["40000", "3"]),
        ([0.0, 0.5], ["0.0", "0.5"]),
    ],
)
def test_numbers_have_the_decimals_that_their_column_needs(values, shown):
    assert [row[0] for row in body(pd.DataFrame({"x": values}))] == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("few_shot-12 & 50% #1 $x$ {y}", r"few\_shot-12 \& 50\% \#1 \$x\$ \{y\}"),
        ("a\\b ~ ^", r"a\textbackslash{}b \textasciitilde{} \textasciicircum{}"),
        ("59.2 ± 0.5 / **61.9 ± 0.3** (above)", r"59.2 $\pm$ 0.5 / \textbf{61.9 $\pm$ 0.3} (above)"),
        ("./run --only --- x-y", r"./run -{}-only -{}-{}- x-y"),
        ("[0, 1] < 2 | –", r"{[}0, 1] $<$ 2 $|$ --"),
        ("two\nlines", "two lines"),
    ],
)
def test_latex_is_escaped(text, expected):
    line = latex(pd.DataFrame({"a_b": [text]})).splitlines()
    assert line[2] == r"a\_b \\"
    assert line[4] == expected + r" \\"


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_stays_in_its_cell(text):
    table = pd.DataFrame({"a": [text], "b": ["end"]})
    rows = body(table)
    assert len(rows) == 1
    assert len(rows[0]) == 2
    (row,) = latex(table).splitlines()[4:-2]
    bare = re.sub(
        r"\\textbackslash\{\}|\\textascii\w+\{\}|\\textbf|\\[{}$&#_%]|\$\\(pm|times|eta)\$|\$[<>|]\$", "", row
    )
    assert bare.count("&") == 1
    assert not set(bare.removesuffix(r" \\")) & set("\\$#_%^~")
