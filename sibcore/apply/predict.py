"""Label a folder of pictures, given a few labelled ones in class folders: `sib predict --support A --query B`.

Pictures are decoded and turned into features part by part, so memory does not limit their number. A file that cannot be
read is left out and named.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sibcore import zoo
from sibcore.apply.table import as_csv
from sibcore.datasets.archive import Source, hidden
from sibcore.datasets.base import few
from sibcore.datasets.pictures import FORMATS, decode_one, in_order
from sibcore.datasets.progress import meter
from sibcore.device import pick_device
from sibcore.transduce import Answers, answers
from sibcore.vision.features import encode

PART = 32  # pictures that are encoded at a time, while as many others are being decoded
LEAST = 8  # a picture with fewer pixels on a side shows nothing
READ = (*FORMATS, "TIFF", "PPM", "JPEG2000")  # formats that Pillow decodes by itself; others may run other programs

FEW_QUERIES = 2  # with fewer queries per class, adaptation may hurt
EVEN = 0.9  # with a lower ratio of effective classes to classes, their shares count as uneven


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """The readable pictures of a folder or zip."""

    files: Source
    names: list[str]  # paths from the top
    features: Tensor  # [n, d]
    problems: list[str]  # with the other files, a message for each

    @property
    def folders(self) -> list[str]:
        """The top folder that each picture lies in; "" for a picture outside of folders."""
        return [_folder(name) for name in self.names]


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """The labels of all queries, before and after adaptation."""

    model: str  # the name of the SIB
    network: str  # the name of the feature network
    steps: int  # K
    support: Pictures
    query: Pictures
    answers: Answers
    truth: Tensor  # [n], the class of each query by its folder; -1 where the folder has no class's name

    @property
    def shots(self) -> dict[str, int]:
        """The number of labelled pictures of each class, in the order of the classes."""
        return dict(sorted(collections.Counter(self.support.folders).items()))

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self.shots)

    @property
    def problems(self) -> list[str]:
        """A message for each file that was left out."""
        return self.support.problems + self.query.problems

    @property
    def label(self) -> Tensor:
        """The class of each query after adaptation, `[n]`."""
        return self.answers.after.argmax(1)

    @property
    def before(self) -> Tensor:
        """The class of each query before adaptation, `[n]`."""
        return self.answers.before.argmax(1)

    @property
    def sure(self) -> Tensor:
        """The probability of each label after adaptation, `[n]`."""
        return self.answers.after.amax(1)

    @property
    def changed(self) -> Tensor:
        """The queries whose label adaptation changed, the most probable labels first."""
        rows = (self.label != self.before).nonzero()[:, 0]
        return rows[self.sure[rows].argsort(descending=True, stable=True)]

    def accuracy(self) -> tuple[float, float, int] | None:
        """Return the accuracy in percent before and after adaptation, and the number of queries with a known class.

        None if the class of no query is known.
        """
        known = self.truth >= 0
        if not known.any():
            return None
        before, after = ((found == self.truth)[known].double().mean().item() for found in (self.before, self.label))
        return 100 * before, 100 * after, int(known.sum())

    def csv(self) -> str:
        """Return a table with one line per query."""
        return as_csv(self.query.names, self.classes, self.answers)


class Doubt(NamedTuple):
    """A reason to doubt the labels after adaptation."""

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what} {self.advice}"


def predict(
    support: Path,
    query: Path,
    network: str = "efficientnet-lite0",
    model: str | None = None,
    steps: int | None = None,
) -> Predictions:
    """Label all pictures below a folder together.

    Args:
        support: a folder or zip of class folders with labelled pictures.
        query: a folder or zip with the pictures to label.
        network: name of a network of `sibcore.zoo`.
        model: name of a SIB of `sibcore.zoo`; by default the any-way one.
        steps: K, the number of synthetic gradient steps; by default as many as the SIB was trained with.
    """
    f = zoo.load_pretrained(network).to(pick_device(), memory_format=torch.channels_last)
    known = pictures(f, support, in_folders=True)
    classes = sorted(set(known.folders))
    if len(classes) < 2:
        raise ValueError(
            f"{support} has readable pictures in only one class folder, {classes[0]}: "
            "expected at least two class folders, such as cat/ and dog/"
        )
    model = model or zoo.ANY_WAY
    sib = zoo.load_pretrained(model, len(classes), f.dim, steps)
    asked = pictures(f, query)
    number = {name: i for i, name in enumerate(classes)}
    labels = torch.tensor([number[name] for name in known.folders])
    truth = torch.tensor([number.get(name, -1) for name in asked.folders])
    found = answers(sib, known.features, labels, asked.features)
    return Predictions(model, network, sib.steps, known, asked, found, truth)


def pictures(network: nn.Module, source: Path, *, in_folders: bool = False) -> Pictures:
    """Decode and encode the pictures in a folder or zip, at any depth.

    Args:
        network: the feature network, on any device.
        source: the folder or zip.
        in_folders: whether a picture outside of class folders is left out, as a problem.
    """
    source = Path(source).expanduser()
    if not source.exists():
        raise ValueError(f"{source} does not exist: expected a folder of pictures, or a zip of one")
    files = Source(source)
    visible = [name for name in files.names if not hidden(name)]
    names = [name for name in visible if _folder(name) or not in_folders]
    outside = [name for name in visible if in_folders and not _folder(name)]
    problems = [f"{name} is not in a class folder; move it into one" for name in outside]

    def one(name: str) -> np.ndarray | ValueError:
        try:
            return read_picture(files, name, network.image_size)
        except ValueError as error:
            return error

    kept, features = [], []
    decoded = zip(names, in_order(one, names, PART), strict=True)
    with meter(len(names), f"reading {source.name}", " pictures") as bar:
        while part := dict(itertools.islice(decoded, PART)):
            good = {name: image for name, image in part.items() if isinstance(image, np.ndarray)}
            problems += [str(error) for name, error in part.items() if name not in good]
            if good:
                kept += good
                features.append(encode(network, np.stack([*good.values()])))
            bar.update(len(part))
    if not kept:
        expected = "pictures in class folders, such as cat/1.jpg" if in_folders else "pictures, such as 1.jpg"
        seen = f"; left out: {few(problems)}" if problems else ""
        raise ValueError(f"{source} has no readable picture: expected {expected}{seen}")
    return Pictures(files, kept, torch.cat(features), problems)


def read_picture(files: Source, name: str, size: int) -> np.ndarray:
    """Return a picture as uint8 `[size, size, 3]`, or raise a ValueError that names it."""
    return decode_one(files.read(name), name, size, least=LEAST, formats=READ)


def _folder(name: str) -> str:
    """Return the top folder in a name; "" if there is none."""
    return name.split("/")[0] if "/" in name else ""


def doubts(found: Predictions) -> list[Doubt]:
    """Return reasons to doubt the labels after adaptation, each with advice.

    There may be too few queries, classes that are not equally frequent, a class that adaptation left without a query,
    or queries of classes that are not in the support set.
    """
    return [*(_of_adaptation(found) if found.steps else []), *_of_folders(found)]


def _of_adaptation(found: Predictions) -> list[Doubt]:
    """Return the doubts that K = 0 steps would not give."""
    ways, n = len(found.classes), len(found.query.names)
    reasons = []
    if n < FEW_QUERIES * ways:
        reasons.append(
            Doubt(
                f"There {'is' if n == 1 else 'are'} only {count_pictures(n)} to label for {ways} classes.",
                "Adaptation compares these pictures with each other and can learn little from so few. Label more of "
                "them in one call, or use the column label_before.",
            )
        )
    before, after = (labels.bincount(minlength=ways) for labels in (found.before, found.label))
    reasons += _unevenness(found, before / n)
    emptied = [found.classes[i] for i in ((before >= FEW_QUERIES) & (after == 0)).nonzero()[:, 0].tolist()]
    if emptied:
        reasons.append(
            Doubt(
                f"Adaptation left no picture in {few(emptied)}.",
                "Where two classes look alike, it may merge them. Look at the pictures whose label changed. If the "
                "labels before were right, use the column label_before, or add labelled pictures of these classes.",
            )
        )
    return reasons


def _of_folders(found: Predictions) -> list[Doubt]:
    """Return a doubt if some, but not all, of the queries are in folders that are not classes."""
    strange = sorted({folder for folder in found.query.folders if folder} - set(found.classes))
    if not strange or not (found.truth >= 0).any():
        return []
    return [
        Doubt(
            f"Some pictures to label are in folders that are not classes: {few(strange)}.",
            "They are labelled as one of the known classes, and the accuracy leaves them out. If they show a class of "
            "their own, add a folder of that name with labelled pictures. If they show no class, take them out, "
            "because adaptation sees them too.",
        )
    ]


def _unevenness(found: Predictions, share: Tensor) -> list[Doubt]:
    """Return a doubt if the classes have uneven shares of the queries and the SIB is known to lose by that.

    The study `any_way` of `sibrepro` measured the any-way SIB on uneven shares. With one labelled picture per class it
    gains. With five, moderately uneven shares take the gain away, and with two classes it loses more often than not.
    """
    ways = len(found.classes)
    effective = torch.special.entr(share).sum().exp().item()
    if effective >= EVEN * ways:
        return []
    copes = len(found.support.names) < (2 if ways == 2 else 5) * ways
    if found.model == zoo.ANY_WAY and copes:
        return []
    most = f"{100 * share.max():.0f} % of the pictures look like {found.classes[int(share.argmax())]}"
    if found.model == zoo.ANY_WAY:
        advice = "With so many labelled pictures per class, adaptation may then gain nothing or do harm."
    else:
        advice = f"{found.model} was trained on even shares only: try --model {zoo.ANY_WAY}, which knows both."
    return [
        Doubt(
            f"The classes do not seem to be equally frequent: {most}.",
            f"{advice} To be safe, use the column label_before, which does not depend on the shares.",
        )
    ]


def count_pictures(count: int) -> str:
    """Return a number of pictures in words."""
    return f"{count:,} picture{'' if count == 1 else 's'}"


def summary(found: Predictions) -> list[str]:
    """Return what was done in a few lines, with the accuracy if pictures to label lie in class folders, too."""
    new, known, changed = len(found.query.names), len(found.support.names), len(found.changed)
    said = f"changed {changed:,} label{'' if changed == 1 else 's'}" if found.steps else "is off (K = 0)"
    lines = [
        f"Labelled {count_pictures(new)} as one of {len(found.classes)} classes, given {known:,} with labels.",
        f"Adaptation {said}.",
    ]
    if accuracy := found.accuracy():
        before, after, count = accuracy
        of = f"{count_pictures(count)} in class folders"
        lines.append(f"Accuracy: {before:.1f} % before adaptation, {after:.1f} % after ({of}).")
    return lines
