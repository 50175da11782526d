"""Pictures in class folders as features: decoded and encoded part by part, what cannot be read told by name."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sibcore.datasets.archive import Files
from sibcore.datasets.base import few
from sibcore.datasets.pictures import FORMATS, decode_one, in_order
from sibcore.datasets.progress import meter
from sibcore.vision.features import encode

PART = 32  # pictures in memory at a time, and as many that are being decoded
LEAST = 8  # pixels on each side, below which a picture shows nothing
READ = (*FORMATS, "TIFF", "PPM", "JPEG2000")  # what Pillow decodes by itself; other readers may run other programs


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """Readable pictures of a folder: names from its top, and features [n, d]; what is wrong with the other files."""

    files: Files
    names: list[str]
    features: Tensor
    problems: list[str]

    @property
    def folders(self) -> list[str]:
        """The top folder that each picture lies in; empty for one that lies in none."""
        return [_folder(name) for name in self.names]


def pictures(network: nn.Module, source: Path, what: str, *, in_folders: bool = False) -> Pictures:
    """The pictures in a folder or zip, at any depth; `in_folders`: one that lies in no class folder is a problem."""
    source = Path(source).expanduser()
    if not source.exists():
        raise ValueError(f"{source} does not exist: expected a folder of pictures")
    files = Files(source)
    visible = [name for name in files.names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))]
    names = [name for name in visible if _folder(name) or not in_folders]
    problems = [f"{name} lies in no class folder" for name in visible if in_folders and not _folder(name)]

    def one(name: str) -> np.ndarray | ValueError:
        try:
            return read_picture(files, name, network.image_size)
        except ValueError as error:
            return error

    kept, features, decoded = [], [], zip(names, in_order(one, names, PART), strict=True)
    with meter(len(names), f"{what}: {source.name}", " pictures") as bar:
        while part := dict(itertools.islice(decoded, PART)):
            good = {name: image for name, image in part.items() if isinstance(image, np.ndarray)}
            problems += [str(error) for name, error in part.items() if name not in good]
            if good:
                kept += good
                features.append(encode(network, np.stack([*good.values()])))
            bar.update(len(part))
    if not kept:
        seen = f"; {few(problems)}" if problems else ""
        raise ValueError(f"{source} has no picture that can be read{' in a class folder' if in_folders else ''}{seen}")
    return Pictures(files, kept, torch.cat(features), problems)


def shots(support: Pictures) -> dict[str, int]:
    """How many pictures each class folder has."""
    return dict(sorted(collections.Counter(support.folders).items()))


def read_picture(files: Files, name: str, size: int) -> np.ndarray:
    """uint8 [size, size, 3]"""
    return decode_one(files.read(name), name, size, least=LEAST, formats=READ)


def _folder(name: str) -> str:
    return name.split("/")[0] if "/" in name else ""
