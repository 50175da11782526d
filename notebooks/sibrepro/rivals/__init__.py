"""The methods that SIB is compared with, on the same frozen features and the same tasks.

    method = BASELINES["pt-map"](ways=5)
    sibcore.evaluate.evaluate(method, bank, tasks)

There is one file for each family of methods. A method is a class whose docstring cites its publication and explains its
options. This module gives each method the name by which settings, runs and tables refer to it:

- `BASELINES` have no learned parameters. Their hyper-parameters have defaults, and `tune` chooses among a few values on
  tasks of validation classes.
- `RECENT` are baselines from 2021 on, most of them made for unbalanced queries.
- `HEADS` are meta-trained by `sibcore.train`, as SIB is.

To add a method, write its class (see `sibrepro.rivals.base`) and add its line below.
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

HEADS: dict[str, type[Head]] = {  # in the order of their publication
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
    """Choose the hyper-parameters of a method by its accuracy on tasks of validation classes.

    Args:
        cls: the method, whose `grid` lists the values to try.
        ways: number of classes of a task.
        bank: features of all images, `[M, d]`, into which the tasks index.
        tasks: tasks of validation classes.

    Returns:
        The most accurate point of the grid. Of equally accurate points it is the first.
    """
    points = [dict(zip(cls.grid, values, strict=True)) for values in itertools.product(*cls.grid.values())]
    return max(points, key=lambda point: evaluate(cls(ways, **point), bank, tasks).mean)
