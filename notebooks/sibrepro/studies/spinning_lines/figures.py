"""The figures and the film of notebook 02, made from run records."""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from sibrepro.facts import Record
from sibrepro.plots import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED
from sibrepro.studies.spinning_lines.model import SpinningLines, likelihood_weights

# How figures name the readings of the likelihood: see `model.likelihood_weights`.
READING_LABELS = {
    "sum": r"sum: $\frac{1}{2}\sum_i$, unit Gaussian",
    "mean": r"mean: $\frac{1}{2n}\sum_i$, eq. (lik)",
    "sum_of_squares": r"sum_of_squares: $\sum_i$",
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
TRUE_INFORMATION = {"color": RED, "linewidth": 1.5, "ls": (0, (8, 1.5, 1, 1.5, 1, 1.5))}
# The true line is dotted, and the steps towards it go from dark to light, so both are seen in grey.
TRUTH = {"color": INK, "linewidth": 2.5, "ls": ":"}


def figure_3(p: SpinningLines, sib: Record, bnn: Record, reading: str) -> Figure:
    """Draw the paper's Figure 3: learning curves, a line that turns towards the truth, predictions on test tasks.

    Args:
        p: the settings of both runs.
        sib: a run of `model.sib_experiment`.
        bnn: a run of `model.bnn_experiment`.
        reading: the reading of the likelihood to show, a key of `model.likelihood_weights`.
    """
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.6))
    _learning_curves(axes[0], p, sib, reading)
    _steps_of_one_task(axes[1], p, sib, reading)
    _three_predictions(axes[2], p, sib, bnn, reading)
    for axis in axes[1:]:
        axis.set(xlabel="input $x$", xlim=_range_of_x(p))
        axis.set_ylabel("output $y$", labelpad=0)
    return figure


def readings(p: SpinningLines, sib: Record, exact: Record) -> Figure:
    """Draw the learning curves of each reading of the likelihood, and the exact optimum of its objective.

    Args:
        p: the settings of both runs.
        sib: a run of `model.sib_experiment`.
        exact: a run of `optimum.experiment`.
    """
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.6), sharey=True)
    for axis, name in zip(axes, likelihood_weights(p), strict=True):
        for place, curve in enumerate(("kl_posterior", "kl_prior", "information"), start=1):
            band(axis, sib.arrays[curve][_index(p, name)], **CURVES[curve])
            right_of_curves = (1 + 0.04 * place) * p.epochs
            best = exact.metrics[f"{name}/{curve}"]
            axis.plot(right_of_curves, best, color=CURVES[curve]["color"], marker="D", ms=7, mec="white")
        axis.axhline(p.information, **TRUE_INFORMATION, label=f"true $I(w;d)$ = {p.information:.2f} nats")
        axis.set(title=READING_LABELS[name], xlabel="epoch", yscale="log", ylim=(1e-4, 80))
        axis.set_xticks(np.linspace(0, p.epochs, 4).round())
    axes[0].set_ylabel(f"nats, {p.tasks} test tasks, {p.seeds} seeds")
    handles, labels = axes[0].get_legend_handles_labels()
    diamond = plt.Line2D([], [], color=INK, marker="D", ms=7, ls="", label="the objective's exact optimum")
    figure.legend([*handles, diamond], [*labels, diamond.get_label()], loc="outside lower center", ncol=5)
    return figure


def trajectories(p: SpinningLines, sib: Record, reading: str) -> Figure:
    """Draw theta^k of many test tasks over k, and the estimates of SIB and of the exact posterior against the truth.

    The arguments are those of `figure_3`.
    """
    theta, w, v = first_seed(p, sib, reading)
    shown = min(60, p.tasks)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6))
    colours = plt.cm.ScalarMappable(plt.Normalize(*np.quantile(sib.arrays["w"], [0.01, 0.99])), "cividis")
    for line, slope in zip(theta.T[:shown], w, strict=False):
        left.plot(line, color=colours.to_rgba(slope), linewidth=1, alpha=0.8)
    left.axvline(p.K, color=INK, linestyle=":")
    left.annotate("trained to here ", (p.K, left.get_ylim()[0]), ha="right", va="bottom", color=INK)
    left.set(xlabel="step $k$", ylabel=r"$\theta^k_t$", xticks=range(p.K + 2), title=f"{shown} test tasks, one seed")
    figure.colorbar(colours, ax=left, label="true $w_t$")
    right.axline((p.prior[0], p.prior[0]), slope=1, color=INK, linewidth=1, label=r"$\theta = w$")
    best = {"facecolors": "none", "edgecolors": ORANGE, "linewidths": 1}
    right.scatter(w, v, s=18, **best, label=r"exact posterior mean, $\bar x_t+\mu_w$")
    right.scatter(w, theta[p.K], s=12, color=BLUE, label=r"SIB, $\theta^K_t$")
    right.set(xlabel="true slope $w_t$", ylabel="estimate", title=f"{p.tasks} test tasks, one seed")
    right.legend(markerscale=1.5)
    return figure


def conditions(p: SpinningLines, exact: Record) -> Figure:
    """Draw the exact optimum of the summed reading as one parameter of the problem moves and the others stay.

    Args:
        p: the settings of the run.
        exact: a run of `optimum.experiment`.
    """
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.6), sharey=True)
    names = {"n": "inputs per task, $n$", "sigma_w": r"spread of $\epsilon_w$, $\sigma_w$"}
    names |= {"sigma": r"spread of the inputs, $\sigma$"}
    for axis, (name, label) in zip(axes, names.items(), strict=True):
        for curve in ("kl_posterior", "kl_prior"):
            axis.plot(exact.arrays[name], exact.arrays[f"{name}/{curve}"], **CURVES[curve], linewidth=2)
        axis.plot(
            exact.arrays[name], exact.arrays[f"{name}/true_information"], **TRUE_INFORMATION, label="true $I(w;d)$"
        )
        axis.axvline(getattr(p, name), color=INK, linestyle=":", linewidth=1)
        axis.annotate(f" here: {getattr(p, name):g}", (getattr(p, name), 1.3e-4), color=INK)
        axis.set(xscale="log", yscale="log", ylim=(1e-4, 30), xlabel=label)
    axes[0].set_ylabel("nats, at the exact optimum")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=3)
    axes[2].axvspan(4**0.25, exact.arrays["sigma"][-1], color=FAINT, alpha=0.3, linewidth=0)
    axes[2].annotate(r"$\sigma^4 > 4$", (4**0.25 * 1.04, 12), color=INK)
    axes[2].set_xticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"])
    axes[2].minorticks_off()
    return figure


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


def _learning_curves(axis: Axes, p: SpinningLines, sib: Record, reading: str) -> None:
    """Draw the left panel of Figure 3."""
    for name, line in CURVES.items():
        band(axis, sib.arrays[name][_index(p, reading)], **line)
    axis.axhline(p.information, **TRUE_INFORMATION, label=f"true $I(w;d)$ = {p.information:.2f} nats")
    axis.set(xlabel="epoch", ylabel="nats (MSE: squared units of $y$)", yscale="log")
    axis.set_title(f"{p.tasks} test tasks, mean and range of {p.seeds} seeds", fontsize=12)
    axis.legend(fontsize=10.5)


def _steps_of_one_task(axis: Axes, p: SpinningLines, sib: Record, reading: str) -> None:
    """Draw the middle panel of Figure 3: the steps in the task whose inputs tell most of its slope."""
    theta, w, v = first_seed(p, sib, reading)
    x = _range_of_x(p)
    task = np.abs(v - p.prior[0]).argmax()  # its posterior mean is furthest from the prior's
    axis.plot(x, w[task] * x, **TRUTH, label=f"truth, $w$ = {w[task]:.2f}")
    colours = plt.get_cmap("cividis")(np.linspace(0, 0.9, len(theta)))
    for k, slope in enumerate(theta[:, task]):
        label, dashes = rf"$\theta^{k}$ = {slope:.2f}", "-"
        if k > p.K:
            label, dashes = f"{label} (beyond $K$)", "--"
        axis.plot(x, slope * x, color=colours[k], linewidth=1.8, linestyle=dashes, label=label)
    axis.set_title(r"$y = \theta^k x$, one test task", fontsize=12)
    axis.legend(fontsize=10.5, loc="upper left")


def _three_predictions(axis: Axes, p: SpinningLines, sib: Record, bnn: Record, reading: str) -> None:
    """Draw the right panel of Figure 3: test tasks with the smallest, the median and the largest posterior mean."""
    theta, w, v = first_seed(p, sib, reading)
    x = _range_of_x(p)
    order = np.argsort(v)
    tasks = order[[0, len(order) // 2, -1]] if len(order) > 2 else order[:1]
    for name, shade, task in zip("abc", (0.0, 0.45, 0.8), tasks, strict=False):
        colour = plt.get_cmap("viridis")(shade)
        axis.plot(x, theta[p.K, task] * x, color=colour, linewidth=1.8)
        axis.plot(x, w[task] * x, **TRUTH | {"color": colour})
        axis.annotate(f" {name}", (x[1], w[task] * x[1]), va="center", color=INK, annotation_clip=False)
    axis.plot(bnn.arrays["grid"][0], bnn.arrays["line"][0], color=ORANGE, linewidth=2.5, linestyle="--")
    lines = {"truth (tasks a, b, c)": TRUTH, r"SIB, $y = \theta^K x$": {"color": INK, "linewidth": 1.8}}
    lines["BNN, one curve for all tasks"] = {"color": ORANGE, "linewidth": 2.5, "ls": "--"}
    axis.legend([plt.Line2D([], [], **line) for line in lines.values()], lines, fontsize=10.5, loc="upper left")
    axis.set_title("predictions on three test tasks", fontsize=12)


def _index(p: SpinningLines, reading: str) -> int:
    """Return the place of a reading in the arrays of `model.sib_experiment`."""
    return list(likelihood_weights(p)).index(reading)


def _range_of_x(p: SpinningLines) -> np.ndarray:
    """Return the ends of the x axis: three standard deviations of the inputs on both sides of their mean."""
    return p.mu + p.sigma * np.array([-3, 3])
