"""`sib explain`: a number's places, its runs, and the command that computes them again."""

from __future__ import annotations

import re

import pytest

from sibrepro import __main__, documents
from sibrepro.facts import published
from sibrepro.run import explain
from sibrepro.study import all_tables, studies

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def row():
    """A row of Table 1 that is ours: what a reader would ask about."""
    table = all_tables()["few_shot"].make().dropna(subset="ours")
    return table[(table["method"] == "SIB") & (table["K"] == 3)].iloc[0]


def explained(capsys, what: str) -> str:
    assert __main__.main(["explain", what]) == 0
    return capsys.readouterr().out


def test_a_number_names_its_table_and_all_its_runs(row, capsys):
    said = explained(capsys, f"{row['ours']:.1f}")
    assert "Table 1 (few_shot.csv, row " in said
    for name in row["run"].split():
        record = published.find("few_shot")[name]
        assert name in said
        assert str(record.provenance["commit"])[:8] in said
        assert all(sha256 in said for sha256 in record.provenance["data"].values())
    assert f"again  sib verify {row['run']}" in said


def test_an_interval_tells_numbers_apart(row, capsys):
    shown = f"{row['ours']:.1f} ± {row['ours_ci95']:.1f}"
    assert row["run"].split()[0] in explained(capsys, shown)
    assert __main__.main(["explain", f"{row['ours']:.1f} ± 33.3"]) == 1


@pytest.mark.parametrize("name", all_tables())
def test_a_table_lists_each_of_our_numbers_with_its_runs(name, capsys):
    said = explained(capsys, name)
    table = all_tables()[name].make()
    measured = [column for column in ("ours", "gain") if column in table]
    assert said.count("  <- ") == sum(table[column].notna().sum() for column in measured)
    known = {record.id for record in published.everything()}
    runs = set(re.findall(r"[a-z_]+-[0-9a-f]{12}", said))
    assert runs <= known
    assert bool(runs) == bool(measured and table[measured].notna().to_numpy().any())


def test_a_run_is_explained_with_the_places_that_show_it(row, capsys):
    name = row["run"].split()[0]
    said = explained(capsys, name)
    assert f"again  sib verify {name}" in said
    assert "Table 1 (few_shot.csv" in said


def test_a_line_of_the_readme_that_shows_the_number_is_named(capsys):
    path = documents.files()[0]
    text = path.read_text(encoding="utf-8")
    shown = documents.numbers(path, text)[0]
    number = text[shown.start : shown.end]
    line = next(n for n, line in enumerate(text.splitlines(), start=1) if number in line)
    assert f"README.md, line {line}: {shown.what}" in explained(capsys, number)


@pytest.mark.parametrize("what", ["12345.6", "no_such_table", "few_shot-000000000000"])
def test_what_is_nowhere_is_said_so(what, capsys):
    assert __main__.main(["explain", what]) == 1
    assert what in capsys.readouterr().out


def test_every_place_is_a_setting_with_published_runs():
    studies()
    known = {record.id for record in published.everything()}
    for place in explain.places():
        assert place.how
        assert set(place.runs) <= known
