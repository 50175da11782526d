"""The README tells the truth: its numbers are those of the committed runs, its links lead somewhere."""

from __future__ import annotations

import json
import re

import pytest

from sibcore import paths

ROOT = paths.PACKAGE.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBERS = re.findall(r"([\d.]+)<!--([\w-]+):([\w/]+)-->", TEXT)
LINKS = re.findall(r"\]\(((?!https?:)[^)#]+)\)|src=\"((?!https?:)[^\"]+)\"", TEXT)


@pytest.mark.parametrize(("shown", "run", "metric"), NUMBERS)
def test_each_measured_number_is_that_of_its_committed_run(shown, run, metric):
    value = json.loads((ROOT / "results" / "runs" / run / "metrics.json").read_text())[metric]
    digits = len(shown.split(".")[1])
    assert f"{value:.{digits}f}" == shown


def test_the_readme_has_measured_numbers():
    assert len(NUMBERS) >= 6


@pytest.mark.parametrize("link", sorted({first or second for first, second in LINKS}))
def test_each_link_leads_to_a_file(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize(
    "module", sorted(path.name for path in paths.PACKAGE.glob("*.py") if path.name != "__init__.py")
)
def test_each_module_is_in_the_table_of_pieces(module):
    assert f"`{module}`" in TEXT
