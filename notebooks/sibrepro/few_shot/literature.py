"""Accuracies in percent that the publications print, 5-way, for the methods of `BASELINES`.

They say what to expect, not what to match: there the network is trained with the method, or is far larger, or both.
`source` is where the number was read, which may quote the method's own publication.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """One row of a table."""

    dataset: str
    backbone: str
    one_shot: float
    five_shot: float
    source: str


_SIB = "Hu et al., 2020 (SIB), Table 1"

LITERATURE: dict[str, tuple[Published, ...]] = {
    "nearest-centroid": (
        Published("mini-imagenet", "conv4-64", 49.4, 68.2, _SIB),
        Published("cifar-fs", "conv4-64", 55.5, 72.0, _SIB),
    ),
    "matching-net": (Published("mini-imagenet", "conv4-64", 44.2, 57.0, _SIB),),
    "ridge": (
        Published("mini-imagenet", "conv4-64", 49.5, 65.4, _SIB),
        Published("cifar-fs", "conv4-64", 62.3, 77.4, _SIB),
    ),
    "svm": (
        Published("mini-imagenet", "resnet12", 62.6, 78.6, _SIB),
        Published("cifar-fs", "resnet12", 72.0, 84.2, _SIB),
    ),
    "label-propagation": (Published("mini-imagenet", "conv4-64", 55.5, 69.9, _SIB),),
    "fine-tuning": (Published("mini-imagenet", "wrn-28-10", 65.73, 78.40, "Ziko et al., 2020, README of the code"),),
    "laplacian-shot": (Published("mini-imagenet", "wrn-28-10", 74.86, 84.13, "Ziko et al., 2020, README of the code"),),
    "tim": (
        Published("mini-imagenet", "resnet18", 73.6, 85.0, "Boudiaf et al., 2020, README of the code"),
        Published("mini-imagenet", "wrn-28-10", 77.5, 87.2, "Boudiaf et al., 2020, README of the code"),
    ),
    "pt-map": (
        Published("mini-imagenet", "wrn-28-10", 82.92, 88.82, "Hu et al., 2021 (PT-MAP), README of the code"),
        Published("cifar-fs", "wrn-28-10", 87.69, 90.68, "Hu et al., 2021 (PT-MAP), README of the code"),
    ),
}
