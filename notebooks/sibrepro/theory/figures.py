"""Figures of the notebook on the ELBO and the information bottleneck, drawn from the record of `theory.study`."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from sibrepro.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED

Arrays = Mapping[str, np.ndarray]  # of a run record of `sibrepro.theory.study.study`


def evidence_bars(arrays: Arrays) -> Figure:
    """One bar per q: the ELBO, and what is missing up to log p(D), which is the sum of KLs."""
    evidence = arrays["evidence"].item()
    elbo = {name.removeprefix("elbo/"): arrays[name].item() for name in arrays if name.startswith("elbo/")}
    elbo = dict(sorted(elbo.items(), key=lambda item: -item[1]))
    fig, ax = plt.subplots(figsize=(8, 0.55 * len(elbo) + 1.5))
    floor = min(elbo.values()) - 0.15 * (evidence - min(elbo.values()))
    names, values = list(elbo), np.array(list(elbo.values()))
    ax.barh(names, values - floor, left=floor, color=BLUE, label="ELBO")
    kl = r"$\Sigma_t D_{\rm KL}(q_{\theta_t}\,\|\,p(w_t|d_t))$"
    ax.barh(names, evidence - values, left=values, color=ORANGE, hatch="//", edgecolor="white", label=kl)
    ax.axvline(evidence, color="black", lw=1.5)
    ax.annotate(
        rf"$\log p(\mathcal{{D}}) = {evidence:.2f}$",
        (evidence, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
    )
    ax.invert_yaxis()
    ax.set(xlim=(floor, evidence + 0.06 * (evidence - floor)), xlabel="nats (the bars are cut at the left)")
    fig.legend(loc="outside lower center", ncol=2)
    return fig


def objective_and_bounds(arrays: Arrays) -> Figure:
    """Eqs. (popeb), (ibt) and (ib) as q(w|d,t) goes from the prior through the posterior to maximum likelihood."""
    looks = {"popeb": (BLUE, "-", "(popeb)"), "ibt": (ORANGE, "--", r"(ibt): $I_q + H_{q,p}(d|w,t)$")}
    looks["ib"] = (GREEN, "-.", r"(ib): $I_q + H_q(d|w,t)$")
    looks["information"] = (GREY, ":", r"$I_q(w;d|t)$")
    titles = {"aligned": "aligned: $p$ made the data", "random": "random: it did not"}
    fig, axes = plt.subplots(1, 2, figsize=(11, 4), sharex=True)
    for ax, (kind, title) in zip(axes, titles.items(), strict=True):
        for name, (colour, line, label) in looks.items():
            ax.plot(arrays["path/beta"], arrays[f"path/{kind}/{name}"], color=colour, ls=line, lw=2.2, label=label)
        ax.axvline(1, color=GREY, lw=0.8)
        ax.set(xscale="log", xlabel=r"$\beta$ in $q(w|d,t) \propto p(w)\, p(d|w,t)^\beta$", title=title)
    axes[0].set_ylabel("nats")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=4)
    return fig


def gap_against_bound(arrays: Arrays) -> Figure:
    """Left: every random world. Right: the coin family, from the limit where Theorem 2 is an equality to ERM."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(1.15, 1))
    order = np.argsort(arrays["determinism"])
    bound, gap = arrays["theorem"][order], np.abs(arrays["gap"][order])
    dots = left.scatter(
        bound, gap, c=arrays["determinism"][order], s=9, cmap="cividis", vmin=0, vmax=1, rasterized=True
    )
    ends = np.array([bound.min() / 2, bound.max() * 2])
    left.plot(ends, ends, color=RED, lw=1.8, label="equality")
    left.set(xscale="log", yscale="log", xlim=ends, ylim=(1e-6, ends[1]), ylabel=r"$|{\rm gen}(q)|$")
    left.set(xlabel=r"$\sqrt{2\sigma^2 I_q(w;d|t)/n}$", title="random worlds: the bound holds in each")
    left.legend(loc="upper left")
    fig.colorbar(dots, ax=left, label=r"$I_q(w;d|t)\,/\,H_q(w|t)$   (0: deaf, 1: deterministic)")
    for n, colour in zip((1, 2, 4, 10), (BLUE, ORANGE, GREEN, PURPLE), strict=True):
        right.plot(arrays["coin/beta"], arrays[f"coin/{n}"], color=colour, lw=2, label=f"$n = {n}$")
    right.axhline(1, color=RED, lw=1.8)
    right.axhline(np.sqrt(1 / (np.pi * np.log(2))), color=GREY, ls=":", label=r"ERM, $n\to\infty$: $1/\sqrt{\pi\ln 2}$")
    right.set(xscale="log", ylim=(0.55, 1.03), xlabel=r"$\beta$ in $q(w|d) \propto \exp(\beta\, w\, \Sigma_i z_i)$")
    right.set(ylabel=r"$|{\rm gen}|$ / bound", title="fair coins, $\\ell = -wz$: tight for weak learners")
    right.legend(loc="lower left", ncol=2, fontsize=11)
    return fig


def corollary_over_n(arrays: Arrays) -> Figure:
    """Left: objective and lower bounds with the plain sum. Right: the terms that n is said to trade off."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4))
    n = arrays["corollary/n"]
    objective, risk, weight = (arrays[f"corollary/sum/{name}"] for name in ("objective", "risk", "regulariser"))
    term = r"\frac{n}{2\sigma^2}{\rm gen}^2"
    left.plot(n, objective, color=BLUE, lw=2.2, label="(popeb)")
    left.plot(n, weight + n * risk, color=ORANGE, lw=2.2, ls="--", label=rf"${term} + n\,\mathbb{{E}}L_t$")
    left.plot(n, weight + risk, color=GREEN, lw=2.2, ls="-.", label=rf"as printed: ${term} + \mathbb{{E}}L_t$")
    left.set(title="plain sum: objective and lower bounds", ylabel="nats")
    for reading, line in (("sum", "-"), ("mean", "--")):
        look = {"ls": line, "lw": 2}
        right.plot(
            n, arrays[f"corollary/{reading}/information"], color=PURPLE, label=f"$I_q(w;d|t)$, {reading}", **look
        )
        right.plot(n, arrays[f"corollary/{reading}/regulariser"], color=RED, label=f"${term}$, {reading}", **look)
    right.set(title="the regulariser fades as $n$ grows, under either reading", ylabel="nats")
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="$n = |d|$")
        ax.legend(fontsize=11)
    return fig
