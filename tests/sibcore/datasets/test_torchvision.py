from __future__ import annotations

import importlib

import pytest
import torch

from sibcore.datasets import _torchvision


def test_datasets_transforms_and_models_work_on_any_mixture_of_builds():
    torchvision = _torchvision.torchvision
    model = torchvision.models.resnet18(weights=None)
    assert sum(p.numel() for p in model.parameters()) == 11_689_512
    transforms = importlib.import_module("torchvision.transforms.v2.functional")
    assert transforms.horizontal_flip(torch.tensor([[[1, 2]]])).tolist() == [[[2, 1]]]
    assert torchvision.datasets.CIFAR100.tgz_md5


def test_a_matching_build_is_imported_once_and_nothing_is_declared(monkeypatch):
    calls = []
    monkeypatch.setattr(importlib, "import_module", lambda name: calls.append(name) or "torchvision")
    monkeypatch.setattr(torch.library, "define", lambda *_: pytest.fail("nothing was missing"))
    assert _torchvision.import_torchvision() == "torchvision"
    assert calls == ["torchvision"]


def test_each_missing_operator_is_declared_once_and_the_import_tried_again(monkeypatch):
    missing, declared = ["nms", "qnms"], []

    def import_module(name):
        if missing:
            raise RuntimeError(f"operator torchvision::{missing[0]} does not exist")
        return "torchvision"

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(torch.library, "define", lambda name, schema: declared.append(name) or missing.pop(0))
    assert _torchvision.import_torchvision() == "torchvision"
    assert declared == ["torchvision::nms", "torchvision::qnms"]


@pytest.mark.parametrize("message", ["operator torchvision::roi_align does not exist", "something else"])
def test_any_other_failure_of_the_import_is_passed_on(monkeypatch, message):
    def import_module(name):
        raise RuntimeError(message)

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(RuntimeError, match=message):
        _torchvision.import_torchvision()
