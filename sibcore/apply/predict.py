"""Labels for a folder of pictures from a few labelled ones in class folders: `sib predict --support A --query B`.

Pictures are decoded and encoded part by part; what cannot be read is told by name.
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

PART = 32  # pictures in memory at a time, and as many that are being decoded
LEAST = 8  # pixels on each side, below which a picture shows nothing
READ = (*FORMATS, "TIFF", "PPM", "JPEG2000")  # what Pillow decodes by itself; other readers may run other programs

COLUMNS = ("file", "label", "probability", "label_before")
MOST = 120  # pictures on a contact sheet
FEW_QUERIES = 2  # per class: with fewer, steps may hurt
EVEN = 0.9  # effective number of classes by number of classes, below which uneven shares may hurt


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """Readable pictures of a folder: names from its top, and features [n, d]; what is wrong with the other files."""

    files: Source
    names: list[str]
    features: Tensor
    problems: list[str]

    @property
    def folders(self) -> list[str]:
        """The top folder that each picture lies in; empty for one that lies in none."""
        return [_folder(name) for name in self.names]


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """The answer to one task. `truth` [n] is the class of each query, -1 where its folder has no class's name."""

    model: str
    shots: dict[str, int]  # of each class
    query: Pictures
    answers: Answers
    truth: Tensor
    problems: list[str]

    @property
    def classes(self) -> list[str]:
        return [*self.shots]

    @property
    def label(self) -> Tensor:
        return self.answers.after.argmax(1)

    @property
    def before(self) -> Tensor:
        return self.answers.before.argmax(1)

    @property
    def sure(self) -> Tensor:
        """The probability of each label."""
        return self.answers.after.amax(1)

    @property
    def changed(self) -> Tensor:
        """The queries whose label adaptation changed, the surest first."""
        rows = (self.label != self.before).nonzero()[:, 0]
        return rows[self.sure[rows].argsort(descending=True, stable=True)]

    def accuracy(self) -> tuple[float, float, int] | None:
        """Percent before and after, and of how many queries; None where no label is known."""
        known = self.truth >= 0
        if not known.any():
            return None
        right = ((found == self.truth)[known].double().mean().item() for found in (self.before, self.label))
        return (*(100 * share for share in right), int(known.sum()))

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name, label, sure, before in zip(self.query.names, self.label, self.sure, self.before, strict=True):
            writer.writerow((name, self.classes[label], f"{sure:.4f}", self.classes[before]))
        return text.getvalue()

    def sheet(self) -> bytes:
        """PNG of the pictures whose label changed."""
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
    """Adapt to all pictures below `query` and answer, given those in the class folders of `support`.

    `network` and `model` are names of `sibcore.zoo`; without a model, the any-way SIB.
    """
    f = zoo.load_pretrained(network).to(pick_device(), memory_format=torch.channels_last)
    known = pictures(f, support, "labelled", in_folders=True)
    shots = dict(sorted(collections.Counter(known.folders).items()))
    if len(shots) < 2:
        raise ValueError(f"{support} has pictures in one class folder alone, {min(shots)}: expected two or more")
    asked = pictures(f, query, "to label")
    number = {name: i for i, name in enumerate(shots)}
    labels, truth = (torch.tensor([number.get(name, -1) for name in found.folders]) for found in (known, asked))
    model = model or zoo.ANY_WAY
    sib = zoo.load_pretrained(model, len(shots), f.dim, steps)
    found = answers(sib, known.features, labels, asked.features)
    return Predictions(model, shots, asked, found, truth, known.problems + asked.problems)


def pictures(network: nn.Module, source: Path, what: str, *, in_folders: bool = False) -> Pictures:
    """The pictures in a folder or zip, at any depth; `in_folders`: one that lies in no class folder is a problem."""
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


def read_picture(files: Source, name: str, size: int) -> np.ndarray:
    """uint8 [size, size, 3]"""
    return decode_one(files.read(name), name, size, least=LEAST, formats=READ)


def _folder(name: str) -> str:
    return name.split("/")[0] if "/" in name else ""


def doubts(found: Predictions) -> list[str]:
    """Reasons not to trust the labels after adaptation; for the measurements see `sibrepro.zoo.any_way`."""
    ways, n = len(found.classes), len(found.query.names)
    reasons = []
    if n < FEW_QUERIES * ways:
        reasons.append(f"{n} pictures for {ways} classes are few to adapt to: the column label_before may be as good")
    share = found.before.bincount(minlength=ways) / n
    effective = torch.special.entr(share).sum().exp().item()
    # the any-way SIB copes with uneven shares from three classes on
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
    """What was done, and the accuracy where the query set has class folders, too."""
    counts = ", ".join(f"{name} {count}" for name, count in found.shots.items())
    lines = [f"{len(found.classes)} classes with labelled pictures ({counts}), {len(found.query.names)} labelled now"]
    lines.append(f"adaptation changed {len(found.changed)} labels")
    accuracy = found.accuracy()
    if accuracy:
        lines.append("accuracy {:.1f} % before adaptation, {:.1f} % after, of {} with known labels".format(*accuracy))
    return "\n".join(lines)


def write(found: Predictions, out: Path) -> list[Path]:
    """The table `out`, and beside it the contact sheet if a label changed; what was written."""
    written = [out]
    write_atomically(out, found.csv().encode("utf-8", "surrogateescape"))
    if len(found.changed):
        written.append(out.with_suffix(".png"))
        write_atomically(written[-1], found.sheet())
    return written
