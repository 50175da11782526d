"""The figures of notebook 06, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sibrepro import paper
from sibrepro.plots import BLUE, GREEN, GREY, ORANGE, RED
from sibrepro.query_size.experiment import USUAL
from sibrepro.query_size.tables import PAPERS, score

if TYPE_CHECKING:
    from sibrepro.facts import Record

Found = Mapping[tuple[str, int, int], list["Record"]]
NETWORKS = {"conv4-64": "Conv-4-64", "conv4-128": "Conv-4-128"}
COLOURS = {"test": BLUE, "val": ORANGE}


def accuracy_over_n(found: Found, longer: Found, shots: Sequence[int] = (1, 5)) -> Figure:
    """Accuracy over the number of queries in training, with 95 % bands: the paper's, then each network of ours.

    `longer` are the tests with 15 queries and steps as long as with n.
    """
    backbones = sorted({backbone for backbone, *_ in found}, key=list(NETWORKS).index)
    shots = [s for s in shots if any(key[1] == s for key in found)]
    figure, axes = plt.subplots(
        len(shots), 1 + len(backbones), figsize=(4 * (1 + len(backbones)), 3.2 * len(shots)), squeeze=False
    )
    for row, s in zip(axes, shots, strict=True):
        _printed(row[0], s)
        for axis, backbone in zip(row[1:], backbones, strict=True):
            _ours(axis, _by_n(found, backbone, s), _by_n(longer, backbone, s))
            axis.set_title(f"ours: CIFAR-FS, {NETWORKS.get(backbone, backbone)}, {s}-shot", fontsize=10)
        for axis in row:
            _ticks(axis)
        row[0].set_ylabel("accuracy (%)")
    figure.legend(*axes[-1, -1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _printed(axis: Axes, shots: int) -> None:
    table = paper.query_size().query("shots == @shots")
    for split, name in PAPERS.items():
        part = table.query("split == @name").sort_values("n")
        _band(axis, part["n"].astype(int), part["value"], part["ci95"], COLOURS[split], "o-", f"{name} classes")
    axis.set_title(f"the paper's: mini-ImageNet, Conv-4-128, {shots}-shot", fontsize=10)


def _by_n(found: Found, backbone: str, shots: int) -> dict[int, list[Record]]:
    return {n: records for (b, s, n), records in sorted(found.items()) if (b, s) == (backbone, shots)}


def _ours(axis: Axes, by_n: Mapping[int, list[Record]], longer: Mapping[int, list[Record]]) -> None:
    sizes = sorted(by_n)
    for tested, line in {"usual": "o-", "own": "s--"}.items():
        label = f"tested with {USUAL}" if tested == "usual" else "tested with n"
        for split, name in PAPERS.items():
            scores = [score(by_n[n], split, tested) for n in sizes]
            means, widths = [s.mean for s in scores], [s.ci95 for s in scores]
            _band(axis, sizes, means, widths, COLOURS[split], line, f"{name} classes, {label}")
    scores = [score(records, "test", "usual") for records in longer.values()]
    means, widths = [s.mean for s in scores], [s.ci95 for s in scores]
    label = f"test classes, tested with {USUAL}, steps as long as with n"
    _band(axis, list(longer), means, widths, GREEN, "D:", label)


def _band(axis: Axes, x: object, y: object, ci95: object, colour: str, line: str, label: str) -> None:
    y, ci95 = np.asarray(y, float), np.asarray(ci95, float)
    hollow = {"markerfacecolor": "white"} if line.startswith("s") else {}
    axis.plot(x, y, line, color=colour, label=label, markersize=4, linewidth=1.3, **hollow)
    axis.fill_between(x, y - ci95, y + ci95, color=colour, alpha=0.15, linewidth=0)


def _ticks(axis: Axes) -> None:
    sizes = sorted(set(paper.query_size()["n"].astype(int)))
    axis.set(xscale="log", xlabel="$n$, queries per class in training")
    axis.set_xticks(sizes, [str(n) for n in sizes])
    axis.minorticks_off()


def corollary(terms: pd.DataFrame) -> Figure:
    """The parts of the corollary over n; `terms` are of `query_size.corollary_terms`."""
    panels = {
        "gap": "generalisation error gen($q$)",
        "risk": "empirical risk $L_t(w, d)$",
        "coefficient": r"coefficient $|d|/2\sigma^2$",
        "term": r"$\frac{|d|}{2\sigma^2}\,$gen$(q)^2$ (nats)",
    }
    looks = dict(zip(terms.groupby(["backbone", "shots"]).groups, (BLUE, ORANGE, GREEN, RED, GREY), strict=False))
    figure, axes = plt.subplots(1, 4, figsize=(14.5, 3.4))
    for (backbone, shots), part in terms.sort_values("n").groupby(["backbone", "shots"]):
        colour, line = looks[backbone, shots], "o-" if shots == 1 else "s--"
        for axis, name in zip(axes, panels, strict=True):
            ci95 = part["gap_ci95"] if name == "gap" else np.zeros(len(part))
            label = f"{NETWORKS.get(backbone, backbone)}, {shots}-shot"
            _band(axis, part["n"], part[name], ci95, colour, line, label)
    for axis, title in zip(axes, panels.values(), strict=True):
        axis.set_title(title, fontsize=11)
        _ticks(axis)
    axes[0].axhline(0, color=GREY, linewidth=0.8)
    axes[2].set_yscale("log")
    axes[1].legend(fontsize=8)
    return figure
