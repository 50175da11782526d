"""Where links lead on the site: from files of the checkout to the pages that show them, and to headings in pages."""

from __future__ import annotations

import dataclasses
import html
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from markupsafe import Markup

FOR_READERS = re.compile(r"(https?|mailto):|#", re.IGNORECASE)  # links that stay as they are
PICTURES = (".png", ".gif", ".jpg", ".jpeg", ".webp")
COPIES = "pictures"  # the site's folder of pictures that pages show as they lie in the checkout


@dataclasses.dataclass
class Links:
    """The links of one file of the checkout.

    Attributes:
        root: the project's folder.
        source: the file's path, relative to the project's folder.
        pages: the addresses of the site's pages, by the path of the file or folder that each shows.
        copied: the pictures that the file shows, by their address on the site. `picture` fills it.
    """

    root: Path
    source: str
    pages: Mapping[str, str]
    copied: dict[str, Path] = dataclasses.field(default_factory=dict)

    def target(self, link: str) -> str | None:
        """Return where a link leads on the site, or None if it leads to a file that the site does not show."""
        if FOR_READERS.match(link.strip()):
            return link
        path, _, anchor = link.partition("#")
        page = self.pages.get(self._resolve(path))
        return f"{page}#{anchor}" if page and anchor else page

    def picture(self, link: str) -> str | None:
        """Return the address of a picture of the checkout on the site, or None if there is no such picture."""
        path = self._resolve(link)
        file = self.root / path
        if path.startswith("../") or file.suffix.lower() not in PICTURES or not file.is_file():
            return None
        address = f"{COPIES}/{path.replace('/', '-')}"
        self.copied[address] = file
        return address

    def _resolve(self, link: str) -> str:
        """Return the path, relative to the project's folder, of a path relative to the file's own folder."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.source), unquote(link)))


def with_anchors(body: str) -> tuple[str, dict[str, Markup]]:
    """Give the headings of a page anchors, the same as those of code hosts, so that links work in both places.

    Args:
        body: clean HTML.

    Returns:
        the HTML with anchors, and the headings of the second level by anchor.
    """
    seen: dict[str, int] = {}
    sections: dict[str, Markup] = {}

    def anchored(found: re.Match[str]) -> str:
        level, text = found[1], found[2]
        anchor = slug(html.unescape(re.sub(r"<[^>]*>", "", text)))
        seen[anchor] = seen.get(anchor, -1) + 1
        if seen[anchor]:
            anchor = f"{anchor}-{seen[anchor]}"
        if level == "2":
            sections[anchor] = Markup(re.sub(r"</?a\b[^>]*>", "", text))
        return f'<h{level} id="{anchor}">{text}</h{level}>'

    body = re.sub(r"<h([1-4])\b[^>]*>(.*?)</h\1>", anchored, body, flags=re.DOTALL)
    return body, sections


def slug(heading: str) -> str:
    """Return the anchor of a heading: lower case, without punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") or "section"
