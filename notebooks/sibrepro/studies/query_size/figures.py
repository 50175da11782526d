"""The figures of notebook 06, drawn from run records and from the paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sibrepro import paper, plots, tables
from sibrepro.facts import Record, flat
from sibrepro.statistics import bars
from sibrepro.studies.query_size.experiment import RESCALED, USUAL
from sibrepro.studies.query_size.plan import SHOTS, Key, published
from sibrepro.studies.query_size.tables import NETWORKS, corollary, score, table_rows

COLOURS = {"test": plots.BLUE, "validation": plots.SKY}
MARKERS = {"test": "o", "validation": "^"}


def accuracy_over_n(rows: pd.DataFrame, longer: Mapping[Key, Sequence[Record]]) -> Figure:
    """Draw the accuracy against the number of queries in training, with 95 % bands.

    The first column shows the paper's numbers, the others one network of ours each. The upper row is 1-shot, the lower
    one 5-shot.

    Args:
        rows: our numbers, as `tables.table_rows` returns them.
        longer: the published runs of `RESCALED`, tested with 15 queries and steps as long as in training.
    """
    rows = rows.rename(columns={"ours": "value", "ours_ci95": "ci95"})
    networks = [name for name in NETWORKS if name in set(rows["backbone"])]
    wide = 3.5 * (1 + len(networks))
    figure, axes = plt.subplots(2, 1 + len(networks), figsize=(wide, 6.8), sharex=True, squeeze=False)
    for (first, *others), shots in zip(axes, SHOTS, strict=True):
        printed = paper.query_size().query("shots == @shots").sort_values("n")
        _bands(first, printed, "-", f"{{}} classes, tested with {USUAL}")
        first.set_ylabel(f"{shots}-shot accuracy (%)")
        for axis, network in zip(others, networks, strict=True):
            ours = rows.query("backbone == @network and shots == @shots").sort_values("n")
            _bands(axis, ours[ours["tested"] == USUAL], "-", f"{{}} classes, tested with {USUAL}")
            _bands(axis, ours[ours["tested"] == ours["n"]], "--", "{} classes, tested with n")
            scores = {
                key[2]: score(found, "test", "usual") for key, found in longer.items() if key[:2] == (network, shots)
            }
            label = f"test classes, tested with {USUAL}, steps as long as in training"
            band(axis, [*scores], *bars(scores.values()), plots.ORANGE, "D:", label)
    axes[0, 0].set_title("paper: mini-ImageNet,\nConv-4-128", fontsize=12)
    for axis, network in zip(axes[0, 1:], networks, strict=True):
        ours = rows.query("backbone == @network")
        about = f"{tables.DATASETS[ours['dataset'].iloc[0]]}, {NETWORKS[network]}"
        axis.set_title(f"ours: {about},\n{ours['episodes'].max():,} test episodes", fontsize=12)
    for axis in axes.flat:
        ticks(axis)
        axis.set_xlabel("$n$ in training" if axis in axes[-1] else "")
    figure.legend(*axes[-1, -1].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=11)
    return figure


def band(axis: Axes, x: Sequence, y: Sequence, ci95: Sequence, colour: str, line: str, label: str) -> None:
    """Draw a line with its 95 % band. Dashed lines have hollow markers, so that they can be told apart in grey.

    Args:
        axis: the panel.
        x: where the points lie, `[N]`.
        y: their values, `[N]`.
        ci95: half the width of the band at each point, `[N]`.
        colour: the colour of line and band.
        line: marker and style of the line, as matplotlib spells them, such as "o-".
        label: the entry of the legend.
    """
    hollow = {"markerfacecolor": "white"} if line.endswith("--") else {}
    axis.plot(x, y, line, color=colour, label=label, markersize=5, linewidth=1.5, **hollow)
    axis.fill_between(x, y - ci95, y + ci95, color=colour, alpha=0.15, linewidth=0)


def ticks(axis: Axes) -> None:
    """Let the horizontal axis show the paper's values of n, on a logarithmic scale."""
    sizes = sorted(set(paper.query_size()["n"]))
    axis.set_xscale("log")
    axis.set_xticks(sizes, map(str, sizes))
    axis.minorticks_off()


def over_n(dataset: str) -> Figure:
    """Draw `accuracy_over_n` of the published runs on an image set."""
    return accuracy_over_n(table_rows(published(dataset)), published(dataset, RESCALED))


def over_n_records(dataset: str) -> list[Record]:
    """Return the runs that `over_n` shows of an image set."""
    return [*flat(published(dataset)), *flat(published(dataset, RESCALED))]


def corollary_terms(terms: pd.DataFrame) -> Figure:
    """Draw gen(q), the empirical risk, and the term of Corollary 1 against the number of queries in training.

    Args:
        terms: what `tables.corollary` returns.
    """
    panels = {
        "gap": "generalisation error\ngen($q$) (nats)",
        "risk": "empirical risk\n$L_t(w, d)$ (nats)",
        "coefficient": "coefficient\n" + r"$|d|\,/\,2\sigma^2$",
        "term": "term of the corollary\n" + r"$|d|\,/\,2\sigma^2\cdot$gen$(q)^2$ (nats)",
    }
    colours = dict(zip(NETWORKS, (plots.BLUE, plots.ORANGE), strict=True))
    markers = dict(zip(NETWORKS, "os", strict=True))
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 6.6), sharex=True)
    for axis, (name, title) in zip(axes.flat, panels.items(), strict=True):
        for (backbone, shots), part in terms.sort_values("n").groupby(["backbone", "shots"]):
            ci95 = part["gap_ci95"] if name == "gap" else 0 * part[name]
            line = f"{markers[backbone]}{'-' if shots == 1 else '--'}"
            band(axis, part["n"], part[name], ci95, colours[backbone], line, f"{NETWORKS[backbone]}, {shots}-shot")
        axis.set_title(title, fontsize=12)
        ticks(axis)
    axes[0, 0].axhline(0, color=plots.GREY, linewidth=0.8)
    for axis in axes[-1]:
        axis.set_xlabel("$n$, queries per class in training")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=11)
    return figure


def published_corollary() -> Figure:
    """Draw `corollary_terms` of the published runs on CIFAR-FS."""
    return corollary_terms(corollary(published()))


def _bands(axis: Axes, rows: pd.DataFrame, style: str, label: str) -> None:
    """Draw the accuracies on test and on validation classes.

    Args:
        axis: the panel.
        rows: the accuracies, with the columns split, n, value and ci95.
        style: the style of the lines, "-" or "--".
        label: the entries of the legend, with "{}" for the name of the split.
    """
    for split, colour in COLOURS.items():
        part = rows[rows["split"] == split]
        band(axis, part["n"], part["value"], part["ci95"], colour, MARKERS[split] + style, label.format(split))
