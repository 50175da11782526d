"""The figures of notebook 01: the paper's Figures 1 and 2, drawn by code, and one for each theorem.

In Figures 1 and 2 one unit of every coordinate is a centimetre.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import daft
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from sibrepro.plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED

# Fill colours and styles of nodes: plain ones, what is observed, inputs and outputs of xi, and meta-parameters.
PALE, OBSERVED = "#f4f4f4", "#dddddd"
PLAIN, WHITE, SEEN, OF_XI, POINT = {}, {"fc": "white"}, {"fc": OBSERVED}, {"ec": RED, "fc": "#fbe9e0"}, {"ls": "--"}
# Arrows have the colours of the paper's text, and are solid or dashed as its caption says.
GENERATIVE, INFERENCE = {"color": RED, "ls": "-"}, {"color": GREEN, "ls": "--"}
ARROW = {"arrowstyle": "-|>", "mutation_scale": 13, "lw": 1.5, "zorder": 2}

# The nodes of Figure 2: name, x, y, label, width (0 for a circle) and style.
COMPUTATION = [
    ("x", 1.0, 7.6, "$x_t$", 0, SEEN),
    ("support", 1.0, 3.2, "$d_t^l$", 0, SEEN),
    ("f_x", 3.1, 7.6, "$f$", 1.1, PLAIN),
    ("f_d", 3.1, 3.2, "$f$", 1.1, PLAIN),
    ("features", 5.4, 7.6, "$f(x_t)$", 1.6, WHITE),
    ("detach_x", 8.2, 7.6, "detach()", 2.2, PLAIN),
    ("detach_d", 5.6, 3.2, "detach()", 2.2, PLAIN),
    ("lambda", 8.4, 3.2, r"$\lambda$", 1.1, PLAIN),
    # inside the loop over steps
    ("y_k", 12.4, 7.6, r"$\hat{y}_t = \hat{y}(f(x_t), w_t)$", 3.7, OF_XI),
    ("xi", 16.0, 7.6, r"$\xi$", 1.1, PLAIN),
    ("xi_out", 19.0, 7.6, r"$\xi(\hat{y}_t)\approx\partial\ell_t/\partial\hat{y}_t$", 3.5, OF_XI),
    ("w_k", 12.4, 5.4, r"$w_t(\theta_t^k, \epsilon)$", 2.3, WHITE),
    ("noise", 16.0, 5.4, r"$\epsilon$", 0, PLAIN),
    ("theta_k", 12.4, 3.2, r"$\theta_t^k$", 0, PLAIN),
    ("kl_k", 15.7, 3.2, r"$\nabla D_{\rm KL}(q_{\theta_t^k}\|p_\psi)$", 3.3, WHITE),
    ("step", 19.0, 3.2, r"step $-\eta[\cdot]$", 2.3, PLAIN),
    # after the last step
    ("theta", 23.0, 3.2, r"$\theta_t^K$", 0, PLAIN),
    ("w", 23.0, 5.4, r"$w_t(\theta_t^K, \epsilon)$", 2.3, WHITE),
    ("y_hat", 23.0, 7.6, r"$\hat{y}_t$", 1.1, WHITE),
    ("y", 26.4, 10.0, "$y_t$", 0, SEEN),
    ("loss", 26.4, 7.6, r"$\ell_t(\hat{y}_t, y_t)$", 2.2, PLAIN),
    ("kl", 26.4, 3.2, r"$D_{\rm KL}(q_{\theta_t^K}\|p_\psi)$", 3.0, PLAIN),
    ("psi", 22.8, 0.75, r"$\psi$", 0, POINT),
    ("sum", 26.4, 5.4, "$+$", 0, PLAIN),
    ("elbo", 29.4, 5.4, "$-$ELBO", 2.1, WHITE),
]


class Sketch:
    """A diagram of named circles and boxes, with arrows between them."""

    def __init__(self, ax: Axes, left: float = 0.0) -> None:
        """Begin an empty diagram.

        Args:
            ax: the axes to draw on.
            left: where x = 0 of the diagram lies on the axes.
        """
        self.ax, self.left, self.nodes = ax, left, {}

    def circle(self, name: str, x: float, y: float, label: str = "", size: float = 1.15, **style: str) -> None:
        """Draw a circle.

        Args:
            name: the name by which arrows refer to it.
            x, y: its centre.
            label: text inside.
            size: its diameter.
            style: options of matplotlib's patches.
        """
        style = {"fc": "white", "ec": INK, "ls": "-"} | style
        self._add(name, Ellipse((self.left + x, y), size, size, lw=1.3, zorder=3, **style), x, y, label, 14)

    def box(self, name: str, x: float, y: float, label: str, width: float, height: float = 1.0, **style: str) -> None:
        """Draw a rounded box.

        Args:
            name: the name by which arrows refer to it.
            x, y: its centre.
            label: text inside.
            width, height: its size.
            style: options of matplotlib's patches.
        """
        corner = (self.left + x - width / 2, y - height / 2)
        style = {"fc": PALE, "ec": INK} | style
        shape = FancyBboxPatch(corner, width, height, "round,pad=0,rounding_size=0.15", lw=1.3, zorder=3, **style)
        self._add(name, shape, x, y, label, 12)

    def draw(self, nodes: Iterable[tuple[str, float, float, str, float, dict[str, str]]]) -> None:
        """Draw the nodes of a list of name, x, y, label, width and style. Those without a width are circles."""
        for name, x, y, label, width, style in nodes:
            if width:
                self.box(name, x, y, label, width, **style)
            else:
                self.circle(name, x, y, label, **style)

    def arrows(self, *chains: str, bend: str = "arc3", color: str = INK, ls: str = "-") -> None:
        """Draw arrows between nodes.

        Args:
            chains: names of nodes in a row, such as "x f y" for arrows from x to f and from f to y.
            bend: matplotlib's connection style, which says how arrows are bent.
            color: colour of the arrows.
            ls: line style of the arrows.
        """
        for chain in chains:
            for start, end in pairwise(chain.split()):
                (a, at_a), (b, at_b) = self.nodes[start], self.nodes[end]
                ends = {"patchA": a, "patchB": b, "shrinkA": 1, "shrinkB": 1, "connectionstyle": bend}
                self.ax.add_patch(FancyArrowPatch(at_a, at_b, **ends, color=color, ls=ls, **ARROW))

    def text(self, x: float, y: float, words: str, size: float = 12, **style: Any) -> None:
        """Write words.

        Args:
            x, y: where, the centre of the text unless `style` says otherwise.
            words: the text.
            size: font size in points.
            style: options of matplotlib's texts.
        """
        style = {"ha": "center", "va": "center", "color": INK} | style
        self.ax.text(self.left + x, y, words, fontsize=size, **style)

    def _add(self, name: str, shape: Ellipse | FancyBboxPatch, x: float, y: float, label: str, size: float) -> None:
        """Draw a labelled node, and remember it for arrows."""
        self.nodes[name] = shape, (self.left + x, y)
        self.ax.add_patch(shape)
        self.text(x, y, label, size, zorder=4)


def figure_1() -> Figure:
    """Draw Figure 1: (a) the empirical Bayes model, (b) MAML and (c) SIB.

    Arrows of the generative process are solid, those of the inference process dashed.
    """
    model = daft.PGM(shape=(33, 9.6), origin=(0, 0), grid_unit=1, node_unit=1.15, line_width=1.3)
    s = _graphical_model(model)
    s.text(4.5, 9.2, "(a) empirical Bayes", 15)
    s.text(15.2, 9.2, "(b) MAML: inductive", 15)
    s.text(26.8, 9.2, "(c) SIB: transductive", 15)
    for y, words, style in ((0.75, "generative", GENERATIVE), (0.3, "inference", INFERENCE)):
        s.ax.plot((1.0, 2.0), (y, y), lw=1.8, **style)
        s.text(2.2, y, words, 11, ha="left")
    s.circle("point", 5.4, 0.5, size=0.5, **POINT)
    s.text(5.8, 0.5, "meta-parameter (point)", 11, ha="left")

    maml, sib = Sketch(s.ax, 10.4), Sketch(s.ax, 22.0)
    _unrolled(maml, "support set $d_t^l$ (labelled)", r"$\nabla\ell$")
    maml.text(0, 3.95, r"$=\phi$", 13)
    _unrolled(sib, "query inputs $x_t$ (unlabelled)", r"$\xi$")
    sib.circle("support", 0, 7.8, "$d_t^l$", **SEEN)
    sib.box("lambda", 0, 6.4, r"$\lambda$", 0.9, height=0.7)
    sib.arrows("support lambda start", **INFERENCE)
    model.figure.set_layout_engine("none")
    return model.figure


def figure_2() -> Figure:
    """Draw Figure 2: the computation graph of the negative ELBO.

    The frame encloses one step, which is repeated K times. The input and the output of xi are red.
    """
    fig, ax = plt.subplots(figsize=(31.0 / 2.54, 10.9 / 2.54))
    ax.set(xlim=(0, 31.0), ylim=(0, 10.9))
    ax.set_axis_off()
    s = Sketch(ax)
    around_steps = FancyBboxPatch(
        (10.2, 1.2), 11.0, 7.8, "round,pad=0,rounding_size=0.2", fc="none", ec=GREY, lw=1.2, zorder=1
    )
    ax.add_patch(around_steps)
    s.text(10.4, 1.35, r"$k = 0, \ldots, K-1$", ha="left", va="bottom")
    s.draw(COMPUTATION)
    s.arrows("x f_x features detach_x y_k xi xi_out step theta", "support f_d detach_d lambda theta_k")
    s.arrows("theta_k w_k y_k", "theta w y_hat loss sum elbo", "noise w_k", "theta kl sum")
    s.arrows("theta_k kl_k", "kl_k step", "y loss", "psi kl")
    s.arrows("psi kl_k", bend="arc3,rad=-0.12")
    s.arrows("step theta_k", bend="arc3,rad=-0.32")
    s.text(15.9, 1.62, r"$\theta_t^{k+1}$", 13, bbox={"fc": "white", "ec": "none", "pad": 1})
    over = Path([(5.4, 8.1), (5.4, 9.45), (23.0, 9.45), (23.0, 8.15)])
    ax.add_patch(FancyArrowPatch(path=over, color=INK, **ARROW))
    s.text(14.2, 9.8, "the only path on which the loss reaches $f$", 12)
    return fig


def evidence(arrays: Mapping[str, np.ndarray], tasks: int) -> Figure:
    """Draw the ELBO of several q as bars, each completed to log p(D) by its divergence from the true posteriors.

    Args:
        arrays: the arrays of a run of `sibrepro.studies.theory.worlds`.
        tasks: the number of tasks that the terms are summed over.
    """
    total = arrays["evidence"].item()
    elbo = {name.removeprefix("elbo/"): arrays[name].item() for name in arrays if name.startswith("elbo/")}
    names = sorted(elbo, key=elbo.get, reverse=True)
    widths = np.array([elbo[name] for name in names])
    floor = widths.min() - 0.15 * (total - widths.min())
    figure, axis = plt.subplots(figsize=(8, 0.5 * len(names) + 1.5))
    axis.barh(names, widths - floor, left=floor, color=BLUE, label="ELBO")
    kl = r"$\Sigma_t D_{\rm KL}(q_{\theta_t}\,\|\,p(w_t|d_t))$"
    axis.barh(names, total - widths, left=widths, color=ORANGE, hatch="//", edgecolor="white", label=kl)
    axis.axvline(total, color=INK, lw=1.5)
    above = {"xycoords": ("data", "axes fraction"), "xytext": (0, 4), "textcoords": "offset points", "ha": "center"}
    axis.annotate(rf"$\log p(\mathcal{{D}}) = {total:.2f}$", (total, 1), **above)
    axis.invert_yaxis()
    axis.set(xlim=(floor, total + 0.06 * (total - floor)), ylabel="choice of $q$")
    axis.set_xlabel(f"nats, sum over {tasks} tasks (the bars are cut at the left)")
    figure.legend(loc="outside lower center", ncol=2)
    return figure


def constant_bound(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draw the objective and the bounds of Theorem 1 along a path of posteriors, in an aligned and in a random world.

    Args:
        arrays: the arrays of a run of `sibrepro.studies.theory.worlds`.
    """
    lines = {
        "popeb": (BLUE, "-", "(popeb)"),
        "ibt": (ORANGE, "--", r"(ibt): $I_q + H_{q,p}(d|w,t)$"),
        "ib": (GREEN, "-.", r"(ib): $I_q + H_q(d|w,t)$"),
        "information": (GREY, ":", r"$I_q(w;d|t)$"),
    }
    titles = {"aligned": "aligned world: $p$ generates the data", "random": "random world: it does not"}
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharex=True)
    for axis, (kind, title) in zip(axes, titles.items(), strict=True):
        for name, (colour, dashes, label) in lines.items():
            curve = arrays[f"path/{kind}/{name}"]
            axis.plot(arrays["path/beta"], curve, color=colour, ls=dashes, lw=2.2, label=label)
        axis.axvline(1, color=GREY, lw=0.8)
        axis.annotate(r" $p(w|d,t)$", (1, axis.get_ylim()[1]), va="top", color=INK)
        axis.set(xscale="log", xlabel=r"$\beta$ in $q(w|d,t) \propto p(w)\, p(d|w,t)^\beta$", title=title)
    axes[0].set_ylabel("nats")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=4)
    return figure


def gap_against_bound(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draw the generalisation gap against the bound of Theorem 2.

    On the left is every random world. On the right is the family of coins, from the limit in which Theorem 2 is an
    equality to empirical risk minimisation (ERM).

    Args:
        arrays: the arrays of a run of `sibrepro.studies.theory.worlds`.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(1.15, 1))
    order = np.argsort(arrays["determinism"])  # the most deterministic learners are drawn last, on top
    bound, gap, shade = (arrays[name][order] for name in ("theorem", "gap", "determinism"))
    dots = left.scatter(bound, np.abs(gap), c=shade, s=9, cmap="cividis", vmin=0, vmax=1, rasterized=True)
    ends = np.array([bound.min() / 2, bound.max() * 2])
    left.plot(ends, ends, color=RED, lw=1.8, label="equality")
    left.set(xscale="log", yscale="log", xlim=ends, ylim=(1e-6, ends[1]), ylabel=r"$|{\rm gen}(q)|$")
    left.set(
        xlabel=r"the bound, $\sqrt{2\sigma^2 I_q(w;d|t)/n}$", title=f"{len(gap):,} random worlds, none above its bound"
    )
    left.legend(loc="upper left")
    fig.colorbar(dots, ax=left).set_label("dependence of $w$ on $d$, $I_q(w;d|t)/H_q(w|t)$", labelpad=10)
    dashes = ("-", "--", "-.", (0, (1, 1)))
    for n, colour, dash in zip((1, 2, 4, 10), (BLUE, ORANGE, GREEN, PURPLE), dashes, strict=True):
        right.plot(arrays["coin/beta"], arrays[f"coin/{n}"], color=colour, lw=2.2, ls=dash, label=f"$n = {n}$")
    right.axhline(1, color=RED, lw=1.8)
    limit = np.sqrt(1 / (np.pi * np.log(2)))
    right.axhline(limit, color=GREY, lw=1)
    right.annotate(r"ERM, $n\to\infty$: $1/\sqrt{\pi\ln 2}$", (0.012, limit + 0.006), color=INK)
    right.set(xscale="log", ylim=(0.55, 1.03), xlabel=r"$\beta$ in $q(w|d) \propto \exp(\beta\, w\, \Sigma_i z_i)$")
    right.set(ylabel=r"$|{\rm gen}|$ / bound", title="$n$ fair coins, $\\ell = -wz$: tight for small $\\beta$")
    right.legend(loc="lower left", ncol=2)
    return fig


def corollary(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draw the objective, the bounds of the corollary and its regulariser for three biased coins, over n.

    Args:
        arrays: the arrays of a run of `sibrepro.studies.theory.worlds`.
    """
    sizes, term = arrays["corollary/n"], r"\frac{n}{2\sigma^2}{\rm gen}^2"
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6))
    objective, risk, weight = (arrays[f"corollary/sum/{name}"] for name in ("objective", "risk", "regulariser"))
    left.plot(sizes, objective, color=BLUE, lw=2.2, label="(popeb)")
    left.plot(sizes, weight + sizes * risk, color=ORANGE, lw=2.2, ls="--", label=rf"${term} + n\,\mathbb{{E}}L_t$")
    left.plot(sizes, weight + risk, color=GREEN, lw=2.2, ls="-.", label=rf"as printed: ${term} + \mathbb{{E}}L_t$")
    for reading, words, dashes in (("sum", "plain sum", "-"), ("mean", "$1/n$ of eq. (lik)", "--")):
        information, weight = (arrays[f"corollary/{reading}/{name}"] for name in ("information", "regulariser"))
        right.plot(sizes, information, color=PURPLE, ls=dashes, lw=2, marker="o", label=f"$I_q(w;d|t)$, {words}")
        right.plot(sizes, weight, color=RED, ls=dashes, lw=2, marker="s", label=f"${term}$, {words}")
    titles = "plain sum: objective and lower bounds", "the regulariser shrinks as $n$ grows"
    for axis, title in zip((left, right), titles, strict=True):
        axis.set(xscale="log", yscale="log", xlabel="examples per task, $n = |d|$", ylabel="nats", title=title)
        axis.legend(fontsize=11)
    return figure


def _graphical_model(model: daft.PGM) -> Sketch:
    """Draw part (a) of Figure 1. daft draws the nodes and plates, and we the arrows: those of daft cannot be dashed."""
    nodes = [
        ("phi", r"$\phi$", 1.3, 7.8, POINT),
        ("psi", r"$\psi$", 3.6, 7.8, POINT),
        ("f", "$f$", 6.9, 7.8, POINT),
        ("w", "$w_t$", 3.6, 5.4, PLAIN),
        ("support", "$d_t^l$", 1.7, 3.4, SEEN),
        ("x", "$x_{t,i}$", 4.2, 3.4, SEEN),
        ("y", "$y_{t,i}$", 6.9, 3.4, SEEN),
    ]
    for name, label, x, y, style in nodes:
        model.add_node(name, label, x, y, plot_params=style, fontsize=14)
    plate = {"position": "bottom right", "rect_params": {"ec": GREY, "lw": 1.2, "fill": False}, "fontsize": 12}
    model.add_plate((3.1, 2.0, 4.8, 2.2), "$i = 1, \\ldots, n$", **plate)
    model.add_plate((0.7, 1.2, 7.7, 5.1), "$t = 1, \\ldots, N$", **plate)
    sketch = Sketch(model.render())
    for name, _, x, y, _ in nodes:
        sketch.circle(name, x, y, fc="none", ec="none")  # invisible: where arrows start and end
    sketch.arrows("psi w y", "x y", "f y", **GENERATIVE)
    sketch.arrows("phi w", "support w", "x w", **INFERENCE)
    return sketch


def _unrolled(s: Sketch, source: str, gradient: str) -> None:
    """Draw theta^0 -> theta^1 -> ... -> theta^K and the prediction. The source provides the gradient of each step."""
    s.draw(
        [
            ("source", 4.6, 7.8, source, 6.4, SEEN),
            ("start", 0, 4.9, r"$\theta^0_t$", 0, PLAIN),
            ("first", 2.0, 4.9, gradient, 1.1, PLAIN),
            ("second", 7.2, 4.9, gradient, 1.1, PLAIN),
            ("middle", 4.0, 4.9, r"$\theta^1_t$", 0, PLAIN),
            ("end", 9.2, 4.9, r"$\theta^K_t$", 0, PLAIN),
            ("dots", 5.6, 4.9, r"$\cdots$", 0.9, {"fc": "white", "ec": "white"}),
        ]
    )
    s.arrows("start first middle dots second end", "source first", "source second", **INFERENCE)
    s.draw(
        [
            ("y_hat", 9.2, 2.7, r"$\hat{y}_t$", 1.1, WHITE),
            ("x", 6.9, 2.7, "$x_t$", 0, SEEN),
            ("loss", 9.2, 0.8, r"$\ell_t(\hat{y}_t, y_t)$", 2.2, PLAIN),
            ("y", 6.9, 0.8, "$y_t$", 0, SEEN),
        ]
    )
    s.arrows("end y_hat", "x y_hat", "y_hat loss", "y loss", **GENERATIVE)
