"""The figures of notebook 05, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from sibcore.datasets.pacs import CLASSES, DOMAINS
from sibrepro import paper
from sibrepro.facts import Record
from sibrepro.pacs.plan import Key, Scores
from sibrepro.pacs.tables import AVERAGE, scores
from sibrepro.plots import BLUE, GREEN, GREY, ORANGE, PINK, PURPLE, RED, SKY
from sibrepro.statistics import bars

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


def feature_map(records: Mapping[str, Record]) -> Figure:
    """Principal components of features before training and after; by domain above, by class below."""
    first = next(iter(records.values()))
    target, panels = first.params["target"], [("before training", first, "map/before")]
    panels += [(f"after {name}", record, "map/after") for name, record in records.items()]
    figure, axes = plt.subplots(2, len(panels), figsize=(3.7 * len(panels), 6.6), squeeze=False)
    class_looks = zip(CLASSES, (BLUE, ORANGE, GREEN, RED, PURPLE, PINK, GREY), "osD^vPX", strict=True)
    class_looks = list(enumerate(class_looks))
    for column, (title, record, name) in zip(axes.T, panels, strict=True):
        points, labels, number = (record.arrays[part] for part in (name, "map/labels", "map/domains"))
        for place, domain in enumerate(DOMAINS):
            colour, marker = DOMAIN_LOOKS[domain]
            look = {"edgecolor": "black", "linewidth": 0.6} if domain == target else {"linewidth": 0, "alpha": 0.5}
            label = f"{NAMES[domain]} (target)" if domain == target else NAMES[domain]
            column[0].scatter(*points[number == place].T, color=colour, marker=marker, s=16, label=label, **look)
        of_target = number == DOMAINS.index(target)
        for place, (label, colour, marker) in class_looks:
            same = {"color": colour, "marker": marker, "s": 16}
            sources, targets = (points[(labels == place) & these].T for these in (~of_target, of_target))
            column[1].scatter(*sources, label=label, linewidth=0, alpha=0.4, **same)
            column[1].scatter(*targets, edgecolor="black", linewidth=0.6, **same)
        column[0].set_title(title, fontsize=11)
        for axis in column:
            axis.set(xticks=[], yticks=[])
    for axis in axes[:, -1]:
        axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5))
    axes[0, 0].set_ylabel("by domain")
    axes[1, 0].set_ylabel("by class (black edge: target)")
    return figure
