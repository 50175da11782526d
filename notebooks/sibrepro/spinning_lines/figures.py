"""The figures and the table of the spinning lines, made from run records."""

from __future__ import annotations

import io
from collections.abc import Iterable

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from sibrepro.facts import Record
from sibrepro.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from sibrepro.spinning_lines.model import SpinningLines, likelihood_weights

READING_LABELS = {
    "sum": r"$\sum_i$, unit Gaussian",
    "mean": r"$\frac{1}{n}\sum_i$, eq. (lik)",
    "sum_of_squares": r"$\sum_i$, without the 1/2",
}
CURVES = {
    "mse": ("test MSE", GREY, ":"),
    "kl_posterior": (r"$\mathbb{E}_t\,\mathrm{KL}(q_{\theta^K_t}\|\,p(w_t|d_t))$", BLUE, "-"),
    "kl_prior": (r"$\mathrm{KL}(p_\psi\|\,p(w))$", ORANGE, "--"),
    "information": (r"$\mathbb{E}_t\,\mathrm{KL}(q_{\theta^K_t}\|\,p_\psi)\approx I(w;d)$", GREEN, "-."),
}


def figure_3(p: SpinningLines, sib: Record, bnn: Record, reading: str) -> Figure:
    """The paper's Figure 3: learning curves, a line spinning towards the truth, predictions on test tasks."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6))
    r = list(likelihood_weights(p)).index(reading)
    _curves(axes[0], p, sib, r)
    _spinning_line(axes[1], p, sib, r, _telling_task(p, sib))
    _predictions(axes[2], p, sib, bnn, r)
    return figure


def readings(p: SpinningLines, sib: Record, exact: Record) -> Figure:
    """Each reading's KLs over the epochs, beside the exact optimum of its own objective."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), sharey=True)
    for r, (axis, reading) in enumerate(zip(axes, likelihood_weights(p), strict=True)):
        for name in ("kl_posterior", "kl_prior", "information"):
            label, colour, dash = CURVES[name]
            _band(axis, sib.arrays[name][r], label, colour, dash)
            axis.axhline(exact.metrics[f"{reading}/{name}"], color=colour, linewidth=1, linestyle=(0, (1, 2)))
        axis.axhline(p.information, color=RED, linewidth=1)
        axis.set(title=READING_LABELS[reading], xlabel="epoch", yscale="log", ylim=(5e-4, 80))
    axes[0].set_ylabel("nats")
    axes[0].legend(fontsize=10, loc="upper right")
    axes[1].annotate(
        "dotted: exact optimum\nof this objective", (0.97, 0.95), xycoords="axes fraction", ha="right", va="top"
    )
    axes[2].annotate(
        f"red: true I = {p.information:.4f} nats", (0.97, 0.95), xycoords="axes fraction", ha="right", va="top"
    )
    return figure


def trajectories(p: SpinningLines, sib: Record, reading: str, tasks: int = 60) -> Figure:
    """theta^k over k for many tasks, coloured by their true w; and theta^K against w."""
    r = list(likelihood_weights(p)).index(reading)
    theta, w, v = (sib.arrays[name] for name in ("theta", "w", "posterior_mean"))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4))
    colours = plt.get_cmap("cividis")
    low, high = np.quantile(w, [0.01, 0.99])
    for task in range(min(tasks, p.tasks)):
        colour = colours((w[0, task] - low) / (high - low))
        left.plot(range(p.K + 2), theta[r, :, 0, task], color=colour, linewidth=1, alpha=0.8)
    left.axvline(p.K, color=GREY, linestyle=":")
    left.annotate("trained to here ", (p.K, left.get_ylim()[0]), ha="right", va="bottom", color="0.35")
    left.set(xlabel="$k$", ylabel=r"$\theta^k_t$", xticks=range(p.K + 2))
    left.set_title(r"$\theta^0_t,\ldots,\theta^{K+1}_t$ of " f"{min(tasks, p.tasks)} test tasks")
    figure.colorbar(plt.cm.ScalarMappable(plt.Normalize(low, high), colours), ax=left, label="true $w_t$")
    right.axline((p.prior[0], p.prior[0]), slope=1, color=GREY, linewidth=1, label=r"$\theta = w$")
    right.scatter(w[0], v[0], s=8, color=ORANGE, alpha=0.6, label=r"posterior mean, $\bar x_t+\mu_w$")
    right.scatter(w[0], theta[r, p.K, 0], s=8, color=BLUE, alpha=0.8, label=r"$\theta^K_t$ (SIB)")
    right.set(xlabel="true $w_t$", ylabel="estimate", title="what the inputs alone can tell of $w_t$")
    right.legend(markerscale=2)
    return figure


def conditions(p: SpinningLines, exact: Record) -> Figure:
    """Where the exact optimum of the summed objective has both KLs near zero, over n, sigma_w and sigma."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), sharey=True)
    labels = {"n": "$n$", "sigma_w": r"$\sigma_w$", "sigma": r"$\sigma$"}
    for axis, (name, label) in zip(axes, labels.items(), strict=True):
        values = exact.arrays[name]
        for curve in ("kl_posterior", "kl_prior"):
            text, colour, dash = CURVES[curve]
            axis.plot(values, exact.arrays[f"{name}/{curve}"], color=colour, linestyle=dash, label=text)
        axis.plot(values, exact.arrays[f"{name}/true_information"], color=RED, linewidth=1, label="true $I(w;d)$")
        axis.axvline(getattr(p, name), color=GREY, linestyle=":")
        axis.set(xscale="log", yscale="log", ylim=(1e-4, 30), xlabel=label)
    axes[0].set(ylabel="nats, at the exact optimum")
    axes[0].annotate(" here", (p.n, 1.3e-4), color="0.35")
    axes[0].legend(fontsize=10, loc="upper right")
    axes[2].axvspan(4**0.25, exact.arrays["sigma"][-1], color=GREEN, alpha=0.12, linewidth=0)
    axes[2].annotate(r"$\sigma^4 > 4$", (4**0.25 * 1.04, 12), color=GREEN)
    axes[2].set_xticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"])
    axes[2].minorticks_off()
    return figure


def table_of_runs(records: Iterable[Record]) -> pd.DataFrame:
    """What trained runs of `sib_experiment` found under the summed reading, sorted by their settings."""
    settings = ["n", "K", "sigma", "sigma_w", "epochs"]
    rows = []
    for record in records:
        p = SpinningLines(**record.params)
        found = {name: record.metrics[f"sum/{name}"] for name in ("kl_posterior", "kl_prior", "information")}
        row = {name: getattr(p, name) for name in [*settings, "seeds"]} | {"true I(w;d)": p.information} | found
        rows.append(row | {"KL to p(w|d) / I": found["kl_posterior"] / p.information, "run": record.id})
    return pd.DataFrame(rows).sort_values(settings).round(3).set_index("run")


def animation(p: SpinningLines, sib: Record, reading: str, tasks: int = 5) -> bytes:
    """A GIF: the lines y = theta^k x of a few tasks turn as k grows; dotted, each task's true y = w x."""
    r = list(likelihood_weights(p)).index(reading)
    theta, w, v = sib.arrays["theta"][r, :, 0], sib.arrays["w"][0], sib.arrays["posterior_mean"][0]
    order = np.argsort(v)
    chosen = order[np.linspace(0, len(order) - 1, min(tasks, len(order))).round().astype(int)]
    x = np.array([p.mu - 3 * p.sigma, p.mu + 3 * p.sigma])
    reach = np.abs(w[chosen]).max() * np.abs(x).max()
    figure, axis = plt.subplots(figsize=(5.2, 4.2), dpi=80)
    axis.set(xlabel="$x$", ylabel="$y$", xlim=x, ylim=(-reach, reach), title=r"$y = \theta^k x$ (dotted: $y = wx$)")
    colours = plt.get_cmap("cividis")(np.linspace(0, 0.9, len(chosen)))
    for colour, task in zip(colours, chosen, strict=True):
        axis.plot(x, w[task] * x, color=colour, linewidth=1, linestyle=":")
    lines = [axis.plot(x, x, color=colour, linewidth=2, animated=True)[0] for colour in colours]
    step = axis.text(0.05, 0.9, "", transform=axis.transAxes, animated=True)

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)  # drawn once; each frame adds the lines that move
    frames = []
    for k in [*np.linspace(0, p.K + 1, 8 * (p.K + 1) + 1), *[p.K + 1.0] * 10]:
        low = min(int(k), p.K)
        now = theta[low] + (k - low) * (theta[low + 1] - theta[low])
        canvas.restore_region(still)
        step.set_text(f"k = {k:.1f}")
        for line, task in zip(lines, chosen, strict=True):
            line.set_ydata(now[task] * x)
        for artist in (*lines, step):
            axis.draw_artist(artist)
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(64))
    plt.close(figure)
    gif = io.BytesIO()
    frames[0].save(gif, "gif", save_all=True, append_images=frames[1:], duration=90, loop=0)
    return gif.getvalue()


def _band(axis: Axes, values: np.ndarray, label: str, colour: str, dash: str) -> None:
    """The mean over seeds, with the band between the lowest and the highest seed; values [epochs + 1, S]."""
    epochs = np.arange(len(values))
    axis.plot(epochs, values.mean(1), color=colour, linestyle=dash, label=label)
    axis.fill_between(epochs, values.min(1), values.max(1), color=colour, alpha=0.2, linewidth=0)


def _curves(axis: Axes, p: SpinningLines, sib: Record, r: int) -> None:
    for name, (label, colour, dash) in CURVES.items():
        _band(axis, sib.arrays[name][r], label, colour, dash)
    axis.axhline(p.information, color=RED, linewidth=1, label=f"true $I(w;d)$ = {p.information:.4f}")
    axis.set(xlabel="epoch", ylabel="MSE; nats", yscale="log", title=f"test tasks, {p.seeds} seeds")
    axis.legend(fontsize=10)


def _spinning_line(axis: Axes, p: SpinningLines, sib: Record, r: int, task: int) -> None:
    x = np.array([p.mu - 3 * p.sigma, p.mu + 3 * p.sigma])
    theta, w = sib.arrays["theta"][r, :, 0, task], sib.arrays["w"][0, task]
    colours = plt.get_cmap("cividis")(np.linspace(0, 0.95, len(theta)))
    axis.plot(x, w * x, color=RED, linewidth=2.5, label=f"truth, $w$ = {w:.3f}")
    for k, value in enumerate(theta):
        label = rf"$\theta^{k}$ = {value:.3f}" + (" (beyond $K$)" if k > p.K else "")
        axis.plot(x, value * x, color=colours[k], linewidth=1.5, linestyle="--" if k > p.K else "-", label=label)
    axis.set(xlabel="$x$", ylabel="$y$", title=r"$y = \theta^k x$ for one test task", xlim=x)
    axis.legend(fontsize=10, loc="upper left")


def _predictions(axis: Axes, p: SpinningLines, sib: Record, bnn: Record, r: int) -> None:
    w, v, theta = sib.arrays["w"][0], sib.arrays["posterior_mean"][0], sib.arrays["theta"][r, p.K, 0]
    order = np.argsort(v)
    x = np.array([p.mu - 3 * p.sigma, p.mu + 3 * p.sigma])
    picks = order[[0, len(order) // 2, -1]] if len(order) > 2 else order[:1]
    for colour, task in zip((BLUE, GREEN, PURPLE), picks, strict=False):
        axis.plot(x, theta[task] * x, color=colour, label=rf"SIB, $\theta^K$ = {theta[task]:.2f}")
        axis.plot(x, w[task] * x, color=colour, linestyle=":", label=f"truth, $w$ = {w[task]:.2f}")
    axis.plot(
        bnn.arrays["grid"][0], bnn.arrays["line"][0], color=ORANGE, linewidth=2.5, label="BNN, same for every task"
    )
    axis.set(xlabel="$x$", ylabel="$y$", title="predictions on three test tasks", xlim=x)
    axis.legend(fontsize=9, loc="upper left")


def _telling_task(p: SpinningLines, sib: Record) -> int:
    """The first seed's test task whose inputs tell most: the posterior mean furthest from the prior's."""
    return int(np.abs(sib.arrays["posterior_mean"][0] - p.prior[0]).argmax())
