"""SIB as a classifier in scikit-learn's style: `SIBClassifier().fit(support, labels).predict(query)`.

The class keeps to scikit-learn's conventions without inheriting from it, so that it works where scikit-learn is not
installed. Where it is, its own functions check the input, and tools such as `Pipeline` and `cross_val_score` take it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sibcore import zoo
from sibcore.apply.table import as_csv
from sibcore.files import write_atomically
from sibcore.transduce import Answers, answers
from sibcore.vision.features import encode


class SIBClassifier:
    """Few-shot classification of features `[n, d]`, or of images `[n, H, W, 3]` with a `network`.

    **Transductive**: `fit` keeps the support set, and `predict` adapts to all the queries it is given, together. The
    label of a query depends on the other queries, so pass the whole query set in one call. A query by itself gets the
    label before adaptation. The default model was trained on even and on uneven class shares, the 5-way models on even
    shares only. Where one class makes up most of the queries, `predict_before` is the safer answer.

    **Large query sets**: a call needs memory for the features `[n, d]` and about a hundred arrays `[n, k]`, all in
    float64. Images need far more. So do not pass images that do not fit into memory: compute their features part by
    part with `sibcore.vision.features.encode`, and pass the features in one call. If even these are too large, split
    the queries at random into parts of some thousands. Each part then is a task of its own.

    Args:
        model: name of a SIB of `sibcore.zoo`; by default the one for any number of classes and any features.
        network: set this if X is images: the name of a network of `sibcore.zoo`, or a module from floats
            `[n, 3, H, W]` in [0, 1] to features `[n, d]`. The images must have the size that the network takes.
        steps: K, the number of synthetic gradient steps; by default as many as the model was trained with. With 0
            steps the classifier is the nearest class mean by cosine.

    Classes may have different numbers of examples. Features and labels may be numpy arrays, lists or torch tensors.
    """

    def __init__(
        self, model: str | None = None, network: str | nn.Module | None = None, steps: int | None = None
    ) -> None:
        self.model = model
        self.network = network
        self.steps = steps

    def fit(self, X: Any, y: Any) -> SIBClassifier:
        """Keep the support set.

        Args:
            X: features `[m, d]`, or images.
            y: labels `[m]` of any kind that can be sorted.

        Returns:
            This classifier.
        """
        features, labels = _check_support(self, self._features(X), _plain(y))
        self.classes_, self.support_labels_ = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least 2 classes, got 1 class, {self.classes_[0]!r}")
        self.support_ = features
        model = self.model or zoo.ANY_WAY
        self.sib_ = zoo.load_pretrained(model, len(self.classes_), features.shape[1], self.steps).double()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the label of each query, `[n]`, after adaptation to all of them."""
        return self._labels(self.answers(X).after)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities `[n, k]` in the order of `classes_`, after adaptation to all queries."""
        return self.answers(X).after.numpy()

    def predict_before(self, X: Any) -> np.ndarray:
        """Return the label of each query by itself, before adaptation: the class whose mean has the largest cosine."""
        return self._labels(self.answers(X).before)

    def answers(self, X: Any) -> Answers:
        """Return the probabilities `[n, k]` before and after adaptation, as float64 tensors."""
        query = _check_query(self, self._features(X))
        support, query = torch.from_numpy(self.support_).double(), torch.from_numpy(query).double()
        return answers(self.sib_, support, torch.from_numpy(self.support_labels_), query)

    def to_csv(self, X: Any, path: str | Path, names: Sequence[object] | None = None) -> None:
        """Write labels and probabilities, before and after adaptation, to a CSV file with one line per query.

        Args:
            X: the queries: features `[n, d]`, or images.
            path: the file, which is overwritten.
            names: names of the queries for the first column; by default they are numbered from 0.
        """
        found = self.answers(X)
        count = len(found.after)
        names = range(count) if names is None else names
        if len(names) != count:
            raise ValueError(f"names: expected one name for each of the {count} queries, got {len(names)}")
        write_atomically(Path(path), as_csv(names, self.classes_, found).encode("utf-8", "surrogateescape"))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict(X)`, as a share between 0 and 1, optionally weighted by query."""
        return float(np.average(self.predict(X) == np.asarray(_plain(y)), weights=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor by name."""
        return {"model": self.model, "network": self.network, "steps": self.steps}

    def set_params(self, **params: Any) -> SIBClassifier:
        """Set arguments of the constructor by name and return this classifier."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"SIBClassifier has no parameter {name!r}: expected one of model, network, steps")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return f"SIBClassifier(model={self.model!r}, network={self.network!r}, steps={self.steps!r})"

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that this is a classifier. Only scikit-learn calls it."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags("classifier", TargetTags(required=True), classifier_tags=ClassifierTags())

    def _labels(self, probabilities: Tensor) -> np.ndarray:
        return self.classes_[probabilities.argmax(1).numpy()]

    def _features(self, X: Any) -> Any:
        """Return X itself, or the features of its images if there is a network."""
        if self.network is None:
            return _plain(X)
        network = zoo.load_pretrained(self.network) if isinstance(self.network, str) else self.network
        return encode(network, np.asarray(_plain(X))).numpy()


def _plain(values: Any) -> Any:
    """Return a torch tensor as a numpy array, and anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def _check_support(classifier: SIBClassifier, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the support set as float32 [m, d] and labels [m], or raise a ValueError if it cannot be one."""
    try:
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data
    except ImportError:
        X, y = _finite_rows(X), np.asarray(y)
        if y.shape != (len(X),):
            raise ValueError(
                f"y: expected one label for each of the {len(X)} rows of X, got shape {[*y.shape]}"
            ) from None
        classifier.n_features_in_ = X.shape[1]
        return X, y
    X, y = validate_data(classifier, X, y, dtype=np.float32)
    check_classification_targets(y)
    return X, y


def _check_query(classifier: SIBClassifier, X: Any) -> np.ndarray:
    """Return the queries as float32 [n, d], or raise an error if they do not go with the support set."""
    try:
        from sklearn.utils.validation import check_is_fitted, validate_data
    except ImportError:
        if not hasattr(classifier, "sib_"):
            raise ValueError("this SIBClassifier has no support set yet: call fit(X, y) first") from None
        X, dim = _finite_rows(X), classifier.n_features_in_
        if X.shape[1] != dim:
            raise ValueError(f"X has {X.shape[1]} features, but SIBClassifier is expecting {dim} features") from None
        return X
    check_is_fitted(classifier)
    return validate_data(classifier, X, dtype=np.float32, reset=False)


def _finite_rows(X: Any) -> np.ndarray:
    """Return X as float32 [n, d], or raise a ValueError if it has another shape or numbers that are not finite."""
    X = np.asarray(X, dtype=np.float32)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X: expected features [n, d], got an array of shape {[*X.shape]}")
    if not np.isfinite(X).all():
        raise ValueError("X has NaN or infinite features: remove those rows, or find out where they come from")
    return X
