"""Labels for a folder of pictures from a few labelled ones in class folders: `sib predict --support A --query B`."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import torch
from torch import Tensor

from sibcore import zoo
from sibcore.apply import folders
from sibcore.apply.folders import Pictures
from sibcore.apply.sheet import SIDE, contact_sheet
from sibcore.apply.transduce import Answers, answers
from sibcore.datasets.base import few
from sibcore.device import pick_device
from sibcore.files import write_atomically

COLUMNS = ("file", "label", "probability", "label_before")
MOST = 120  # pictures on a contact sheet
FEW_QUERIES = 2  # per class: with fewer, steps may hurt
EVEN = 0.9  # effective number of classes by number of classes, below which uneven shares may hurt


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """The answer to one task. `truth` [n] is the class of each query, -1 where its folder has no class's name."""

    model: str
    classes: list[str]
    shots: dict[str, int]
    query: Pictures
    answers: Answers
    truth: Tensor

    @property
    def label(self) -> Tensor:
        return self.answers.after.argmax(1)

    @property
    def before(self) -> Tensor:
        return self.answers.before.argmax(1)

    @property
    def changed(self) -> Tensor:
        """The queries whose label adaptation changed, the surest first."""
        rows = (self.label != self.before).nonzero()[:, 0]
        return rows[self.answers.after[rows].amax(1).argsort(descending=True, stable=True)]

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
        sure = self.answers.after.amax(1).tolist()
        for name, label, probability, before in zip(self.query.names, self.label, sure, self.before, strict=True):
            writer.writerow((name, self.classes[label], f"{probability:.4f}", self.classes[before]))
        return text.getvalue()

    def sheet(self) -> bytes:
        """PNG of the pictures whose label changed."""
        rows = self.changed[:MOST].tolist()
        images = [folders.read_picture(self.query.files, self.query.names[row], SIDE) for row in rows]
        sure = self.answers.after.amax(1)
        captions = [
            f"{self.classes[self.before[row]]} -> {self.classes[self.label[row]]}\n{sure[row]:.0%}  {Path(name).name}"
            for row, name in ((row, self.query.names[row]) for row in rows)
        ]
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
    known = folders.pictures(f, support, "labelled", in_folders=True)
    shots = folders.shots(known)
    if len(shots) < 2:
        raise ValueError(f"{support} has pictures in one class folder alone, {min(shots)}: expected two or more")
    asked = folders.pictures(f, query, "to label")
    classes = [*shots]
    labels = torch.tensor([classes.index(folder) for folder in known.folders])
    truth = torch.tensor([classes.index(folder) if folder in shots else -1 for folder in asked.folders])
    model = model or zoo.ANY_WAY
    sib = zoo.load_pretrained(model, len(classes), f.dim, steps)
    found = answers(sib, known.features, labels, asked.features)
    asked = dataclasses.replace(asked, problems=known.problems + asked.problems)
    return Predictions(model, classes, shots, asked, found, truth)


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
