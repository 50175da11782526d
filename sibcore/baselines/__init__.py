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

from sibcore.baselines.alpha_tim import AlphaTIM
from sibcore.baselines.base import Baseline, Head
from sibcore.baselines.clustering import TIM, OptimalTransportMAP, SoftKMeans
from sibcore.baselines.ctm import CTM
from sibcore.baselines.finetuning import LogisticRegression, TransductiveFineTuning
from sibcore.baselines.gidaris import DynamicFewShot
from sibcore.baselines.gnn import GNN
from sibcore.baselines.inductive import SVM, MatchingNet, NearestCentroid, RidgeRegression
from sibcore.baselines.leo import LEO
from sibcore.baselines.maml import MAML
from sibcore.baselines.matching import MatchingFCE
from sibcore.baselines.metaoptnet import MetaOptNet
from sibcore.baselines.paddle import PADDLE
from sibcore.baselines.propagation import LabelPropagation, LaplacianShot
from sibcore.baselines.proto_lp import ProtoLP
from sibcore.baselines.prototypical import Prototypical
from sibcore.baselines.qiao import PredictedParameters
from sibcore.baselines.r2d2 import R2D2
from sibcore.baselines.relation import Relation
from sibcore.baselines.snail import SNAIL
from sibcore.baselines.tadam import TADAM
from sibcore.baselines.tpn import TPN
from sibcore.baselines.unem import UNEM
from sibcore.episodes import Tasks
from sibcore.evaluate import evaluate

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


def tune(
    cls: type[Baseline], ways: int, bank: Tensor, tasks: Tasks
) -> tuple[dict[str, Any], list[tuple[dict[str, Any], float]]]:
    """The best point of `cls.grid` on tasks of validation classes, and every point with its mean accuracy.

    Of equally good points the first one wins.
    """
    points = [dict(zip(cls.grid, values, strict=True)) for values in itertools.product(*cls.grid.values())]
    table = [(point, evaluate(cls(ways, **point), bank, tasks).mean) for point in points]
    return max(table, key=lambda row: row[1])[0], table
