"""mini-ImageNet (Vinyals et al., 2016): 100 classes of ImageNet, 600 images each, 84x84, split 64/16/20.

It is read from a folder (or zip) of class folders named by WordNet id, or from the csv files of Ravi & Larochelle
(2017) beside a folder `images`. Rows are sorted by class and file name, so that both layouts of the same files give
the same array and the same hash. Folders around the class folders do not matter, because splits are lists of classes.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sibcore.datasets.archive import Source
from sibcore.datasets.base import ImageSet, Index, check_counts, few, find_source
from sibcore.datasets.folder import read_splits
from sibcore.datasets.pictures import decoded

NAME = "mini-imagenet"
SIZE = 84
IMAGES_PER_CLASS = 600
SPLITS = read_splits(Path(__file__).with_suffix(".yaml").read_bytes(), NAME)
CLASSES = tuple(sorted(name for names in SPLITS.values() for name in names))

# A public repository keeps the pictures of the lists of Ravi & Larochelle at 84x84, here pinned to one commit. Its own
# folders train and val are not the few-shot split and do not matter. GitHub may pack the archive of a commit into other
# bytes one day, so LISTING is the hash of the listing of its pictures; SHA256 is that of the decoded image set.
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
    """Load mini-ImageNet from `<class>/<picture>`, or from `{train,val,test}.csv` beside `images/<picture>`.

    Warn if the pixels are not the known ones, as accuracies may then differ from published ones.

    Args:
        source: the zip or folder; by default it is looked for in the folder of `SIB_DATA`, then in the cache folder.
        cache: the cache folder, or None for the usual one.
    """
    files = Source(find_source(NAME, source, FOUND_AS, HELP))
    rows = _rows(files)
    index = Index(labels=[CLASSES.index(label) for label, _ in rows], classes=CLASSES, splits=SPLITS)
    data = decoded(NAME, files, [name for _, name in rows], SIZE, index, cache)
    if data.sha256 != SHA256:
        warnings.warn(
            f"{files.path}: this mini-ImageNet has the right classes and counts but not the known pixels (sha256 "
            f"{data.sha256}, known is {SHA256}): its pictures are others of these classes, or were scaled, cut or "
            "encoded in another way, or decoded by another JPEG library; accuracies may differ from published ones",
            stacklevel=2,
        )
    return data


def check_listing(path: Path) -> None:
    """Raise a ValueError unless every picture in the archive is, bit by bit, the known one."""
    files = Source(path)
    places = {f"{label}/{PurePosixPath(name).name}": name for label, name in _rows(files)}
    files.check_listing(places, LISTING)


def _rows(files: Source) -> list[tuple[str, str]]:
    """Return (class, picture) pairs, sorted. Raise a ValueError unless every class has all its pictures."""
    tables = [PurePosixPath(name) for name in files.names if PurePosixPath(name).name == "train.csv"]
    if tables:
        rows = [row for split in SPLITS for row in _table(files, tables[0].parent, split)]
    else:
        # the name of the folder that a picture lies in is its class
        rows = [(PurePosixPath(name).parent.name, name) for name in files.pictures()]
    missing = [name for _, name in rows if name not in files]
    if missing:
        raise ValueError(f"{files.path}: the csv files name pictures that are not there: {few(missing)}; {HELP}")
    check_counts(NAME, files.path, [label for label, _ in rows], CLASSES, IMAGES_PER_CLASS, HELP)
    return sorted(rows, key=lambda row: (row[0], PurePosixPath(row[1]).name))


def _table(files: Source, top: PurePosixPath, split: str) -> Iterator[tuple[str, str]]:
    """Yield a (class, picture) pair for every line of a split's csv file."""
    table = str(top / f"{split}.csv")
    if table not in files:
        raise ValueError(f"{files.path}: there is no {table} beside train.csv; {HELP}")
    try:
        lines = csv.DictReader(io.StringIO(files.text(table)), restval="")
        names, rows = lines.fieldnames or (), list(lines)
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
