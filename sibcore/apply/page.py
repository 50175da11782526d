"""Show predictions as one HTML page that needs nothing else: no scripts, no network, thumbnails inside.

    Path("labels.html").write_text(page(predict(labelled, new)), encoding="utf-8", errors="replace")

The number of thumbnails is limited, so the size of the page does not grow with the number of pictures. The CSV has
them all.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from PIL import Image

from sibcore.apply.predict import Pictures, Predictions, count_pictures, doubts, read_picture, summary
from sibcore.datasets.pictures import in_order

SIDE = 112  # of a thumbnail, in pixels
AT_ONCE = 32  # thumbnails that are decoded at a time
SHOWN_QUERIES, SHOWN_SUPPORT, SHOWN_PROBLEMS = 180, 96, 50  # the most that a page shows of each
STYLE = Path(__file__).with_name("page.css")
# the browser refuses everything that is not inside the page, whatever a file's name might smuggle in
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(found: Predictions, table: str = "the CSV") -> str:
    """Return the page: summary, warnings, the changed and the other pictures, and the support set by class.

    Args:
        found: the predictions.
        table: the name of the CSV file, to which the page refers for what it does not show.
    """
    title = f"Labels for {count_pictures(len(found.query.names))}"
    body = [*_top(found, title), *_queries(found, table), *_support(found), *_left_out(found.problems)]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{title} · sib predict</title>",
            f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>\n",
        ]
    )


def _top(found: Predictions, title: str) -> Iterator[str]:
    """Yield the heading, the summary and the warnings."""
    settings = f"SIB “{found.model}”, K = {found.steps}, on features of {found.network}"
    yield f'<header>\n<p class="small">{escape(settings)}</p>\n<h1>{title}</h1>'
    yield "".join(f"<p>{escape(line)}</p>" for line in summary(found)) + "</header>"
    warnings = doubts(found)
    if warnings:
        yield '<section aria-labelledby="warnings">\n<h2 id="warnings">Warnings: adaptation may hurt here</h2>'
        for what, advice in warnings:
            yield f'<div class="warning"><p><strong>{escape(what)}</strong></p><p>{escape(advice)}</p></div>'
        yield "</section>"
    else:
        yield (
            '<p class="fine">No warnings. The number of pictures, the shares of the classes and the folders give no '
            "reason to distrust adaptation.</p>"
        )


def _queries(found: Predictions, table: str) -> Iterator[str]:
    """Yield the pictures that were labelled: changed labels first, then the least confident."""
    changed = found.changed.tolist()
    kept = (found.label == found.before).nonzero()[:, 0]
    others = kept[found.sure[kept].argsort(stable=True)].tolist()
    shown = changed[:SHOWN_QUERIES]
    rest = others[: SHOWN_QUERIES - len(shown)]
    sections = [
        ("changed", "Changed by adaptation", shown, len(changed)),
        ("unchanged", "Unchanged, least confident first", rest, len(others)),
    ]
    links = [f'<a href="#{anchor}">{anchor.title()} ({total:,})</a>' for anchor, _, _, total in sections if total]
    yield f'<nav aria-label="Sections">{" · ".join(links)} · <a href="#support">Labelled pictures by class</a></nav>'
    yield (
        '<p class="note"><b>Before</b> is the class whose mean is nearest to the picture. <b>After</b> is the label '
        f"after K = {found.steps} steps of adaptation to all pictures together. The percentage is SIB’s confidence: "
        "the probability that it gives to its label, not a measured accuracy. Thumbnails are squares, as the network "
        "sees them.</p>"
    )
    if len(shown) + len(rest) < len(found.query.names):
        yield (
            f'<p class="note">This page shows {len(shown) + len(rest)} of {count_pictures(len(found.query.names))}. '
            f"{escape(table)} has them all.</p>"
        )
    for anchor, heading, rows, total in sections:
        if total:
            yield f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{heading} ({_of(len(rows), total)})</h2>'
            if anchor == "changed" and (found.truth >= 0).any():
                yield f'<p class="note">{_gained(found)}</p>'
            yield '<ul class="cards">'
            thumbnails = _thumbnails(found.query, [found.query.names[row] for row in rows])
            yield from (_card(found, row, thumbnail) for row, thumbnail in zip(rows, thumbnails, strict=True))
            yield "</ul>\n</section>"


def _gained(found: Predictions) -> str:
    """Return in how many pictures with a known class adaptation put the label right, and in how many wrong."""
    right_before, right = found.before == found.truth, found.label == found.truth
    known = found.truth >= 0
    gained, lost = int((right & ~right_before & known).sum()), int((right_before & ~right & known).sum())
    return f"By their folders, adaptation corrected {gained:,} of these labels and spoiled {lost:,}."


def _card(found: Predictions, row: int, thumbnail: str) -> str:
    """Return a picture with its labels and confidences."""
    lines = []
    for when, probabilities in zip(("before", "after"), found.answers, strict=True):
        sure, label = probabilities[row].max(0)
        lines.append(
            f'<p class="{when}"><span class="when">{when}</span> <b>{escape(found.classes[label])}</b> '
            f'<span class="sure">{100 * sure:.0f} %</span></p>\n'
            f'<div class="bar {when}" aria-hidden="true"><i style="width:{100 * sure:.0f}%"></i></div>'
        )
    truth = int(found.truth[row])
    if truth >= 0:
        right = found.label[row] == truth
        said = "right" if right else f"wrong: its folder is {found.classes[truth]}"
        lines.append(f'<p class="{"right" if right else "wrong"}">{"✓" if right else "✗"} {escape(said)}</p>')
    name = f'<p class="file">{escape(found.query.names[row])}</p>'
    return "\n".join(['<li class="card">', thumbnail, "<div>", name, *lines, "</div></li>"])


def _support(found: Predictions) -> Iterator[str]:
    """Yield the labelled pictures by class, with the number of queries that each class got."""
    ways = len(found.classes)
    each, classes = max(1, SHOWN_SUPPORT // ways), found.classes[:SHOWN_SUPPORT]
    before, after = (labels.bincount(minlength=ways).tolist() for labels in (found.before, found.label))
    yield '<section aria-labelledby="support">\n<h2 id="support">Labelled pictures by class (support set)</h2>'
    if len(classes) < ways:
        yield f'<p class="note">The first {len(classes)} of {ways} classes are shown.</p>'
    of_class: dict[str, list[str]] = {name: [] for name in classes}
    for name, folder in zip(found.support.names, found.support.folders, strict=True):
        if folder in of_class:
            of_class[folder].append(name)
    shown = {label: names[:each] for label, names in of_class.items()}
    thumbnails = _thumbnails(found.support, [name for names in shown.values() for name in names])
    yield '<div class="classes">'
    for number, (label, names) in enumerate(shown.items()):
        count = len(of_class[label])
        part = f", {len(names)} shown" if len(names) < count else ""
        yield (
            f'<section class="class" aria-labelledby="class-{number}"><h3 id="class-{number}">{escape(label)}</h3>'
            f"<p>{count} labelled{part}. Predicted for {before[number]:,} before, {after[number]:,} after.</p><div>"
        )
        yield "".join(next(thumbnails) for _ in names) + "</div></section>"
    yield "</div>\n</section>"


def _left_out(problems: Sequence[str]) -> Iterator[str]:
    """Yield the files that could not be used."""
    if problems:
        shown = problems[:SHOWN_PROBLEMS]
        count = _of(len(shown), len(problems))
        yield f'<section aria-labelledby="left-out">\n<h2 id="left-out">Files left out ({count})</h2>\n<ul>'
        yield from (f"<li>{escape(problem)}</li>" for problem in shown)
        yield "</ul>\n</section>"


def _of(shown: int, total: int) -> str:
    """Return a count, and how many of it are shown if not all are."""
    return f"{total:,}" if shown == total else f"{shown:,} of {total:,}"


def _thumbnails(pictures: Pictures, names: Sequence[str]) -> Iterator[str]:
    """Yield an `<img>` for each picture, with the pixels inside."""

    def one(name: str) -> str:
        content = io.BytesIO()
        Image.fromarray(read_picture(pictures.files, name, SIDE)).save(content, "JPEG", quality=80)
        pixels = base64.b64encode(content.getvalue()).decode()
        size = f'width="{SIDE}" height="{SIDE}"'
        return f'<img src="data:image/jpeg;base64,{pixels}" alt="{escape(name)}" {size}>'

    yield from in_order(one, names, AT_ONCE)
