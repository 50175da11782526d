"""The paper's Figures 1 and 2, drawn by code. One unit of every coordinate is a centimetre."""

from __future__ import annotations

from itertools import pairwise

import daft
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch, Patch
from matplotlib.path import Path

from sibrepro.plots import GREEN, GREY, RED

GENERATIVE, INFERENCE = RED, GREEN  # as in the paper's text, and solid or dashed as in its caption
INK, PALE, GIVEN = "#222222", "#f4f4f4", "#dddddd"
CM = 1 / 2.54
ARROW = {"arrowstyle": "-|>", "mutation_scale": 13, "lw": 1.5, "zorder": 2}


class Sketch:
    """Boxes, circles and arrows on an axes."""

    def __init__(self, ax: Axes):
        self.ax = ax

    def circle(self, x: float, y: float, label: str, *, fill: str = "white", edge: str = INK, dashed: bool = False):
        return self._add(Ellipse((x, y), 1.15, 1.15, fc=fill, ec=edge, lw=1.3, ls=_dash(dashed), zorder=3), label, 14)

    def box(self, x: float, y: float, label: str, width: float, *, fill: str = PALE, edge: str = INK, height=1.0):
        corner = (x - width / 2, y - height / 2)
        style = "round,pad=0,rounding_size=0.15"
        return self._add(FancyBboxPatch(corner, width, height, style, fc=fill, ec=edge, lw=1.3, zorder=3), label, 12)

    def frame(self, x: float, y: float, width: float, height: float, label: str) -> None:
        self.ax.add_patch(
            FancyBboxPatch((x, y), width, height, "round,pad=0,rounding_size=0.2", fc="none", ec=GREY, lw=1.2, zorder=1)
        )
        self.ax.text(x + 0.2, y + 0.15, label, ha="left", va="bottom", fontsize=12, color=INK)

    def arrow(self, start: Patch, end: Patch, *, colour: str = INK, dashed: bool = False, bend: str = "arc3") -> None:
        ends = {"patchA": start, "patchB": end, "shrinkA": 1, "shrinkB": 1, "connectionstyle": bend}
        look = {"color": colour, "ls": _dash(dashed)}
        self.ax.add_patch(FancyArrowPatch(_centre(start), _centre(end), **ends, **look, **ARROW))

    def bridge(self, start: Patch, end: Patch, height: float) -> None:
        """An arrow from box to box that passes over what lies between, at `height`."""
        (x0, y0), (x1, y1) = _centre(start), _centre(end)
        half = start.get_height() / 2
        path = Path([(x0, y0 + half), (x0, height), (x1, height), (x1, y1 + half + 0.05)])
        self.ax.add_patch(FancyArrowPatch(path=path, color=INK, **ARROW))

    def text(self, x: float, y: float, words: str, size: float = 12, **how) -> None:
        self.ax.text(x, y, words, ha="center", va="center", fontsize=size, color=how.pop("color", INK), **how)

    def _add(self, patch: Patch, label: str, size: float) -> Patch:
        self.ax.add_patch(patch)
        self.text(*_centre(patch), label, size, zorder=4)
        return patch


def figure_1() -> Figure:
    """(a) The empirical Bayes model, (b) MAML and (c) SIB."""
    model = daft.PGM(shape=(33, 9.6), origin=(0, 0), grid_unit=1, node_unit=1.15, line_width=1.3)
    sketch = _graphical_model(model)
    ax = sketch.ax
    titles = ("(a) empirical Bayes", "(b) MAML: inductive", "(c) SIB: transductive")
    for x, title in zip((4.5, 15.2, 26.8), titles, strict=True):
        sketch.text(x, 9.2, title, 15)
    for y, words, colour, dashed in ((0.75, "generative", GENERATIVE, False), (0.3, "inference", INFERENCE, True)):
        ax.plot((1.0, 2.0), (y, y), color=colour, lw=1.8, ls=_dash(dashed))
        ax.text(2.2, y, words, va="center", fontsize=11, color=INK)
    sketch.circle(5.4, 0.5, "", dashed=True).set(width=0.5, height=0.5)
    ax.text(5.8, 0.5, "meta-parameter (point)", va="center", fontsize=11, color=INK)
    _maml(sketch, 10.4)
    _sib(sketch, 22.0)
    model.figure.set_layout_engine("none")
    return model.figure


def figure_2() -> Figure:
    """The computation graph of the negative ELBO; the input and the output of xi in red."""
    fig, ax = plt.subplots(figsize=(31.0 * CM, 10.9 * CM))
    ax.set(xlim=(0, 31.0), ylim=(0, 10.9))
    ax.set_axis_off()
    s = Sketch(ax)
    hot = {"edge": RED, "fill": "#fbe9e0"}

    s.frame(10.2, 1.2, 11.0, 7.8, r"$k = 0, \ldots, K-1$")
    x, support = s.circle(1.0, 7.6, "$x_t$", fill=GIVEN), s.circle(1.0, 3.2, "$d_t^l$", fill=GIVEN)
    f_x, f_d = s.box(3.1, 7.6, "$f$", 1.1), s.box(3.1, 3.2, "$f$", 1.1)
    features = s.box(5.4, 7.6, "$f(x_t)$", 1.6, fill="white")
    detach_x, detach_d = s.box(8.2, 7.6, "detach()", 2.2), s.box(5.6, 3.2, "detach()", 2.2)
    initial = s.box(8.4, 3.2, r"$\lambda$", 1.1)

    y_k = s.box(12.4, 7.6, r"$\hat{y}_t = \hat{y}(f(x_t), w_t)$", 3.7, **hot)
    xi = s.box(16.0, 7.6, r"$\xi$", 1.1)
    out = s.box(19.0, 7.6, r"$\xi(\hat{y}_t)\approx\partial\ell_t/\partial\hat{y}_t$", 3.5, **hot)
    w_k = s.box(12.4, 5.4, r"$w_t(\theta_t^k, \epsilon)$", 2.3, fill="white")
    noise = s.circle(16.0, 5.4, r"$\epsilon$")
    theta_k = s.circle(12.4, 3.2, r"$\theta_t^k$")
    kl_k = s.box(15.7, 3.2, r"$\nabla D_{\rm KL}(q_{\theta_t^k}\|p_\psi)$", 3.3, fill="white")
    step = s.box(19.0, 3.2, r"step $-\eta[\cdot]$", 2.3)

    theta = s.circle(23.0, 3.2, r"$\theta_t^K$")
    w = s.box(23.0, 5.4, r"$w_t(\theta_t^K, \epsilon)$", 2.3, fill="white")
    y_hat = s.box(23.0, 7.6, r"$\hat{y}_t$", 1.1, fill="white")
    y = s.circle(26.4, 10.0, "$y_t$", fill=GIVEN)
    loss = s.box(26.4, 7.6, r"$\ell_t(\hat{y}_t, y_t)$", 2.2)
    kl = s.box(26.4, 3.2, r"$D_{\rm KL}(q_{\theta_t^K}\|p_\psi)$", 3.0)
    psi = s.circle(22.8, 0.75, r"$\psi$", dashed=True)
    total = s.circle(26.4, 5.4, "$+$")
    elbo = s.box(29.4, 5.4, "$-$ELBO", 2.1, fill="white")

    chain = (x, f_x, features, detach_x, y_k, xi, out, step, theta), (support, f_d, detach_d, initial, theta_k)
    for nodes in (*chain, (theta_k, w_k, y_k), (theta, w, y_hat, loss, total, elbo), (noise, w_k), (theta, kl, total)):
        for start, end in pairwise(nodes):
            s.arrow(start, end)
    for start, end in ((theta_k, kl_k), (kl_k, step), (y, loss), (psi, kl)):
        s.arrow(start, end)
    s.arrow(psi, kl_k, bend="arc3,rad=-0.12")
    s.arrow(step, theta_k, bend="arc3,rad=-0.32")
    s.text(15.9, 1.62, r"$\theta_t^{k+1}$", 13, bbox={"fc": "white", "ec": "none", "pad": 1})
    s.bridge(features, y_hat, 9.45)
    s.text(14.2, 9.8, "the only path on which the loss reaches $f$", 11, color=GREY)
    return fig


def _graphical_model(model: daft.PGM) -> Sketch:
    """Nodes and plates by daft; the arrows are ours, because those of daft cannot be dashed."""
    point, seen = {"ls": "dashed"}, {"fc": GIVEN}
    nodes = {
        "phi": (r"$\phi$", 1.3, 7.8, point),
        "psi": (r"$\psi$", 3.6, 7.8, point),
        "f": ("$f$", 6.9, 7.8, point),
        "w": ("$w_t$", 3.6, 5.4, {}),
        "support": ("$d_t^l$", 1.7, 3.4, seen),
        "x": ("$x_{t,i}$", 4.2, 3.4, seen),
        "y": ("$y_{t,i}$", 6.9, 3.4, seen),
    }
    for name, (label, x, y, look) in nodes.items():
        model.add_node(name, label, x, y, plot_params=look, fontsize=14)
    line = {"ec": GREY, "lw": 1.2, "fill": False}
    model.add_plate((3.1, 2.0, 4.8, 2.2), "$i = 1, \\ldots, n$", position="bottom right", rect_params=line, fontsize=12)
    model.add_plate((0.7, 1.2, 7.7, 5.1), "$t = 1, \\ldots, N$", position="bottom right", rect_params=line, fontsize=12)
    sketch = Sketch(model.render())
    at = {name: sketch.circle(x, y, "", fill="none", edge="none") for name, (_, x, y, _) in nodes.items()}
    for start, end in (("psi", "w"), ("w", "y"), ("x", "y"), ("f", "y")):
        sketch.arrow(at[start], at[end], colour=GENERATIVE)
    for start, end in (("phi", "w"), ("support", "w"), ("x", "w")):
        sketch.arrow(at[start], at[end], colour=INFERENCE, dashed=True)
    return sketch


def _maml(s: Sketch, x: float) -> None:
    source = s.box(x + 4.6, 7.8, "support set $d_t^l$ (labelled)", 6.4, fill=GIVEN)
    start = s.circle(x, 4.9, r"$\theta^0_t$")
    s.text(x, 3.95, r"$=\phi$", 13)
    _unrolled(s, x, start, source, r"$\nabla\ell$")


def _sib(s: Sketch, x: float) -> None:
    source = s.box(x + 4.6, 7.8, "query inputs $x_t$ (unlabelled)", 6.4, fill=GIVEN)
    support = s.circle(x, 7.8, "$d_t^l$", fill=GIVEN)
    start = s.circle(x, 4.9, r"$\theta^0_t$")
    network = s.box(x, 6.4, r"$\lambda$", 0.9, height=0.7)
    s.arrow(support, network, colour=INFERENCE, dashed=True)
    s.arrow(network, start, colour=INFERENCE, dashed=True)
    _unrolled(s, x, start, source, r"$\xi$")


def _unrolled(s: Sketch, x: float, start: Patch, source: Patch, gradient: str) -> None:
    """theta^0 -> theta^1 -> ... -> theta^K, each step by a gradient that `source` provides, then the prediction."""
    first, second = s.box(x + 2.0, 4.9, gradient, 1.1), s.box(x + 7.2, 4.9, gradient, 1.1)
    middle, end = s.circle(x + 4.0, 4.9, r"$\theta^1_t$"), s.circle(x + 9.2, 4.9, r"$\theta^K_t$")
    dots = s.box(x + 5.6, 4.9, r"$\cdots$", 0.9, fill="white", edge="white")
    path = (start, first, middle, dots, second, end)
    for one, other in pairwise(path):
        s.arrow(one, other, colour=INFERENCE, dashed=True)
    for step in (first, second):
        s.arrow(source, step, colour=INFERENCE, dashed=True)
    y_hat = s.box(x + 9.2, 2.7, r"$\hat{y}_t$", 1.1, fill="white")
    x_t = s.circle(x + 6.9, 2.7, "$x_t$", fill=GIVEN)
    loss = s.box(x + 9.2, 0.8, r"$\ell_t(\hat{y}_t, y_t)$", 2.2)
    y_t = s.circle(x + 6.9, 0.8, "$y_t$", fill=GIVEN)
    for one, other in ((end, y_hat), (x_t, y_hat), (y_hat, loss), (y_t, loss)):
        s.arrow(one, other, colour=GENERATIVE)


def _centre(patch: Patch) -> tuple[float, float]:
    if isinstance(patch, Ellipse):
        return patch.center
    return patch.get_x() + patch.get_width() / 2, patch.get_y() + patch.get_height() / 2


def _dash(dashed: bool) -> str:
    return "--" if dashed else "-"
