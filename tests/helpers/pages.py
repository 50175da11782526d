"""Read HTML pages in tests without the code that wrote them: links, pictures, anchors and text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """A parsed page: what it refers to, and what can be referred to in it.

    Attributes:
        file: where the page was read from.
        tags: the names of its tags, in order.
        attributes: the names of all attributes of its tags.
        ids: the anchors that links can point to.
        links: addresses that a reader may follow.
        resources: addresses that a browser loads.
        rows: the text of each row of each table.
        text: the text of the page, without code and styles.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.resources: list[str] = []
        self.rows: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect what a tag refers to."""
        self._open.append(tag)
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append("")
        for name, value in attributes:
            self.attributes.add(name)
            if name == "id" and value:
                self.ids.append(value)
            if name == "href" and tag == "a":
                self.links.append(value)
            elif name in ("href", "src", "srcset", "data", "poster"):
                self.resources.append(value)

    def handle_endtag(self, tag: str) -> None:
        """Close a tag, and those inside it that the page did not close."""
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Collect text for readers."""
        if {"style", "code", "pre"} & {*self._open}:
            return
        self.text += data
        if "tr" in self._open:
            self.rows[-1] += data + " "


def pages(folder: Path) -> dict[str, Page]:
    """Return the pages of a folder by the names of their files."""
    return {file.name: Page(file) for file in sorted(folder.glob("*.html"))}
