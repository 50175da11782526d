"""Synthetic information bottleneck (SIB): the model, its training and its evaluation.

    from sibcore import SIB, EpisodeSampler, Schedule
    from sibcore.train import train
    from sibcore.evaluate import evaluate

All of this needs only torch, numpy, safetensors and tqdm. Image sets and feature networks, in `sibcore.datasets` and
`sibcore.vision`, need the extra `images`: `pip install 'sibcore[images]'`.
"""

from __future__ import annotations

__version__ = "0.2.0"

from sibcore import adapt, episodes, evaluate, group, reference, sib, stack, step, train, xi, zoo
from sibcore.adapt import Adapter
from sibcore.apply.classifier import SIBClassifier
from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.evaluate import Evaluation
from sibcore.sib import SIB
from sibcore.train import SCHEDULES, Schedule, load_sib
from sibcore.zoo import load_pretrained
from sibcore.zoo.banks import load_features

__all__ = [
    "SCHEDULES",
    "SIB",
    "Adapter",
    "EpisodeSampler",
    "Evaluation",
    "SIBClassifier",
    "Schedule",
    "Tasks",
    "adapt",
    "episodes",
    "evaluate",
    "group",
    "load_features",
    "load_pretrained",
    "load_sib",
    "pick_device",
    "reference",
    "sib",
    "stack",
    "step",
    "train",
    "xi",
    "zoo",
]
