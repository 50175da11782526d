"""The figures of notebook 05, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from sibcore.datasets.pacs import CLASSES, DOMAINS
from sibrepro import paper
from sibrepro.pacs.experiment import ORDERS, SIZES
from sibrepro.pacs.plan import Key, Scores
from sibrepro.pacs.tables import AVERAGE, class_gains, confusion, score, scores
from sibrepro.plots import BLUE, GREEN, GREY, ORANGE, PINK, PURPLE, RED, SKY
from sibrepro.statistics import bars

if TYPE_CHECKING:
    from sibrepro.facts import Record

LOOKS = {  # colour and marker by method and K
    ("source-only", 0): (GREY, "s"),
    ("Rot", 0): (GREEN, "^"),
    ("SIB", 3): (PURPLE, "v"),
    ("SIB", 5): (PURPLE, "v"),
    ("SIB-Rot", 0): (SKY, "o"),
    ("SIB-Rot", 1): (PINK, "P"),
    ("SIB-Rot", 3): (BLUE, "D"),
    ("SIB-Rot", 5): (RED, "X"),
}
NAMES = {domain: domain.replace("_", " ") for domain in (*DOMAINS, AVERAGE)}
DOMAIN_LOOKS = dict(zip(DOMAINS, zip((ORANGE, GREEN, BLUE, GREY), "osD^", strict=True), strict=True))


def method_name(key: Key) -> str:
    method, K = key
    return {"SIB": rf"SIB, $\theta^0=\lambda$, K = {K}", "SIB-Rot": f"SIB-Rot, K = {K}"}.get(method, method)


def accuracy_by_domain(found: Scores) -> Figure:
    """Accuracy with its 95 % interval on each target and on average; the paper's SIB-Rot (ResNet-18) as dashes."""
    figure, axis = plt.subplots(figsize=(9.5, 4))
    places = (*DOMAINS, AVERAGE)
    for number, (key, by_target) in enumerate(found.items()):
        numbers = scores(by_target)
        x = [places.index(target) + 0.1 * (number - (len(found) - 1) / 2) for target in numbers]
        colour, marker = LOOKS.get(key, (ORANGE, "*"))
        axis.errorbar(x, *bars(numbers.values()), fmt=marker, color=colour, label=method_name(key), capsize=2)
    printed = paper.pacs().query("method == 'SIB-Rot'").set_index(["K", "target"])["value"]
    for K, style in ((0, ":"), (3, "--")):
        for place, target in enumerate(places):
            label = f"paper, SIB-Rot, K = {K} (ResNet-18)" if place == 0 else None
            line = [place - 0.42, place + 0.42]
            axis.plot(line, [printed[K, target]] * 2, linestyle=style, color="black", linewidth=1, label=label)
    axis.set(xticks=range(len(places)), ylabel="accuracy on the target (%)")
    axis.set_xticklabels([NAMES[place] for place in places])
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def gains(found: Scores, before: Key, after: Key) -> Figure:
    """Points gained in each domain and class from one method to another, seeds averaged."""
    values = class_gains(found[before], found[after])
    figure, axis = plt.subplots(figsize=(7.6, 2.9))
    most = max(1.0, float(np.nanmax(np.abs(values))))
    names = [NAMES[domain] for domain in DOMAINS]
    look = {"cmap": "PuOr", "center": 0, "vmin": -most, "vmax": most, "annot_kws": {"size": 9}}
    bar = {"label": "points gained"}
    sns.heatmap(values, annot=True, fmt="+.1f", xticklabels=CLASSES, yticklabels=names, ax=axis, cbar_kws=bar, **look)
    axis.set_yticklabels(axis.get_yticklabels(), rotation=0)
    axis.set_title(f"{method_name(before)} → {method_name(after)}", fontsize=11)
    return figure


def confusions(found: Scores, keys: Sequence[Key]) -> Figure:
    """Rows: methods; columns: targets. Each row of a matrix is a true class, each column what it is taken for."""
    targets = [target for target in DOMAINS if all(target in found[key] for key in keys)]
    figure, axes = plt.subplots(
        len(keys), len(targets), figsize=(3.1 * len(targets), 3.1 * len(keys)), squeeze=False, sharex=True, sharey=True
    )
    for row, key in zip(axes, keys, strict=True):
        for axis, target in zip(row, targets, strict=True):
            shares = 100 * confusion(found[key][target])
            look = {"cmap": "cividis", "vmin": 0, "vmax": 100, "cbar": False, "annot_kws": {"size": 7}}
            sns.heatmap(
                shares, annot=True, fmt=".0f", xticklabels=CLASSES, yticklabels=CLASSES, square=True, ax=axis, **look
            )
            axis.tick_params(labelsize=8, length=0)
            axis.set_title(NAMES[target] if key == keys[0] else "", fontsize=11)
        row[0].set_ylabel(f"{method_name(key)}\ntrue class", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("taken for", fontsize=10)
    return figure


def minibatches(found: Scores, key: Key, reference: Key) -> Figure:
    """Accuracy against the size of test minibatches, dealt out at random or class after class (seeds averaged)."""
    targets = [target for target in DOMAINS if target in found[key]]
    figure, axes = plt.subplots(1, len(targets), figsize=(3 * len(targets), 3.2), squeeze=False)
    looks = {"shuffled": (BLUE, "o-", "shuffled"), "file": (ORANGE, "s--", "class after class")}
    for axis, target in zip(axes[0], targets, strict=True):
        for order in ORDERS:
            colour, line, label = looks[order]
            numbers = [score(found[key][target], f"predicted/{size}/{order}") for size in SIZES]
            axis.errorbar(SIZES, *bars(numbers), fmt=line, color=colour, label=label, capsize=2)
        if target in found.get(reference, {}):
            alone = score(found[reference][target]).mean
            axis.axhline(alone, color=GREY, linestyle=":", label=method_name(reference))
        axis.set(xscale="log", title=NAMES[target], xlabel="images in a minibatch")
        axis.set_xticks(SIZES, SIZES)
        axis.minorticks_off()
    axes[0, 0].set_ylabel(f"accuracy (%), {method_name(key)}")
    axes[0, -1].legend(fontsize=8.5)
    return figure


def feature_map(records: Mapping[str, Record]) -> Figure:
    """Principal components of features before training and after; by domain above, by class below."""
    target = next(iter(records.values())).params["target"]
    panels = [("before training", next(iter(records.values())), "map/before")]
    panels += [(f"after {name}", record, "map/after") for name, record in records.items()]
    figure, axes = plt.subplots(2, len(panels), figsize=(3.7 * len(panels), 6.6), squeeze=False)
    class_looks = list(zip((BLUE, ORANGE, GREEN, RED, PURPLE, PINK, GREY), "osD^vPX", strict=True))
    for column, (title, record, name) in zip(axes.T, panels, strict=True):
        points, labels, number = (record.arrays[part] for part in (name, "map/labels", "map/domains"))
        for place, domain in enumerate(DOMAINS):
            colour, marker = DOMAIN_LOOKS[domain]
            look = {"edgecolor": "black", "linewidth": 0.6} if domain == target else {"linewidth": 0, "alpha": 0.5}
            label = f"{NAMES[domain]} (target)" if domain == target else NAMES[domain]
            column[0].scatter(*points[number == place].T, color=colour, marker=marker, s=16, label=label, **look)
        for place, label in enumerate(CLASSES):
            colour, marker = class_looks[place]
            for of_target in (False, True):
                these = (labels == place) & ((number == DOMAINS.index(target)) == of_target)
                look = {"edgecolor": "black", "linewidth": 0.6} if of_target else {"linewidth": 0, "alpha": 0.4}
                named = None if of_target else label
                column[1].scatter(*points[these].T, color=colour, marker=marker, s=16, label=named, **look)
        column[0].set_title(title, fontsize=11)
        for axis in column:
            axis.set(xticks=[], yticks=[])
    for axis in axes[:, -1]:
        axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5))
    axes[0, 0].set_ylabel("by domain")
    axes[1, 0].set_ylabel("by class (black edge: target)")
    return figure
