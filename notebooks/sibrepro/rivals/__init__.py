"""What a user would pick instead of SIB, on the same frozen features and the same tasks.

    method = BASELINES["pt-map"](ways=5)
    sibcore.evaluate.evaluate(method, bank, tasks)

BASELINES learn nothing: hyper-parameters have published defaults, and `tune` chooses among a few on validation tasks.
RECENT are such too, of later years and most of them made for queries that are not balanced.
HEADS are meta-trained by `sibcore.train`, as SIB is.
"""

from __future__ import annotations

import itertools
from typing import Any

from torch import Tensor

from sibcore.episodes import Tasks
from sibcore.evaluate import evaluate
from sibrepro.rivals.base import Baseline, Head
from sibrepro.rivals.clustering import PADDLE, UNEM, OptimalTransportMAP, ProtoLP, SoftKMeans
from sibrepro.rivals.entropy import TIM, AlphaTIM, TransductiveFineTuning
from sibrepro.rivals.linear import R2D2, SVM, LogisticRegression, MetaOptNet, RidgeRegression
from sibrepro.rivals.metric import CTM, TADAM, MatchingFCE, MatchingNet, NearestCentroid, Prototypical, Relation
from sibrepro.rivals.networks import GNN, SNAIL
from sibrepro.rivals.propagation import TPN, LabelPropagation, LaplacianShot
from sibrepro.rivals.weights import LEO, MAML, DynamicFewShot, PredictedParameters

BASELINES: dict[str, type[Baseline]] = {
    "nearest-centroid": NearestCentroid,
    "matching-net": MatchingNet,
    "ridge": RidgeRegression,
    "svm": SVM,
    "logistic": LogisticRegression,
    "label-propagation": LabelPropagation,
    "fine-tuning": TransductiveFineTuning,
    "laplacian-shot": LaplacianShot,
    "tim": TIM,
    "pt-map": OptimalTransportMAP,
    "soft-k-means": SoftKMeans,
}

RECENT: dict[str, type[Baseline]] = {"alpha-tim": AlphaTIM, "paddle": PADDLE, "proto-lp": ProtoLP}

HEADS: dict[str, type[Head]] = {  # as they were published
    "matching-fce": MatchingFCE,
    "maml": MAML,
    "prototypical": Prototypical,
    "relation": Relation,
    "gidaris": DynamicFewShot,
    "qiao": PredictedParameters,
    "snail": SNAIL,
    "gnn": GNN,
    "tadam": TADAM,
    "r2d2": R2D2,
    "metaoptnet": MetaOptNet,
    "tpn": TPN,
    "leo": LEO,
    "ctm": CTM,
    "unem": UNEM,
}


def tune(cls: type[Baseline], ways: int, bank: Tensor, tasks: Tasks) -> dict[str, Any]:
    """The point of `cls.grid` that is best on tasks of validation classes; of equally good ones the first."""
    points = [dict(zip(cls.grid, values, strict=True)) for values in itertools.product(*cls.grid.values())]
    return max(points, key=lambda point: evaluate(cls(ways, **point), bank, tasks).mean)
