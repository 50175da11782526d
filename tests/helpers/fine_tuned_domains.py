"""Made-up features of PACS-like domains under networks of pairs and triples of sources, for tests."""

from __future__ import annotations

import itertools

import torch

from sibcore.sib import unit
from sibrepro.studies.pacs.banks import Bank, Network, key

NAMES = ("art", "cartoon", "photo", "sketch")


def bank(
    images: int = 60, dim: int = 8, ways: int = 3, noise: float = 0.5, seed: int = 0, imagenet: bool = True
) -> Bank:
    """A network knows the classes of its sources better; every domain has a shift of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(4 * images) % ways
    domains = torch.arange(4).repeat_interleave(images)
    of_class, of_domain = torch.randn(ways, dim, generator=generator), torch.randn(4, dim, generator=generator)
    of_turn = torch.randn(3, 1, dim, generator=generator)
    wheres = [(w, rot, s) for w in NAMES for rot in (False, True) for s in (0, 1)]
    wheres += [(w, False, 0) for w in itertools.combinations(NAMES, 2)]
    networks = {}
    for without, rot, number in wheres:
        without = (without,) if isinstance(without, str) else without
        other = torch.tensor([name in without for name in NAMES])[domains]
        spread = torch.where(other, 2 * noise, noise)[:, None]
        raw = of_class[labels] + 0.5 * of_domain[domains] + spread * torch.randn(len(labels), dim, generator=generator)
        part = torch.where(other, 2, (torch.arange(len(labels)) % 10 == 0).long())
        own = {name: unit(raw[domains == NAMES.index(name)] + 0.1) for name in without}
        seen = {"held_out": part == 1, **{name: domains == NAMES.index(name) for name in without}}
        turned = {name: unit(raw[rows] + of_turn) for name, rows in seen.items()} if rot else {}
        networks[key(without, rot, number)] = Network(unit(raw), torch.arange(len(labels)), part, own, turned)
    plain = of_class[labels] + of_domain[domains] + 2 * noise * torch.randn(4, len(labels), dim, generator=generator)
    names = (tuple("abcdefg"[:ways]), NAMES)
    return Bank(networks, labels, domains, *names, {"made": str(seed)}, unit(plain) if imagenet else None)
