"""Clean the HTML of notebooks and documents.

Only listed tags, attributes and styles are kept. So a page of the report runs no script and loads nothing from
elsewhere, whatever a notebook's cells or outputs, or a document, contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import nh3

MATHML = frozenset(
    "math menclose merror mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom mroot mrow ms mspace msqrt "
    "mstyle msub msubsup msup mtable mtd mtext mtr munder munderover".split()
)
MATHML_ATTRIBUTES = frozenset(
    "xmlns display form stretchy fence separator accent accentunder movablelimits largeop symmetric lspace rspace "
    "minsize maxsize mathvariant mathsize mathcolor width height depth voffset linethickness displaystyle scriptlevel "
    "open close separators notation columnalign columnlines columnspacing columnspan rowalign rowlines rowspacing "
    "rowspan".split()
)
CELL = frozenset("colspan rowspan scope valign".split())
STYLES = frozenset(  # the properties that tables of pandas use, none of which can load anything
    "background-color border border-bottom border-collapse border-left border-right border-top color display "
    "font-family font-size font-style font-weight height line-height margin margin-bottom margin-left margin-right "
    "margin-top max-width min-width opacity padding padding-bottom padding-left padding-right padding-top text-align "
    "text-decoration vertical-align white-space width".split()
)
OWN_PICTURE = re.compile(r"data:image/|(?!//)[\w./ %-]*$")  # data in the page, or a file beside it


def clean(
    html: str, link: Callable[[str], str | None], picture: Callable[[str], str | None] = lambda address: address
) -> str:
    """Return HTML without scripts, event handlers, frames, forms, SVG, style sheets and remote pictures.

    Args:
        html: the HTML of a notebook or document.
        link: returns where a link leads on the site, given what was written. A link for which it returns None becomes
            plain text.
        picture: the same for the address of a picture that is a file. A picture for which it returns None is left out.
    """

    def kept(tag: str, attribute: str, value: str) -> str | None:
        """Return the new value of an attribute, or None if it has to go."""
        if (tag, attribute) == ("img", "src"):
            if not OWN_PICTURE.match(value):
                return None
            return value if value.startswith("data:") else picture(value)
        return link(value) if attribute == "href" else value

    return nh3.clean(
        html,
        tags=nh3.ALLOWED_TAGS - {"area", "map"} | {"section", "tfoot"} | MATHML,
        clean_content_tags={"script", "style", "svg", "iframe", "object", "noscript", "template", "form"},
        attributes={
            "*": {"class", "id", "style", "title"},
            "a": {"href"},
            "img": {"src", "alt", "width", "height"},
            "details": {"open"},
            **{key: {"tabindex"} for key in ("div", "pre", "span")},
            "ol": {"start"},
            "td": CELL,
            "th": CELL,
            **dict.fromkeys(MATHML, MATHML_ATTRIBUTES),
        },
        attribute_filter=kept,
        filter_style_properties=STYLES,
        url_schemes={"http", "https", "mailto", "data"},
    )
