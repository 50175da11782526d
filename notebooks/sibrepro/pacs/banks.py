"""What the fine-tuned networks say of PACS, as it comes with the project: stage 2 needs neither images nor networks.

`results/features/pacs-fine-tuned.safetensors` holds unit features of each network, projected to their first singular
directions and quantised to a byte each. `make` writes it anew from the runs of `sibrepro.pacs.first_stage`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sibcore.datasets.base import ImageSet
from sibcore.files import key_of, pack, read_tensors, sha256
from sibcore.sib import class_means, unit
from sibrepro.facts import Record, checksums, provenance
from sibrepro.few_shot import shipped
from sibrepro.pacs.first_stage import FEATURES
from sibrepro.pacs.shipped import directions

DIM = 40
FILE = ("pacs", "fine-tuned")  # its name, as those of other features have one


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """One network's unit features [M, d] of the images `rows` [M]; `part` is 0 where it learned from an image, 1 where
    that was held out, 2 for another domain. own: other domains under their own batch-norm statistics; turned: images of
    other domains, and held-out ones, by one to three quarters, [3, n, d]."""

    features: Tensor
    rows: Tensor
    part: Tensor
    own: Mapping[str, Tensor]
    turned: Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class Bank:
    """All networks by `key`, with labels and domains [N] of all images; hashes say what it is made of."""

    networks: Mapping[str, Network]
    labels: Tensor
    domains: Tensor
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    hashes: dict[str, str]

    def of_domain(self, network: Network, name: str) -> Tensor:
        """Which of the network's rows are images of a domain that it did not learn from."""
        return (network.part == 2) & (self.domains[network.rows] == self.domain_names.index(name))


def key(without: Iterable[str], rot: bool = False, seed: int = 0) -> str:
    """The name of a network: by the domains that are no sources, whether it learned rotations, and its seed."""
    return f"{'+'.join(sorted(without))} {'Rot' if rot else 'source-only'} {seed}"


def name_of(record: Record) -> str:
    """`key` of the network that a run of stage 1 trained."""
    p = record.params
    return key(p["without"].split("+"), bool(p["turned"]), p["seed"])


def assemble(records: Sequence[Record], data: ImageSet) -> Bank:
    """The bank of runs of stage 1, as they are."""

    def network(record: Record) -> Network:
        found, _ = read_tensors(record.files.path(FEATURES))
        kinds = (_below(found, kind) for kind in ("own/", "turned/"))
        features = unit(found["features"].float())
        return Network(features, found["rows"], found["part"].long(), *kinds)

    numbers = (torch.from_numpy(numbers).long() for numbers in (data.labels, data.domains))
    hashes = {data.name: data.sha256, "networks": key_of(sorted(record.id for record in records))}
    networks = {name_of(record): network(record) for record in records}
    return Bank(networks, *numbers, data.classes, data.domain_names, hashes)


def _below(found: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): unit(x.float()) for name, x in found.items() if name.startswith(start)}


def make(records: Sequence[Record], data: ImageSet, dim: int = DIM) -> Path:
    """Write the file from runs of stage 1."""
    tensors: dict[str, Tensor] = {
        "labels": torch.from_numpy(data.labels).byte(),
        "domains": torch.from_numpy(data.domains).byte(),
    }
    kept, runs = {}, {}
    for record in records:
        name = name_of(record)
        found, _ = read_tensors(record.files.path(FEATURES))
        onto = directions(found["features"].float(), dim)
        tensors |= {f"{name}/rows": found["rows"].short(), f"{name}/part": found["part"]}
        for part, values in found.items():
            if part == "features" or part.startswith(("own/", "turned/")):
                codes, low, step = shipped.quantise((values.float() @ onto).flatten(0, -2))
                codes = codes.view(*values.shape[:-1], dim)
                tensors |= {f"{name}/{part}": codes, f"{name}/{part}:low": low, f"{name}/{part}:step": step}
        kept[name] = (found["features"].float() @ onto).square().sum(-1).mean().item()
        runs[name] = record.id
    about: dict[str, Any] = {"classes": data.classes, "domain_names": data.domain_names, "kept": kept, "runs": runs}
    about |= {"data": data.sha256, "provenance": provenance.collect({}, 0)}
    path = shipped.file(*FILE)
    checksums.write(path, pack(tensors, about))
    return path


@functools.cache
def load() -> Bank:
    """The bank in the file."""
    path = shipped.existing(*FILE)
    tensors, about = read_tensors(path)

    def values(name: str) -> Tensor:
        return unit(shipped.dequantise(*(tensors[f"{name}{end}"] for end in ("", ":low", ":step"))))

    plain = {name: values(name) for name in tensors if f"{name}:low" in tensors}
    networks = {
        name: Network(
            plain[f"{name}/features"],
            tensors[f"{name}/rows"].long(),
            tensors[f"{name}/part"].long(),
            *(_below(plain, f"{name}/{kind}/") for kind in ("own", "turned")),
        )
        for name in about["runs"]
    }
    numbers = (tensors[name].long() for name in ("labels", "domains"))
    names = (tuple(about[name]) for name in ("classes", "domain_names"))
    return Bank(networks, *numbers, *names, {"pacs": about["data"], "features": sha256(path)})


@dataclasses.dataclass(frozen=True)
class Look:
    """How a domain is looked at: under which batch-norm statistics, and seen from which mean, unlabelled both."""

    statistics: str = "sources"  # or "own"
    centre: str = "sources"  # or "own"


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """A domain through a network that did not learn from it: unit features [n, d], labels [n] and lambda [k, d].

    turned [3, n, d] are the same images by one to three quarters, where there are such.
    """

    features: Tensor
    labels: Tensor
    start: Tensor
    turned: Tensor | None = None


def view(bank: Bank, name: str, domain: str, look: Look) -> View:
    """`domain` through the network `name`; lambda is few-shot's, the class means of images that it learned from."""
    network = bank.networks[name]
    there = bank.of_domain(network, domain)
    features = network.own[domain] if look.statistics == "own" else network.features[there]
    turned = network.turned.get(domain)
    start, centre = lambda_of(bank, network, look)
    if look.centre == "own":
        centre = features.mean(0)
    labels = bank.labels[network.rows[there]]
    return View(unit(features - centre), labels, start, None if turned is None else unit(turned - centre))


def held_out(bank: Bank, name: str, look: Look) -> View:
    """Images of its sources that the network did not learn from."""
    network = bank.networks[name]
    start, centre = lambda_of(bank, network, look)
    there, turned = network.part == 1, network.turned.get("held_out")
    labels = bank.labels[network.rows[there]]
    seen = None if turned is None else unit(turned - centre)
    return View(unit(network.features[there] - centre), labels, start, seen)


def learned(bank: Bank, name: str, look: Look) -> list[View]:
    """Images that the network learned from, a view for each source: the literal reading's tasks."""
    network = bank.networks[name]
    start, centre = lambda_of(bank, network, look)
    found = []
    for domain in bank.domains[network.rows[network.part == 0]].unique():
        there = (network.part == 0) & (bank.domains[network.rows] == domain)
        features = network.features[there]
        seen_from = features.mean(0) if look.centre == "own" else centre
        found.append(View(unit(features - seen_from), bank.labels[network.rows[there]], start))
    return found


def lambda_of(bank: Bank, network: Network, look: Look) -> tuple[Tensor, Tensor]:
    """lambda [k, d] and the sources' mean [d]."""
    there = network.part == 0
    features, labels, domains = (
        network.features[there],
        bank.labels[network.rows[there]],
        bank.domains[network.rows[there]],
    )
    centre = features.mean(0)
    means = centre
    if look.centre == "own":
        of_domain = torch.stack([features[domains == d].mean(0) if (domains == d).any() else centre for d in range(4)])
        means = of_domain[domains]
    return unit(class_means(unit(features - means), labels, len(bank.classes))[0]), centre
