"""The figures of notebook 05, drawn from run records.

A domain has the same marker and line in every figure, and a method the colour of `plots.colour`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sibcore.datasets import pacs
from sibcore.datasets.pacs import CLASSES, COUNTS, DOMAINS
from sibrepro import paper
from sibrepro.plots import BLUE, GREEN, GREY, INK, ORANGE, OTHER, colour, marker
from sibrepro.statistics import Score, bars
from sibrepro.studies.pacs.experiment import SIZES
from sibrepro.studies.pacs.plan import Scores, seeds
from sibrepro.studies.pacs.tables import AVERAGE, class_gains, confusion, score, scores

# Colour, marker and line by domain.
DOMAIN_STYLES = dict(
    zip(DOMAINS, [(ORANGE, "o", "-"), (GREEN, "s", "--"), (BLUE, "D", "-."), (GREY, "^", ":")], strict=True)
)
NAMES = {domain: domain.replace("_", " ") for domain in (*DOMAINS, AVERAGE)}  # as figures show them
LETTERS = dict(zip(DOMAINS, "ACPS", strict=True))
IMAGES = {domain: sum(COUNTS[domain]) for domain in DOMAINS} | {AVERAGE: sum(map(sum, COUNTS.values()))}
BEFORE, AFTER = ("Rot", 0), ("SIB", 3)  # without and with synthetic gradient steps, on the same networks
SET_SIB = "SIB, set-aware ξ"  # the ξ of this study, for its colour


def sample_images() -> Figure | None:
    """Draw an image of each class and domain, or return None where there are no images of PACS."""
    try:
        samples = pacs.samples()
    except FileNotFoundError:
        return None
    figure, axes = plt.subplots(len(DOMAINS), len(CLASSES), figsize=(8.4, 5))
    for (domain, name), image in samples.items():
        axis = axes[DOMAINS.index(domain), CLASSES.index(name)]
        axis.imshow(image)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
        axis.set_title(name if domain == DOMAINS[0] else "", fontsize=11)
        axis.set_ylabel(NAMES[domain] if name == CLASSES[0] else "")
    return figure


def accuracy_over_steps(found: Scores) -> Figure:
    """Draw the accuracy on each target and on average over the number of steps K, with 95 % intervals.

    The same is drawn for SIB, whose θ⁰ is λ, and for SIB-Rot, whose θ⁰ is that of eq. (ssup). SIB with K = 0 is Rot.
    The paper's SIB-Rot is drawn next to it.
    """
    figure, axes = plt.subplots(1, len(DOMAINS) + 1, figsize=(12.5, 3.7))
    printed = paper.pacs().query("method == 'SIB-Rot'").set_index(["target", "K"])["value"]
    red = colour(SET_SIB)
    kinds = [  # name, method without steps, method with steps, style
        (r"SIB, $\theta^0=\lambda$ (K = 0: Rot)", "Rot", "SIB", {"marker": marker(SET_SIB), "linestyle": "-"}),
        ("SIB-Rot, eq. (ssup)", "SIB-Rot", "SIB-Rot", {"marker": "o", "markerfacecolor": "white", "linestyle": "--"}),
    ]
    by_key = {key: scores(by_target) for key, by_target in found.items()}
    for axis, target in zip(axes, (*DOMAINS, AVERAGE), strict=True):
        for number, (label, first, other, style) in enumerate(kinds):
            keys = sorted((K, (method, K)) for method, K in by_key if method == (other if K else first))
            shown = [(K, by_key[key][target]) for K, key in keys if target in by_key[key]]
            x = [K + 0.2 * number for K, _ in shown]
            axis.errorbar(x, *bars(value for _, value in shown), color=red, label=label, capsize=2, **style)
        if plain := by_key.get(("source-only", 0), {}).get(target):
            axis.axhline(plain.mean, color=GREY, linestyle=":", label="source-only")
        theirs = printed[target]
        axis.plot(theirs.index, theirs, "k*:", markersize=9, label="paper, SIB-Rot (ResNet-18)")
        axis.set(xticks=[0, 1, 3, 5], xlabel="steps K")
        axis.set_title(f"{NAMES[target]}\nn = {IMAGES[target]:,}", fontsize=12)
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("accuracy on the target (%)")
    _legend_below(figure, axes[0])
    return figure


def ingredients(found: Mapping[str, Mapping[str, Score]]) -> Figure:
    """Draw the accuracy on each target and on average while one ingredient after another is added.

    `found` holds the scores by target for each ingredient, under the label that is shown.
    """
    figure, axis = plt.subplots(figsize=(9.5, 4.6))
    x = np.arange(len(found))
    for domain in (*DOMAINS, AVERAGE):
        of_domain, symbol, line = DOMAIN_STYLES.get(domain, (INK, "*", "-"))
        width = {"linewidth": 2.8, "markersize": 13} if domain == AVERAGE else {"linewidth": 1.5, "markersize": 6}
        means, widths = bars([of_step[domain] for of_step in found.values()])
        axis.errorbar(x, means, widths, fmt=symbol + line, color=of_domain, capsize=2, **width)
        weight = "bold" if domain == AVERAGE else "normal"
        place = {"xytext": (9, 3 if domain == AVERAGE else -2 if domain == DOMAINS[0] else 0)}
        axis.annotate(
            NAMES[domain],
            (x[-1], means[-1]),
            **place,
            textcoords="offset points",
            va="center",
            weight=weight,
            fontsize=11,
        )
    axis.set_xticks(x, found, fontsize=11)
    axis.set_xlim(-0.3, len(found) - 0.2)
    axis.set(ylabel="accuracy on the target (%)")
    axis.grid(axis="y", alpha=0.3)
    return figure


def methods_at_test_time(found: Mapping[str, Mapping[str, Score]]) -> Figure:
    """Draw the points that each method gains: on average with a 95 % interval, and on each target as a letter.

    `found` holds the gains by method, then by target.
    """
    figure, axis = plt.subplots(figsize=(9, 1.2 + 0.44 * len(found)))
    order = sorted(found, key=lambda name: found[name][AVERAGE].mean)
    for place, name in enumerate(order):
        style = (colour(name), marker(name))
        of_method, symbol = style if style != OTHER else (INK, ".")
        mean = found[name][AVERAGE]
        size = 13 if symbol == "." else 8
        axis.errorbar(mean.mean, place, xerr=mean.ci95, fmt=symbol, color=of_method, markersize=size, capsize=3)
        for domain in DOMAINS:
            axis.text(found[name][domain].mean, place + 0.2, LETTERS[domain], fontsize=10, ha="center")
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_yticks(range(len(order)), order, fontsize=11)
    means = [of_method[domain].mean for of_method in found.values() for domain in DOMAINS]
    axis.set_xlim(min(means) - 0.7, max(means) + 0.7)
    axis.set_ylim(-0.5, len(order) - 0.3)
    axis.set(xlabel="points gained over the same network's classifier, K = 0")
    letters = ", ".join(f"{LETTERS[domain]} {NAMES[domain]}" for domain in DOMAINS)
    axis.set_title(
        f"marker: average of four targets, 95 % interval, n = {IMAGES[AVERAGE]:,} images\n{letters}", fontsize=11
    )
    axis.grid(axis="x", alpha=0.3)
    return figure


def gain_by_class(found: Scores) -> Figure:
    """Draw the points that three steps gain in each domain and class as a table of colours."""
    gained = class_gains(found[BEFORE], found[AFTER]).rename(index=NAMES)
    most = max(1.0, np.nanmax(gained.abs()))
    style = {
        "cmap": "PuOr",
        "center": 0,
        "vmin": -1.6 * most,
        "vmax": 1.6 * most,
        "annot_kws": {"size": 12, "color": INK},
    }
    figure, axis = plt.subplots(figsize=(8, 3))
    sns.heatmap(gained, annot=True, fmt="+.1f", ax=axis, cbar=False, linewidths=1, **style)
    axis.set_yticklabels(axis.get_yticklabels(), rotation=0)
    axis.set_title(
        f"points gained by three steps (Rot → SIB, K = 3), mean of {seeds(found, AFTER)} trainings", fontsize=11
    )
    axis.set(xlabel="", ylabel="")
    axis.tick_params(length=0)
    return figure


def gain_by_accuracy(found: Scores) -> Figure:
    """Draw the points that three steps gain against the accuracy before them, a marker for each class and domain."""
    figure, axis = plt.subplots(figsize=(6.6, 4.4))
    gained = class_gains(found[BEFORE], found[AFTER])
    for domain in DOMAINS:
        of_domain, symbol, _ = DOMAIN_STYLES[domain]
        before = 100 * np.diag(confusion(found[BEFORE][domain]))
        axis.scatter(before, gained.loc[domain], s=45, color=of_domain, marker=symbol, label=NAMES[domain])
        for x, y, name in zip(before, gained.loc[domain], CLASSES, strict=True):
            if abs(y) > 5:
                place = {"xytext": (-6, 3), "ha": "right"} if domain == "cartoon" else {"xytext": (6, 3)}
                axis.annotate(name, (x, y), fontsize=10, textcoords="offset points", **place)
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set(xlabel="accuracy on the class before the steps, Rot (%)", ylabel="points gained by three steps")
    axis.legend(fontsize=11, loc="lower right")
    return figure


def minibatch_sizes(found: Scores) -> Figure:
    """Draw the accuracy of SIB with K = 3 over the size of test minibatches, shuffled and class after class."""
    styles = {
        "shuffled": ("shuffled", colour(SET_SIB), marker(SET_SIB) + "-"),
        "file": ("class after class", INK, "s--"),
    }
    figure, axes = plt.subplots(1, len(DOMAINS), figsize=(12.5, 3.7))
    for axis, target in zip(axes, DOMAINS, strict=True):
        for order, (label, of_order, line) in styles.items():
            values = [score(found[AFTER][target], f"predicted/{size}/{order}") for size in SIZES]
            axis.errorbar(SIZES, *bars(values), fmt=line, color=of_order, label=f"SIB, K = 3, {label}", capsize=2)
        axis.axhline(score(found[BEFORE][target]).mean, color=GREY, linestyle=":", label="no steps (Rot)")
        axis.set(xscale="log", xlabel="images in a minibatch")
        axis.set_title(f"{NAMES[target]}\nn = {IMAGES[target]:,}", fontsize=12)
        axis.set_xticks(SIZES, SIZES)
        axis.minorticks_off()
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("accuracy on the target (%)")
    _legend_below(figure, axes[0])
    return figure


def _legend_below(figure: Figure, axis: Axes) -> None:
    """Add a legend of one axes in one row below the figure."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=11)
