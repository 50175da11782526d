"""The figures of notebook 04, drawn from run records and from the paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from sibrepro import plots, tables
from sibrepro.facts import Record, flat
from sibrepro.meta_training.along_the_steps import BEYOND, MOST_TASKS
from sibrepro.meta_training.runs import gain
from sibrepro.statistics import bars
from sibrepro.studies.synthetic_gradients import plan
from sibrepro.studies.synthetic_gradients.plan import ETAS, RATE, STEPS, TESTED, Key
from sibrepro.studies.synthetic_gradients.tables import table

MARKERS = dict(zip(STEPS, "osD", strict=True))  # by the number of steps K
COLOURS = dict(zip(STEPS, (plots.SKY, plots.BLUE, plots.INK), strict=True))  # from light to dark, also in grey
COSINE = r"cosine of $\xi(\hat{y})$ to $\partial\ell/\partial\hat{y}$"


def gain_over_eta(printed: pd.DataFrame) -> Figure:
    """Draw the gain over K = 0 against η: a panel for each method and number of shots, the paper's dashed, ours solid.

    Args:
        printed: rows with the columns variant, trained_shots, tested_shots, K, eta, paper and ours.
    """
    groups = printed.groupby(["variant", "trained_shots", "tested_shots"])
    columns, shots = [("inductive SIB", 1), ("SIB", 1), ("SIB", 5)], TESTED
    figure, axes = plt.subplots(len(shots), len(columns), figsize=(10, 6.6), sharex=True, sharey="row", squeeze=False)
    for row, tested in zip(axes, shots, strict=True):
        row[0].set_ylabel(f"tested {tested}-shot\ngain over $K=0$ (points)")
        for axis, column in zip(row, columns, strict=True):
            _gains(axis, groups.get_group((*column, tested)))
    for axis, (kind, trained) in zip(axes[0], columns, strict=True):
        axis.set_title(f"{kind}, trained {trained}-shot", fontsize=12)
    for axis in axes[-1]:
        axis.set_xlabel(r"step size $\eta$")
    look = {"color": plots.INK, "marker": "o"}
    handles = [Line2D([], [], marker=marker, color=COLOURS[K], label=f"$K={K}$") for K, marker in MARKERS.items()]
    handles += [Line2D([], [], linestyle="-", label="ours", **look)]
    handles += [Line2D([], [], linestyle="--", markerfacecolor="white", label="paper", **look)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    first = printed.iloc[0]
    figure.suptitle(_about(first["dataset"], first["backbone"], printed["episodes"].max()), fontsize=11)
    return figure


def _gains(axis: Axes, part: pd.DataFrame) -> None:
    """Draw one panel of `gain_over_eta`: a line for each K, of the paper's gains and of ours."""
    start = part[part["K"] == 0].iloc[0]
    axis.axhline(0, color=plots.GREY, linewidth=0.8)
    for K, marker in MARKERS.items():
        steps = part[part["K"] == K].sort_values("eta")
        for source, line in {"paper": "--", "ours": "-"}.items():
            hollow = {"markerfacecolor": "white"} if source == "paper" else {}
            axis.plot(steps["eta"], steps[source] - start[source], line, marker=marker, color=COLOURS[K], **hollow)
    axis.set_xscale("log")
    axis.set_xticks(sorted(ETAS))
    axis.xaxis.set_minor_locator(NullLocator())


def _about(dataset: str, backbone: str, episodes: int) -> str:
    """Return what all panels of a figure share, such as "CIFAR-FS, conv4-64, 5,000 test episodes"."""
    return f"{tables.DATASETS.get(dataset, dataset)}, {backbone}, {episodes:,} test episodes"


def along_the_steps(by_K: Mapping[int, Record]) -> Figure:
    """Draw accuracy, cross-entropy and the cosine of ξ to the true gradient along the steps, and past the trained K.

    Args:
        by_K: the diagnostics of one trained SIB for each K.
    """
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6))
    panels = {"accuracy": "test accuracy (%)", "loss": "cross-entropy (nats)", "xi_cosine": COSINE}
    for K, record in by_K.items():
        for axis, (name, title) in zip(axes, panels.items(), strict=True):
            scale = 100 if name == "accuracy" else 1
            values = [scale * record.metrics[f"{name}/{step}"] for step in range(K + BEYOND + 1)]
            look = {"marker": MARKERS.get(K, "o"), "color": COLOURS.get(K, plots.GREY)}
            axis.plot(range(K + 1), values[: K + 1], label=f"trained with $K={K}$", **look)
            axis.plot(range(K, K + BEYOND + 1), values[K:], linestyle=":", markerfacecolor="white", zorder=1, **look)
            axis.set_title(title, fontsize=12)
            axis.set_xlabel("step $k$ (hollow: past $K$)")
    axes[-1].axhline(0, color=plots.GREY, linewidth=0.8)
    axes[0].legend(fontsize=10)
    figure.suptitle(_of_diagnostics(next(iter(by_K.values()))), fontsize=11)
    return figure


def over_training(stopped: Sequence[Record]) -> Figure:
    """Draw the cosine of ξ to the true gradient, and the accuracy, against the number of meta-training steps.

    Args:
        stopped: the diagnostics of one training that was stopped at several lengths.
    """
    lengths, last = [record.params["steps"] for record in stopped], stopped[-1].params["K"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8))
    for k in range(last + 1):
        cosines = [record.metrics[f"xi_cosine/{k}"] for record in stopped]
        axes[0].plot(lengths, cosines, marker="o^sD"[k % 4], color=plots.BLUE, alpha=0.4 + 0.6 * k / last)
        axes[0].annotate(rf"$\theta^{k}$", (lengths[-1], cosines[-1]), (8, -4), textcoords="offset points")
    for k, style, colour in ((0, "s--", plots.GREY), (last, "o-", plots.BLUE)):
        accuracies = [100 * record.metrics[f"accuracy/{k}"] for record in stopped]
        axes[1].plot(lengths, accuracies, style, color=colour, label=rf"with $\theta^{k}$")
    axes[0].axhline(0, color=plots.GREY, linewidth=0.8)
    axes[1].legend()
    for axis, label in zip(axes, (COSINE, "test accuracy (%)"), strict=True):
        axis.set(xscale="log", xlabel="meta-training steps", ylabel=label)
    figure.suptitle(_of_diagnostics(stopped[-1]), fontsize=11)
    return figure


def _of_diagnostics(record: Record) -> str:
    """Return what the panels of a figure of diagnostics share."""
    p = record.params
    return f"{_about(p['dataset'], p['backbone'], min(p['test_episodes'], MOST_TASKS))}, {p['shots']}-shot"


def learning_rates(
    found: Mapping[Key, Sequence[Record]], equal: Mapping[float, Sequence[Record]], printed: pd.DataFrame
) -> Figure:
    """Draw the gain of K = 3 over K = 0 against η, with a fixed learning rate, with one equal to η, and in the paper.

    All are trained and tested on one shot.

    Args:
        found: the published runs by setting; their learning rate is 1e-3.
        equal: the published runs whose learning rate equals η, by η.
        printed: rows with the columns variant, trained_shots, tested_shots, K, eta and paper.
    """
    fixed = {eta: found["SIB", 1, 3, eta] for eta in ETAS if ("SIB", 1, 3, eta) in found}
    start = found["SIB", 1, 0, RATE]
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for by_eta, line, colour, label in (
        (fixed, "o-", plots.colour("SIB"), f"ours, learning rate {RATE:g}"),
        (equal, "s-", plots.SKY, "ours, learning rate $=\\eta$"),
    ):
        points = bars(gain(start, by_eta[eta]) for eta in sorted(by_eta))
        axis.errorbar(sorted(by_eta), *points, fmt=line, color=colour, label=label, capsize=3)
    theirs = printed.query("variant == 'SIB' and trained_shots == 1 and tested_shots == 1")
    three = theirs.query("K == 3").sort_values("eta")
    gained = three["paper"] - theirs.query("K == 0")["paper"].item()
    axis.plot(three["eta"], gained, "D--", color=plots.INK, markerfacecolor="white", label="paper")
    axis.axhline(0, color=plots.GREY, linewidth=0.8)
    axis.set(xscale="log", xlabel=r"step size $\eta$", ylabel="gain of $K=3$ over $K=0$ (points)")
    axis.legend()
    p = start[0].params
    axis.set_title(f"{_about(p['dataset'], p['backbone'], p['test_episodes'])}, 1-shot", fontsize=11)
    return figure


def printed_rows() -> pd.DataFrame:
    """Return the rows of the published table that have a number of the paper's."""
    rows = table()
    return rows[rows["paper"].notna()]


def learning_rate_records() -> list[Record]:
    """Return the runs that `learning_rates` shows when it is drawn from published runs."""
    shown = {key: records for key, records in plan.published().items() if key[:3] in (("SIB", 1, 0), ("SIB", 1, 3))}
    return list({record.id: record for record in (*flat(shown), *flat(plan.equal_rates()))}.values())
