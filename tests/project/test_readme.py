"""The README tells the truth: its numbers are those of the committed runs, its links lead somewhere."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from sibrepro import paths

ROOT = paths.PACKAGE.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBERS = re.findall(r"([\d.]+)<!--([\w-]+):([\w/]+)-->", TEXT)
CELLS = re.findall(r"([\d.]+)<!--few_shot\.csv:([^;]+);(\d*);(\d);(\w+)-->", TEXT)  # method, K, shots, column
LINKS = re.findall(r"\]\(((?!https?:)[^)#]+)\)|src=\"((?!https?:)[^\"]+)\"", TEXT)


@pytest.mark.parametrize(("shown", "run", "metric"), NUMBERS)
def test_each_measured_number_is_that_of_its_committed_run(shown, run, metric):
    value = json.loads((ROOT / "results" / "runs" / run / "metrics.json").read_text())[metric]
    digits = len(shown.split(".")[1])
    assert f"{value:.{digits}f}" == shown


@pytest.mark.parametrize(("shown", "method", "K", "shots", "column"), CELLS)
def test_each_number_of_several_runs_is_that_of_the_committed_table(shown, method, K, shots, column):
    table = pd.read_csv(ROOT / "results" / "tables" / "few_shot.csv")
    settings = {"dataset": "cifar-fs", "backbone": "conv4-64", "profile": "cpu", "method": method, "shots": int(shots)}
    rows = table[(table[list(settings)] == pd.Series(settings)).all(axis=1)]
    rows = rows[rows["K"] == int(K)] if K else rows
    rows = rows[rows["eta"].isna() | (rows["eta"] == 1e-3)]
    (value,) = rows[column]
    assert f"{value:.{len(shown.split('.')[1])}f}" == shown


def test_the_readme_has_measured_numbers():
    assert len(NUMBERS) >= 6
    assert len(CELLS) >= 20


@pytest.mark.parametrize("link", sorted({first or second for first, second in LINKS}))
def test_each_link_leads_to_a_file(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize(
    "module", sorted(path.name for path in paths.PACKAGE.glob("*.py") if path.name != "__init__.py")
)
def test_each_module_is_in_the_table_of_pieces(module):
    assert f"`{module}`" in TEXT
