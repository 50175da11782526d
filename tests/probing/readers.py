"""Every reader is fed damaged files: it gives what was written, or a ValueError; never another error, never a hang.

A reader of what the project wrote itself and has a hash of must not give anything else than was written.
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
from sibrepro.facts import Experiment, checksums, local, manifest, published
from sibrepro.facts import publish as facts
from sibrepro.run.notebook import Notebook
from sibrepro.run.pipeline import Job
from sibrepro.run.sweep import grid, table
from sibrepro.site import read_table
from sibrepro.site.cleaning import clean

FORK = multiprocessing.get_context("fork")
SECONDS, PATIENCE = 3, 20  # at most, of a process that reads one input after another; of one input
MEMORY = 2 << 30  # more than before
HTML = b"""<h2 id="a">A</h2><p onclick="x()">text <a href="javascript:x()">link</a><img src="a.png" alt="b"></p>
<script>x()</script><svg onload="x()"><math><mi>x</mi></math></svg><table><tr><td>1</td></tr></table>"""


@dataclasses.dataclass(frozen=True)
class Reader:
    """valid: contents to damage; the damaged one is written to `path`, and `read` is called.

    exact: what `read` gives may only be what it gives of the undamaged file, or None
    """

    valid: list[bytes]
    path: Path
    read: Callable[[], object]
    exact: bool = False


def rounds(world: World, table: Table, seed: int, minutes: float) -> Iterator[None]:
    """Many inputs for one reader after another, for ever; in these minutes, and in any case, each has its turn."""
    everything, number = readers(world), 0
    seconds = min(SECONDS, 60 * minutes / len(everything))
    while True:
        for name, reader in everything.items():
            number += 1
            table.add("fuzz", name, *_feed(reader, f"{seed} {number}", seconds))
        yield


def _feed(reader: Reader, seed: str, seconds: float = SECONDS) -> tuple[int, list[str]]:
    """How many inputs were tried, and what broke; in a process of its own, which may hang or crash."""
    ours, theirs = FORK.Pipe(duplex=False)
    tried = FORK.RawValue("q", 0)
    process = FORK.Process(target=_inputs, args=(reader, seed, seconds, tried, theirs))
    process.start()
    theirs.close()
    broke, before = [], -1
    while not ours.poll(PATIENCE) and before != tried.value:
        before = tried.value
    try:
        if ours.poll():
            broke = ours.recv()
        else:
            broke = [f"seed {seed!r}, input {tried.value + 1}: no answer within {PATIENCE} s"]
    except EOFError:
        broke = [f"seed {seed!r}, input {tried.value + 1}: the process ended without a word"]
    process.kill()
    process.join()
    reader.path.write_bytes(reader.valid[0])
    return tried.value, broke


def _inputs(reader: Reader, seed: str, seconds: float, tried: Any, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    most = psutil.Process().memory_info().vms + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    expected, broke, end = {}, [], time.monotonic() + seconds
    for content in reader.valid if reader.exact else ():
        reader.path.write_bytes(content)
        expected[content] = digest(reader.read())
    while (time.monotonic() < end or not tried.value) and len(broke) < 3:
        number = tried.value + 1
        chance = random.Random(f"{seed} {number}")
        content = chance.choice(reader.valid)
        reader.path.write_bytes(damaged(content, chance))
        problem = _try(reader, expected.get(content))
        broke += [f"seed {seed!r}, input {number}: {problem}"] if problem else []
        tried.value = number
    pipe.send(broke)


def _try(reader: Reader, expected: str | None) -> str | None:
    """What is wrong about how a damaged file was read, if anything."""
    try:
        found = reader.read()
    except ValueError:
        return None
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}"[:150]
        return f"{said} ({Path(where.filename).name}:{where.lineno})"
    wrong = reader.exact and found is not None and digest(found) != expected
    return "something else than was written" if wrong else None


def readers(world: World) -> dict[str, Reader]:
    where = world.folder / "fuzzed"
    where.mkdir()
    return {**_pictures(where), **_tensors(world, where), **_texts(world, where), **_own(world, where), **_apply(where)}


def _pictures(where: Path) -> dict[str, Reader]:
    path = where / "pictures.zip"

    def read_zip() -> None:
        files = archive.Source(path)
        names = files.pictures()
        for name in names[:20]:
            decoding.decode_one(files.read(name), name, 8)
        split = folder._find_split_file(files)
        folder._pictures_by_class(files, split.parent, folder.read_splits(files.read(str(split)), str(split)))

    picture = where / "picture"
    return {
        "zip archives": Reader([_zip(zipfile.ZIP_STORED), _zip(zipfile.ZIP_DEFLATED)], path, read_zip),
        "pictures": Reader(
            [*map(_picture, ("PNG", "JPEG", "GIF", "BMP", "WEBP"))],
            picture,
            lambda: decoding.decode_one(picture.read_bytes(), "picture", 8).shape,
        ),
    }


def _zip(method: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as packed:
        for name, file in pictures().items():
            packed.writestr(name, file)
    return content.getvalue()


def _picture(kind: str) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


def _tensors(world: World, where: Path) -> dict[str, Reader]:
    tensors = {"features": torch.arange(12.0).view(3, 4), "views": torch.zeros(0, 3, 4)}
    write_known(where / "valid", tensors, {"what": 1})
    bank = (where / "valid").read_bytes()
    model = SIB(3, 4, 2, 0.01)
    weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    write_tensors(where / "valid", weights, {"model": model.setup})
    sib = (where / "valid").read_bytes()
    paths = {name: where / f"{name}.safetensors" for name in ("tensors", "features", "sib", "network")}
    return {
        "safetensors": Reader([bank, sib], paths["tensors"], lambda: read_tensors(paths["tensors"])[1]),
        "features of a cache": Reader(
            [bank], paths["features"], lambda: read_known(paths["features"], {"what": 1}), exact=True
        ),
        "trained SIBs": Reader([sib], paths["sib"], lambda: train.load_sib(paths["sib"])[0]),
        "trained networks": Reader(
            [world.network.read_bytes()], paths["network"], lambda: load_network(paths["network"])[1]
        ),
    }


def _texts(world: World, where: Path) -> dict[str, Reader]:
    listing = "filename,label\n" + "".join(f"{i}.jpg,{mini_imagenet.SPLITS['train'][i]}\n" for i in range(5))
    tables, grids = where / "tables", {kind: where / f"grid.{kind}" for kind in ("yaml", "csv")}
    (tables / "images").mkdir(parents=True)
    for i in range(5):
        (tables / "images" / f"{i}.jpg").touch()
    splits, notebook = {kind: where / f"splits.{kind}" for kind in ("yaml", "json")}, where / "notebook.ipynb"
    valid = tiny_notebooks.write(where, tiny_notebooks.RECORD, name="valid").read_bytes()
    cells = {"K": [0, 1, 3], "eta": ["1e-3", 0.1], "seed": "0:5", "mode": "plain"}

    def read_csv() -> None:
        files = archive.Source(tables)
        for _, name in mini_imagenet._table(files, PurePosixPath(), "train"):
            _ = name in files

    return {
        "splits.yaml": Reader(
            [b"train: [cat, dog]\nval: [hen]\ntest:\n  - cow\n  - 'no'\n"],
            splits["yaml"],
            lambda: folder.read_splits(splits["yaml"].read_bytes(), "splits.yaml"),
        ),
        "splits.json": Reader(
            [b'{"train": ["cat", "dog"], "val": ["hen"], "test": ["cow"]}'],
            splits["json"],
            lambda: folder.read_splits(splits["json"].read_bytes(), "splits.json"),
        ),
        "csv of mini-ImageNet": Reader([listing.encode()], tables / "train.csv", read_csv),
        "yaml of a grid": Reader(
            [json.dumps(cells).encode(), b"K: [0, 1, 3]\neta: [1e-3]\nseed: 0:5\n", b"- {K: 1}\n- {K: 2, eta: 0.1}\n"],
            grids["yaml"],
            lambda: grid.points([], [grids["yaml"]]),
        ),
        "csv of a grid": Reader([b"K,eta\n1,1e-3\n3,\n"], grids["csv"], lambda: grid.points([], [grids["csv"]])),
        "notebooks": Reader([valid], notebook, lambda: Notebook.read(notebook).defaults),
        "html of the report": Reader([HTML], where / "page.html", lambda: _cleaned(where / "page.html")),
        "tables": Reader(
            [b"method,K,ours\nSIB,0,63.3\nSIB,3,73.6\n"], where / "table.csv", lambda: read_table(where / "table.csv")
        ),
        "parameters": Reader(
            [b"K: 3\neta: 1e-3\nmode: plain\n"], where / "p.yaml", lambda: params.read_file(where / "p.yaml")
        ),
    }


def _apply(where: Path) -> dict[str, Reader]:
    """What users of trained models have: the models' own files, in a place of their own, and folders of pictures."""
    asked, name = where / "asked", "5way-1shot-conv4-64"
    file = where / zoo.card(name).file
    for place in (asked, file.parent, where / "labelled/cat", where / "labelled/dog"):
        place.mkdir(parents=True)
    for name_of_class in ("cat", "dog"):
        (where / "labelled" / name_of_class / "a.png").write_bytes(_picture("PNG"))

    def load() -> object:
        with mock.patch.object(zoo, "HERE", file.parent):
            return zoo.load_pretrained(name).state_dict()

    def label() -> None:
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            predict(where / "labelled", asked, network="conv4-64").csv()

    return {
        "models of the zoo": Reader([zoo.path(zoo.card(name)).read_bytes()], file, load, exact=True),
        "pictures to label": Reader([*map(_picture, ("PNG", "JPEG", "GIF"))], asked / "b.png", label),
    }


class _Harm(HTMLParser):
    """Collects what a page could do harm with."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [tag] if tag in ("script", "iframe", "object", "embed", "form", "base", "meta") else []
        for name, value in attributes:
            link = re.sub(r"[\x00-\x20]", "", value or "").lower()  # as browsers read it
            runs = link.startswith("javascript:") or name.startswith("on") or name == "srcdoc"
            self.found += [name] if runs else []


def _cleaned(path: Path) -> None:
    harm = _Harm(clean(path.read_bytes().decode("utf-8", "replace"), ["01_a"])).found
    if harm:
        raise AssertionError(f"{harm} is left in the page")


def _own(world: World, where: Path) -> dict[str, Reader]:
    found: dict[str, Reader] = {}
    curve = {"curve": np.arange(4)}
    experiment = computing(world.experiment, lambda p: ({"answer": 3.0}, curve), name="fuzzed", checkpoints=())
    run = experiment.run(Settings(3))
    home = local.folder_of(run.id)
    for file in sorted(home.iterdir()):
        name = f"run: {file.name}"
        found[name] = Reader([file.read_bytes()], file, lambda: _load(experiment, run.id), exact=True)
    facts.add(experiment, [run])
    for file in (published.lines_file("fuzzed"), published.arrays_file("fuzzed")):
        found[f"facts: {file.suffix}"] = Reader([file.read_bytes()], file, _facts, exact=True)
    shipped = checksums.paths.published() / "features" / "a.safetensors"
    checksums.write(shipped, b"features")
    listed = checksums.file()
    found["SHA256SUMS"] = Reader([listed.read_bytes()], listed, lambda: checksums.checked(shipped).read_bytes().hex())
    images = where / "tiny-key"

    def decode() -> cache.Decoded:
        index = Index([0, 1, 2], ("a", "b", "c"), {"train": ("a", "b", "c")})
        return [np.full((4, 4, 3), i, np.uint8) for i in range(3)], index

    cache._build("tiny", images, 4, decode)
    for file in sorted(images.iterdir()):
        found[f"cache: {file.name}"] = Reader(
            [file.read_bytes()], file, lambda: getattr(cache._open("tiny", images), "sha256", None), True
        )
    told = where / "manifest"
    lines = b'{"kind": "run", "what": "x-000000000000", "how": "loaded"}\n{"kind": "figure", "what": "a.png"}\n'
    found["manifests"] = Reader([lines], told, lambda: manifest.read(told))
    job = Job(where / "notebook.ipynb", "quick", {})
    job.state.parent.mkdir(parents=True)
    products = [{"kind": "figure", "what": "a.png"}]
    state = json.dumps({"content": "x", "code": {}, "seconds": 1.0, "products": products}).encode()
    found["states of notebooks"] = Reader([state], job.state, job.last)
    sweep = where / "sweep"
    sweep.mkdir()
    point = json.loads(tiny_notebooks.write(where, name="point").read_bytes())
    point["metadata"]["sweep"] = {"point": "a", "notebook": "n", "parameters": {"a": 1}, "error": None, "seconds": 1.0}
    point["metadata"]["sweep"] |= {"metrics": {"x": 1.0}, "runs": [], "source": None}
    found["points of a sweep"] = Reader(
        [json.dumps(point).encode()], sweep / "a.ipynb", lambda: len(table.collect(sweep))
    )
    return found


def _load(experiment: Experiment, name: str) -> object:
    record = local.load(local.folder_of(name), local.MadeOf(experiment.version, {}, experiment.code))
    return record and [record.params, record.metrics, dict(record.arrays)]


def _facts() -> object:
    published._read.cache_clear()
    return [[r.id, r.params, r.metrics, dict(r.arrays)] for r in published.find("fuzzed").values()] or None
