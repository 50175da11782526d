"""Made-up features of PACS-like domains under fine-tuned networks, in place of a published bank of features."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from sibcore.sib import unit
from sibrepro.studies.pacs.banks import Bank, Network, key

NAMES = ("art", "cartoon", "photo", "sketch")
IMAGES, DIM, WAYS = 60, 8, 3  # images of each domain, size of their features, classes


def bank(noise: float = 0.5, imagenet: bool = True) -> Bank:
    """Return features of four domains under networks that were fine-tuned on three or on two of them.

    A network tells the classes of its source domains better than those of the others: its features of the others are
    twice as noisy. Every domain shifts all features.

    Args:
        noise: standard deviation of the features around their class, in source domains.
        imagenet: whether the bank also has features of a network that was not fine-tuned.
    """
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, DIM, generator=generator)

    labels = torch.arange(4 * IMAGES) % WAYS
    domains = torch.arange(4).repeat_interleave(IMAGES)
    of_class, of_domain, of_rotation = normal(WAYS), normal(4), normal(3, 1)
    centres = of_class[labels] + 0.5 * of_domain[domains]
    every = torch.arange(len(labels))

    def network(without: tuple[str, ...], rotated: bool) -> Network:
        """Return the features of a network whose sources are all domains but those in `without`."""
        target = torch.tensor([name in without for name in NAMES])[domains]
        raw = centres + torch.where(target, 2 * noise, noise)[:, None] * normal(len(labels))
        split = torch.where(target, 2, (every % 10 == 0).long())
        rows = {name: domains == NAMES.index(name) for name in without}
        own = {name: unit(raw[chosen] + 0.1) for name, chosen in rows.items()}
        turned = {}
        if rotated:
            seen = {"held_out": split == 1, **rows}
            turned = {name: unit(raw[chosen] + of_rotation) for name, chosen in seen.items()}
        return Network(unit(raw), every, split, own, turned)

    networks = {}
    for name, rotated, number in itertools.product(NAMES, (False, True), (0, 1)):
        networks[key([name], rotated, number)] = network((name,), rotated)
    for pair in itertools.combinations(NAMES, 2):
        networks[key(pair, False, 0)] = network(pair, False)
    plain = of_class[labels] + of_domain[domains] + 2 * noise * normal(4, len(labels))
    classes = tuple("abcdefg"[:WAYS])
    return Bank(networks, labels, domains, classes, NAMES, {"made": "0"}, unit(plain) if imagenet else None)
