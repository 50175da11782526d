"""Convert the Markdown documents of the checkout to the bodies of pages."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from markupsafe import Markup

from sibrepro.site.cleaning import clean
from sibrepro.site.links import Links, with_anchors
from sibrepro.site.maths import markdown
from sibrepro.site.notebook_pages import scrollable

RESULTS, USE, EXTEND, PROMISES = "Results", "Use it", "Extend it", "Promises"
SECTIONS = {
    "docs/results.md": RESULTS,
    "docs/facts.md": RESULTS,
    "docs/extend.md": EXTEND,
    "CONTRIBUTING.md": EXTEND,
    "CHANGELOG.md": EXTEND,
    "docs/promises.md": PROMISES,
}
"""The sections of documents, by their path. Those that are not named here belong to `USE`."""
FIRST = (
    "docs/results.md",
    "docs/use.md",
    "docs/extend.md",
    "docs/promises.md",
)  # the others of a section follow by name


@dataclasses.dataclass(frozen=True)
class Document:
    """A document as the site shows it.

    Attributes:
        source: its path, relative to the project's folder.
        title: its title.
        body: its HTML.
        headings: its headings of the second level by anchor.
    """

    source: str
    title: str
    body: Markup
    headings: dict[str, Markup]

    @property
    def page(self) -> str:
        """Return the name of its page's file."""
        return page_of(self.source)

    @property
    def section(self) -> str:
        """Return the section of the site that it belongs to."""
        return SECTIONS.get(self.source, USE)


def page_of(source: str) -> str:
    """Return the name of the page of a document, such as "use.html" for "docs/use.md"."""
    return f"{Path(source).stem.lower()}.html"


def sources(root: Path) -> list[str]:
    """Return the documents of a checkout: those in `docs`, and those of `SECTIONS` that lie elsewhere."""
    found = {file.relative_to(root).as_posix() for file in (root / "docs").glob("*.md")}
    found |= {source for source in SECTIONS if (root / source).is_file()}
    return sorted(found, key=lambda source: (source not in FIRST, source.lower()))


def render(source: str, links: Links) -> Document:
    """Convert a document.

    Args:
        source: its path, relative to the project's folder.
        links: where its links lead.
    """
    text = (links.root / source).read_text(encoding="utf-8")
    title = next((line for line in text.splitlines() if line.startswith("# ")), f"# {Path(source).stem}")
    body = clean(scrollable(markdown(text)), links.target, links.picture)
    body, headings = with_anchors(body)
    return Document(source, title.removeprefix("# ").strip(), Markup(body), headings)
