"""Heads that learn to make a classifier's weights from the support set, at once or by steps from a learned start."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import class_means, cosine_step, cosines, unit
from sibrepro.rivals.base import Embedding, Head, shares


class DynamicFewShot(Head):
    """A cosine classifier, w_j = phi_avg * mean_i x_i + phi_att * mean_i sum_b a_ib w_b over the examples i of class j.

    a_i = softmax_b(gamma cos(phi_q x_i, k_b)), with a key k_b and unit weights w_b for each of the base classes.
    Left out: w_b are there the weights of the network's own first classifier, here vectors learned with the rest.
    """

    title = "Dynamic few-shot"
    paper = "Gidaris & Komodakis, 2018"
    defaults: ClassVar = {"bases": 64}

    def build(self) -> None:
        self.phi_avg, self.phi_att = (nn.Parameter(torch.ones(self.dim)) for _ in range(2))
        self.phi_q = nn.Parameter(torch.eye(self.dim))
        self.keys, self.base_weights = (nn.Parameter(torch.randn(self.bases, self.dim)) for _ in range(2))
        self.log_gamma, self.log_scale = (nn.Parameter(torch.tensor(10.0).log()) for _ in range(2))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        return self.log_scale.exp() * query @ unit(self.weights(support, support_labels)).mT

    def weights(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """w [B, k, d] of unit features [B, m, d]."""
        closeness = unit(support @ self.phi_q) @ unit(self.keys).mT
        attended = (self.log_gamma.exp() * closeness).softmax(-1) @ unit(self.base_weights)  # [B, m, d]
        return self.centres(self.phi_avg * support + self.phi_att * attended, support_labels)


class PredictedParameters(Head):
    """A linear classifier whose weights are w_j = phi(unit mean of class j), with the same phi for all classes.

    phi has 1 layer, or 2 with a ReLU between, and no bias, which would be the same for all logits. It starts as the
    identity (with 2 layers, on features that are not negative): the nearest centroid by cosine.
    Left out: phi learns there on all base classes at once, from means of random subsets of a class; here on tasks.
    """

    title = "Predicted parameters"
    paper = "Qiao et al., 2018"
    defaults: ClassVar = {"layers": 1}

    def build(self) -> None:
        layers = [nn.Linear(self.dim, self.dim, bias=False) for _ in range(self.layers)]
        for layer in layers:
            nn.init.eye_(layer.weight)
        self.phi = nn.Sequential(layers[0], *(part for layer in layers[1:] for part in (nn.ReLU(), layer)))
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        w = self.phi(unit(class_means(support, support_labels, self.ways)[0]))
        return self.log_scale.exp() * query @ w.mT


class MAML(Head):
    """theta_j <- theta_j - rate_s grad_j of the mean cross-entropy of softmax(scale cos(x, theta)) on the support set.

    The start, one vector for all classes (their order means nothing), the rate of every step, the scale and an
    embedding are learned, through all steps: the gradient is written in closed form, so that training differentiates
    it once more (second order). Left out on frozen features: the steps change the classifier alone, as in ANIL (Raghu
    et al., 2020), where the publication takes them in all layers of a network; its rate is one constant.
    """

    title = "MAML"
    paper = "Finn et al., 2017"
    defaults: ClassVar = {"steps": 5, "width": 64}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.start = nn.Parameter(torch.full((self.dim,), self.dim**-0.5))
        self.log_rates = nn.Parameter(torch.ones(self.steps).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query, scale = self.embed(support), self.embed(query), self.log_scale.exp()
        right = self.membership(support, support_labels)
        theta = self.start.expand(len(query), self.ways, -1)
        for rate in self.log_rates.exp():
            cosine, norm = cosines(support, theta)
            error = scale * ((scale * cosine).softmax(1) - right) / support.shape[1]
            theta = cosine_step(theta, theta, norm, support, cosine, rate * error)
        return scale * cosines(query, theta)[0].mT


class LEO(Head):
    """Latent embedding optimisation: w_j = decode(z_j), where steps are taken on a short code of the classifier.

    z_j comes from the support set, and follows the gradient of its cross-entropy; then w_j does. At first z_j is the
    mean over examples i of class j and i' of all classes of relation(encode x_i, encode x_i'). Encoder and decoder
    are linear, as published, so the steps have a closed form and autograd alone gives the second order. Step sizes
    alpha (of codes) and beta (of weights) are learned.
    Left out: codes and weights are their means, not drawn from Gaussians, and so the penalties and dropout go.
    """

    title = "LEO"
    paper = "Rusu et al., 2019"
    defaults: ClassVar = {"code": 64, "steps": 5, "weight_steps": 5}

    def build(self) -> None:
        code, wide = self.code, 2 * self.code
        self.encode, self.decode = nn.Linear(self.dim, code, bias=False), nn.Linear(code, self.dim, bias=False)
        nn.init.orthogonal_(self.decode.weight)
        hidden = [nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU()]
        self.relation = nn.Sequential(*hidden, nn.Linear(wide, code, bias=False))
        nn.init.normal_(self.relation[-1].weight, std=0.01)  # from codes near 0 the first step is to the class means
        self.log_alpha, self.log_beta, self.log_scale = (
            nn.Parameter(torch.tensor(math.log(start))) for start in (0.03, 0.3, 10.0)
        )

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        right = self.membership(support, support_labels)
        z = self.codes(support, right)
        for _ in range(self.steps):
            z = z - self.log_alpha.exp() * self.gradient(self.decode(z), support, right) @ self.decode.weight
        w = self.decode(z)
        for _ in range(self.weight_steps):
            w = w - self.log_beta.exp() * self.gradient(w, support, right)
        return self.classify(query, w)

    def codes(self, support: Tensor, right: Tensor) -> Tensor:
        """z [B, k, code] before the steps, of features [B, m, d] whose classes are right [B, k, m]."""
        own = self.encode(support)
        pairs = torch.cat(torch.broadcast_tensors(own.unsqueeze(2), own.unsqueeze(1)), -1)  # [B, m, m, 2 code]
        return shares(right) @ self.relation(pairs).mean(2)

    def gradient(self, w: Tensor, support: Tensor, right: Tensor) -> Tensor:
        """d/dw [B, k, d] of the mean cross-entropy of the support set."""
        error = self.classify(support, w).softmax(-1).mT - right
        return self.log_scale.exp() / support.shape[1] * error @ support

    def classify(self, features: Tensor, w: Tensor) -> Tensor:
        return self.log_scale.exp() * features @ w.mT
