"""The features of PACS under the fine-tuned networks of stage 1. With them, stage 2 needs neither images nor networks.

A bank (`Bank`) holds unit features of all images under every network. `view` takes one domain out of it and normalises
its features as a `FeatureVariant` says.

`results/features/pacs-fine-tuned.safetensors` holds a bank that comes with the project. To save space, features are
projected to their first singular directions and quantised to a byte each. `make` writes the file anew from the runs of
`sibrepro.studies.pacs.first_stage`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from sibcore.datasets.base import ImageSet
from sibcore.files import key_of, pack, read_tensors, sha256
from sibcore.sib import class_means, unit
from sibcore.zoo.banks import dequantise
from sibrepro.facts import Record, checksums, provenance
from sibrepro.meta_training import shipped
from sibrepro.studies.pacs.first_stage import FEATURES
from sibrepro.studies.pacs.rotations import Rotations

DIM = 34  # singular directions that the file keeps
FILE = ("pacs", "fine-tuned")  # the two parts of the file's name, as `shipped.file` takes them


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """The unit features of PACS under one network.

    Attributes:
        features: features under the batch-norm statistics of the sources, `[M, d]`.
        rows: the images that they belong to, `[M]`.
        part: 0 where the network learned from the image, 1 where it was held out of a source, 2 where it belongs to
            another domain, `[M]`.
        own: features of each other domain under the domain's own batch-norm statistics, `[n, d]`.
        rotated: features of each other domain, and of the "held_out" images, rotated by 90, 180 and 270 degrees,
            `[3, n, d]`. Empty if the network did not learn rotations.
    """

    features: Tensor
    rows: Tensor
    part: Tensor
    own: Mapping[str, Tensor]
    rotated: Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class Bank:
    """The features of PACS under all networks.

    Attributes:
        networks: the networks by their `key`.
        labels: classes of all images, `[N]`.
        domains: domains of all images, `[N]`.
        classes: names of the classes.
        domain_names: names of the domains.
        hashes: what the bank is made of.
        imagenet: unit features of all images under the four rotations, `[4, N, e]`, by a network with ImageNet's
            weights that was not fine-tuned.
    """

    networks: Mapping[str, Network]
    labels: Tensor
    domains: Tensor
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    hashes: dict[str, str]
    imagenet: Tensor


def key(without: Iterable[str], rot: bool = False, seed: int = 0) -> str:
    """Return the name of a network.

    Args:
        without: the domains that it did not learn from.
        rot: whether it learned rotations, too.
        seed: the seed of its training.
    """
    return f"{'+'.join(sorted(without))} {'Rot' if rot else 'source-only'} {seed}"


def _name_of(record: Record) -> str:
    """Return the `key` of the network that a run of stage 1 trained."""
    p = record.params
    return key(p["without"].split("+"), bool(p["turned"]), p["seed"])


def assemble(records: Sequence[Record], data: ImageSet, imagenet: Rotations) -> Bank:
    """Make a bank of runs of stage 1 on this machine, and of the features of a network that was not fine-tuned."""
    networks = {}
    for record in records:
        found, _ = read_tensors(record.files.path(FEATURES))
        networks[_name_of(record)] = _network(unit(found["features"].float()), found)
    labels, domains = torch.from_numpy(data.labels), torch.from_numpy(data.domains)
    hashes = {data.name: data.sha256, "networks": key_of(sorted(record.id for record in records))} | imagenet.hashes
    return Bank(networks, labels, domains, data.classes, data.domain_names, hashes, unit(imagenet.inputs))


def _network(features: Tensor, found: Mapping[str, Tensor]) -> Network:
    """Make a network of its features and of the other tensors that its run of stage 1 wrote."""
    of_kind = {"own": {}, "turned": {}}  # as the files spell them
    for name, values in found.items():
        kind, _, domain = name.partition("/")
        if domain:
            of_kind[kind][domain] = unit(values.float())
    return Network(features, found["rows"].long(), found["part"].long(), of_kind["own"], of_kind["turned"])


def make(records: Sequence[Record], data: ImageSet, imagenet: Rotations, dim: int = DIM) -> Path:
    """Write the file that comes with the project, and return its path.

        plain = rotations(datasets.load("pacs", size=160), "efficientnet-lite0")
        make(records, datasets.load("pacs", size=96), plain)

    Args:
        records: the runs of stage 1.
        data: their images.
        imagenet: features of the same images by a network that was not fine-tuned.
        dim: singular directions to keep.
    """
    plain = unit(imagenet.inputs)
    features = {"imagenet": plain @ shipped.directions(plain[0], dim)}
    tensors = {"labels": torch.from_numpy(data.labels).byte(), "domains": torch.from_numpy(data.domains).byte()}
    kept, runs = {}, {}
    for record in records:
        name = _name_of(record)
        found, _ = read_tensors(record.files.path(FEATURES))
        tensors |= {f"{name}/rows": found["rows"].short(), f"{name}/part": found["part"]}
        onto = shipped.directions(found["features"].float(), dim)
        for part, values in found.items():
            if part == "features" or part.startswith(("own/", "turned/")):
                features[f"{name}/{part}"] = values.float() @ onto
        kept[name] = features[f"{name}/features"].square().sum(-1).mean().item()
        runs[name] = record.id
    for name, values in features.items():
        codes, low, step = shipped.quantise(values.flatten(0, -2))
        tensors |= {name: codes.view(values.shape), f"{name}:low": low, f"{name}:step": step}
    about = {"classes": data.classes, "domain_names": data.domain_names, "kept": kept, "runs": runs}
    about |= {"data": data.sha256, "imagenet": imagenet.hashes, "provenance": provenance.collect({}, 0)}
    path = shipped.file(*FILE)
    checksums.write(path, pack(tensors, about))
    return path


@functools.cache
def load() -> Bank:
    """Return the bank that comes with the project."""
    path = shipped.existing(*FILE)
    tensors, about = read_tensors(path)
    parts = {}  # tensors of each network by name
    for name, values in tensors.items():
        if f"{name}:low" in tensors:
            values = unit(dequantise(values, tensors[f"{name}:low"], tensors[f"{name}:step"]))
        if ":" not in name:
            network, _, part = name.partition("/")
            parts.setdefault(network, {})[part] = values
    networks = {name: _network(parts[name]["features"], parts[name]) for name in about["runs"]}
    labels, domains = tensors["labels"].long(), tensors["domains"].long()
    names = tuple(about["classes"]), tuple(about["domain_names"])
    hashes = {"pacs": about["data"], "features": sha256(path)}
    return Bank(networks, labels, domains, *names, hashes, parts["imagenet"][""])


@dataclasses.dataclass(frozen=True)
class FeatureVariant:
    """How the features of a domain are normalised before a method sees them. This needs no labels.

    Attributes:
        statistics: the batch-norm statistics of the network: those of its "sources", the domain's "own", or "mixed",
            the mean of the features under both.
        centre: the mean that is subtracted from features: that of the "sources", or the domain's "own".
        imagenet: the weight with which ImageNet's own features are appended to those of the fine-tuned network.
    """

    statistics: str = "sources"
    centre: str = "sources"
    imagenet: float = 0.0

    def __str__(self) -> str:
        """Return the variant as settings and records spell it."""
        return f"{self.statistics}/{self.centre}/{self.imagenet:g}"

    @classmethod
    def parse(cls, text: str) -> FeatureVariant:
        """Return the variant with this text, such as "mixed/own/2".

        Raises:
            ValueError: if it is not one of `FEATURE_VARIANTS`.
        """
        known = {str(variant): variant for variant in FEATURE_VARIANTS}
        if text not in known:
            raise ValueError(f"there is no feature variant {text!r}: expected one of {', '.join(known)}")
        return known[text]


STATISTICS = ("sources", "own", "mixed")
FEATURE_VARIANTS = [
    FeatureVariant(*parts) for parts in itertools.product(STATISTICS, ("sources", "own"), (0.0, 1.0, 2.0, 3.0))
]


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """A domain through a network that did not learn from it, in one variant.

    Attributes:
        features: unit features of its images, `[n, d]`.
        labels: their classes, `[n]`.
        start: lambda, the class means of images that the network learned from, `[k, d]`.
        rotated: features of the same images rotated by 90, 180 and 270 degrees, `[3, n, d]`, if the bank has them.
    """

    features: Tensor
    labels: Tensor
    start: Tensor
    rotated: Tensor | None = None


def view(bank: Bank, name: str, domain: str, variant: FeatureVariant) -> View:
    """Return `domain` through the network `name`, which did not learn from it."""
    network = bank.networks[name]
    there = (network.part == 2) & (bank.domains[network.rows] == bank.domain_names.index(domain))
    features = network.features[there]
    if variant.statistics == "own":
        features = network.own[domain]
    elif variant.statistics == "mixed":
        features = unit(features + network.own[domain])
    return _view(bank, network, there, features, network.rotated.get(domain), variant)


def held_out(bank: Bank, name: str, variant: FeatureVariant) -> View:
    """Return the images of its sources that were held out from the training of the network `name`."""
    network = bank.networks[name]
    there = network.part == 1
    return _view(bank, network, there, network.features[there], network.rotated.get("held_out"), variant)


def learned(bank: Bank, name: str, variant: FeatureVariant) -> list[View]:
    """Return the images that the network `name` learned from, one view for each source."""
    network = bank.networks[name]
    domains = bank.domains[network.rows]
    parts = [(network.part == 0) & (domains == domain) for domain in domains[network.part == 0].unique()]
    return [_view(bank, network, there, network.features[there], None, variant) for there in parts]


def _view(
    bank: Bank, network: Network, there: Tensor, features: Tensor, rotated: Tensor | None, variant: FeatureVariant
) -> View:
    """Return the images at the places `there` of a network's rows, with these features, in one variant."""
    rows = network.rows[there]
    start, centres = lambda_of(bank, network, variant)
    parts = features, bank.imagenet[0, rows]
    if variant.centre == "own":
        centres = [part.mean(0) for part in parts]
    if rotated is not None:
        rotated = _joined((rotated, bank.imagenet[1:, rows]), centres, variant)
    return View(_joined(parts, centres, variant), bank.labels[rows], start, rotated)


def lambda_of(bank: Bank, network: Network, variant: FeatureVariant) -> tuple[Tensor, list[Tensor]]:
    """Return lambda in one variant, `[k, d]`, and the means over the sources that are subtracted from features.

    There are two means: one for the fine-tuned network, one for ImageNet's features, which are concatenated.
    With `variant.centre` "own" each source is centred at its own mean, as the target is.
    """
    there = network.part == 0
    rows = network.rows[there]
    parts = network.features[there], bank.imagenet[0, rows]
    means = centres = [part.mean(0) for part in parts]
    if variant.centre == "own":
        means = [_domain_means(part, bank.domains[rows]) for part in parts]
    prototypes = class_means(_joined(parts, means, variant), bank.labels[rows], len(bank.classes))[0]
    return unit(prototypes), centres


def _domain_means(features: Tensor, domains: Tensor) -> Tensor:
    """Return for each image the mean feature of all images of its domain, `[n, d]`."""
    means = torch.empty_like(features)
    for domain in domains.unique():
        means[domains == domain] = features[domains == domain].mean(0)
    return means


def _joined(parts: Sequence[Tensor], centres: Sequence[Tensor], variant: FeatureVariant) -> Tensor:
    """Concatenate features of the fine-tuned network and ImageNet's together, each less its centre, `[..., d]`."""
    tuned, plain = (unit(part - centre) for part, centre in zip(parts, centres, strict=True))
    return unit(torch.cat([tuned, variant.imagenet * plain], -1))
