"""Methods that cluster the queries: class centres move towards the queries, which are assigned to them again.

Shapes: B tasks, k ways, m support examples, n queries, N = m + n points, d dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.sib import unit
from sibrepro.rivals.base import (
    Baseline,
    Head,
    MovingCentres,
    class_mean_coefficients,
    gram,
    mean_weights,
    squared_distances,
)


class SoftKMeans(MovingCentres):
    """Soft k-means: the queries refine the prototypes of the classes as unlabelled examples.

    Mengye Ren, Eleni Triantafillou, Sachin Ravi, Jake Snell, Kevin Swersky, Joshua B. Tenenbaum, Hugo Larochelle and
    Richard S. Zemel. "Meta-Learning for Semi-Supervised Few-Shot Classification." ICLR 2018.

    Each query is assigned softly, z_qj = softmax_j(-scale ||x_q - c_j||^2). Then c_j becomes the mean of its support
    examples and of all queries, weighted by z_qj. This is EM for a mixture of equal spheres, so the likelihood never
    falls. The method assumes that classes are equally frequent among the queries.

    Departures: the publication takes one step, on unlabelled images other than the queries, and has scale = 1 on raw
    features.

    Args:
        scale: inverse width of the spheres. Larger values make the assignments harder.
        steps: number of EM iterations.
    """

    title = "Soft k-means"
    paper = "Ren et al., 2018"
    defaults: ClassVar = {"scale": 10.0, "steps": 20}
    grid: ClassVar = {"scale": (3.0, 5.0, 10.0, 20.0), "steps": (1, 20)}

    def step(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        return mean_weights(self.assignments(A, products, one_hot))

    def assignments(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        """Return the labels of the support set and the assignments z of the queries, `[B, k, N]`."""
        of_queries = self.point_logits(A, products)[..., one_hot.shape[-1] :].softmax(1)
        return torch.cat([one_hot, of_queries], -1)


class ProtoLP(SoftKMeans):
    """protoLP: soft k-means whose assignments are smoothed by label propagation before they move the prototypes.

    Hao Zhu and Piotr Koniusz. "Transductive Few-Shot Learning with Prototype-Based Label Propagation by Iterative Graph
    Refinement." CVPR 2023.

    All points are centred on their mean and scaled to unit length again. The rows of Z [N, k] are the one-hot labels of
    the support set and softmax(-scale ||x_q - c_j||^2) for queries. The graph W = Z D^-1 Z^T, D = diag(sum_i Z_i),
    connects points that share prototypes. Prototypes get the labels

        Y = argmin ||Z_S Y - Y_S||^2 + smoothing tr (Z Y)^T (I - W) (Z Y),

    where S is the support set. This is a k x k linear system. Then c_j moves by the fraction `alpha` towards the mean
    with weights beta Z Y + (1 - beta) Z.

    Departures: the authors' code also reduces features to 40 principal components and scales the first prototypes to
    unit length. The publication has a second variant for balanced queries, with an optimal transport plan for Z and a
    power transform, which is left out.

    Args:
        scale: inverse width of the soft assignments.
        smoothing: weight of the smoothness of labels on the graph.
        alpha: fraction of the way that prototypes move in each step.
        beta: weight of the propagated labels beside the assignments.
        steps: number of iterations.
    """

    title = "protoLP"
    paper = "Zhu and Koniusz, 2023"
    defaults: ClassVar = {"scale": 10.0, "smoothing": 0.05, "alpha": 0.2, "beta": 0.7, "steps": 50}
    grid: ClassVar = {"scale": (5.0, 10.0, 20.0), "smoothing": (0.05, 1.0, 10.0)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        m, points = support.shape[1], torch.cat([support, query], 1)
        points = unit(points - points.mean(1, keepdim=True))
        return super().logits(points[:, :m], one_hot, points[:, m:])

    def step(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        Z = self.assignments(A, products, one_hot)
        weights = self.beta * self.propagate(Z, one_hot) + (1 - self.beta) * Z
        return A + self.alpha * (mean_weights(weights) - A)

    def propagate(self, Z: Tensor, one_hot: Tensor) -> Tensor:
        """Return the propagated labels Z Y of all points.

        Args:
            Z: assignments of all points to prototypes, `[B, k, N]`.
            one_hot: labels of the support set, `[B, k, m]`.

        Returns:
            Labels between 0 and 1, `[B, k, N]`.
        """
        overlap = Z @ Z.mT
        roughness = overlap - overlap / Z.sum(-1).unsqueeze(1) @ overlap  # Z^T (I - W) Z
        counts = torch.diag_embed(one_hot.sum(-1))  # Z_S^T Z_S, and Z_S^T Y_S too
        Y = torch.linalg.solve(counts + self.smoothing * roughness, counts)
        return (Y.mT @ Z).clamp(0, 1)


class PADDLE(Baseline):
    """PADDLE: soft k-means with a penalty on the complexity of the partition, for queries of a few of the classes.

    Segolene Martin, Malik Boudiaf, Emilie Chouzenoux, Jean-Christophe Pesquet and Ismail Ben Ayed. "Towards Practical
    Few-Shot Query Sets: Transductive Minimum Description Length Inference." NeurIPS 2022.

    The assignments u and the centres c minimise

        scale [sum_q u_qj ||x_q - c_j||^2 + the same for the support set with its labels] + sum_q u_qj log u_qj
        - penalty n sum_j pi_j log pi_j,    pi = mean_q u_q.

    Three updates take turns, and none raises the objective: u_q ~ pi^penalty exp(-scale ||x_q - c_j||^2), where the
    concave last term is replaced by its tangent, then pi, then c. Classes with few queries lose them, so balanced
    queries are not assumed. penalty = 0 is soft k-means. penalty = 1, which is lambda = n in the publication, is EM for
    a mixture with free proportions.

    Departure: the publication stretches each dimension to [0, 1] and has scale = 1/2. Unit features need a larger one.

    Args:
        penalty: weight of the complexity of the partition.
        scale: inverse width of the clusters.
        steps: number of iterations.
    """

    title = "PADDLE"
    paper = "Martin et al., 2022"
    transductive = True
    defaults: ClassVar = {"penalty": 1.0, "scale": 40.0, "steps": 100}
    grid: ClassVar = {"penalty": (0.5, 1.0), "scale": (10.0, 20.0, 40.0, 80.0)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        scales, penalties = [self.scale] * self.steps, [self.penalty] * self.steps
        return expectation_maximisation(gram(support, query), one_hot, scales, penalties).mT


class UNEM(Head):
    """UNEM-Gaussian: the iterations of PADDLE unrolled into layers, with learned hyper-parameters.

    Long Zhou, Fereshteh Shakeri, Aymen Sadraoui, Mounir Kaaniche, Jean-Christophe Pesquet and Ismail Ben Ayed. "UNEM:
    UNrolled Generalized EM for Transductive Few-Shot Learning." CVPR 2025.

    Layer l computes u_q ~ exp([penalty_l log pi - scale ||x_q - c_j||^2] / T_l), then pi and the centres as in PADDLE.
    Learned are penalty_l > 0 (how much the balance of classes counts), T_l > 1 (how soft the answers are) and one
    scale > 0: 2 `layers` + 1 numbers. As published, softplus keeps them positive.

    Departures: the logarithm of the scale is learned, because unit features need a large one. The loss is the
    cross-entropy of u, whereas the authors' code takes u itself for logits.

    Args:
        layers: number of unrolled iterations.
        scale: initial value of the scale.
        penalty: initial value of all penalties.
    """

    title = "UNEM"
    paper = "Zhou et al., 2025"
    transductive = True
    defaults: ClassVar = {"layers": 10, "scale": 20.0, "penalty": 1.0}

    def build(self) -> None:
        self.log_scale = nn.Parameter(torch.tensor(math.log(self.scale)))
        self.raw_penalty = nn.Parameter(torch.full((self.layers,), math.log(math.expm1(self.penalty))))
        self.raw_softness = nn.Parameter(torch.full((self.layers,), -2.0))  # T = 1.13: near plain EM

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        T = 1 + F.softplus(self.raw_softness)
        scales, penalties = self.log_scale.exp() / T, F.softplus(self.raw_penalty) / T
        return expectation_maximisation(gram(support, query), one_hot, scales, penalties).mT


def expectation_maximisation(
    products: Tensor, one_hot: Tensor, scales: Iterable[float | Tensor], penalties: Iterable[float | Tensor]
) -> Tensor:
    """Run the iterations of PADDLE with a scale and a penalty for each.

    Args:
        products: inner products of the points, support first, `[B, N, N]`.
        one_hot: labels of the support set, `[B, k, m]`.
        scales: inverse width of the clusters, one for each iteration.
        penalties: weight of the complexity of the partition, one for each iteration.

    Returns:
        Logits of the last assignments of the queries, `[B, k, n]`.
    """
    A, log_pi = class_mean_coefficients(one_hot, products.shape[-1]), 0.0  # equal proportions to begin with
    for scale, penalty in zip(scales, penalties, strict=True):
        logits = penalty * log_pi - scale * squared_distances(A, products)[..., one_hot.shape[-1] :]
        log_u = logits.log_softmax(1)
        log_pi = log_u.logsumexp(-1, keepdim=True)  # log of n pi: the factor n cancels in the softmax
        A = mean_weights(torch.cat([one_hot, log_u.exp()], -1))
    return logits


class OptimalTransportMAP(Baseline):
    """PT-MAP: a power transform of the features, then assignment of queries to classes by optimal transport.

    Yuqing Hu, Vincent Gripon and Stéphane Pateux. "Leveraging the Feature Distribution in Transfer-Based Few-Shot
    Learning." ICANN 2021.

    Features become x^power, scaled to unit length. The support set and the queries are each centred on their own mean
    and scaled again. Two updates take turns. P is the transport plan with the least <P, ||x_q - c_j||^2> - H(P) /
    strength that assigns 1 to every query and n / k to every class (Sinkhorn). Then c_j moves by the fraction `alpha`
    towards the mean of its support examples and of the queries with weights P. The method assumes balanced queries and
    enforces this.

    Departures: negative coordinates keep their sign, |x|^power sign(x). Sinkhorn does not run to convergence: each step
    does a few iterations from where the last one stopped.

    Args:
        strength: inverse of the entropic regularisation of the plan.
        alpha: fraction of the way that centres move in each step.
        power: exponent of the power transform.
        steps: number of moves of the centres.
        sinkhorn: Sinkhorn iterations for each plan.
    """

    title = "PT-MAP"
    paper = "Hu et al., 2021"
    transductive = True
    defaults: ClassVar = {"strength": 10.0, "alpha": 0.2, "power": 0.5, "steps": 20, "sinkhorn": 10}
    grid: ClassVar = {"strength": (5.0, 10.0, 20.0), "alpha": (0.2, 0.4)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        m, products = support.shape[1], gram(self.transform(support), self.transform(query))
        A = class_mean_coefficients(one_hot, products.shape[-1])
        prices = torch.ones_like(one_hot[..., :1])
        for _ in range(self.steps):
            log_plan, prices = self.plan(squared_distances(A, products)[..., m:], prices)
            A = A + self.alpha * (mean_weights(torch.cat([one_hot, log_plan.exp()], -1)) - A)
        return self.plan(squared_distances(A, products)[..., m:], prices)[0].mT

    def transform(self, features: Tensor) -> Tensor:
        """Return the transformed and centred features, `[B, n, d]`: their distribution is closer to a Gaussian."""
        powered = unit(features.abs().pow(self.power) * features.sign())
        return unit(powered - powered.mean(1, keepdim=True))

    def plan(self, cost: Tensor, prices: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the transport plan by Sinkhorn's iterations.

        Args:
            cost: squared distances of queries to centres, `[B, k, n]`.
            prices: Sinkhorn's scaling factors of the classes to begin with, `[B, k, 1]`.

        Returns:
            The logarithm of the plan, `[B, k, n]`, and the final scaling factors, `[B, k, 1]`.
        """
        n = cost.shape[-1]
        least = 4 * math.log(torch.finfo(cost.dtype).eps)  # negligible as a logarithm, but its exp does not underflow
        log_kernel = (self.strength * (cost.amin(1, keepdim=True) - cost)).clamp_min(least)
        kernel = log_kernel.exp()
        for _ in range(self.sinkhorn):
            of_query = (kernel * prices).sum(1, keepdim=True)
            prices = n / self.ways / (kernel / of_query).sum(-1, keepdim=True)
        return (log_kernel + prices.log()).log_softmax(1), prices
