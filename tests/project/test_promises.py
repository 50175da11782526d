"""Each promise names tests, and the tests exist; the archive's descriptions agree with one another."""

from __future__ import annotations

import ast
import json
import re

import pytest
import yaml

from sibcore import __version__
from sibrepro import paths

ROOT = paths.PACKAGE.parents[1]
TEXT = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", TEXT)))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name):
    file, _, function = name.partition("::")
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    tests = [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert function in tests if function else tests


def test_every_promise_names_a_test():
    assert len(NAMED) > 30
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "|---"))]
    without = [row for row in rows if "`tests/" not in row and not re.match(r"\| (not )?equal to the bit", row)]
    assert without == []


def test_the_archive_describes_what_is_cited():
    zenodo = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert zenodo["title"] == citation["title"]
    assert zenodo["version"] == citation["version"] == __version__
    assert zenodo["license"] == citation["license"] == "Apache-2.0"
    assert zenodo["related_identifiers"][0]["identifier"] == citation["preferred-citation"]["url"]


def test_the_cards_know_every_file_that_is_shipped():
    cards = (ROOT / "docs" / "cards.md").read_text(encoding="utf-8")
    shipped = [line[66:].split("/")[-1] for line in (ROOT / "results" / "SHA256SUMS").read_text().splitlines()]
    assert [name for name in shipped if name not in cards] == []
