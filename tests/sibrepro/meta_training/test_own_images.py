"""Your own pictures, few of them and two classes to tell apart: from a folder to a tested SIB."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image

from sibcore import datasets
from sibcore.vision.pretrain import Recipe
from sibrepro.meta_training import pretraining
from sibrepro.meta_training.banks import banks_of
from sibrepro.meta_training.pretraining import RECIPES, pretrained
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot

pytestmark = pytest.mark.thorough

SPLITS = {"train": ["a", "b", "c"], "val": ["d", "e"], "test": ["f", "g"]}
SMALL = FewShot(dataset="folder", ways=2, shots=1, queries=3, K=1, steps=4, val_episodes=5, test_episodes=6)


def pictures(folder, seed):
    rng = np.random.default_rng(seed)
    for name in itertools.chain(*SPLITS.values()):
        (folder / name).mkdir(parents=True)
        for i in range(9):
            Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8)).save(folder / name / f"{i}.png")
    (folder / "splits.yaml").write_text(yaml.dump(SPLITS))
    return datasets.load("folder", folder, folder.parent / "cache", size=32)


def test_two_folders_are_two_runs_and_two_ways_are_enough(tmp_path, capsys):
    records = []
    for seed in (0, 1):
        data = pictures(tmp_path / str(seed), seed)
        network = pretrained(data, backbone="conv4-64", epochs=1, batch=5, episodes=4)
        records.append(few_shot(SMALL, data, network.files.path("backbone.safetensors")))
        again = few_shot(SMALL, data, network.files.path("backbone.safetensors"))
        assert again.id == records[-1].id
        assert again.metrics == records[-1].metrics
    assert records[0].id != records[1].id
    assert len({record.params["dataset"] for record in records}) == 2
    assert "1 epochs of 27 images: about 0 min" in capsys.readouterr().out


def test_one_class_cannot_validate(tmp_path):
    data = pictures(tmp_path / "0", 0)
    alone = data.__class__(**{**data.__dict__, "splits": data.splits | {"val": ["d"]}})
    with pytest.raises(ValueError, match=r"val of folder-.* has 1 class: there must be 2"):
        pretrained(alone, backbone="conv4-64", epochs=1, batch=5)


def test_the_network_of_an_experiment_is_its_recipe_or_what_the_experiment_says_of_it(monkeypatch, tmp_path):
    asked = []

    class Run:
        class files:
            path = staticmethod(tmp_path.joinpath)

    monkeypatch.setattr(pretraining, "pretrained", lambda data, **changes: asked.append(changes) or Run)
    data = SimpleNamespace(name="mini-imagenet", sha256="0" * 64)
    (tmp_path / "backbone.safetensors").touch()
    said = [{"epochs": 3}, {"start": "pretrain-1", "rotation": 1.0}, {"backbone": "wrn-28-10"}]
    for changes in ({}, *said):
        banks_of(FewShot(**{"dataset": "mini-imagenet", "backbone": "conv4-128"} | changes), data)
    recipe = RECIPES["mini-imagenet", "conv4-128"]
    assert recipe["start"]
    assert asked == [{"backbone": "conv4-128"} | changes for changes in (recipe, *said)]


def test_small_images_first_cost_less():
    recipe = Recipe(epochs=5, small=16, small_epochs=3)
    assert recipe.epochs_left(0, 32) == 3 + 2 * 4  # in epochs of 16 pixels
    assert recipe.epochs_left(3, 32) == 2
    assert Recipe(epochs=5).epochs_left(1, 32) == 4
