"""Reading HTML pages in tests: links, pictures, anchors, text, without the code that wrote them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []  # where a reader may go
        self.resources: list[str] = []  # what a browser loads
        self.rows: list[str] = []  # the text of each row of each table
        self.text = ""
        self._open: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        self.attributes |= values.keys()
        self.ids += [values["id"]] if values.get("id") else []
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif "href" in values:
            self.resources.append(values["href"])
        self.resources += [values[name] for name in ("src", "srcset", "data", "poster") if name in values]
        if tag == "tr":
            self.rows.append("")
        self._open.append(tag)

    def handle_endtag(self, tag):
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" in self._open or "code" in self._open or "pre" in self._open:
            return
        self.text += data
        if "tr" in self._open:
            self.rows[-1] += data + " "


def pages(folder: Path) -> dict[str, Page]:
    return {file.name: Page(file) for file in sorted(folder.glob("*.html"))}
