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
from sibrepro.rivals.alpha_tim import AlphaTIM
from sibrepro.rivals.base import Baseline, Head
from sibrepro.rivals.clustering import TIM, OptimalTransportMAP, SoftKMeans
from sibrepro.rivals.ctm import CTM
from sibrepro.rivals.finetuning import LogisticRegression, TransductiveFineTuning
from sibrepro.rivals.gidaris import DynamicFewShot
from sibrepro.rivals.gnn import GNN
from sibrepro.rivals.inductive import SVM, MatchingNet, NearestCentroid, RidgeRegression
from sibrepro.rivals.leo import LEO
from sibrepro.rivals.maml import MAML
from sibrepro.rivals.matching import MatchingFCE
from sibrepro.rivals.metaoptnet import MetaOptNet
from sibrepro.rivals.paddle import PADDLE
from sibrepro.rivals.propagation import LabelPropagation, LaplacianShot
from sibrepro.rivals.proto_lp import ProtoLP
from sibrepro.rivals.prototypical import Prototypical
from sibrepro.rivals.qiao import PredictedParameters
from sibrepro.rivals.r2d2 import R2D2
from sibrepro.rivals.relation import Relation
from sibrepro.rivals.snail import SNAIL
from sibrepro.rivals.tadam import TADAM
from sibrepro.rivals.tpn import TPN
from sibrepro.rivals.unem import UNEM

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
