"""SIB as the paper prints it: one episode, plain autograd, nothing clever.

Read this file first. Everything faster is tested against it.

dˡ = (support, y_l) is the support set, x are the features of the n queries and y their labels. w(θ, ε) is a draw from
q_θ, ŷ are the predictions with it, ℓ is their loss, λ the initialisation and ξ the synthetic gradient network.
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
    """What is known at step k.

    Attributes:
        theta: θᵏ.
        y_hat: ŷ, the predictions there.
        dl_dy: ξ(ŷ) in eq. (sib), dℓ/dŷ itself in eq. (maml).
    """

    theta: Tensor
    y_hat: Tensor
    dl_dy: Tensor


@torch.enable_grad()
def sib_steps(
    theta: Tensor, predict: Predict, xi: Function, eta: float, K: int, kl: Function | None = None, mean: bool = True
) -> list[Step]:
    """Take the steps of eq. (sib), θᵏ⁺¹ = θᵏ − η [1/n Σ_i ξ(ŷ_i) ∂ŷ_i/∂w ∂w/∂θ + ∇ KL(q_θᵏ ‖ p_ψ)].

    Args:
        theta: θ⁰.
        predict: returns ŷ at θ in step k, with the examples in front.
        xi: maps ŷ to its synthetic gradient.
        eta: step size η.
        K: number of steps.
        kl: returns KL(q_θ ‖ p_ψ); None leaves the term out.
        mean: with False the factor 1/n is left out, as in the paper's toy and in the authors' code.

    Returns:
        The steps for k = 0, ..., K.
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
    """Take the steps of eq. (maml), θᵏ⁺¹ = θᵏ + η ∇ log p(dˡ | w), where loss(ŷ) = −log p(dˡ | w)."""
    steps = []
    for k in range(K + 1):
        y_hat = predict(theta.requires_grad_(), k)
        dl_dy, gradient = grad(loss(y_hat), (y_hat, theta), create_graph=True)
        steps.append(Step(theta, y_hat, dl_dy))
        theta = theta - eta * gradient
    return steps


def initialise(support: Tensor, y_l: Tensor, weight: Tensor) -> Tensor:
    """Return λ(dˡ) `[k, d]`: features "averaged in terms of their labels and then scaled by a learnable vector"."""
    support = F.normalize(support, dim=-1)
    return torch.stack([support[y_l == j].mean(0) for j in range(int(y_l.max()) + 1)]) * weight


def classify(sib: SIB, x: Tensor, w: Tensor) -> Tensor:
    """Return ŷ `[n, k]`: the scaled cosines of the features with the weights of each class."""
    return sib.scale * (sib.bias + F.normalize(x, dim=-1) @ F.normalize(w, dim=-1).T)


def synthesise(xi: Xi, y_hat: Tensor, context: Context | None = None) -> Tensor:
    """Return ξ(ŷ) `[n, k]`: the paper's ξ layer by layer, any other by calling it.

    The authors' code normalises after each ReLU, over the queries of the episode.
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
    """Return the steps of one episode with the parameters of `sib`, and the final w.

    Args:
        sib: the model.
        support: features of the support images, `[m, d]`.
        y_l: their labels, `[m]`.
        x: features of the queries, `[n, d]`.
        epsilon: noise `[K+1, k, d]`; None means w = θ.
    """

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
    """Run Algorithm 1: for each task (support, y_l, x, y, ε) one step of gradient descent on eq. (avi), in place.

    φ = (λ, ξ) and ψ all follow eq. (avi). The algorithm prints ψ's step with the KL alone.
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
