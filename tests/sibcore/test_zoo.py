"""The zoo: cards agree with facts and files, models load and fit other tasks, files are fetched and checked."""

from __future__ import annotations

import dataclasses
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

import sibcore
from sibcore import SIB, zoo
from sibcore.files import sha256
from sibcore.sib import unit
from sibcore.transduce import answers, resized
from sibrepro import zoo as maintained
from sibrepro.facts import published


def test_cards_say_what_the_published_facts_say():
    for card in maintained.cards():
        kept = dataclasses.replace(zoo.card(card.name), commit="")  # which shallow clones do not know
        assert kept == dataclasses.replace(card, commit="")


def test_each_accuracy_is_a_metric_of_a_published_run():
    tested = [card for card in zoo.cards().values() if card.accuracy is not None]
    assert {card.name for card in zoo.cards().values()} - {card.name for card in tested} == {
        *maintained.IMAGENET,
        *maintained.BANKS,
    }
    for card in tested:
        run, metric = card.fact.split()
        metrics = published.find(run.rpartition("-")[0])[run].metrics
        assert (card.accuracy, card.interval) == (metrics[metric], metrics.get(f"{metric}_ci95"))


def test_every_file_is_there_and_small_ones_are_part_of_an_installation():
    for card in zoo.cards().values():
        if card.file:
            path = zoo.path(card)
            assert (sha256(path), path.stat().st_size) == (card.sha256, card.bytes)
            installed = not (card.is_network or card.is_bank)
            assert card.file.startswith("sibcore/zoo/") == installed
            assert bool(card.commit) == (not installed)


def test_the_table_has_every_model_and_its_accuracy():
    lines = zoo.table().splitlines()
    assert lines[0].split() == " ".join(zoo.COLUMNS).split()
    assert [line.split()[0] for line in lines[1:]] == [*zoo.cards()]
    for line, card in zip(lines[1:], zoo.cards().values(), strict=True):
        assert card.licence in line
        assert card.interval is None or f"{card.accuracy:.1f} ± {card.interval:.1f} %" in line


@pytest.mark.parametrize("name", [name for name, card in zoo.cards().items() if not (card.is_network or card.is_bank)])
def test_sibs_load_frozen_and_as_published(name):
    model = sibcore.load_pretrained(name)
    assert isinstance(model, SIB)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    run = zoo.card(name).fact.split()[0]
    tensors, _ = published.find(run.rpartition("-")[0])[run].files.checkpoint("best")
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, tensors[f"model.{key}"], rtol=0, atol=0)


def test_features_load_split_by_split_and_other_names_are_refused():
    banks = sibcore.load_features("cifar-fs", "conv4-64")
    assert {split: tuple(bank.features.shape) for split, bank in banks.items()} == {
        "train": (38_400, 256),
        "val": (9_600, 256),
        "test": (12_000, 256),
    }
    assert all((bank.labels.bincount() == 600).all() for bank in banks.values())
    with pytest.raises(ValueError, match="expected one of cifar-fs-conv4-64"):
        sibcore.load_features("cifar-fs", "resnet18")
    with pytest.raises(ValueError, match="load_features"):
        sibcore.load_pretrained("cifar-fs-conv4-64")


def test_a_network_of_ours_loads_with_its_sizes():
    network = sibcore.load_pretrained("conv4-64")
    images = torch.rand(2, 3, network.image_size, network.image_size)
    assert network(images).shape == (2, network.dim) == (2, 256)


def made(ways: int, **setup: object) -> SIB:
    """A SIB with a xi that does something."""
    model = SIB(ways, 16, 3, **{"eta": 0.01, "xi": "equivariant", "seed": 3} | setup)
    return model.requires_grad_(False)


def test_a_resized_sib_does_on_tasks_like_those_of_training_what_the_trained_one_does():
    model, tasks = made(4, reduction="sum"), {"queries": 5, "ways": 4}
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.randn(1, n, 16, generator=generator) for n in (8, 20))
    labels = torch.arange(4).repeat(2)[None]
    other = resized(model, tasks, 4, 16)
    assert other.reduction == "mean"
    torch.testing.assert_close(other(support, labels, query), model(support, labels, query))
    torch.testing.assert_close(
        answers(other, support[0], labels[0], query[0]).after, model(support, labels, query)[0].softmax(-1)
    )


def test_repeated_queries_change_nothing_in_a_resized_sib():
    model = resized(made(4, reduction="sum"), {"queries": 5, "ways": 4}, 4, 16)
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.randn(n, 16, generator=generator) for n in (4, 6))
    once = answers(model, support, torch.arange(4), query).after
    thrice = answers(model, support, torch.arange(4), query.repeat(3, 1)).after
    torch.testing.assert_close(thrice, once.repeat(3, 1))


def test_before_is_the_class_mean_and_features_may_have_any_size():
    model = resized(made(4), {"queries": 5, "ways": 4}, 3, 7)
    generator = torch.Generator().manual_seed(1)
    support, query = (torch.randn(n, 7, generator=generator) for n in (5, 9))
    labels = torch.tensor([0, 0, 1, 2, 2])
    means = torch.stack([unit(support)[labels == way].mean(0) for way in range(3)])
    expected = (model.scale * torch.cosine_similarity(query[:, None], means[None], dim=-1)).softmax(-1)
    torch.testing.assert_close(answers(model, support, labels, query).before, expected)


def test_sizes_that_a_sib_does_not_fit_are_refused():
    with pytest.raises(ValueError, match="made for 5 ways, not 6"):
        sibcore.load_pretrained("5way-1shot-conv4-64", ways=6)
    with pytest.raises(ValueError, match="made for features of size d = 256, got 9"):
        sibcore.load_pretrained("equivariant-conv4-64", dim=9)
    with pytest.raises(ValueError, match="is a feature network"):
        sibcore.load_pretrained("conv4-64", ways=5)
    with pytest.raises(ValueError, match="there is no model 'sib': expected one of any-way"):
        sibcore.load_pretrained("sib")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """A folder on a local server, with its address in SIB_REPOSITORY."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIB_REPOSITORY", f"http://127.0.0.1:{server.server_port}/")
        patch.setenv("SIB_CACHE", str(tmp_path / "cache"))
        yield folder
    server.shutdown()
    server.server_close()


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if installed without a checkout around."""
    monkeypatch.setattr(zoo, "HERE", tmp_path / "site-packages" / "sibcore" / "zoo")


def test_a_file_that_is_not_installed_is_fetched_once_from_its_commit(served, tmp_path, monkeypatch):
    card = zoo.card("conv4-64")
    content = zoo.path(card).read_bytes()
    source = served / card.commit / card.file
    source.parent.mkdir(parents=True)
    source.write_bytes(content)
    elsewhere(monkeypatch, tmp_path)
    assert zoo.load_pretrained("conv4-64").dim == 256
    source.unlink()
    kept = zoo.path(card)
    assert kept.is_relative_to(tmp_path / "cache")
    assert kept.read_bytes() == content


def test_another_file_than_the_published_one_is_refused_and_not_kept(served, tmp_path, monkeypatch):
    card = zoo.card("conv4-64")
    source = served / card.commit / card.file
    source.parent.mkdir(parents=True)
    source.write_bytes(b"something else")
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match="did not give the published file"):
        zoo.path(card)
    assert not [*(tmp_path / "cache").rglob("*.safetensors"), *(tmp_path / "cache").rglob("*.part")]


def test_without_an_address_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("SIB_REPOSITORY", raising=False)
    monkeypatch.setenv("SIB_CACHE", str(tmp_path))
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match=r"not part of this installation; use a checkout.*SIB_REPOSITORY"):
        zoo.path(zoo.card("conv4-64"))


def test_a_damaged_file_of_the_installation_is_told(tmp_path, monkeypatch):
    elsewhere(monkeypatch, tmp_path)
    card = zoo.card("any-way")
    damaged = tmp_path / "site-packages" / card.file
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"")
    with pytest.raises(ValueError, match="is damaged"):
        zoo.path(card)
