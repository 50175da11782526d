"""Feed damaged files to every reader of the project.

A reader may return something or raise ValueError. It must not raise another error, crash or hang. A reader of files
that the project wrote itself and knows the hash of must return exactly what was written, or nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import multiprocessing
import random
import re
import resource
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock

import numpy as np
import psutil
import tiny_notebooks
import torch
from made_up import computing
from PIL import Image
from probing.damage import damaged
from probing.kills import digest
from probing.table import Table
from probing.world import Settings, World, pictures
from tiny_images import write_files

from sibcore import train, zoo
from sibcore.apply.predict import predict
from sibcore.datasets import archive, cache, folder, mini_imagenet
from sibcore.datasets import pictures as decoding
from sibcore.datasets.base import Index
from sibcore.files import read_tensors, write_tensors
from sibcore.sib import SIB
from sibcore.vision.backbones import load_network
from sibcore.vision.features import read_known, write_known
from sibrepro import params
from sibrepro.facts import checksums, local, manifest, published
from sibrepro.facts import publish as facts
from sibrepro.run.notebook import Notebook
from sibrepro.run.pipeline import Job
from sibrepro.run.sweep import grid, table
from sibrepro.site import read_table
from sibrepro.site.cleaning import clean
from sibrepro.site.links import Links

FORK = multiprocessing.get_context("fork")
SECONDS = 3  # for which a process reads one input after another
PATIENCE = 20  # seconds that one input may take
MEMORY = 2 << 30  # bytes that reading may take, besides what the process has already
HTML = b"""<h2 id="a">A</h2><p onclick="x()">text <a href="javascript:x()">link</a><img src="a.png" alt="b"></p>
<script>x()</script><svg onload="x()"><math><mi>x</mi></math></svg><table><tr><td>1</td></tr></table>"""


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader, and what it is fed with.

    Attributes:
        valid: contents to damage.
        path: where a damaged content is written.
        read: reads the file at this path.
        exact: whether `read` may only return what it returns for the undamaged content, or None.
    """

    valid: list[bytes]
    path: Path
    read: Callable[[Path], object]
    exact: bool = False


def rounds(world: World, table: Table, seed: int, minutes: float) -> Iterator[None]:
    """Feed one reader after another with many inputs, for ever; every step of the iterator gives each reader a turn.

    Args:
        world: the scratch folder.
        table: where the results go.
        seed: of the damage.
        minutes: about how long a step may take. All readers have equal parts of it, and one input in any case.
    """
    everything, number = readers(world), 0
    seconds = min(SECONDS, 60 * minutes / len(everything))
    while True:
        for name, reader in everything.items():
            number += 1
            table.add("fuzz", name, *_feed(reader, f"{seed} {number}", seconds))
        yield


def _feed(reader: Reader, seed: str, seconds: float) -> tuple[int, list[str]]:
    """Feed a reader in a process of its own, because it may hang or crash.

    Args:
        reader: the reader.
        seed: of the damage: the same seed gives the same inputs.
        seconds: how long to go on; a reader gets at least one input.

    Returns:
        How many inputs were tried, and a description of each that broke something.
    """
    ours, theirs = FORK.Pipe(duplex=False)
    tried = FORK.RawValue("q", 0)
    process = FORK.Process(target=_inputs, args=(reader, seed, seconds, tried, theirs))
    process.start()
    theirs.close()
    before = -1
    while not ours.poll(PATIENCE) and before != tried.value:  # as long as inputs are being read
        before = tried.value
    try:
        broke = ours.recv() if ours.poll() else f"no answer within {PATIENCE} s"
    except EOFError:
        broke = "the process ended without a word"
    if isinstance(broke, str):
        broke = [f"seed {seed!r}, input {tried.value + 1}: {broke}"]
    process.kill()
    process.join()
    # Other readers may need the same file undamaged.
    reader.path.write_bytes(reader.valid[0])
    return tried.value, broke


def _inputs(reader: Reader, seed: str, seconds: float, tried: Any, pipe: Any) -> None:
    """Feed a reader for some seconds, count in `tried` and send what broke; stop at the third failure."""
    warnings.simplefilter("ignore")
    most = psutil.Process().memory_info().vms + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    expected, broke, end = {}, [], time.monotonic() + seconds
    for content in reader.valid if reader.exact else ():
        reader.path.write_bytes(content)
        expected[content] = digest(reader.read(reader.path))
    while (time.monotonic() < end or not tried.value) and len(broke) < 3:
        number = tried.value + 1
        chance = random.Random(f"{seed} {number}")
        content = chance.choice(reader.valid)
        reader.path.write_bytes(damaged(content, chance))
        if problem := _try(reader, expected.get(content)):
            broke.append(f"seed {seed!r}, input {number}: {problem}")
        tried.value = number
    pipe.send(broke)


def _try(reader: Reader, expected: str | None) -> str | None:
    """Read a damaged file.

    Args:
        reader: the reader, whose file was damaged.
        expected: for an exact reader, the digest of what it returns for the undamaged file.

    Returns:
        What was wrong about how it read the file, or None.
    """
    try:
        found = reader.read(reader.path)
    except ValueError:
        return None
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}"[:150]
        return f"{said} ({Path(where.filename).name}:{where.lineno})"
    wrong = reader.exact and found is not None and digest(found) != expected
    return "something else than was written" if wrong else None


def readers(world: World) -> dict[str, Reader]:
    """Return all readers by what they read."""
    where = world.folder / "fuzzed"
    where.mkdir()
    parts = _pictures(where), _tensors(world, where), _texts(where), _runs(world), _states(where), _apply(where)
    return {name: reader for part in parts for name, reader in part.items()}


def _pictures(where: Path) -> dict[str, Reader]:
    """Return the readers of image sets."""

    def read_zip(path: Path) -> None:
        files = archive.Source(path)
        names = files.pictures()
        for name in names[:20]:
            decoding.decode_one(files.read(name), name, 8)
        split = folder._find_split_file(files)
        folder._pictures_by_class(files, split.parent, folder.read_splits(files.read(str(split)), str(split)))

    def read_picture(path: Path) -> object:
        return decoding.decode_one(path.read_bytes(), "picture", 8).shape

    archives = [_zip(zipfile.ZIP_STORED), _zip(zipfile.ZIP_DEFLATED)]
    kinds = [_picture(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP")]
    return {
        "zip archives": Reader(archives, where / "pictures.zip", read_zip),
        "pictures": Reader(kinds, where / "picture", read_picture),
    }


def _zip(method: int) -> bytes:
    """Return a zip archive of an image folder, compressed by one of zipfile's methods."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as packed:
        for name, file in pictures().items():
            packed.writestr(name, file)
    return content.getvalue()


def _picture(kind: str) -> bytes:
    """Return a small picture in a file format of Pillow."""
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


def _tensors(world: World, where: Path) -> dict[str, Reader]:
    """Return the readers of features and of what was trained.

    Files of features in the cache have a hash, so their reader is exact. The others may be anybody's files.
    """
    tensors = {"features": torch.arange(12.0).view(3, 4), "views": torch.zeros(0, 3, 4)}
    valid = where / "valid"
    write_known(valid, tensors, {"what": 1})
    bank = valid.read_bytes()
    model = SIB(3, 4, 2, 0.01)
    weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    write_tensors(valid, weights, {"model": model.setup})
    sib = valid.read_bytes()
    network = world.network.read_bytes()

    def read_features(path: Path) -> object:
        return read_known(path, {"what": 1})

    return {
        "safetensors": Reader([bank, sib], where / "tensors.safetensors", lambda path: read_tensors(path)[1]),
        "features of a cache": Reader([bank], where / "features.safetensors", read_features, exact=True),
        "trained SIBs": Reader([sib], where / "sib.safetensors", lambda path: train.load_sib(path)[0]),
        "trained networks": Reader([network], where / "network.safetensors", lambda path: load_network(path)[1]),
    }


def _texts(where: Path) -> dict[str, Reader]:
    """Return the readers of what people write: splits, grids, parameters, notebooks, tables, pages.

    People make mistakes in these by hand, so each reader has to say what is wrong instead of ending in a traceback.
    """
    listing = "filename,label\n" + "".join(f"{i}.jpg,{mini_imagenet.SPLITS['train'][i]}\n" for i in range(5))
    tables = where / "tables"
    write_files(tables, {f"images/{i}.jpg": b"" for i in range(5)})
    notebook = tiny_notebooks.write(where, tiny_notebooks.RECORD, name="valid").read_bytes()
    yaml_splits = b"train: [cat, dog]\nval: [hen]\ntest:\n  - cow\n  - 'no'\n"
    json_splits = b'{"train": ["cat", "dog"], "val": ["hen"], "test": ["cow"]}'
    grids = [
        b'{"K": [0, 1, 3], "eta": ["1e-3", 0.1], "seed": "0:5", "mode": "plain"}',
        b"K: [0, 1, 3]\neta: [1e-3]\nseed: 0:5\n",
        b"- {K: 1}\n- {K: 2, eta: 0.1}\n",
    ]
    parameters = b"K: 3\neta: 1e-3\nmode: plain\n"

    def read_listing(path: Path) -> None:
        files = archive.Source(path.parent)
        for _, name in mini_imagenet._table(files, PurePosixPath(), "train"):
            _ = name in files

    def read_splits(path: Path) -> object:
        return folder.read_splits(path.read_bytes(), path.name)

    def read_grid(path: Path) -> object:
        return grid.points([], [path])

    return {
        "splits.yaml": Reader([yaml_splits], where / "splits.yaml", read_splits),
        "splits.json": Reader([json_splits], where / "splits.json", read_splits),
        "csv of mini-ImageNet": Reader([listing.encode()], tables / "train.csv", read_listing),
        "yaml of a grid": Reader(grids, where / "grid.yaml", read_grid),
        "csv of a grid": Reader([b"K,eta\n1,1e-3\n3,\n"], where / "grid.csv", read_grid),
        "notebooks": Reader([notebook], where / "notebook.ipynb", lambda path: Notebook.read(path).defaults),
        "html of the report": Reader([HTML], where / "page.html", _cleaned),
        "tables": Reader([b"method,K,ours\nSIB,0,63.3\nSIB,3,73.6\n"], where / "table.csv", read_table),
        "parameters": Reader([parameters], where / "p.yaml", params.read_file),
    }


def _apply(where: Path) -> dict[str, Reader]:
    """Return the readers that users of trained models have: of the models' own files, and of pictures to label.

    The model lies in a folder of its own, so that the one in the repository is not damaged.
    """
    asked, name = where / "asked", "5way-1shot-conv4-64"
    file = where / zoo.card(name).file
    asked.mkdir()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_files(where / "labelled", {f"{label}/a.png": _picture("PNG") for label in ("cat", "dog")})

    def load(path: Path) -> object:
        with mock.patch.object(zoo, "HERE", path.parent):
            return zoo.load_pretrained(name).state_dict()

    def label(path: Path) -> None:
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            predict(where / "labelled", path.parent, network="conv4-64").csv()

    model = zoo.path(zoo.card(name)).read_bytes()
    kinds = [_picture(kind) for kind in ("PNG", "JPEG", "GIF")]
    return {
        "models of the zoo": Reader([model], file, load, exact=True),
        "pictures to label": Reader(kinds, asked / "b.png", label),
    }


class _Harm(HTMLParser):
    """A parser that collects the tags and attributes of a page that could run programs or load something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect a harmful tag, and its harmful attributes."""
        if tag in ("script", "iframe", "object", "embed", "form", "base", "meta"):
            self.found.append(tag)
        for name, value in attributes:
            link = re.sub(r"[\x00-\x20]", "", value or "").lower()  # as browsers read it
            if link.startswith("javascript:") or name.startswith("on") or name == "srcdoc":
                self.found.append(name)


def _cleaned(path: Path) -> None:
    """Clean a page as the report does. Raise AssertionError if something harmful is left."""
    links = Links(path.parent, path.name, {"01_a.ipynb": "01_a.html"})
    page = clean(path.read_bytes().decode("utf-8", "replace"), links.target, links.picture)
    harm = _Harm(page).found
    if harm:
        raise AssertionError(f"{harm} is left in the page")


def _runs(world: World) -> dict[str, Reader]:
    """Return the readers of runs of this machine and of published ones.

    All their files are known by their hashes, so the readers are exact: a damaged run counts as none, or is refused.
    """
    found: dict[str, Reader] = {}
    curve = {"curve": np.arange(4)}
    experiment = computing(world.experiment, lambda p: ({"answer": 3.0}, curve), name="fuzzed", checkpoints=())
    run = experiment.run(Settings(3))

    def read_run(path: Path) -> object:
        """Load the run that the damaged file belongs to."""
        record = local.load(path.parent, local.MadeOf(experiment.version, {}, experiment.code))
        return record and [record.params, record.metrics, dict(record.arrays)]

    for file in sorted(local.folder_of(run.id).iterdir()):
        found[f"run: {file.name}"] = Reader([file.read_bytes()], file, read_run, exact=True)

    facts.add(experiment, [run])
    for file in (published.lines_file("fuzzed"), published.arrays_file("fuzzed")):
        found[f"facts: {file.suffix}"] = Reader([file.read_bytes()], file, _facts, exact=True)
    return found


def _facts(path: Path) -> object:
    """Return all published runs of the experiment, or None if there are none."""
    published._read.cache_clear()
    return [[r.id, r.params, r.metrics, dict(r.arrays)] for r in published.find("fuzzed").values()] or None


def _states(where: Path) -> dict[str, Reader]:
    """Return the readers of what commands leave for later ones: hashes, decoded images, states, points of a sweep."""
    found: dict[str, Reader] = {}
    shipped = checksums.paths.published() / "features" / "a.safetensors"
    checksums.write(shipped, b"features")
    sums = checksums.file()

    def read_checked(path: Path) -> str:
        return checksums.checked(shipped).read_bytes().hex()

    found["SHA256SUMS"] = Reader([sums.read_bytes()], sums, read_checked)

    def decode() -> cache.Decoded:
        index = Index([0, 1, 2], ("a", "b", "c"), {"train": ("a", "b", "c")})
        return [np.full((4, 4, 3), i, np.uint8) for i in range(3)], index

    def read_cache(path: Path) -> str | None:
        return getattr(cache._open("tiny", path.parent), "sha256", None)

    images = where / "tiny-key"
    cache._build("tiny", images, 4, decode)
    for file in sorted(images.iterdir()):
        found[f"cache: {file.name}"] = Reader([file.read_bytes()], file, read_cache, exact=True)

    lines = b'{"kind": "run", "what": "x-000000000000", "how": "loaded"}\n{"kind": "figure", "what": "a.png"}\n'
    found["manifests"] = Reader([lines], where / "manifest", manifest.read)

    job = Job(where / "notebook.ipynb", "quick", {})
    job.state.parent.mkdir(parents=True)
    state = b'{"content": "x", "code": {}, "seconds": 1.0, "products": [{"kind": "figure", "what": "a.png"}]}'
    found["states of notebooks"] = Reader([state], job.state, lambda path: job.last())

    sweep = where / "sweep"
    sweep.mkdir()
    point = json.loads(tiny_notebooks.write(where, name="point").read_bytes())
    point["metadata"]["sweep"] = {
        "point": "a",
        "notebook": "n",
        "parameters": {"a": 1},
        "error": None,
        "seconds": 1.0,
        "metrics": {"x": 1.0},
        "runs": [],
        "source": None,
    }
    valid = json.dumps(point).encode()
    found["points of a sweep"] = Reader([valid], sweep / "a.ipynb", lambda path: len(table.collect(path.parent)))
    return found
