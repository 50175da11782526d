"""The figures of notebook 05, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sibcore.datasets.pacs import DOMAINS
from sibrepro import paper
from sibrepro.plots import BLUE, BROWN, GREEN, GREY, ORANGE, PINK, PURPLE, RED, SKY
from sibrepro.statistics import Score, bars
from sibrepro.studies.pacs.plan import Key, Scores
from sibrepro.studies.pacs.tables import AVERAGE, scores

# Colour and marker by method and K, and by domain.
MARKS = {
    ("source-only", 0): (GREY, "s"),
    ("Rot", 0): (GREEN, "^"),
    ("SIB", 1): (ORANGE, "<"),
    ("SIB", 3): (PURPLE, "v"),
    ("SIB", 5): (BROWN, ">"),
    ("SIB-Rot", 0): (SKY, "o"),
    ("SIB-Rot", 1): (PINK, "P"),
    ("SIB-Rot", 3): (BLUE, "D"),
    ("SIB-Rot", 5): (RED, "X"),
}
DOMAIN_LOOKS = dict(zip(DOMAINS, [(ORANGE, "o"), (GREEN, "s"), (BLUE, "D"), (GREY, "^")], strict=True))
NAMES = {domain: domain.replace("_", " ") for domain in (*DOMAINS, AVERAGE)}  # as figures show them


def method_name(key: Key) -> str:
    """Return the name of a method as figures show it."""
    method, K = key
    return {"SIB": rf"SIB, $\theta^0=\lambda$, K = {K}", "SIB-Rot": f"SIB-Rot, K = {K}"}.get(method, method)


def accuracy_by_domain(found: Scores) -> Figure:
    """Draw the accuracy of each method on each target and on average, with 95 % intervals.

    The paper's SIB-Rot (ResNet-18) stands beside it as dashed and dotted lines.
    """
    figure, axis = plt.subplots(figsize=(9.5, 4))
    places = (*DOMAINS, AVERAGE)
    for number, (key, by_target) in enumerate(found.items()):
        numbers = scores(by_target)
        x = [places.index(target) + 0.1 * (number - (len(found) - 1) / 2) for target in numbers]
        colour, marker = MARKS[key]
        axis.errorbar(x, *bars(numbers.values()), fmt=marker, color=colour, label=method_name(key), capsize=2)
    printed = paper.pacs().query("method == 'SIB-Rot'").set_index(["K", "target"])["value"]
    for K, style in ((0, ":"), (3, "--")):
        for place, target in enumerate(places):
            label = f"paper, SIB-Rot, K = {K} (ResNet-18)" if place == 0 else None
            line = [place - 0.42, place + 0.42]
            axis.plot(line, [printed[K, target]] * 2, linestyle=style, color="black", linewidth=1, label=label)
    axis.set(xticks=range(len(places)), ylabel="accuracy on the target (%)")
    axis.set_xticklabels([NAMES[place] for place in places])
    _finish(axis, "y", 8.5)
    return figure


def ladder(rungs: Mapping[str, Mapping[str, Score]]) -> Figure:
    """Draw the accuracy on each target and on average while one ingredient after another is added.

    `rungs` holds the scores by target for each ingredient, under the label that is shown.
    """
    figure, axis = plt.subplots(figsize=(9.5, 4.4))
    x = range(len(rungs))
    for domain in (*DOMAINS, AVERAGE):
        colour, marker = DOMAIN_LOOKS.get(domain, ("black", "*"))
        width = {"linewidth": 2.4, "markersize": 11} if domain == AVERAGE else {"linewidth": 1.2}
        values = bars([rung[domain] for rung in rungs.values()])
        axis.errorbar(x, *values, fmt=marker + "-", color=colour, label=NAMES[domain], capsize=2, **width)
    axis.set_xticks(x, rungs, fontsize=9.5)
    axis.set(ylabel="accuracy on the target (%)")
    _finish(axis, "y", 9)
    return figure


def beside(gains: Mapping[str, Mapping[str, Score]], reference: str) -> Figure:
    """Draw the points that each method gains over `reference`: on average with its interval, and on each target.

    Args:
        gains: by method, then by target.
        reference: the name of what the methods are compared with.
    """
    figure, axis = plt.subplots(figsize=(8.6, 0.9 + 0.36 * len(gains)))
    order = sorted(gains, key=lambda name: gains[name][AVERAGE].mean)
    for place, name in enumerate(order):
        for domain in DOMAINS:
            colour, marker = DOMAIN_LOOKS[domain]
            label = NAMES[domain] if place == 0 else None
            axis.plot(gains[name][domain].mean, place, marker, color=colour, markersize=5, alpha=0.7, label=label)
        mean, colour = gains[name][AVERAGE], BLUE if "SIB" in name else "black"
        label = "average" if place == 0 else None
        axis.errorbar(mean.mean, place, xerr=mean.ci95, fmt="*", color=colour, markersize=8, capsize=3, label=label)
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_yticks(range(len(order)), order, fontsize=9.5)
    axis.set(xlabel=f"points gained over {reference}")
    _finish(axis, "x", 8.5)
    return figure


def _finish(axis: Axes, along: str, fontsize: float) -> None:
    """Add a faint grid, and a legend to the right of the axes."""
    axis.grid(axis=along, alpha=0.3)
    axis.legend(fontsize=fontsize, loc="center left", bbox_to_anchor=(1, 0.5))
