"""mini-ImageNet (Vinyals et al., 2016): 100 classes of ImageNet, 600 images each, 84x84, split 64/16/20.

It is read from a folder (or zip) of class folders named by WordNet id, or from the csv files of Ravi & Larochelle
(2017) beside a folder `images`. Rows are sorted by class and file name, so that both layouts of the same files give
the same array and the same hash. Folders around the class folders do not count: the split goes by class.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sibcore.datasets.archive import Files
from sibcore.datasets.base import ImageSet, Index, check_counts, few, find_source
from sibcore.datasets.cache import cached
from sibcore.datasets.pictures import decode

NAME = "mini-imagenet"
SIZE = 84
IMAGES_PER_CLASS = 600

# The split of Ravi & Larochelle.
TRAIN = (
    "n01532829 n01558993 n01704323 n01749939 n01770081 n01843383 n01910747 n02074367 n02089867 n02091831 "
    "n02101006 n02105505 n02108089 n02108551 n02108915 n02111277 n02113712 n02120079 n02165456 n02457408 "
    "n02606052 n02687172 n02747177 n02795169 n02823428 n02966193 n03017168 n03047690 n03062245 n03207743 "
    "n03220513 n03337140 n03347037 n03400231 n03476684 n03527444 n03676483 n03838899 n03854065 n03888605 "
    "n03908618 n03924679 n03998194 n04067472 n04243546 n04251144 n04258138 n04275548 n04296562 n04389033 "
    "n04435653 n04443257 n04509417 n04515003 n04596742 n04604644 n04612504 n06794110 n07584110 n07697537 "
    "n07747607 n09246464 n13054560 n13133613"
)
VAL = (
    "n01855672 n02091244 n02114548 n02138441 n02174001 n02950826 n02971356 n02981792 n03075370 n03417042 "
    "n03535780 n03584254 n03770439 n03773504 n03980874 n09256479"
)
TEST = (
    "n01930112 n01981276 n02099601 n02110063 n02110341 n02116738 n02129165 n02219486 n02443484 n02871525 "
    "n03127925 n03146219 n03272010 n03544143 n03775546 n04146614 n04149813 n04418357 n04522168 n07613480"
)
SPLITS = {"train": tuple(TRAIN.split()), "val": tuple(VAL.split()), "test": tuple(TEST.split())}
CLASSES = tuple(sorted(name for names in SPLITS.values() for name in names))

# A public repository keeps the pictures of the lists of Ravi & Larochelle at 84x84, here pinned to one commit. Its own
# folders train and val are not the few-shot split, and do not matter. The archive that GitHub packs for a commit need
# not be the same bytes for ever, so the hash is that of the listing of its pictures; SHA256 is that of their pixels.
COMMIT = "557ebcae0db23651f9370f54a5f31b1f0fd4064d"
URL = f"https://github.com/Deo0330/split_minidataset/archive/{COMMIT}.zip"
LISTING = "5dafb16f9e6841831222ff2e0584174d0336cde4585242db7c31954cd0b9ab94"
SHA256 = "25298243f30f76748943d8fe398ee80dfa81d041501fee4bc8b1819f3b50e7cc"
TERMS = (
    "its pictures are ImageNet's, whose terms of access (https://image-net.org/download) allow non-commercial research "
    "and education only"
)

FOUND_AS = ("mini-imagenet", "mini-imagenet.zip", "miniImageNet", "miniImagenet", "mini_imagenet")
HELP = (
    "run `sib data get mini-imagenet --accept-terms` if you accept the terms of ImageNet, or name a folder of your own "
    "in the argument `source` (or call it mini-imagenet and set SIB_DATA to the folder that holds it): one folder a "
    "class, named by its WordNet id, or train.csv, val.csv and test.csv beside a folder images"
)


def load(source: Path | None = None, cache: Path | None = None) -> ImageSet:
    """mini-ImageNet from `<class>/<picture>`, or from `{train,val,test}.csv` beside `images/<picture>`."""
    files = Files(find_source(NAME, source, FOUND_AS, HELP))
    rows = _rows(files)

    def build(out: Path) -> Index:
        decode(files, [name for _, name in rows], out, SIZE)
        return Index(labels=[CLASSES.index(label) for label, _ in rows], classes=CLASSES, splits=SPLITS)

    data = cached(NAME, files.key(), build, cache)
    if data.sha256 != SHA256:
        warnings.warn(
            f"{files.path}: this mini-ImageNet has the right classes and counts but not the known pixels (sha256 "
            f"{data.sha256}, known is {SHA256}): its pictures are others of these classes, or were scaled, cut or "
            "encoded in another way, or decoded by another JPEG library; accuracies may differ from published ones",
            stacklevel=2,
        )
    return data


def check_listing(path: Path) -> None:
    """An error unless every picture in the archive is, bit by bit, the known one."""
    files = Files(path)
    files.check_listing({f"{label}/{PurePosixPath(name).name}": name for label, name in _rows(files)}, LISTING)


def _rows(files: Files) -> list[tuple[str, str]]:
    """(class, picture), sorted; an error unless every class has all its pictures."""
    tables = [PurePosixPath(name) for name in files.names if PurePosixPath(name).name == "train.csv"]
    found = _listed(files, tables[0].parent) if tables else _in_class_folders(files)
    rows = sorted(found, key=lambda row: (row[0], PurePosixPath(row[1]).name))
    check_counts(NAME, files.path, [label for label, _ in rows], CLASSES, IMAGES_PER_CLASS, HELP)
    return rows


def _in_class_folders(files: Files) -> list[tuple[str, str]]:
    """(class, picture) for every picture: its folder's name is its class."""
    return [(PurePosixPath(name).parent.name, name) for name in files.pictures()]


def _listed(files: Files, top: PurePosixPath) -> list[tuple[str, str]]:
    """(class, picture) for every line of the three csv files in `top`."""
    rows = [row for split in SPLITS for row in _table(files, top, split)]
    missing = [name for _, name in rows if name not in files]
    if missing:
        raise ValueError(f"{files.path}: the csv files name pictures that are not there: {few(missing)}; {HELP}")
    return rows


def _table(files: Files, top: PurePosixPath, split: str) -> Iterator[tuple[str, str]]:
    table = str(top / f"{split}.csv")
    if table not in files:
        raise ValueError(f"{files.path}: there is no {table} beside train.csv; {HELP}")
    try:
        lines = csv.DictReader(io.StringIO(files.text(table)), restval="")
        names, rows = lines.fieldnames or (), [*lines]
    except csv.Error as error:
        raise ValueError(f"{files.path}: {table} is not a table with commas ({error}); fetch it again") from error
    if not {"filename", "label"} <= set(names):
        raise ValueError(f"{files.path}: the first line of {table} is not filename,label but {','.join(names)}")
    for line in rows:
        if line["label"] not in SPLITS[split]:
            raise ValueError(
                f"{files.path}: {table} lists the class {line['label']}, which is not one of the published {split} "
                'classes; for a split of your own use the data set "folder"'
            )
        yield line["label"], str(top / "images" / line["filename"])
