"""The figures of notebook 06, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sibrepro import paper, tables
from sibrepro.facts import Record, flat
from sibrepro.plots import BLUE, GREEN, ORANGE
from sibrepro.statistics import bars
from sibrepro.studies.query_size.experiment import RESCALED, USUAL
from sibrepro.studies.query_size.plan import SHOTS, Key, published
from sibrepro.studies.query_size.tables import score, table_rows

NETWORKS = {"conv4-64": "Conv-4-64", "conv4-128": "Conv-4-128"}
COLOURS = {"validation": ORANGE, "test": BLUE}


def accuracy_over_n(rows: pd.DataFrame, longer: Mapping[Key, Sequence[Record]]) -> Figure:
    """Draw the accuracy over the number of queries in training, with 95 % bands.

    The first column shows the paper's numbers, the others one network of ours each; a row of panels is a number of
    shots.

    Args:
        rows: our numbers, as `tables.table_rows` returns them.
        longer: the published runs of `RESCALED`, tested with 15 queries and steps as long as with n.
    """
    rows = rows.rename(columns={"ours": "value", "ours_ci95": "ci95"})
    networks = [name for name in NETWORKS if name in set(rows["backbone"])]
    figure, axes = plt.subplots(2, 1 + len(networks), figsize=(4 * (1 + len(networks)), 6.4), squeeze=False)
    for (first, *others), shots in zip(axes, SHOTS, strict=True):
        printed = paper.query_size().query("shots == @shots").sort_values("n")
        _bands(first, printed, "o-", "{} classes")
        first.set_title(f"the paper's: mini-ImageNet, Conv-4-128, {shots}-shot", fontsize=10)
        first.set_ylabel("accuracy (%)")
        for axis, network in zip(others, networks, strict=True):
            ours = rows.query("backbone == @network and shots == @shots").sort_values("n")
            _bands(axis, ours[ours["tested"] == USUAL], "o-", "{} classes, tested with 15")
            _bands(axis, ours[ours["tested"] == ours["n"]], "s--", "{} classes, tested with n")
            scores = {
                key[2]: score(found, "test", "usual") for key, found in longer.items() if key[:2] == (network, shots)
            }
            label = f"test classes, tested with {USUAL}, steps as long as with n"
            band(axis, [*scores], *bars(scores.values()), GREEN, "D:", label)
            dataset = tables.DATASETS[ours["dataset"].iloc[0]]
            axis.set_title(f"ours: {dataset}, {NETWORKS[network]}, {shots}-shot", fontsize=10)
    for axis in axes.flat:
        ticks(axis)
    figure.legend(*axes[-1, -1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def band(axis: Axes, x: Sequence, y: Sequence, ci95: Sequence, colour: str, line: str, label: str) -> None:
    """Draw a line with its 95 % band. Squares are hollow, so that two lines of one colour can be told apart.

    Args:
        axis: the panel.
        x: where the points lie, `[N]`.
        y: their values, `[N]`.
        ci95: half the width of the band at each point, `[N]`.
        colour: the colour of line and band.
        line: marker and style of the line, as matplotlib spells them, such as "o-".
        label: the entry of the legend.
    """
    hollow = {"markerfacecolor": "white"} if line.startswith("s") else {}
    axis.plot(x, y, line, color=colour, label=label, markersize=4, linewidth=1.3, **hollow)
    axis.fill_between(x, y - ci95, y + ci95, color=colour, alpha=0.15, linewidth=0)


def ticks(axis: Axes) -> None:
    """Let the horizontal axis show the paper's values of n, on a logarithmic scale."""
    sizes = sorted(set(paper.query_size()["n"]))
    axis.set(xscale="log", xlabel="$n$, queries per class in training")
    axis.set_xticks(sizes, map(str, sizes))
    axis.minorticks_off()


def records(dataset: str) -> list[Record]:
    """Return the runs that `over_n` shows of an image set."""
    return [*flat(published(dataset)), *flat(published(dataset, RESCALED))]


def over_n(dataset: str) -> Figure:
    """Draw `accuracy_over_n` of the published runs on an image set."""
    return accuracy_over_n(table_rows(published(dataset)), published(dataset, RESCALED))


def _bands(axis: Axes, rows: pd.DataFrame, line: str, label: str) -> None:
    """Draw the accuracies on validation and on test classes.

    Args:
        axis: the panel.
        rows: the accuracies, with the columns split, n, value and ci95.
        line: marker and style of the lines.
        label: the entries of the legend, with "{}" for the name of the split.
    """
    for split, colour in COLOURS.items():
        part = rows[rows["split"] == split]
        band(axis, part["n"], part["value"], part["ci95"], colour, line, label.format(split))
