"""The figures, the film and the table of notebook 02, made from run records."""

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
from sibrepro.studies.spinning_lines.model import SpinningLines, likelihood_weights

# How figures name the readings of the likelihood: see `model.likelihood_weights`.
READING_LABELS = {
    "sum": r"$\sum_i$, unit Gaussian",
    "mean": r"$\frac{1}{n}\sum_i$, eq. (lik)",
    "sum_of_squares": r"$\sum_i$, without the 1/2",
}
# The label and the line of each learning curve of Figure 3: see `model.measures`.
CURVES = {
    "mse": {"label": "test MSE", "color": GREY, "ls": ":"},
    "kl_posterior": {"label": r"$\mathbb{E}_t\,\mathrm{KL}(q_{\theta^K_t}\|\,p(w_t|d_t))$", "color": BLUE, "ls": "-"},
    "kl_prior": {"label": r"$\mathrm{KL}(p_\psi\|\,p(w))$", "color": ORANGE, "ls": "--"},
    "information": {
        "label": r"$\mathbb{E}_t\,\mathrm{KL}(q_{\theta^K_t}\|\,p_\psi)\approx I(w;d)$",
        "color": GREEN,
        "ls": "-.",
    },
}


def figure_3(p: SpinningLines, sib: Record, bnn: Record, reading: str) -> Figure:
    """Draw the paper's Figure 3: learning curves, a line that turns towards the truth, predictions on test tasks.

    Args:
        p: the settings of both runs.
        sib: a run of `model.sib_experiment`.
        bnn: a run of `model.bnn_experiment`.
        reading: the reading of the likelihood to show, a key of `model.likelihood_weights`.
    """
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.6))
    for name, line in CURVES.items():
        band(left, sib.arrays[name][_index(p, reading)], **line)
    left.axhline(p.information, color=RED, linewidth=1, label=f"true $I(w;d)$ = {p.information:.4f}")
    left.set(xlabel="epoch", ylabel="MSE; nats", yscale="log", title=f"test tasks, {p.seeds} seeds")
    left.legend(fontsize=10)

    theta, w, v = first_seed(p, sib, reading)
    x = _range_of_x(p)
    # The task whose inputs tell most: its posterior mean is furthest from the prior's.
    task = np.abs(v - p.prior[0]).argmax()
    middle.plot(x, w[task] * x, color=RED, linewidth=2.5, label=f"truth, $w$ = {w[task]:.3f}")
    colours = plt.get_cmap("cividis")(np.linspace(0, 0.95, len(theta)))
    for k, slope in enumerate(theta[:, task]):
        label, dashes = rf"$\theta^{k}$ = {slope:.3f}", "-"
        if k > p.K:
            label, dashes = f"{label} (beyond $K$)", "--"
        middle.plot(x, slope * x, color=colours[k], linewidth=1.5, linestyle=dashes, label=label)
    middle.set(xlabel="$x$", ylabel="$y$", title=r"$y = \theta^k x$ for one test task", xlim=x)
    middle.legend(fontsize=10, loc="upper left")

    order = np.argsort(v)
    tasks = order[[0, len(order) // 2, -1]] if len(order) > 2 else order[:1]
    for colour, task in zip((BLUE, GREEN, PURPLE), tasks, strict=False):
        estimate = theta[p.K, task]
        right.plot(x, estimate * x, color=colour, label=rf"SIB, $\theta^K$ = {estimate:.2f}")
        right.plot(x, w[task] * x, color=colour, linestyle=":", label=f"truth, $w$ = {w[task]:.2f}")
    grid, prediction = bnn.arrays["grid"][0], bnn.arrays["line"][0]
    right.plot(grid, prediction, color=ORANGE, linewidth=2.5, label="BNN, same for every task")
    right.set(xlabel="$x$", ylabel="$y$", title="predictions on three test tasks", xlim=x)
    right.legend(fontsize=9, loc="upper left")
    return figure


def table_of_runs(records: Iterable[Record]) -> pd.DataFrame:
    """Return what runs of `model.sib_experiment` found under the summed reading, a row each, sorted by settings."""
    settings = ["n", "K", "sigma", "sigma_w", "epochs"]
    rows = {}
    for record in records:
        p = SpinningLines(**record.params)
        row = {name: getattr(p, name) for name in [*settings, "seeds"]}
        row["true I(w;d)"] = p.information
        for name in ("kl_posterior", "kl_prior", "information"):
            row[name] = record.metrics[f"sum/{name}"]
        row["KL to p(w|d) / I"] = row["kl_posterior"] / p.information
        rows[record.id] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run").sort_values(settings).round(3)


def animation(p: SpinningLines, sib: Record, reading: str) -> bytes:
    """Return a GIF in which the lines y = theta^k x of five test tasks turn as k grows.

    Between whole steps the slopes are interpolated. Dotted lines show each task's true y = w x. See `figure_3` for the
    arguments.
    """
    theta, w, v = first_seed(p, sib, reading)
    places = np.linspace(0, len(v) - 1, min(5, len(v)))
    chosen = np.argsort(v)[places.round().astype(int)]
    theta, w = theta[:, chosen], w[chosen]
    x = _range_of_x(p)
    reach = np.abs(w).max() * np.abs(x).max()
    figure, axis = plt.subplots(figsize=(5.2, 4.2), dpi=80)
    axis.set(xlabel="$x$", ylabel="$y$", xlim=x, ylim=(-reach, reach), title=r"$y = \theta^k x$ (dotted: $y = wx$)")
    axis.set_prop_cycle(color=plt.get_cmap("cividis")(np.linspace(0, 0.9, len(w))))
    axis.plot(x, np.outer(x, w), linewidth=1, linestyle=":")
    lines = axis.plot(x, np.outer(x, theta[0]), linewidth=2, animated=True)
    step = axis.text(0.05, 0.9, "", transform=axis.transAxes, animated=True)
    canvas, frames = FigureCanvasAgg(figure), []
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)  # drawn once, for speed: each frame adds what moves
    last = p.K + 1
    for k in np.append(np.linspace(0, last, 8 * last + 1), np.full(10, last)):  # the end stays for ten frames
        low = min(int(k), p.K)
        slopes = theta[low] + (k - low) * (theta[low + 1] - theta[low])
        canvas.restore_region(still)
        for line, slope in zip(lines, slopes, strict=True):
            line.set_ydata(slope * x)
            axis.draw_artist(line)
        step.set_text(f"k = {k:.1f}")
        axis.draw_artist(step)
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(64))
    plt.close(figure)
    gif = io.BytesIO()
    frames[0].save(gif, "gif", save_all=True, append_images=frames[1:], duration=90, loop=0)
    return gif.getvalue()


def band(axis: Axes, values: np.ndarray, **line: str) -> None:
    """Draw the mean over seeds of a learning curve, and a band from the lowest to the highest seed.

    Args:
        axis: where to draw.
        values: the curve of each seed, `[epochs + 1, S]`.
        line: matplotlib's options of the mean's line; "color" is the band's too.
    """
    axis.plot(values.mean(1), **line)
    axis.fill_between(range(len(values)), values.min(1), values.max(1), color=line["color"], alpha=0.2, linewidth=0)


def first_seed(p: SpinningLines, sib: Record, reading: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the test tasks of a run's first seed.

    Returns:
        theta^0 ... theta^{K+1} under the reading `[K + 2, tasks]`, the true slopes w `[tasks]`, and the means of
        p(w | x) `[tasks]`.
    """
    theta = sib.arrays["theta"][_index(p, reading)]
    return theta[:, 0], sib.arrays["w"][0], sib.arrays["posterior_mean"][0]


def _index(p: SpinningLines, reading: str) -> int:
    """Return the place of a reading in the arrays of `model.sib_experiment`."""
    return list(likelihood_weights(p)).index(reading)


def _range_of_x(p: SpinningLines) -> np.ndarray:
    """Return the ends of the x axis: three standard deviations of the inputs on both sides of their mean."""
    return p.mu + p.sigma * np.array([-3, 3])
