"""The style of all figures, and how their files are written. Each study draws its own figures."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path

import seaborn as sns
from IPython.display import HTML
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
