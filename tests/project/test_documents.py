"""README and docs/*.md tell the truth: their numbers are those of the published facts, their links lead somewhere."""

from __future__ import annotations

import re

import pytest

from sibcore.apply import cli
from sibrepro import documents, paths
from sibrepro.facts import published

FILES = documents.files()
README = FILES[0].read_text(encoding="utf-8")
LINK = re.compile(r"\]\(((?!https?:)[^)#\s]+)|src=\"((?!https?:)[^\"]+)\"")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
each_document = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


@pytest.mark.thorough
@each_document
def test_the_numbers_are_those_of_the_facts(path):
    assert documents.updated(path) == path.read_text(encoding="utf-8"), "run ./run_all.sh publish"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/use.md"])
def test_every_measured_number_is_named(name):
    """Each number with a decimal point, outside code and the tables that are written as a whole, is in a phrase."""
    path = paths.root() / name
    text = path.read_text(encoding="utf-8")
    known = [(shown.start, shown.end) for shown in documents.numbers(path, text)]
    blank = lambda found: " " * len(found[0])  # noqa: E731
    prose = CODE.sub(blank, documents.BLOCK.sub(blank, text))
    prose = re.sub(r"\(https?:[^)]*\)|\b3\.1\d\b|Apache-2\.0", blank, prose)
    typed = list(re.finditer(r"\d+\.\d+", prose))
    unknown = [found[0] for found in typed if not any(a <= found.start() < b for a, b in known)]
    assert unknown == [], "add their phrases to docs/numbers.yaml"


def test_the_hours_on_the_cards_are_those_of_the_facts():
    text = (paths.root() / "docs" / "cards.md").read_text(encoding="utf-8")
    hours = sum(record.provenance.get("wall_seconds") or 0 for record in published.everything()) / 3600
    assert f"| {hours:.2f} |" in text.partition("**all**")[2].splitlines()[0]


@pytest.mark.thorough
def test_a_number_that_is_wrong_is_put_right(tmp_path, monkeypatch):
    shown = documents.numbers(FILES[0], README)[0]
    wrong = README[: shown.start] + "99.9" + README[shown.end :]
    (tmp_path / "README.md").write_text(wrong, encoding="utf-8")
    phrases = documents._all_phrases()
    monkeypatch.setattr(documents, "_all_phrases", lambda: {"README.md": phrases["README.md"]})
    monkeypatch.setattr(documents.paths, "relative", lambda path: path.name)
    assert documents.updated(tmp_path / "README.md") == README


def test_a_phrase_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("Accuracy is 73.6 %.", encoding="utf-8")
    monkeypatch.setattr(documents, "_all_phrases", lambda: {"README.md": ["accuracy is {few_shot ours K=3:.1f} %"]})
    monkeypatch.setattr(documents.paths, "relative", lambda path: path.name)
    with pytest.raises(ValueError, match="0 times: expected once"):
        documents.updated(tmp_path / "README.md")


def test_a_phrase_may_run_over_a_line_and_keeps_its_form():
    pattern = documents.pattern("from {a b:.1f} to {c d:+.2f} points")
    found = pattern.search("it rises from 63.3\n  to +1.25 points, from 1 to 2 apples")
    assert found.groups() == ("63.3", "+1.25")


@pytest.mark.thorough
def test_the_output_of_sib_predict_in_the_readme_is_real(tmp_path, monkeypatch, capsys):
    """The same words; its numbers may differ by a few points where torch computes features otherwise."""
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"^sib demo .*$", README, re.MULTILINE)
    shown = re.search(r"^Labelled .*?(?=\n```)", README, re.DOTALL | re.MULTILINE)[0]
    for part in command.split(" && "):
        capsys.readouterr()
        assert cli.main(part.split()[1:]) == 0
    said = capsys.readouterr().out.strip()
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", said) == number.sub("#", shown)
    now, then = ([float(text) for text in number.findall(text)] for text in (said, shown))
    assert now == pytest.approx(then, abs=5)


@each_document
def test_each_link_leads_to_a_file(path):
    links = {first or second for first, second in LINK.findall(path.read_text(encoding="utf-8"))}
    assert [link for link in sorted(links) if not (path.parent / link).exists()] == []


def test_the_readme_is_short_enough_to_be_read():
    assert len(README.splitlines()) <= 150


def test_each_module_of_the_model_is_in_the_table_of_pieces():
    text = (paths.root() / "docs" / "facts.md").read_text(encoding="utf-8")
    modules = [path.name for path in (paths.root() / "sibcore").glob("*.py") if path.name != "__init__.py"]
    assert [name for name in modules if f"`{name}`" not in text] == []
