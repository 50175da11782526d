"""SIB as a scikit-learn classifier: `SIBClassifier().fit(support, labels).predict(query)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from sibcore import zoo
from sibcore.transduce import Answers, answers
from sibcore.vision.features import encode


class SIBClassifier(ClassifierMixin, BaseEstimator):
    """Few-shot classification of features [n, d], or of images [n, H, W, 3] with a `network`.

    **Transductive**: `fit` keeps the support set, and `predict` adapts to all the queries it is given, together. The
    label of a query depends on its company, so give the whole query set in one call, as varied as you will meet it;
    a query by itself gets the label before adaptation. Classes are taken to be about as frequent as one another among
    the queries; where one makes up most of them, `predict_before` is the safer answer.

    model: a SIB of `sibcore.zoo`; None: the one for any number of classes, for this network or for any features
    network: where X is images: the name of a network of `sibcore.zoo`, or a module from floats [n, 3, H, W] in [0, 1]
        to features [n, d], in which case the images must have the size it is made for
    steps: K, the number of steps; None: as many as the model was trained with; 0: nearest class mean by cosine

    Classes may have different numbers of examples. Features and labels may be numpy arrays, lists or torch tensors.
    """

    def __init__(
        self, model: str | None = None, network: str | nn.Module | None = None, steps: int | None = None
    ) -> None:
        self.model = model
        self.network = network
        self.steps = steps

    def fit(self, X: Any, y: Any) -> SIBClassifier:
        """Keep the support set: X [m, d] or images, y [m] labels of any kind that can be sorted."""
        features, labels = validate_data(self, self._features(X), _plain(y), dtype=np.float32)
        check_classification_targets(labels)
        self.classes_, self.support_labels_ = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there must be at least 2 classes to tell apart, got 1 class, {self.classes_[0]!r}")
        self.support_ = features
        model = self.model or zoo.ANY_WAY
        self.sib_ = zoo.load_pretrained(model, len(self.classes_), features.shape[1], self.steps).double()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The label of each query, after adapting to all of them."""
        return self._labels(self.answers(X).after)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [n, k] in the order of `classes_`, after adapting to all queries."""
        return self.answers(X).after.numpy()

    def predict_before(self, X: Any) -> np.ndarray:
        """The label of each query before adaptation, by itself: the class whose mean has the largest cosine."""
        return self._labels(self.answers(X).before)

    def answers(self, X: Any) -> Answers:
        """Probabilities [n, k] before and after adaptation, as torch tensors of double precision."""
        check_is_fitted(self)
        query = validate_data(self, self._features(X), dtype=np.float32, reset=False)
        support, query = (torch.from_numpy(array).double() for array in (self.support_, query))
        return answers(self.sib_, support, torch.from_numpy(self.support_labels_), query)

    def _labels(self, probabilities: Tensor) -> np.ndarray:
        return self.classes_[probabilities.argmax(1).numpy()]

    def _features(self, X: Any) -> Any:
        if self.network is None:
            return _plain(X)
        network = zoo.load_pretrained(self.network) if isinstance(self.network, str) else self.network
        return encode(network, np.asarray(_plain(X))).numpy()


def _plain(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
