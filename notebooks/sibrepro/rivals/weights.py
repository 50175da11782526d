"""Heads that learn to make a classifier's weights from the support set, in one pass or by gradient steps.

Shapes: B tasks, k ways, m support examples, n queries, d dimensions.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import cosine_step, cosines, unit
from sibrepro.rivals.base import EmbeddingHead, Head, class_means, log_parameter, mean_weights


class DynamicFewShot(Head):
    """Dynamic few-shot learning: a cosine classifier whose weights also attend to learned base classes.

    Spyros Gidaris and Nikos Komodakis. "Dynamic Few-Shot Visual Learning without Forgetting." CVPR 2018.

    w_j = phi_avg * mean_i x_i + phi_att * mean_i sum_b a_ib w_b, with means over the examples i of class j. The
    attention is a_i = softmax_b(gamma cos(phi_q x_i, k_b)), with a key k_b and unit weights w_b for each base class.

    Departure: w_b are learned with the rest. In the publication they are the weights of the network's own first
    classifier.

    Args:
        bases: number of base classes.
    """

    title = "Dynamic few-shot"
    paper = "Gidaris & Komodakis, 2018"
    defaults: ClassVar = {"bases": 64}

    def build(self) -> None:
        self.phi_avg = nn.Parameter(torch.ones(self.dim))
        self.phi_att = nn.Parameter(torch.ones(self.dim))
        self.phi_q = nn.Parameter(torch.eye(self.dim))
        self.keys = nn.Parameter(torch.randn(self.bases, self.dim))
        self.base_weights = nn.Parameter(torch.randn(self.bases, self.dim))
        self.log_gamma, self.log_scale = log_parameter(10.0), log_parameter(10.0)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return self.log_scale.exp() * query @ unit(self.weights(support, one_hot)).mT

    def weights(self, support: Tensor, one_hot: Tensor) -> Tensor:
        """Return the class weights w, `[B, k, d]`."""
        similarity = unit(support @ self.phi_q) @ unit(self.keys).mT
        attended = (self.log_gamma.exp() * similarity).softmax(-1) @ unit(self.base_weights)  # [B, m, d]
        return mean_weights(one_hot) @ (self.phi_avg * support + self.phi_att * attended)


class PredictedParameters(Head):
    """Predicted parameters: a network maps the mean of a class to the weights of a linear classifier.

    Siyuan Qiao, Chenxi Liu, Wei Shen and Alan Yuille. "Few-Shot Image Recognition by Predicting Parameters from
    Activations." CVPR 2018.

    w_j = phi(unit mean of class j), with the same phi for all classes. phi has no bias, which would be the same for all
    logits. It starts as the identity (with 2 layers, on features that are not negative), so training starts from the
    nearest centroid by cosine.

    Departure: phi learns on tasks. In the publication it learns on all base classes at once, from means of random
    subsets of a class.

    Args:
        layers: number of layers of phi, with ReLUs between them. The publication has 1 or 2.
    """

    title = "Predicted parameters"
    paper = "Qiao et al., 2018"
    defaults: ClassVar = {"layers": 1}

    def build(self) -> None:
        layers = []
        for _ in range(self.layers):
            layer = nn.Linear(self.dim, self.dim, bias=False)
            nn.init.eye_(layer.weight)
            layers += [layer, nn.ReLU()]
        self.phi = nn.Sequential(*layers[:-1])
        self.log_scale = log_parameter(10.0)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        w = self.phi(unit(class_means(support, one_hot)))
        return self.log_scale.exp() * query @ w.mT


class MAML(EmbeddingHead):
    """MAML: a classifier that a few gradient steps on the support set adapt, from a learned start.

    Chelsea Finn, Pieter Abbeel and Sergey Levine. "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks."
    ICML 2017.

    theta_j <- theta_j - rate_s grad_j, where grad is the gradient of the mean cross-entropy of softmax(scale cos(x,
    theta)) on the support set. The learned parameters are the start, which is one vector for all classes because their
    order means nothing, the learning rate of every step, the scale and an embedding. The gradient has a closed form,
    and training differentiates through all steps (second order).

    Departures: the steps change only the classifier, as in ANIL (Raghu et al., "Rapid Learning or Feature Reuse?", ICLR
    2020), whereas the publication adapts all layers of a network. Its learning rate is one constant.

    Args:
        steps: number of gradient steps.
        width: hidden units of the embedding.
    """

    title = "MAML"
    paper = "Finn et al., 2017"
    defaults: ClassVar = {"steps": 5, "width": 64}

    def build(self) -> None:
        super().build()
        self.start = nn.Parameter(torch.full((self.dim,), self.dim**-0.5))
        self.log_rates = nn.Parameter(torch.zeros(self.steps))

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        scale = self.log_scale.exp()
        theta = self.start.expand(len(query), self.ways, -1)
        for rate in self.log_rates.exp():
            cosine, norm = cosines(support, theta)
            error = scale * ((scale * cosine).softmax(1) - one_hot) / support.shape[1]
            theta = cosine_step(theta, theta, norm, support, cosine, rate * error)
        return scale * cosines(query, theta)[0].mT


class LEO(Head):
    """LEO: latent embedding optimisation, which takes gradient steps on a low-dimensional code of the classifier.

    Andrei A. Rusu, Dushyant Rao, Jakub Sygnowski, Oriol Vinyals, Razvan Pascanu, Simon Osindero and Raia Hadsell.
    "Meta-Learning with Latent Embedding Optimization." ICLR 2019.

    The class weights are w_j = decode(z_j). At first the code z_j is the mean of relation(encode x_i, encode x_i') over
    examples i of class j and i' of all classes. Then z_j follows the gradient of the cross-entropy on the support set,
    and finally w_j does. As published, encoder and decoder are linear, so the steps have a closed form and autograd
    alone gives the second order. The step sizes alpha (of codes) and beta (of weights) are learned.

    Departure: codes and weights are the means of the published Gaussians instead of samples from them, so the penalties
    and dropout are left out.

    Args:
        code: dimension of the codes.
        steps: gradient steps on the codes.
        weight_steps: gradient steps on the weights.
    """

    title = "LEO"
    paper = "Rusu et al., 2019"
    defaults: ClassVar = {"code": 64, "steps": 5, "weight_steps": 5}

    def build(self) -> None:
        code, wide = self.code, 2 * self.code
        self.encode = nn.Linear(self.dim, code, bias=False)
        self.decode = nn.Linear(code, self.dim, bias=False)
        nn.init.orthogonal_(self.decode.weight)
        hidden = [nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU()]
        self.relation = nn.Sequential(*hidden, nn.Linear(wide, code, bias=False))
        nn.init.normal_(self.relation[-1].weight, std=0.01)  # from codes near 0 the first step is to the class means
        self.log_alpha, self.log_beta, self.log_scale = log_parameter(0.03), log_parameter(0.3), log_parameter(10.0)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        z = self.codes(support, one_hot)
        for _ in range(self.steps):
            z = z - self.log_alpha.exp() * self.gradient(self.decode(z), support, one_hot) @ self.decode.weight
        w = self.decode(z)
        for _ in range(self.weight_steps):
            w = w - self.log_beta.exp() * self.gradient(w, support, one_hot)
        return self.classify(query, w)

    def codes(self, support: Tensor, one_hot: Tensor) -> Tensor:
        """Return the codes z before the steps.

        Args:
            support: support features, `[B, m, d]`.
            one_hot: their labels, `[B, k, m]`.

        Returns:
            z, `[B, k, code]`.
        """
        own = self.encode(support)
        pairs = torch.cat(torch.broadcast_tensors(own.unsqueeze(2), own.unsqueeze(1)), -1)  # [B, m, m, 2 code]
        return mean_weights(one_hot) @ self.relation(pairs).mean(2)

    def gradient(self, w: Tensor, support: Tensor, one_hot: Tensor) -> Tensor:
        """Return the gradient `[B, k, d]` with respect to w of the mean cross-entropy on the support set."""
        error = self.classify(support, w).softmax(-1).mT - one_hot
        return self.log_scale.exp() / support.shape[1] * error @ support

    def classify(self, features: Tensor, w: Tensor) -> Tensor:
        """Return the logits `[B, n, k]` of features `[B, n, d]` under class weights w `[B, k, d]`."""
        return self.log_scale.exp() * features @ w.mT
