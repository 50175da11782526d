"""What the probe found: files damaged in ways that once escaped as another error, or passed as what was written."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest
import tiny_notebooks
import torch
from tiny_images import untrained_network, write_zip

from sibcore import train
from sibcore.datasets import cache, mini_imagenet
from sibcore.datasets.archive import Source
from sibcore.datasets.base import Index
from sibcore.files import parse_json, read_tensors, weights_of, write_tensors
from sibcore.sib import SIB
from sibcore.vision.backbones import load_network
from sibcore.vision.features import read_known, write_known
from sibrepro import params
from sibrepro.run.notebook import Notebook

DEEP = "[" * 100_000


@pytest.mark.parametrize("change", [(b"[3,4]", b"[4,3]"), (b'"F32"', b'"I32"'), (b'"views"', b'"vieww"')])
def test_features_of_another_shape_kind_or_name_are_not_taken_for_those_that_were_written(tmp_path, change):
    path, tensors = tmp_path / "bank", {"features": torch.arange(12.0).view(3, 4), "views": torch.zeros(0, 3, 4)}
    write_known(path, tensors, {"what": 1})
    assert read_known(path, {"what": 1}).keys() == tensors.keys()
    content = path.read_bytes()
    assert change[0] in content
    path.write_bytes(content.replace(*change))
    assert read_known(path, {"what": 1}) is None


def test_features_written_before_their_shapes_were_are_still_read(tmp_path):
    tensors = {"features": torch.ones(2, 2)}
    write_known(tmp_path / "bank", tensors, {})
    _, about = read_tensors(tmp_path / "bank")
    about.pop("shapes")
    write_tensors(tmp_path / "bank", tensors, about)
    assert torch.equal(read_known(tmp_path / "bank", {})["features"], tensors["features"])


@pytest.mark.parametrize("damage", ["tensor", "shape", "setting", "all"])
def test_what_is_no_trained_sib_is_named(tmp_path, damage):
    model = SIB(3, 4, 2, 0.01)
    tensors, about = weights_of(model), {"model": model.setup}
    if damage == "tensor":
        tensors.popitem()
    elif damage == "shape":
        tensors["model.scale"] = torch.zeros(7)
    else:
        about = {"model": model.setup | {"colour": 1}} if damage == "setting" else {}
    write_tensors(tmp_path / "last", tensors, about)
    with pytest.raises(ValueError, match="last holds no trained SIB"):
        train.load_sib(tmp_path / "last")


def test_what_is_no_network_is_named(tmp_path):
    path = untrained_network(tmp_path / "network", 16)
    tensors, about = read_tensors(path)
    few = dict([*tensors.items()][1:])
    for kept, wrong in ((tensors, {}), (tensors, about | {"backbone": "conv5"}), (few, about)):
        write_tensors(path, kept, wrong)
        with pytest.raises(ValueError, match="network holds no feature network"):
            load_network(path)


def test_a_file_without_a_name_in_a_zip_is_passed_over(tmp_path):
    packed = write_zip(tmp_path / "a.zip", {"x": b"1", "cat/1.png": b"2"})
    packed.write_bytes(packed.read_bytes().replace(b"x", b"\0"))  # names end at a zero
    assert Source(packed).names == ["cat/1.png"]


@pytest.mark.parametrize(
    "content", ["filename,label\na.jpg,n01532829\rb,c\n", "filename,label\n" + "x" * 200_000, "\r,\r"]
)
def test_a_table_of_pictures_that_is_none_is_named(tmp_path, content):
    (tmp_path / "train.csv").write_text(content, newline="")
    with pytest.raises(ValueError, match=r"train\.csv"):
        list(mini_imagenet._table(Source(tmp_path), PurePosixPath(), "train"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("grid.yaml", DEEP), ("grid.csv", "K,eta\n1,2,3\n"), ("grid.csv", "K\n" + "9" * 200_000), ("grid.yaml", "\ud800")],
)
def test_a_grid_that_is_none_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"grid|utf-8"):
        params.read_file(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": 1},
        {"cells": [1]},
        {"nbformat": True},
        {"cells": [{"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "a ="}]},
        {
            "cells": [
                {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "a = 1"},
                {"cell_type": "raw"},
            ]
        },
    ],
)
def test_a_notebook_that_is_none_is_named(tmp_path, change):
    path = tiny_notebooks.write(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=r"tiny\.ipynb"):
        Notebook.read(path)


def test_a_parameters_cell_that_is_no_python_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"tiny\.ipynb is not a readable notebook \(SyntaxError"):
        Notebook.read(tiny_notebooks.write(tmp_path, parameters="a = = 1"))


@pytest.mark.parametrize("name", ["images.npy", "index.json"])
@pytest.mark.parametrize("content", [DEEP, "", "\x93NUMPY\x01\x00\x10\x00{'descr': (((    "])
def test_a_cache_that_is_none_is_missing(tmp_path, name, content):
    def decode():
        return [torch.zeros(4, 4, 3, dtype=torch.uint8).numpy()], Index([0], ("a",), {"train": ("a",)})

    cache._build("tiny", tmp_path / "tiny", 4, decode)
    assert cache._open("tiny", tmp_path / "tiny")
    (tmp_path / "tiny" / name).write_bytes(content.encode("latin-1"))
    assert cache._open("tiny", tmp_path / "tiny") is None


def test_brackets_by_the_thousand_are_a_value_error():
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)
