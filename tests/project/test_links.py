"""Links in README.md and docs/*.md, as a code host follows them: every file and every heading is there."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)[^)]*\)|(?:href|src)=\"([^\"]+)\"")
AWAY = re.compile(r"[a-z]+:", re.IGNORECASE)


def without_code(text):
    """Return Markdown without its code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(document):
    """Return the anchors that a code host gives to the headings of a document."""
    found, seen = set(), {}
    for heading in re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    ):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        anchor = "".join("-" if letter == " " else letter for letter in plain if letter.isalnum() or letter in " -_")
        seen[anchor] = seen.get(anchor, -1) + 1
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(document):
    for links in LINK.findall(without_code(document.read_text(encoding="utf-8"))):
        link = links[0] or links[1]
        if AWAY.match(link):
            continue
        path, _, anchor = unquote(link).partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), link
        assert file.is_relative_to(ROOT), link
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), link
