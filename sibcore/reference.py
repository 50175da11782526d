"""SIB as the paper prints it: one task, plain autograd, nothing clever. Everything faster is tested against this file.

d^l = (support, y_l) is the support set, x the features of the n queries, y their labels. w(theta, epsilon) is a draw
from q_theta, y^ the predictions with it, l their loss, lambda the initialisation, xi the synthetic gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import grad

from sibcore.sib import SIB
from sibcore.xi import Context, MLPXi, Xi

Predict = Callable[[Tensor, int], Tensor]  # (theta, k) -> y^ with w(theta, epsilon^k), the examples in front
Function = Callable[[Tensor], Tensor]


class Step(NamedTuple):
    theta: Tensor  # theta^k
    y_hat: Tensor  # y^, the predictions there
    dl_dy: Tensor  # xi(y^) in eq. (sib), dl/dy^ itself in eq. (maml)


@torch.enable_grad()
def sib_steps(
    theta: Tensor, predict: Predict, xi: Function, eta: float, K: int, kl: Function | None = None, mean: bool = True
) -> list[Step]:
    """theta^{k+1} = theta^k - eta [1/n sum_i xi(y^_i) dy^_i/dw dw/dtheta + grad KL(q_theta^k || p_psi)]     eq. (sib)

    from theta^0 = `theta`, for k = 0, ..., K. `mean=False` leaves out the 1/n, as the paper's toy and the authors' code
    do.
    """
    steps = []
    for k in range(K + 1):
        y_hat = predict(theta.requires_grad_(), k)
        steps.append(Step(theta, y_hat, xi(y_hat)))
        gradient = grad(y_hat, theta, steps[k].dl_dy, create_graph=True)[0] / (len(y_hat) if mean else 1)
        if kl:
            gradient = gradient + grad(kl(theta), theta, create_graph=True)[0]
        theta = theta - eta * gradient
    return steps


@torch.enable_grad()
def maml_steps(theta: Tensor, predict: Predict, loss: Function, eta: float, K: int) -> list[Step]:
    """theta^{k+1} = theta^k + eta grad log p(d^l | w)     eq. (maml), with loss(y^) = -log p(d^l | w)."""
    steps = []
    for k in range(K + 1):
        y_hat = predict(theta.requires_grad_(), k)
        dl_dy, gradient = grad(loss(y_hat), (y_hat, theta), create_graph=True)
        steps.append(Step(theta, y_hat, dl_dy))
        theta = theta - eta * gradient
    return steps


def initialise(support: Tensor, y_l: Tensor, weight: Tensor) -> Tensor:
    """lambda(d^l) [k, d]: features "averaged in terms of their labels and then scaled by a learnable vector"."""
    support = F.normalize(support, dim=-1)
    return torch.stack([support[y_l == j].mean(0) for j in range(int(y_l.max()) + 1)]) * weight


def classify(sib: SIB, x: Tensor, w: Tensor) -> Tensor:
    """y^ [n, k]: scaled cosines of the features with the weights of each class."""
    return sib.scale * (sib.bias + F.normalize(x, dim=-1) @ F.normalize(w, dim=-1).T)


def synthesise(xi: Xi, y_hat: Tensor, context: Context | None = None) -> Tensor:
    """Return xi(y^) [n, k]: the paper's xi layer by layer, any other by calling it.

    The authors' code normalises after each ReLU, over the queries of the task.
    """
    if not isinstance(xi, MLPXi):
        return xi(y_hat[None], context)[0]
    *hidden, last = xi.layers
    for i, layer in enumerate(hidden):
        y_hat = F.relu(layer(y_hat))
        if xi.normalise == "task":
            y_hat = F.batch_norm(y_hat, None, None, xi.gains[i], xi.shifts[i], training=True)
    return last(y_hat)


def few_shot_steps(
    sib: SIB, support: Tensor, y_l: Tensor, x: Tensor, epsilon: Tensor | None = None
) -> tuple[list[Step], Tensor]:
    """The steps of a few-shot task with the parameters of `sib`, and the final w; epsilon is noise [K+1, k, d]."""

    def w(theta: Tensor, k: int) -> Tensor:
        return theta if epsilon is None else theta + sib.sigma * epsilon[k]

    def predict(theta: Tensor, k: int) -> Tensor:
        return classify(sib, x if sib.transductive else support, w(theta, k))

    f, f_l = F.normalize(x, dim=-1)[None], F.normalize(support, dim=-1)[None]
    context = Context(f @ f.mT, f @ f_l.mT, y_l[None])

    def xi(y_hat: Tensor) -> Tensor:
        return synthesise(sib.xi, y_hat, context)

    def kl(theta: Tensor) -> Tensor:
        return sib.kl_weight * sib.kl(theta[None]).sum()

    def loss(y_hat: Tensor) -> Tensor:
        return F.cross_entropy(y_hat, y_l, reduction=sib.reduction)

    theta, mean = initialise(support, y_l, sib.prototype_weight), sib.reduction == "mean"
    if sib.transductive:
        steps = sib_steps(theta, predict, xi, sib.eta, sib.steps, kl if sib.kl_weight else None, mean)
    else:
        steps = maml_steps(theta, predict, loss, sib.eta, sib.steps)
    return steps, w(steps[-1].theta, -1)


def algorithm_1(sib: SIB, tasks: Iterable[tuple], lr: float) -> None:
    """Algorithm 1: for each task (support, y_l, x, y, epsilon) a step of gradient descent on eq. (avi), in place.

    phi = (lambda, xi) and psi all follow eq. (avi); the algorithm prints psi's step with the KL alone.
    """
    for support, y_l, x, y, epsilon in tasks:
        steps, w = few_shot_steps(sib, support, y_l, x, epsilon)
        loss = F.cross_entropy(classify(sib, x, w), y)  # -log p(d | w), eq. (lik)
        if sib.kl_weight:
            loss = loss + sib.kl_weight * sib.kl(steps[-1].theta[None]).sum()
        parameters = list(sib.parameters())
        gradients = grad(loss, parameters, materialize_grads=True)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= lr * gradient
