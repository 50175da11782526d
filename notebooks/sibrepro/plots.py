"""How figures look and how they are kept. The drawing of each stands beside its subject."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path

import seaborn as sns
from IPython.display import HTML
from matplotlib.figure import Figure

from sibcore.files import write_atomically
from sibrepro import paths
from sibrepro.facts import Record, manifest

# Okabe and Ito's palette, in seaborn's order: told apart with any common colour vision.
BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, PINK, GREY, YELLOW, SKY = sns.color_palette("colorblind").as_hex()
COLOURS, MARKERS = [BLUE, ORANGE, GREEN, RED, PURPLE, PINK, SKY, GREY], "osD^vPX*"  # of classes


def style() -> None:
    """One look for all figures; call it once at the top of a notebook."""
    look = {
        "figure.dpi": 100,
        "savefig.dpi": 160,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "mathtext.fontset": "cm",
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "sibcore",  # the same figure gives the same bytes
    }
    sns.set_theme(context="notebook", style="ticks", palette="colorblind", rc=look)


def save(figure: Figure, name: str, *records: Record) -> list[Path]:
    """Write `<name>.png` and `.pdf`; the ids of the runs they show are kept in the files' metadata."""
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
    """Write one figure as a whole or not at all, and note it."""
    path = paths.figures() / name
    write_atomically(path, content)
    manifest.note("figure", paths.relative(path), runs=runs)
    return path


def show_film(path: Path, alt: str) -> HTML:
    """A GIF inside a notebook, also where only HTML is understood (IPython's own Image of a GIF is lost there)."""
    content = base64.b64encode(path.read_bytes()).decode()
    return HTML(f'<img src="data:image/gif;base64,{content}" alt="{html.escape(alt)}">')
