"""The style of all figures, and how their files are written. Each study draws its own figures."""

from __future__ import annotations

import base64
import html
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import seaborn as sns
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sibcore.files import write_atomically
from sibrepro import paths
from sibrepro.facts import Record, manifest

# Okabe and Ito's palette in seaborn's order, which people with any common kind of colour vision can tell apart.
BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, PINK, GREY, YELLOW, SKY = sns.color_palette("colorblind").as_hex()
COLOURS, MARKERS = [BLUE, ORANGE, GREEN, RED, PURPLE, PINK, SKY, GREY], "osD^vPX*"  # one for each class
INK, FAINT = "#333333", "#b8b8b8"  # for text, and for what stands behind the methods that a figure is about

# A method has the same colour and marker in every figure. Methods of one colour are related, and their markers differ:
# PT-MAP and protoLP balance the classes, TIM and α-TIM maximise information. Markers also tell methods apart in grey,
# where some colours are alike.
METHODS = {
    "sib": (BLUE, "o"),  # the paper's ξ
    "sib set": (RED, "D"),
    "sib equivariant": (SKY, "s"),
    "sib inductive": (PINK, "d"),
    "nearest centroid": (INK, "^"),
    "pt map": (ORANGE, "s"),
    "proto lp": (ORANGE, "p"),
    "tim": (GREEN, "P"),
    "alpha tim": (GREEN, "X"),
    "paddle": (PURPLE, "v"),
    "soft k means": (PURPLE, "h"),
    "laplacian shot": (BROWN, "<"),
    "label propagation": (BROWN, ">"),
}
# Other spellings of these names.
SPELLINGS = {
    "α": "alpha",
    "protolp": "proto lp",
    "laplacianshot": "laplacian shot",
    "tpn": "label propagation",
    "inductive sib": "sib inductive",
}
NEAR, MOST = 12, 240  # printer's points between a point and its name: no line is needed, and no more is possible
OTHER = (FAINT, ".")  # the look of all other methods


def style() -> None:
    """Set the style of all figures. Call it once, at the top of a notebook."""
    settings = {
        "figure.dpi": 100,
        "savefig.dpi": 160,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "mathtext.fontset": "cm",
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "sibcore",  # the same figure gives the same bytes
    }
    sns.set_theme(context="notebook", style="ticks", palette="colorblind", rc=settings)


def colour(method: str) -> str:
    """Return a method's colour, the same in all figures: light grey unless the method is one of `METHODS`.

    Args:
        method: the method's key or its title in tables, such as "pt-map", "sib-set" or "SIB, set-aware ξ, K = 10".
    """
    return _look(method)[0]


def marker(method: str) -> str:
    """Return a method's marker, the same in all figures. Its argument is that of `colour`."""
    return _look(method)[1]


def _look(method: str) -> tuple[str, str]:
    """Return colour and marker of the longest name in `METHODS` with which the method's name begins."""
    name = " ".join(re.findall(r"\w+", method.lower()))
    for spelling, usual in SPELLINGS.items():
        name = name.replace(spelling, usual)
    known = [start for start in METHODS if f"{name} ".startswith(f"{start} ")]
    return METHODS[max(known, key=len)] if known else OTHER


def name_points(
    axis: Axes,
    names: Sequence[str],
    points: np.ndarray,
    *,
    others: np.ndarray | None = None,
    lines: Iterable[np.ndarray] = (),
    optional: int = 0,
) -> None:
    """Write names beside points so that no name covers a point, a line or another name.

    A name stands at its point if there is room and no other point is about as near to it. Else it stands further away,
    at the end of a thin line, which avoids points and names where it can. Several orders of the names are tried. Call
    it when everything else is drawn: it fixes the layout.

    Args:
        axis: the axes.
        names: names of points.
        points: coordinates of these points, `[n, 2]`.
        others: coordinates of points without a name, `[m, 2]`.
        lines: corners of the lines in the axes, each `[., 2]`.
        optional: how many of the names, counted from the last, are small, and left out where there is no room right at
            their points.
    """
    figure = axis.figure
    figure.draw_without_rendering()  # before it, nobody knows where the points lie
    figure.set_layout_engine("none")
    scale = 72 / figure.dpi  # from pixels to printer's points, the unit of all lengths below

    def on_paper(values: np.ndarray) -> np.ndarray:
        return scale * axis.transData.transform(values)

    own = on_paper(points)
    markers = own if others is None else np.concatenate([own, on_paper(others)])
    small = np.arange(len(names)) >= len(names) - optional
    look = {"xytext": (0, 0), "textcoords": "offset points", "color": INK, "in_layout": False}
    texts = [
        axis.annotate(name, place, fontsize=9 if few else 10.5, **look)
        for name, place, few in zip(names, points, small, strict=True)
    ]
    sizes = [scale * text.get_window_extent().size + (3, 0) for text in texts]
    most = np.where(small, 0, MOST)
    frame = scale * axis.transAxes.transform([(0, 0), (1, 1)])
    on_lines = np.concatenate([np.empty((0, 2)), *(_along(on_paper(line)) for line in lines)])
    # Names that choose early stand better, so several orders are tried.
    crowded = (np.linalg.norm(own[:, None] - markers, axis=-1) < 40).sum(1)
    keys = (-crowded, own[:, 0], -own[:, 0], own[:, 1], -own[:, 1])
    orders = [np.lexsort((key, small)) for key in keys]
    tried = [_arrange(order, own, sizes, most, markers, on_lines, frame) for order in orders]
    places, _ = min(tried, key=lambda found: found[1])
    thin = {"arrowstyle": "-", "color": "#777777", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
    for i, text in enumerate(texts):
        if i not in places:
            text.remove()
            continue
        corner, end = places[i]
        text.set_position(corner - own[i] + np.array([1.5, 2.5]))
        if np.linalg.norm(end - own[i]) > NEAR:
            axis.annotate("", points[i], **look | {"xytext": end - own[i]}, arrowprops=thin, zorder=0.5)


def _arrange(
    order: Iterable[int],
    points: np.ndarray,
    sizes: Sequence[np.ndarray],
    most: Sequence[float],
    markers: np.ndarray,
    on_lines: np.ndarray,
    frame: np.ndarray,
) -> tuple[dict[int, tuple[np.ndarray, np.ndarray]], float]:
    """Choose a place for each name, one after the other.

    Args:
        order: the numbers of the names.
        points: where the named points are, `[n, 2]`.
        sizes: width and height of each name.
        most: how far each name may be from its point.
        markers: where all points are, the named ones first, `[m, 2]`.
        on_lines: points on lines, `[., 2]`.
        frame: left bottom and right top corner of the axes.

    Returns:
        by number, the left bottom corner of the name's box and the point of the box that is nearest to the name's
        point; and how bad the arrangement is.
    """
    places, cost = {}, 0.0
    taken = np.hstack([markers - 5.5, markers + 5.5])  # boxes of markers, and of names as they find their places
    for i in order:
        fallback = None
        for box, end in _places(points[i], sizes[i], frame, most[i]):
            length = np.linalg.norm(end - points[i])
            to_others = np.linalg.norm(np.clip(markers, box[:2], box[2:]) - markers, axis=1)
            unclear = length <= NEAR and (np.delete(to_others, i) < 1.4 * length).any()
            if unclear or _overlap(box, taken).any() or _inside(on_lines, box[None]).any():
                continue
            leader = _along(np.array([points[i], end]))
            apart = np.linalg.norm(markers - points[i], axis=1) > 7  # from others it cannot keep away
            kept = np.concatenate([taken[: len(markers)][apart], taken[len(markers) :]])
            if not _inside(leader, kept).any():
                break
            fallback = fallback or (box, end)
        else:
            cost += MOST
            if fallback is None:
                continue
            box, end = fallback
            leader = _along(np.array([points[i], end]))
        places[i] = box[:2], end
        taken, on_lines = np.vstack([taken, box]), np.vstack([on_lines, leader])
        cost += np.linalg.norm(end - points[i])
    return places, cost


def _places(
    point: np.ndarray, size: np.ndarray, frame: np.ndarray, most: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield where a text of this size may stand around a point inside the frame, the nearest places first.

    Each place is the text's box (left, bottom, right, top) and the point of the box that is nearest to `point`.
    """
    turns = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    turns = turns[np.argsort(-np.abs(np.cos(turns)).round(9), kind="stable")]  # beside a point first
    for distance, turn in itertools.product(range(0, most + 1, 4), turns):
        way = np.array([np.cos(turn), np.sin(turn)])
        corner = point + (6.5 + distance) * way + np.clip(1.5 * way, -1, 1) * size / 2 - size / 2
        if (corner > frame[0]).all() and (corner + size < frame[1]).all():
            yield np.concatenate([corner, corner + size]), np.clip(point, corner, corner + size)


def _along(line: np.ndarray) -> np.ndarray:
    """Return points on a line `[n, 2]`, two printer's points apart."""
    parts = [np.linspace(a, b, max(2, int(np.hypot(*(b - a)) / 2))) for a, b in itertools.pairwise(line)]
    return np.concatenate(parts)


def _inside(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Tell of each of the points `[n, 2]` whether it lies in any of the boxes `[m, 4]`."""
    points = points[:, None]
    return ((points > boxes[:, :2]) & (points < boxes[:, 2:])).all(-1).any(-1)


def _overlap(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Tell of each of the boxes `[m, 4]` whether it overlaps with `box`."""
    return ((box[:2] < boxes[:, 2:]) & (box[2:] > boxes[:, :2])).all(-1)


def save(figure: Figure, name: str, *records: Record) -> list[Path]:
    """Write a figure as `<name>.png` and `<name>.pdf`, with the ids of its runs in their metadata.

    Args:
        figure: the figure.
        name: the name of the files without its ending.
        records: the runs that the figure was drawn from.

    Returns:
        the paths of the two files.
    """
    runs = ", ".join(record.id for record in records)
    metadata = {
        "png": {"Source": runs, "Software": None},
        "pdf": {"Keywords": runs, "CreationDate": None, "Producer": None, "Creator": None},
    }
    files = []
    for kind, about in metadata.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=about, bbox_inches="tight")
        files.append(keep(buffer.getvalue(), f"{name}.{kind}", runs))
    return files


def keep(content: bytes, name: str, runs: str = "") -> Path:
    """Write a file of a figure atomically, report it to the manifest, and return its path."""
    path = paths.figures() / name
    write_atomically(path, content)
    manifest.note("figure", paths.relative(path), runs=runs)
    return path


def show_film(path: Path, alt: str) -> HTML:
    """Return a GIF as HTML for a notebook's output.

    IPython's own `Image` of a GIF gets lost where only HTML is shown, such as in the report.
    """
    content = base64.b64encode(path.read_bytes()).decode()
    return HTML(f'<img src="data:image/gif;base64,{content}" alt="{html.escape(alt)}">')
