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
    """Accuracy over the number of queries in training, with 95 % bands: the paper's, then each network of ours.

    `rows` are of `tables.table_rows`; `longer` are the tests with 15 queries and steps as long as with n.
    """
    networks = [name for name in NETWORKS if name in set(rows["backbone"])]
    figure, axes = plt.subplots(2, 1 + len(networks), figsize=(4 * (1 + len(networks)), 6.4), squeeze=False)
    for line, shots in zip(axes, SHOTS, strict=True):
        printed = paper.query_size().query("shots == @shots").sort_values("n")
        for split, colour in COLOURS.items():
            part = printed[printed["split"] == split]
            band(line[0], part["n"], part["value"], part["ci95"], colour, "o-", f"{split} classes")
        line[0].set_title(f"the paper's: mini-ImageNet, Conv-4-128, {shots}-shot", fontsize=10)
        for axis, network in zip(line[1:], networks, strict=True):
            ours = rows.query("backbone == @network and shots == @shots").sort_values("n")
            tests = {"15": ("o-", ours["tested"] == USUAL), "n": ("s--", ours["tested"] == ours["n"])}
            for tested, (style, those) in tests.items():
                for split, colour in COLOURS.items():
                    part, label = ours[those & (ours["split"] == split)], f"{split} classes, tested with {tested}"
                    band(axis, part["n"], part["ours"], part["ours_ci95"], colour, style, label)
            same = {
                key[2]: score(found, "test", "usual") for key, found in longer.items() if key[:2] == (network, shots)
            }
            label = f"test classes, tested with {USUAL}, steps as long as with n"
            band(axis, [*same], *bars(same.values()), GREEN, "D:", label)
            dataset = tables.DATASETS[ours["dataset"].iloc[0]]
            axis.set_title(f"ours: {dataset}, {NETWORKS[network]}, {shots}-shot", fontsize=10)
        for axis in line:
            ticks(axis)
        line[0].set_ylabel("accuracy (%)")
    figure.legend(*axes[-1, -1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def band(axis: Axes, x: Sequence, y: Sequence, ci95: Sequence, colour: str, line: str, label: str) -> None:
    hollow = {"markerfacecolor": "white"} if line.startswith("s") else {}
    axis.plot(x, y, line, color=colour, label=label, markersize=4, linewidth=1.3, **hollow)
    axis.fill_between(x, y - ci95, y + ci95, color=colour, alpha=0.15, linewidth=0)


def ticks(axis: Axes) -> None:
    sizes = sorted(set(paper.query_size()["n"]))
    axis.set(xscale="log", xlabel="$n$, queries per class in training")
    axis.set_xticks(sizes, map(str, sizes))
    axis.minorticks_off()


def records(dataset: str) -> list[Record]:
    """Return the runs behind `accuracy_over_n` of an image set."""
    return [*flat(published(dataset)), *flat(published(dataset, RESCALED))]


def over_n(dataset: str) -> Figure:
    """Draw `accuracy_over_n` of the published runs of an image set."""
    return accuracy_over_n(table_rows(published(dataset)), published(dataset, RESCALED))
