"""Label a folder of pictures, given a few labelled ones in class folders: `sib predict --support A --query B`.

Pictures are decoded and turned into features part by part, so that memory does not limit their number. A file that
cannot be read is left out and named.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import itertools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sibcore import zoo
from sibcore.apply.sheet import SIDE, contact_sheet
from sibcore.datasets.archive import Source, hidden
from sibcore.datasets.base import few
from sibcore.datasets.pictures import FORMATS, decode_one, in_order
from sibcore.datasets.progress import meter
from sibcore.device import pick_device
from sibcore.files import write_atomically
from sibcore.transduce import Answers, answers
from sibcore.vision.features import encode

PART = 32  # pictures that are encoded at a time, while as many others are being decoded
LEAST = 8  # a picture with fewer pixels on a side shows nothing
READ = (*FORMATS, "TIFF", "PPM", "JPEG2000")  # formats that Pillow decodes by itself; others may run other programs

COLUMNS = ("file", "label", "probability", "label_before")
MOST = 120  # pictures on a contact sheet
FEW_QUERIES = 2  # with fewer queries per class, adaptation may hurt
EVEN = 0.9  # with a lower ratio of effective classes to classes, uneven shares may hurt


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

    model: str
    shots: dict[str, int]  # the number of labelled pictures of each class
    query: Pictures
    answers: Answers
    truth: Tensor  # [n], the class of each query by its folder; -1 where the folder has no class's name
    problems: list[str]  # with files that were left out

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self.shots)

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
        """Return a table with a line for each query."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name, label, sure, before in zip(self.query.names, self.label, self.sure, self.before, strict=True):
            writer.writerow((name, self.classes[label], f"{sure:.4f}", self.classes[before]))
        return text.getvalue()

    def sheet(self) -> bytes:
        """Return a PNG of the pictures whose label changed."""
        images, captions = [], []
        for row in self.changed[:MOST].tolist():
            name, before, label = self.query.names[row], self.before[row], self.label[row]
            images.append(read_picture(self.query.files, name, SIDE))
            change = f"{self.classes[before]} -> {self.classes[label]}"
            captions.append(f"{change}\n{self.sure[row]:.0%}  {Path(name).name}")
        return contact_sheet(images, captions)


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
    known = pictures(f, support, "labelled", in_folders=True)
    shots = dict(sorted(collections.Counter(known.folders).items()))
    if len(shots) < 2:
        raise ValueError(f"{support} has pictures in one class folder alone, {min(shots)}: expected two or more")
    asked = pictures(f, query, "to label")
    number = {name: i for i, name in enumerate(shots)}
    labels = torch.tensor([number[name] for name in known.folders])
    truth = torch.tensor([number.get(name, -1) for name in asked.folders])
    model = model or zoo.ANY_WAY
    sib = zoo.load_pretrained(model, len(shots), f.dim, steps)
    found = answers(sib, known.features, labels, asked.features)
    return Predictions(model, shots, asked, found, truth, known.problems + asked.problems)


def pictures(network: nn.Module, source: Path, what: str, *, in_folders: bool = False) -> Pictures:
    """Decode and encode the pictures in a folder or zip, at any depth.

    Args:
        network: the feature network, on any device.
        source: the folder or zip.
        what: title of the progress bar.
        in_folders: whether a picture outside of class folders is left out, as a problem.
    """
    source = Path(source).expanduser()
    if not source.exists():
        raise ValueError(f"{source} does not exist: expected a folder of pictures")
    files = Source(source)
    visible = [name for name in files.names if not hidden(name)]
    names = [name for name in visible if _folder(name) or not in_folders]
    problems = [f"{name} lies in no class folder" for name in visible if in_folders and not _folder(name)]

    def one(name: str) -> np.ndarray | ValueError:
        try:
            return read_picture(files, name, network.image_size)
        except ValueError as error:
            return error

    kept, features = [], []
    decoded = zip(names, in_order(one, names, PART), strict=True)
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


def read_picture(files: Source, name: str, size: int) -> np.ndarray:
    """Return a picture as uint8 `[size, size, 3]`, or raise a ValueError that names it."""
    return decode_one(files.read(name), name, size, least=LEAST, formats=READ)


def _folder(name: str) -> str:
    """Return the top folder in a name; "" if there is none."""
    return name.split("/")[0] if "/" in name else ""


def doubts(found: Predictions) -> list[str]:
    """Return reasons to doubt the labels after adaptation, a sentence each.

    There may be too few queries, classes that are not equally frequent, a class that adaptation left without a query,
    or queries of classes that are not in the support set. The study `any_way` of `sibrepro` measured when adaptation
    hurts.
    """
    ways, n = len(found.classes), len(found.query.names)
    reasons = []
    if n < FEW_QUERIES * ways:
        reasons.append(f"{n} pictures for {ways} classes are few to adapt to: the column label_before may be as good")
    share = found.before.bincount(minlength=ways) / n
    effective = torch.special.entr(share).sum().exp().item()
    # the any-way SIB copes with uneven shares of three and more classes
    if effective < EVEN * ways and (ways == 2 or found.model != zoo.ANY_WAY):
        most = found.classes[int(share.argmax())]
        reasons.append(
            f"classes do not seem to be equally frequent ({most}: {share.max():.0%}), as adaptation takes them to be: "
            "the column label_before may be the better one"
        )
    before, after = (labels.bincount(minlength=ways) for labels in (found.before, found.label))
    emptied = [found.classes[i] for i in ((before >= FEW_QUERIES) & (after == 0)).nonzero()[:, 0].tolist()]
    if emptied:
        reasons.append(
            f"adaptation left no picture to {few(emptied)}: where classes look much alike it may take two for one, and "
            "the column label_before may be the better one"
        )
    strange = sorted({folder for folder in found.query.folders if folder} - set(found.classes))
    if strange and (found.truth >= 0).any():
        reasons.append(f"folders of the query set that are no class of the support set: {few(strange)}")
    return reasons


def summary(found: Predictions) -> str:
    """Return a text on what was done, with the accuracy if pictures to label lie in class folders, too."""
    counts = ", ".join(f"{name} {count}" for name, count in found.shots.items())
    lines = [f"{len(found.classes)} classes with labelled pictures ({counts}), {len(found.query.names)} labelled now"]
    lines.append(f"adaptation changed {len(found.changed)} labels")
    accuracy = found.accuracy()
    if accuracy:
        lines.append("accuracy {:.1f} % before adaptation, {:.1f} % after, of {} with known labels".format(*accuracy))
    return "\n".join(lines)


def write(found: Predictions, out: Path) -> list[Path]:
    """Write the table `out`, and beside it the contact sheet if a label changed. Return the paths of both."""
    written = [out]
    write_atomically(out, found.csv().encode("utf-8", "surrogateescape"))
    if len(found.changed):
        written.append(out.with_suffix(".png"))
        write_atomically(written[-1], found.sheet())
    return written
