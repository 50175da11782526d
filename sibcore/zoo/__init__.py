"""Trained models by name: `load_pretrained("any-way")`. `table()` lists them with their accuracies.

`cards.json` describes each model. The weights of SIBs are part of an installation. Feature networks are larger, so they
are found in a checkout, or fetched once from the repository at the commit that their card names. A file is used only if
it has the sha256 of its card.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from pathlib import Path

from torch import nn

from sibcore import files
from sibcore.train import load_sib
from sibcore.transduce import resized

HERE = Path(__file__).parent
ANY_WAY = "any-way"  # the SIB for any number of ways, shots and queries, and for any features
BANK = "features"  # what the card of a feature bank says that it is
IMAGENET_SIZE = 224  # side in pixels of the images that networks with ImageNet's weights were trained on
COLUMNS = ("name", "what", "trained on", "ways", "shots", "accuracy", "size", "licence")


@dataclasses.dataclass(frozen=True)
class Card:
    """The description of a model, or of a feature bank."""

    name: str
    what: str
    trained_on: str
    licence: str
    network: str = ""  # the network that a SIB takes its features from; for a network, its own name
    ways: str = ""
    shots: str = ""
    accuracy: float | None = None  # in percent
    interval: float | None = None  # half the width of the 95 % interval, in percentage points
    tested_on: str = ""
    fact: str = ""  # the published run and its metric that the accuracy comes from
    file: str = ""  # path from the top of the repository; empty where another package has the weights
    sha256: str = ""
    bytes: int = 0
    commit: str = ""  # a commit that has the file, where the file is not part of an installation

    @property
    def is_network(self) -> bool:
        """Whether this is a feature network and not a SIB."""
        return self.network == self.name

    @property
    def is_bank(self) -> bool:
        """Whether this is a feature bank, which `load_features` loads, and not a model."""
        return self.what == BANK


@functools.cache
def cards() -> dict[str, Card]:
    """Return the cards of all models by name."""
    entries = json.loads((HERE / "cards.json").read_text(encoding="utf-8"))
    return {entry["name"]: Card(**entry) for entry in entries}


def card(name: str) -> Card:
    """Return the card of a model, or raise a ValueError that lists the names there are."""
    if name not in cards():
        raise ValueError(f"there is no model {name!r}: expected one of {', '.join(cards())}")
    return cards()[name]


def load_pretrained(name: str, ways: int | None = None, dim: int | None = None, steps: int | None = None) -> nn.Module:
    """Load a trained model, frozen and in evaluation mode: a SIB, or a feature network with `image_size` and `dim`.

    By default a SIB is as it was trained. With any of `ways`, `dim` and `steps` given, it fits tasks of that size and
    any number of queries, with a step of its trained length (see `sibcore.transduce.resized`).

    Args:
        name: one of `cards()`; `sib models` lists them.
        ways: number of classes.
        dim: size of the features.
        steps: K, the number of synthetic gradient steps.
    """
    known = card(name)
    if known.is_bank:
        raise ValueError(f"{name} is a feature bank: load it with sibcore.load_features")
    sizes_given = (ways, dim, steps) != (None, None, None)
    if known.is_network:
        if sizes_given:
            raise ValueError(f"{name} is a feature network: ways, dim and steps are for SIBs, leave them out")
        return _network(known)
    model, about = load_sib(path(known))
    if sizes_given:
        model = resized(model, about["tasks"], ways or model.ways, dim or model.dim, steps)
    return model.eval().requires_grad_(False)


def path(known: Card) -> Path:
    """Return the path of a model's file in this installation or checkout, or else in the cache folder."""
    found = HERE.parents[1] / known.file
    if not found.is_file():
        return _fetched(known)
    if files.sha256(found) != known.sha256:
        raise ValueError(f"{found} is damaged: its sha256 is not the published {known.sha256}; install sibcore again")
    return found


def table() -> str:
    """Return a text with one line for each model, in aligned columns."""
    rows = [COLUMNS, *map(_row, cards().values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(known: Card) -> tuple[str, ...]:
    """Return a model's entries in the columns of the table."""
    width = "" if known.interval is None else f" ± {known.interval:.1f}"
    accuracy = "" if known.accuracy is None else f"{known.accuracy:.1f}{width} % {known.tested_on}"
    size = f"{max(1, known.bytes // 1000)} kB" if known.bytes else ""
    return known.name, known.what, known.trained_on, known.ways, known.shots, accuracy, size, known.licence


def _network(known: Card) -> nn.Module:
    """Load a feature network and give it the attributes `image_size` and `dim`."""
    from sibcore.vision import backbones

    if known.file:
        network, about = backbones.load_network(path(known))
    else:
        network, about = backbones.imagenet_network(known.name, IMAGENET_SIZE), {"image_size": IMAGENET_SIZE}
    network.image_size, network.dim = about["image_size"], network.backbone.dim
    return network.eval().requires_grad_(False)


def _fetched(known: Card) -> Path:
    """Return the copy of a model's file in the cache folder, fetched from the repository if it is not there yet."""
    from sibcore.datasets.base import MissingData, cache_folder
    from sibcore.datasets.download import fetch

    # the file is at `<address>/<commit>/<file>`, as at https://raw.githubusercontent.com/someone/sibcore
    repository = os.environ.get("SIB_REPOSITORY", "").rstrip("/")
    kept = cache_folder() / "zoo" / f"{known.name}-{known.sha256[:12]}.safetensors"
    if not (kept.is_file() or repository):
        raise MissingData(
            f"{known.name}: its file {known.file} is not part of this installation; use a checkout of the project, "
            f"save the file as {kept}, or set SIB_REPOSITORY to the address of the repository's raw files"
        )

    def check(file: Path) -> None:
        if files.sha256(file) != known.sha256:
            raise ValueError(f"{file} has sha256 {files.sha256(file)}, expected {known.sha256}")

    return fetch(f"{repository}/{known.commit}/{known.file}", kept, check)
