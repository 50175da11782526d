"""Trained models by name: `load_pretrained("any-way")`; `table()` says which there are, and how good.

`cards.json` has a card for each. SIBs lie beside it; networks are found in a checkout, else fetched once from the
repository at the commit that the card names. Whatever its way, a file is used only if it has the card's sha256.
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
ANY_WAY = "any-way"  # the SIB for any number of ways, shots and queries, and features of any kind
IMAGENET_SIZE = 224  # pixels, of the images that networks with ImageNet's weights were trained on
COLUMNS = ("name", "what", "trained on", "ways", "shots", "accuracy", "size", "licence")


@dataclasses.dataclass(frozen=True)
class Card:
    """What is known of a model. `accuracy` is in percent, `fact` names the published run and the metric it is from."""

    name: str
    what: str
    trained_on: str
    licence: str
    network: str = ""  # that a SIB's features come from; of a network, its own name
    ways: str = ""
    shots: str = ""
    accuracy: float | None = None
    interval: float | None = None  # of 95 %, half its width
    tested_on: str = ""
    fact: str = ""
    file: str = ""  # from the top of the repository; empty: another package has the weights
    sha256: str = ""
    bytes: int = 0
    commit: str = ""  # that has the file, where it is not part of an installation

    @property
    def is_network(self) -> bool:
        return self.network == self.name


@functools.cache
def cards() -> dict[str, Card]:
    """All models by name."""
    entries = json.loads((HERE / "cards.json").read_text(encoding="utf-8"))
    return {entry["name"]: Card(**entry) for entry in entries}


def card(name: str) -> Card:
    if name not in cards():
        raise ValueError(f"there is no model {name!r}: expected one of {', '.join(cards())}")
    return cards()[name]


def load_pretrained(name: str, ways: int | None = None, dim: int | None = None, steps: int | None = None) -> nn.Module:
    """The model `name`, in evaluation mode: a SIB, or a network with `image_size` and `dim`.

    A SIB comes as it was trained; with any of `ways`, `dim` and `steps` given, it fits tasks of that size and any
    number of queries, with a step of its trained length (see `sibcore.transduce.resized`).
    """
    known = card(name)
    if known.is_network:
        if (ways, dim, steps) != (None, None, None):
            raise ValueError(f"{name} is a network: ways, dim and steps are for SIBs")
        return _network(known)
    model, about = load_sib(path(known))
    if (ways, dim, steps) != (None, None, None):
        model = resized(model, about["tasks"], ways or model.ways, dim or model.dim, steps)
    return model.eval().requires_grad_(False)


def path(known: Card) -> Path:
    """Where a model's file is: in this installation or checkout, in the cache folder, or fetched to there now."""
    found = HERE.parents[1] / known.file
    if not found.is_file():
        return _fetched(known)
    if files.sha256(found) != known.sha256:
        raise ValueError(f"{found} is damaged: its sha256 is not the published {known.sha256}; install it again")
    return found


def table() -> str:
    """Every model, as text of aligned columns."""
    rows = [COLUMNS, *map(_row, cards().values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(known: Card) -> tuple[str, ...]:
    width = "" if known.interval is None else f" ± {known.interval:.1f}"
    accuracy = "" if known.accuracy is None else f"{known.accuracy:.1f}{width} % {known.tested_on}"
    size = f"{max(1, known.bytes // 1000)} kB" if known.bytes else ""
    return known.name, known.what, known.trained_on, known.ways, known.shots, accuracy, size, known.licence


def _network(known: Card) -> nn.Module:
    from sibcore.vision import backbones

    if known.file:
        network, about = backbones.load_network(path(known))
    else:
        network, about = backbones.imagenet_network(known.name, IMAGENET_SIZE), {"image_size": IMAGENET_SIZE}
    network.image_size, network.dim = about["image_size"], network.backbone.dim
    return network.eval().requires_grad_(False)


def _fetched(known: Card) -> Path:
    from sibcore.datasets.base import MissingData, cache_folder
    from sibcore.datasets.download import fetch

    # below this address is `<commit>/<file>`, as below https://raw.githubusercontent.com/me/it
    repository = os.environ.get("SIB_REPOSITORY", "").rstrip("/")
    kept = cache_folder() / "zoo" / f"{known.name}-{known.sha256[:12]}.safetensors"
    if not (kept.is_file() or repository):
        raise MissingData(
            f"{known.name}: its file {known.file} is not part of this installation; use a checkout of the project, "
            f"save the file as {kept}, or set SIB_REPOSITORY to the address of the repository's raw files"
        )

    def check(file: Path) -> None:
        if files.sha256(file) != known.sha256:
            raise ValueError(f"{file} has sha256 {files.sha256(file)}, the published file has {known.sha256}")

    return fetch(f"{repository}/{known.commit}/{known.file}", kept, check)
