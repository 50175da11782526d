"""Methods that adapt a given classifier to an unlabelled minibatch at test time.

The classifier comes as the support set: one feature vector, its class weight, for each class. Each method adapts to one
minibatch by itself, as SIB does. The online methods among them carry nothing over from one minibatch to the next.

Shapes: B minibatches, k classes, n queries, d dimensions.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sibcore.sib import cosine_step, cosines, unit
from sibrepro.rivals.base import Baseline, class_means


class CosineClassifier(Baseline):
    """Cosine classifier without adaptation: logits are scale cos(x, w_j), with the class means as weights.

    Spyros Gidaris and Nikos Komodakis. "Dynamic Few-Shot Visual Learning without Forgetting." CVPR 2018.

    The methods below are subclasses that override `adapted`.

    Args:
        scale: inverse temperature of the predictions.
    """

    title = "cosine classifier"
    paper = "Gidaris & Komodakis, 2018"
    defaults: ClassVar = {"scale": 10.0}
    grid: ClassVar = {"scale": (10.0,)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return self.adapted(unit(class_means(support, one_hot)), query).mT

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        """Return the logits after adaptation to the queries.

        Args:
            weights: class weights of unit length, `[B, k, d]`.
            query: query features of unit length, `[B, n, d]`.

        Returns:
            Logits, `[B, k, n]`.
        """
        return self.classify(weights, query)

    def classify(self, weights: Tensor, query: Tensor) -> Tensor:
        """Return the logits `[B, k, n]` of the queries under these class weights."""
        return self.scale * cosines(query, weights)[0]


class EntropyMinimisation(CosineClassifier):
    """Tent: gradient descent on the mean entropy of the predictions.

    Dequan Wang, Evan Shelhamer, Shaoteng Liu, Bruno Olshausen and Trevor Darrell. "Tent: Fully Test-Time Adaptation by
    Entropy Minimization." ICLR 2021.

    With p = softmax(y), the gradient with respect to the logits is dH/dy_j = -p_j (log p_j + H).

    Departure: the class weights are adapted. The publication adapts the affine parameters of batch normalisation.

    Args:
        scale: inverse temperature of the predictions.
        rate: learning rate.
        steps: number of gradient steps.
    """

    title = "Tent, on the head"
    paper = "Wang et al., 2021"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "rate": 0.1, "steps": 10}
    grid: ClassVar = {"scale": (5.0, 10.0, 20.0), "rate": (0.01, 0.1), "steps": (1, 10)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        for _ in range(self.steps):
            cosine, norm = cosines(query, weights)
            log_p = (self.scale * cosine).log_softmax(1)
            p = log_p.exp()
            entropy = -(p * log_p).sum(1, keepdim=True)
            error = -p * (log_p + entropy) * (self.scale / query.shape[1])
            weights = cosine_step(weights, weights, norm, query, cosine, self.rate * error)
        return self.classify(weights, query)


class ConfidentPrototypes(CosineClassifier):
    """T3A: each class weight becomes the mean of itself and of the queries most confidently predicted as the class.

    Yusuke Iwasawa and Yutaka Matsuo. "Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization."
    NeurIPS 2021.

    Args:
        scale: inverse temperature of the predictions.
        most: largest number of queries that join a class weight.
    """

    title = "T3A"
    paper = "Iwasawa & Matsuo, 2021"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "most": 5}
    grid: ClassVar = {"scale": (10.0,), "most": (1, 5, 20)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        p = self.classify(weights, query).softmax(1)
        best = p.amax(1, keepdim=True)
        confidence = torch.where(p == best, best, 0)  # [B, k, n], 0 unless the class is the predicted one
        least = confidence.topk(min(self.most, query.shape[1]), -1).values[..., -1:]
        taken = ((confidence >= least) & (confidence > 0)).to(query)
        return self.classify(unit(weights + taken @ query), query)


class PseudoLabels(CosineClassifier):
    """Pseudo-labels: each class weight moves towards the mean of the queries that are predicted as the class.

    Dong-Hyun Lee. "Pseudo-Label: The Simple and Efficient Semi-Supervised Learning Method for Deep Neural Networks."
    ICML 2013 Workshop on Challenges in Representation Learning.

    Args:
        scale: inverse temperature of the predictions.
        steps: number of rounds. Each predicts the queries with the weights of the last round.
        trust: weight of the queries' mean beside the given class weight.
    """

    title = "pseudo-labels"
    paper = "Lee, 2013"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "steps": 3, "trust": 0.5}
    grid: ClassVar = {"scale": (10.0,), "steps": (1, 3), "trust": (0.2, 0.5, 0.8)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        moved = weights
        for _ in range(self.steps):
            y = self.classify(moved, query)
            taken = (y == y.amax(1, keepdim=True)).to(query)
            means = unit(taken @ query)  # zero for a class that is predicted for no query
            moved = unit((1 - self.trust) * weights + self.trust * means)
        return self.classify(moved, query)


class PriorCorrection(CosineClassifier):
    """Label shift correction: the class proportions of the minibatch, by EM, replace equal ones.

    Marco Saerens, Patrice Latinne and Christine Decaestecker. "Adjusting the Outputs of a Classifier to New a Priori
    Probabilities: A Simple Procedure." Neural Computation, 2002.

    Args:
        scale: inverse temperature of the predictions.
        steps: number of EM iterations.
    """

    title = "label shift correction"
    paper = "Saerens et al., 2002"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "steps": 20}
    grid: ClassVar = {"scale": (3.0, 5.0, 10.0, 20.0), "steps": (20,)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        y = self.classify(weights, query)
        prior = torch.full_like(y[..., :1], 1 / self.ways)
        for _ in range(self.steps):
            prior = (y + prior.clamp_min(1e-6).log()).softmax(1).mean(-1, keepdim=True)
        return y + prior.clamp_min(1e-6).log()


TEST_TIME: dict[str, type[CosineClassifier]] = {
    "tent": EntropyMinimisation,
    "t3a": ConfidentPrototypes,
    "pseudo-labels": PseudoLabels,
    "label-shift": PriorCorrection,
}
