"""The study of the size of the query set: what is measured against loops, and the table from made-up records."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from few_shot_records import FULL, TASKS, record
from tiny_images import untrained_network

from sibcore import datasets
from sibcore.episodes import EpisodeSampler
from sibcore.sib import SIB
from sibcore.train import BEST, evaluate, load_sib
from sibcore.vision.features import Features, feature_bank
from sibrepro import tables
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot.experiment import SPLITS, FewShot
from sibrepro.query_size import experiment as query_size
from sibrepro.query_size import figures as query_size_figures
from sibrepro.query_size.experiment import FRESH, QuerySizeNotebook

CLASSES, PER_CLASS, DIM = 6, 60, 5


@pytest.fixture
def bank():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, 1, DIM, generator=generator)
    features = (centres + 0.5 * torch.randn(CLASSES, PER_CLASS, DIM, generator=generator)).flatten(0, 1)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    names = tuple(f"class {c}" for c in range(CLASSES))
    return Features(features, features.new_empty(0, *features.shape), labels, names, "")


def test_losses_on_seen_and_fresh_queries_are_those_of_a_loop(bank):
    p = FewShot(ways=3, shots=2, queries=4, test_episodes=7)
    sib = SIB(3, DIM, 2, 1e-1, seed=1).double()
    bank = dataclasses.replace(bank, features=bank.features.double())
    seen, fresh = query_size.losses(sib, bank, p, batch=3)
    assert seen.shape == (7, 12)
    assert fresh.shape == (7, 3 * FRESH)

    tasks = EpisodeSampler(bank.labels, 3, 2, 4 + FRESH, 2_000_000 + SPLITS.index("test")).sample(0, 7)
    for t in range(7):
        query, labels = bank.features[tasks.query[t]], tasks.query_labels[t]
        own = torch.cat([torch.arange(c * (4 + FRESH), c * (4 + FRESH) + 4) for c in range(3)])
        others = torch.tensor([i for i in range(len(query)) if i not in set(own.tolist())])
        support = (bank.features[tasks.support[t]][None], tasks.support_labels[t][None])
        theta = sib.trajectory(*support, query[own][None])[-1, 0]
        for rows, got in ((own, seen[t]), (others, fresh[t])):
            cosine = torch.cosine_similarity(query[rows][:, None], theta[None], dim=-1)
            probability = (sib.scale * (sib.bias + cosine)).softmax(-1).tolist()
            expected = [-math.log(probability[i][labels[rows[i]]]) for i in range(len(rows))]
            assert got.tolist() == pytest.approx(expected, rel=1e-9)


def test_fresh_queries_are_never_those_that_w_was_inferred_from(bank):
    tasks = EpisodeSampler(bank.labels, 3, 2, 4 + FRESH, 2_000_000 + SPLITS.index("test")).sample(0, 50)
    assert all(len(set(task.tolist())) == 3 * (4 + FRESH) for task in tasks.query)


def test_the_subgaussian_estimates_are_ordered_and_reach_from_variance_to_hoeffding(bank):
    p = FewShot(ways=3, shots=1, queries=4, test_episodes=40)
    sib = SIB(3, DIM, 1, 1e-2)
    found = query_size.generalisation(sib, bank, p)
    seen, fresh = query_size.losses(sib, bank, p)
    assert found["gap"] == pytest.approx((fresh.mean(1) - seen.mean(1)).mean().item())
    assert found["risk"] == pytest.approx(seen.mean().item())
    assert fresh.var(1, correction=0).mean().sqrt() <= found["sigma"] + 1e-12
    assert found["sigma"] <= found["sigma_worst"] <= found["sigma_bound"]
    assert fresh.max() - fresh.min() <= 2 * found["sigma_bound"]


def test_with_no_step_w_ignores_the_queries_and_does_not_overfit_them(bank):
    p = FewShot(ways=3, shots=1, queries=10, test_episodes=400)
    found = query_size.generalisation(SIB(3, DIM, 0), bank, p)
    assert abs(found["gap"]) < 2 * found["gap_ci95"]


def made(n, accuracy, experiment="query_size", **changes):
    """A record whose accuracy is `accuracy` percent in each task, with 15 queries and with n."""
    p = dataclasses.replace(FULL, queries=n, **changes)

    def compute(p, folder):
        def answers(queries):
            return np.full(TASKS, round(accuracy / 100 * 5 * queries))

        arrays = {f"{s}/{how}": answers(q) for s in ("val", "test") for how, q in (("usual", 15), ("own", n))}
        metrics = {"risk": 0.8, "gap": -0.1, "gap_ci95": 0.01, "sigma": 2.0, "sigma_worst": 3.0, "sigma_bound": 10.0}
        return metrics, arrays

    return record(experiment, p, compute)


@pytest.fixture
def no_committed_records(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))


def test_a_table_of_what_there_is_beside_the_paper(no_committed_records):
    made(3, 60), made(15, 80), made(15, 100, steps=1000)
    rows = query_size.table_rows(query_size.gather("cifar-fs"))
    assert len(rows) == 2 * 2 + 2, "n = 15 is tested once, with 15"
    assert rows.query("n == 3")["tested"].tolist() == [15, 3, 15, 3]
    assert set(rows.query("n == 15")["ours"]) == {80}, "longer trainings count"
    table = tables.query_size(rows)
    assert len(table) == 24 + 6
    assert (table["verdict"] == tables.NOT_MEASURED).sum() == 24


def test_on_mini_imagenet_it_stands_beside_the_papers_numbers(no_committed_records):
    made(10, 64, dataset="mini-imagenet", backbone="conv4-128", features="images")
    table = tables.query_size(query_size.table_rows(query_size.gather("mini-imagenet")))
    beside = table[table["paper"].notna() & table["ours"].notna()]
    assert sorted(beside["paper"]) == [63.22, 65.34]


def test_a_network_of_a_longer_pretraining_counts(no_committed_records):
    made(3, 40, features="images", epochs=5), made(3, 60, features="images", epochs=20)
    assert query_size.table_rows(query_size.gather("cifar-fs"))["ours"].unique().tolist() == [60]


def test_differences_are_paired(no_committed_records):
    gain = query_size.difference([made(3, 60)], [made(10, 80)])
    assert (gain.mean, gain.ci95) == (pytest.approx(20), pytest.approx(0))


def test_the_terms_of_the_corollary(no_committed_records):
    made(4, 60)
    (row,) = query_size.corollary_terms(query_size.gather("cifar-fs")).to_dict("records")
    assert row["coefficient"] == pytest.approx(5 * 4 / (2 * 2.0**2))
    assert row["coefficient_sure"] == pytest.approx(5 * 4 / (2 * 10.0**2))
    assert row["term"] == pytest.approx(row["coefficient"] * 0.01)
    assert row["term_sure"] == pytest.approx(row["coefficient_sure"] * 0.01)


def test_the_figures_show_the_paper_beside_each_network_of_ours(no_committed_records):
    for backbone in ("conv4-64", "conv4-128"):
        for shots in (1, 5):
            made(3, 60, backbone=backbone, shots=shots), made(15, 80, backbone=backbone, shots=shots)
    made(3, 77, "query_size_rescaled")
    found, longer = query_size.gather("cifar-fs"), query_size.gather("cifar-fs", experiment="query_size_rescaled")
    axes = query_size_figures.accuracy_over_n(found, longer).axes
    titles = [axis.get_title() for axis in axes]
    assert [title.split(":")[0] for title in titles] == ["the paper's", "ours", "ours"] * 2
    assert [title.split(", ")[1] for title in titles[1:3]] == ["Conv-4-64", "Conv-4-128"]
    test_classes = axes[1].get_lines()[1]
    assert test_classes.get_label() == "test classes, tested with 15"
    assert test_classes.get_xydata().tolist() == [[3, 60], [15, 80]]
    assert axes[1].get_lines()[-1].get_xydata().round(1).tolist() == [[3, 77.3]]
    panels = query_size_figures.corollary(query_size.corollary_terms(found)).axes
    assert [len(axis.get_lines()) for axis in panels] == [5, 4, 4, 4], "four settings, and zero in the first"


def test_one_setting_at_a_time_for_sweeps():
    (one,) = QuerySizeNotebook(n=10, shots=5, backbones="conv4-128", epochs=20).experiments()
    assert (one.queries, one.shots, one.backbone, one.features, one.epochs) == (10, 5, "conv4-128", "images", 20)
    (one,) = QuerySizeNotebook(n=10, epochs=20).experiments()
    assert (one.backbone, one.features, one.epochs) == ("conv4-64", "shipped", 0), "shipped features have their network"


def test_a_trained_model_with_15_queries_is_the_same_either_way_and_longer_steps_change_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(query_size, "FRESH", 3)
    glyphs = datasets.load("glyphs", per_class=20)
    world = {"data": glyphs, "network": untrained_network(tmp_path / "network.safetensors", glyphs.images.shape[1])}
    small = FewShot(dataset="glyphs", eta=0.1, steps=20, val_episodes=10, test_episodes=30)
    usual, few = (few_shot.few_shot(dataclasses.replace(small, queries=n), **world) for n in (15, 3))
    tested = query_size.query_size(usual, **world)
    for split in ("val", "test"):
        assert tested.metrics[f"{split}/usual"] == tested.metrics[f"{split}/own"]
    assert tested.metrics["test/usual"] == pytest.approx(usual.metrics["best/1shot"])
    assert query_size.rescaled(usual, **world).metrics["test"] == pytest.approx(usual.metrics["best/1shot"])

    shorter = query_size.rescaled(few, **world)
    model, _ = load_sib(few.folder / BEST)
    model.eta *= 3 / 15
    bank = feature_bank(world["network"], glyphs, "test")
    fixed = few_shot.tasks(dataclasses.replace(small, queries=15), bank, "test")
    assert shorter.metrics["test"] == pytest.approx(100 * evaluate(model, bank.features, fixed).mean)
    assert (shorter.arrays["test/usual"] != query_size.query_size(few, **world).arrays["test/usual"]).any()
