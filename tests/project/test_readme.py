"""The README tells the truth: its numbers are those of the published facts, its links lead somewhere."""

from __future__ import annotations

import re

import pytest

from sibrepro import paths, readme
from sibrepro.facts import published

TEXT = readme.file().read_text(encoding="utf-8")
LINKS = re.findall(r"\]\(((?!https?:)[^)#]+)\)|src=\"((?!https?:)[^\"]+)\"", TEXT)


@pytest.mark.thorough
def test_the_numbers_and_the_table_of_claims_are_those_of_the_facts():
    assert readme.updated(TEXT) == TEXT, "run ./run_all.sh publish"


def test_the_hours_on_the_cards_are_those_of_the_facts():
    text = readme.cards().read_text(encoding="utf-8")
    assert readme.updated(text) == text, "run ./run_all.sh publish"
    hours = sum(record.provenance.get("wall_seconds") or 0 for record in published.everything()) / 3600
    assert f"| {hours:.2f} |" in text.partition("**all**")[2].splitlines()[0]


def test_the_readme_has_measured_numbers():
    assert len(readme.NUMBER.findall(TEXT)) >= 25
    assert "<!--claims-->\n| the paper says" in TEXT


@pytest.mark.thorough
def test_a_number_that_is_wrong_is_put_right():
    shown, what = readme.NUMBER.findall(TEXT)[0]
    wrong = TEXT.replace(f"{shown}<!--{what}-->", f"{'9' * len(shown.partition('.')[0])}.9<!--{what}-->", 1)
    assert wrong != TEXT
    assert readme.updated(wrong) == TEXT


@pytest.mark.parametrize("link", sorted({first or second for first, second in LINKS}))
def test_each_link_leads_to_a_file(link):
    assert (paths.root() / link).exists()


def test_each_module_of_the_model_is_in_the_table_of_pieces():
    modules = [path.name for path in (paths.root() / "sibcore").glob("*.py") if path.name != "__init__.py"]
    assert [name for name in modules if f"`{name}`" not in TEXT] == []
