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
from sibrepro.meta_training import shipped
from sibrepro.studies.pacs.first_stage import FEATURES
from sibrepro.studies.pacs.rotations import Rotations

DIM = 34
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
    """All networks by `key`, with labels and domains [N] of all images; hashes say what it is made of.

    imagenet: unit features [4, N, e] of all images in four turns with ImageNet's weights as they are, if there are any.
    """

    networks: Mapping[str, Network]
    labels: Tensor
    domains: Tensor
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    hashes: dict[str, str]
    imagenet: Tensor | None = None


def key(without: Iterable[str], rot: bool = False, seed: int = 0) -> str:
    """The name of a network: by the domains that are no sources, whether it learned rotations, and its seed."""
    return f"{'+'.join(sorted(without))} {'Rot' if rot else 'source-only'} {seed}"


def name_of(record: Record) -> str:
    """`key` of the network that a run of stage 1 trained."""
    p = record.params
    return key(p["without"].split("+"), bool(p["turned"]), p["seed"])


def assemble(records: Sequence[Record], data: ImageSet, imagenet: Rotations) -> Bank:
    """The bank of runs of stage 1, as they are, beside features of a network that was not fine-tuned."""
    networks = {}
    for record in records:
        found, _ = read_tensors(record.files.path(FEATURES))
        networks[name_of(record)] = _network(found | {"features": unit(found["features"].float())})
    hashes = {data.name: data.sha256, "networks": key_of(sorted(record.id for record in records))} | imagenet.hashes
    numbers = map(torch.from_numpy, (data.labels, data.domains))
    return Bank(networks, *numbers, data.classes, data.domain_names, hashes, unit(imagenet.inputs))


def _network(found: Mapping[str, Tensor]) -> Network:
    """Of what a run of stage 1 wrote, but unit features."""
    own, turned = (
        {name.removeprefix(kind): unit(x.float()) for name, x in found.items() if name.startswith(kind)}
        for kind in ("own/", "turned/")
    )
    return Network(found["features"], found["rows"].long(), found["part"].long(), own, turned)


def make(records: Sequence[Record], data: ImageSet, imagenet: Rotations, dim: int = DIM) -> Path:
    """Write the file from runs of stage 1, and from features of a network that was not fine-tuned.

    make(records, datasets.load("pacs", size=96), rotations(datasets.load("pacs", size=160), "efficientnet-lite0"))
    """
    tensors: dict[str, Tensor] = {
        "labels": torch.from_numpy(data.labels).byte(),
        "domains": torch.from_numpy(data.domains).byte(),
    }
    kept, runs = {}, {}

    def put(name: str, values: Tensor) -> None:
        codes, low, step = shipped.quantise(values.flatten(0, -2))
        tensors.update({name: codes.view(values.shape), f"{name}:low": low, f"{name}:step": step})

    plain = unit(imagenet.inputs)
    put("imagenet", plain @ shipped.directions(plain[0], dim))
    for record in records:
        name = name_of(record)
        found, _ = read_tensors(record.files.path(FEATURES))
        onto = shipped.directions(found["features"].float(), dim)
        tensors |= {f"{name}/rows": found["rows"].short(), f"{name}/part": found["part"]}
        for part, values in found.items():
            if part == "features" or part.startswith(("own/", "turned/")):
                put(f"{name}/{part}", values.float() @ onto)
        kept[name] = (found["features"].float() @ onto).square().sum(-1).mean().item()
        runs[name] = record.id
    about: dict[str, Any] = {"classes": data.classes, "domain_names": data.domain_names, "kept": kept, "runs": runs}
    about |= {"data": data.sha256, "imagenet": imagenet.hashes, "provenance": provenance.collect({}, 0)}
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

    whole = {name: values(name) if f"{name}:low" in tensors else tensors[name] for name in tensors if ":" not in name}
    networks = {}
    for name in about["runs"]:
        start = f"{name}/"
        networks[name] = _network({part.removeprefix(start): x for part, x in whole.items() if part.startswith(start)})
    numbers = (whole[name].long() for name in ("labels", "domains"))
    names = (tuple(about[name]) for name in ("classes", "domain_names"))
    hashes = {"pacs": about["data"], "features": sha256(path)}
    return Bank(networks, *numbers, *names, hashes, whole["imagenet"])


@dataclasses.dataclass(frozen=True)
class Look:
    """How a domain is looked at without labels: under which batch-norm statistics, seen from which mean, and with which
    weight ImageNet's own features stand beside those of the fine-tuned network."""

    statistics: str = "sources"  # or "own", or "mixed": the mean of the features under both
    centre: str = "sources"  # or "own"
    imagenet: float = 0.0

    def __str__(self) -> str:
        return f"{self.statistics}/{self.centre}/{self.imagenet:g}"

    @classmethod
    def parse(cls, text: str) -> Look:
        statistics, centre, imagenet = text.split("/")
        return cls(statistics, centre, float(imagenet))


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
    there = (network.part == 2) & (bank.domains[network.rows] == bank.domain_names.index(domain))
    under = {"sources": network.features[there], "own": network.own[domain]}
    features = unit(sum(under.values())) if look.statistics == "mixed" else under[look.statistics]
    return _view(bank, network, there, features, network.turned.get(domain), look)


def held_out(bank: Bank, name: str, look: Look) -> View:
    """Images of its sources that the network did not learn from."""
    network = bank.networks[name]
    there = network.part == 1
    return _view(bank, network, there, network.features[there], network.turned.get("held_out"), look)


def learned(bank: Bank, name: str, look: Look) -> list[View]:
    """Images that the network learned from, a view for each source: the literal reading's tasks."""
    network = bank.networks[name]
    domains = bank.domains[network.rows]
    parts = [(network.part == 0) & (domains == domain) for domain in domains[network.part == 0].unique()]
    return [_view(bank, network, there, network.features[there], None, look) for there in parts]


def _view(bank: Bank, network: Network, there: Tensor, features: Tensor, turned: Tensor | None, look: Look) -> View:
    rows = network.rows[there]
    start, centres = lambda_of(bank, network, look)
    parts = _parts(bank, features, rows)
    if look.centre == "own":
        centres = [part.mean(0) for part in parts]
    if turned is not None:
        turned = _joined(_parts(bank, turned, rows, slice(1, None)), centres, look)
    return View(_joined(parts, centres, look), bank.labels[rows], start, turned)


def lambda_of(bank: Bank, network: Network, look: Look) -> tuple[Tensor, list[Tensor]]:
    """lambda [k, d], and the sources' mean of each part of the features."""
    there = network.part == 0
    rows = network.rows[there]
    parts = _parts(bank, network.features[there], rows)
    means = centres = [part.mean(0) for part in parts]
    if look.centre == "own":
        _, number = bank.domains[rows].unique(return_inverse=True)
        means = [torch.stack([part[number == d].mean(0) for d in range(number.max() + 1)])[number] for part in parts]
    return unit(class_means(_joined(parts, means, look), bank.labels[rows], len(bank.classes))[0]), centres


def _parts(bank: Bank, features: Tensor, rows: Tensor, turns: int | slice = 0) -> list[Tensor]:
    """What the fine-tuned network says of images, and what ImageNet's does of the same."""
    return [features] if bank.imagenet is None else [features, bank.imagenet[turns, rows]]


def _joined(parts: Sequence[Tensor], centres: Sequence[Tensor], look: Look) -> Tensor:
    """Unit features [..., d], each part seen from its centre."""
    weights = (1.0, look.imagenet)
    seen = [weight * unit(part - centre) for part, centre, weight in zip(parts, centres, weights, strict=False)]
    return unit(torch.cat(seen, -1))
