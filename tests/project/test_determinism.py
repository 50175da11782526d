"""What is equal to the bit, and what moves with the number of threads (docs/promises.md says the same in words)."""

from __future__ import annotations

import pytest
import torch
from tiny_images import tiny_set, untrained_network

from sibcore import train as meta
from sibcore.device import threads
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.files import read_tensors, write_tensors
from sibcore.sib import SIB
from sibcore.train import Schedule, train
from sibcore.vision.backbones import load_network
from sibcore.vision.features import extract
from sibcore.vision.pretrain import CHECKPOINT, Recipe, pretrain

pytestmark = pytest.mark.thorough

CLASSES, PER_CLASS, DIM = 12, 30, 512
RECIPE = Recipe(epochs=2, batch=60, episodes=2)


def bank():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    centres = torch.randn(CLASSES, DIM, generator=generator)
    return centres[labels] + torch.randn(len(labels), DIM, generator=generator), labels


def meta_trained(folder=None, steps=4):
    features, labels = bank()
    model = SIB(5, DIM, 3, 1e-3)
    train(
        model,
        features,
        EpisodeSampler(labels, 5, 1, 10, seed=0),
        Schedule(steps=steps, every=2, lr=0.01),
        folder=folder,
        report=lambda line: None,
    )
    return model.state_dict()


def pretrained(folder, report=lambda line: None):
    pretrain(tiny_set(), RECIPE, folder, torch.device("cpu"), report)
    tensors = read_tensors(folder / CHECKPOINT)[0]
    return {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def moved(a, b) -> float:
    """The largest change of a tensor, relative to its length."""
    return max(float((a[name] - b[name]).norm() / a[name].norm()) for name in a if a[name].is_floating_point())


def stop(line):
    raise KeyboardInterrupt


def test_tasks_are_the_same_however_they_are_batched():
    sampler = EpisodeSampler(bank()[1], 5, 1, 10, seed=3)
    together, apart = sampler.sample(0, 40), [sampler.sample(start, 10) for start in (0, 10, 20, 30)]
    assert torch.equal(together.query, torch.cat([part.query for part in apart]))
    for batch in (1, 8):
        again = torch.cat([part.query for part in sampler.batches(0, 40 // batch, batch)])
        assert torch.equal(together.query, again)


def test_answers_are_the_same_whatever_the_batch_of_the_evaluation():
    features, labels = bank()
    model, tasks = SIB(5, DIM, 3, 0.01), EpisodeSampler(labels, 5, 1, 10, seed=3).sample(0, 60)
    several = [evaluate(model, features, tasks, batch).accuracies for batch in (1, 7, 60)]
    assert all(torch.equal(one, several[0]) for one in several)


def test_the_same_seed_and_number_of_threads_give_the_same_bits(tmp_path):
    with threads(2):
        assert same(meta_trained(), meta_trained())
        assert same(pretrained(tmp_path / "1"), pretrained(tmp_path / "2"))


def test_a_meta_training_goes_on_with_the_threads_it_began_with(tmp_path, monkeypatch):
    with threads(2):
        whole = meta_trained()
        original, seen = meta._train_steps, []

        def counted(*arguments):
            seen.append(torch.get_num_threads())
            if len(seen) == 2:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(meta, "_train_steps", counted)
        with pytest.raises(KeyboardInterrupt):
            meta_trained(tmp_path)
    with threads(1):
        assert same(meta_trained(tmp_path), whole)
        assert seen == [2, 2, 2]
        assert torch.get_num_threads() == 1


def test_a_pretraining_goes_on_with_the_threads_it_began_with(tmp_path):
    with threads(2):
        whole = pretrained(tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            pretrained(tmp_path / "parts", stop)
    with threads(1):
        assert same(pretrained(tmp_path / "parts"), whole)
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("work", "file"), [(meta_trained, meta.LAST), (pretrained, CHECKPOINT)])
def test_a_checkpoint_of_other_code_is_refused_unless_it_is_kept_by_name(tmp_path, monkeypatch, work, file):
    work(tmp_path)
    tensors, about = read_tensors(tmp_path / file)
    assert about["code"].keys() >= {"sibcore.fingerprint", "sibcore.seeds"}
    write_tensors(tmp_path / file, tensors, about | {"code": about["code"] | {"sibcore.seeds": "another"}})
    with pytest.raises(ValueError, match=r"was begun by other code \(sibcore\.seeds changed\): delete the folder"):
        work(tmp_path)
    monkeypatch.setenv("SIB_KEEP", tmp_path.name)
    work(tmp_path)


@pytest.mark.parametrize(("work", "file"), [(meta_trained, meta.LAST), (pretrained, CHECKPOINT)])
def test_a_checkpoint_that_does_not_say_its_code_is_refused(tmp_path, work, file):
    work(tmp_path)
    tensors, about = read_tensors(tmp_path / file)
    write_tensors(tmp_path / file, tensors, about | {"code": "0.0.1"})
    with pytest.raises(ValueError, match="its checkpoint does not say which code made it"):
        work(tmp_path)


def test_threads_move_features_and_a_short_training_by_rounding_alone(tmp_path):
    data = tiny_set(size=32)
    f, _ = load_network(untrained_network(tmp_path / "network.safetensors", 32))
    images = torch.tensor(data.images)
    found = []
    for count in (1, 2):
        with threads(count):
            found.append((meta_trained(), {"features": extract(f, images)}))
    (weights, features), (others, other_features) = found
    assert moved(features, other_features) < 1e-5
    assert moved(weights, others) < 1e-4


def test_in_double_precision_threads_move_nothing():
    features, labels = bank()
    found = []
    for count in (1, 2):
        with threads(count):
            model = SIB(5, DIM, 3, 1e-3).double()
            sampler, schedule = EpisodeSampler(labels, 5, 1, 10, seed=0), Schedule(steps=4, every=2, lr=0.01)
            train(model, features.double(), sampler, schedule, report=lambda line: None)
            found.append(model.state_dict())
    assert moved(*found) < 1e-12
