"""Feature banks by name: `load_features("cifar-fs", "conv4-64")`.

A bank file holds the features of all images of an image set under a frozen network, one byte per number: code c of
dimension j stands for low_j + step_j c. Its header names the classes of each split, and the images and the network that
the features were computed from.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from sibcore import zoo
from sibcore.files import read_tensors
from sibcore.vision.features import Features, features_hash


def load_features(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[str, Features]:
    """Load the features of an image set that come with the project.

    The file is found like those of `load_pretrained`: in a checkout, or in the cache folder after it was fetched once.

    Args:
        dataset: name of the image set.
        backbone: name of the network f.

    Returns:
        For each split, "train", "val" and "test", its `Features`: `features` float32 `[N, d]`, `labels` int64 `[N]` and
        the names of the `classes`. Raise a ValueError that lists the banks there are if this is none of them.
    """
    name = f"{dataset}-{backbone}"
    known = {card.name: card for card in zoo.cards().values() if card.is_bank}
    if name not in known:
        raise ValueError(f"there are no features {name!r}: expected one of {', '.join(known)}")
    return read_banks(zoo.path(known[name]))


def read_banks(path: Path) -> dict[str, Features]:
    """Read a bank file and return the features of each split."""
    tensors, about = read_tensors(path)
    features = dequantise(tensors["codes"], tensors["low"], tensors["step"])
    banks = {}
    for split, names in about["splits"].items():
        # Labels count the classes of the split, as those of `ImageSet.split_labels` do; -1 is a class of another split.
        label_of = torch.tensor([names.index(name) if name in names else -1 for name in about["classes"]])
        labels = label_of[tensors["labels"].long()]
        chosen = features[labels >= 0]
        no_views = chosen.new_empty(0, *chosen.shape)
        content = features_hash({"features": chosen, "views": no_views})
        banks[split] = Features(chosen, no_views, labels[labels >= 0], tuple(names), content)
    return banks


def dequantise(codes: Tensor, low: Tensor, step: Tensor) -> Tensor:
    """Return the features, float32 `[N, d]`, that codes, uint8 `[N, d]`, stand for."""
    return torch.addcmul(low, codes.to(step.dtype), step)
