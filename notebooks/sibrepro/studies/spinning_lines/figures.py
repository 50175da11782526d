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
from sibrepro.studies.spinning_lines.model import SpinningLines, likelihood_weights

READING_LABELS = {
    "sum": r"$\sum_i$, unit Gaussian",
    "mean": r"$\frac{1}{n}\sum_i$, eq. (lik)",
    "sum_of_squares": r"$\sum_i$, without the 1/2",
}
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
    """The paper's Figure 3: learning curves, a line spinning towards the truth, predictions on test tasks."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.6))
    theta, w, v = first_seed(p, sib, reading)
    x = p.mu + p.sigma * np.array([-3, 3])
    for name, look in CURVES.items():
        band(left, sib.arrays[name][list(likelihood_weights(p)).index(reading)], **look)
    left.axhline(p.information, color=RED, linewidth=1, label=f"true $I(w;d)$ = {p.information:.4f}")
    left.set(xlabel="epoch", ylabel="MSE; nats", yscale="log", title=f"test tasks, {p.seeds} seeds")
    left.legend(fontsize=10)

    task = np.abs(v - p.prior[0]).argmax()  # whose inputs tell most: the posterior mean furthest from the prior's
    middle.plot(x, w[task] * x, color=RED, linewidth=2.5, label=f"truth, $w$ = {w[task]:.3f}")
    colours = plt.get_cmap("cividis")(np.linspace(0, 0.95, len(theta)))
    for k, (value, colour) in enumerate(zip(theta[:, task], colours, strict=True)):
        label, dash = (" (beyond $K$)", "--") if k > p.K else ("", "-")
        label = rf"$\theta^{k}$ = {value:.3f}{label}"
        middle.plot(x, value * x, color=colour, linewidth=1.5, linestyle=dash, label=label)
    middle.set(xlabel="$x$", ylabel="$y$", title=r"$y = \theta^k x$ for one test task", xlim=x)
    middle.legend(fontsize=10, loc="upper left")

    order = np.argsort(v)
    picks = order[[0, len(order) // 2, -1]] if len(order) > 2 else order[:1]
    for colour, task in zip((BLUE, GREEN, PURPLE), picks, strict=False):
        estimate = theta[p.K, task]
        right.plot(x, estimate * x, color=colour, label=rf"SIB, $\theta^K$ = {estimate:.2f}")
        right.plot(x, w[task] * x, color=colour, linestyle=":", label=f"truth, $w$ = {w[task]:.2f}")
    line = bnn.arrays["grid"][0], bnn.arrays["line"][0]
    right.plot(*line, color=ORANGE, linewidth=2.5, label="BNN, same for every task")
    right.set(xlabel="$x$", ylabel="$y$", title="predictions on three test tasks", xlim=x)
    right.legend(fontsize=9, loc="upper left")
    return figure


def table_of_runs(records: Iterable[Record]) -> pd.DataFrame:
    """What trained runs of `sib_experiment` found under the summed reading, sorted by their settings."""
    settings, rows = ["n", "K", "sigma", "sigma_w", "epochs"], []
    for record in records:
        p = SpinningLines(**record.params)
        found = {name: record.metrics[f"sum/{name}"] for name in ("kl_posterior", "kl_prior", "information")}
        row = {name: getattr(p, name) for name in [*settings, "seeds"]} | {"true I(w;d)": p.information} | found
        rows.append(row | {"KL to p(w|d) / I": found["kl_posterior"] / p.information, "run": record.id})
    return pd.DataFrame(rows).sort_values(settings).round(3).set_index("run")


def animation(p: SpinningLines, sib: Record, reading: str, tasks: int = 5) -> bytes:
    """A GIF: the lines y = theta^k x of a few tasks turn as k grows; dotted, each task's true y = w x."""
    theta, w, v = first_seed(p, sib, reading)
    chosen = np.argsort(v)[np.linspace(0, len(v) - 1, min(tasks, len(v))).round().astype(int)]
    x = p.mu + p.sigma * np.array([-3, 3])
    reach = np.abs(w[chosen]).max() * np.abs(x).max()
    figure, axis = plt.subplots(figsize=(5.2, 4.2), dpi=80)
    axis.set(xlabel="$x$", ylabel="$y$", xlim=x, ylim=(-reach, reach), title=r"$y = \theta^k x$ (dotted: $y = wx$)")
    axis.set_prop_cycle(color=plt.get_cmap("cividis")(np.linspace(0, 0.9, len(chosen))))
    axis.plot(x, np.outer(x, w[chosen]), linewidth=1, linestyle=":")
    lines = axis.plot(x, np.outer(x, theta[0, chosen]), linewidth=2, animated=True)
    step = axis.text(0.05, 0.9, "", transform=axis.transAxes, animated=True)
    canvas, frames = FigureCanvasAgg(figure), []
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)  # drawn once; each frame adds the lines that move
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


def band(axis: Axes, values: np.ndarray, **look: str) -> None:
    """The mean over seeds, and a band from the lowest to the highest; values [epochs + 1, S]."""
    axis.plot(values.mean(1), **look)
    axis.fill_between(range(len(values)), values.min(1), values.max(1), color=look["color"], alpha=0.2, linewidth=0)


def first_seed(p: SpinningLines, sib: Record, reading: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """theta^k [K + 2, tasks], w [tasks] and the posterior means [tasks] of the first seed's test tasks."""
    r = list(likelihood_weights(p)).index(reading)
    return sib.arrays["theta"][r, :, 0], sib.arrays["w"][0], sib.arrays["posterior_mean"][0]
