"""Synthetic information bottleneck (SIB): the model, its training and its evaluation.

    from sibcore import SIB, EpisodeSampler, Schedule
    from sibcore.train import train
    from sibcore.evaluate import evaluate

A name is imported when it is first used: `import sibcore` costs nothing, not even torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "sib": "SIB",
    "episodes": "EpisodeSampler Tasks",
    "train": "Schedule SCHEDULES load_sib",
    "evaluate": "Evaluation",
    "adapt": "Adapter",
    "device": "pick_device",
    "zoo": "load_pretrained",
    "apply.classifier": "SIBClassifier",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
_MODULES = ("reference", "sib", "xi", "stack", "group", "episodes", "train", "evaluate", "adapt", "zoo")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"sibcore.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"sibcore.{_HOME[name]}"), name)
    raise AttributeError(f"sibcore has no {name!r}: expected one of {', '.join(__all__)}, or a submodule's name")
