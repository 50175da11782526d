from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from fine_tuned_domains import NAMES, bank

from sibcore.sib import unit
from sibrepro.studies.pacs import banks, second_stage
from sibrepro.studies.pacs.banks import FeatureVariant
from sibrepro.studies.pacs.second_stage import (
    FEATURE_VARIANTS,
    RIVALS,
    Minibatches,
    SecondStage,
    chosen_rotation_rate,
    chosen_variant,
    pairs,
    predict,
)

pytestmark = pytest.mark.thorough

SHORT = {"target": "sketch", "steps": 4, "batch": 2, "images": 10, "eta": 0.1}


def with_other_labels(made, domain: str):
    """The same bank with the labels of one domain mixed up."""
    there = (made.domains == NAMES.index(domain)).nonzero()[:, 0]
    labels = made.labels.clone()
    labels[there] = labels[there].flip(0).roll(7)
    assert not torch.equal(labels, made.labels)
    return dataclasses.replace(made, labels=labels)


@pytest.mark.parametrize(
    "changes",
    [
        {"K": 0, "network": "source-only"},
        {"K": 0, "start": "turned"},
        {"K": 2},
        {"K": 2, "eta": 0.0},
        {"K": 2, "eta": 0.0, "tasks": ""},
        {"K": 2, "start": "turned", "tasks": "sources"},
        {"K": 2, "xi": "mlp"},
        {"K": 2, "look": "mixed/own/1", "other_batches": True},
        *({"method": name} for name in RIVALS),
    ],
)
def test_labels_of_the_target_decide_nothing(changes, tmp_path, monkeypatch):
    """Every answer, and so every weight and choice behind it, is the same when the target's labels are mixed up."""
    p = SecondStage(**SHORT | changes)
    made = bank()
    mixed = with_other_labels(made, "sketch")
    answers = []
    for number, which in enumerate((made, mixed)):
        monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / str(number)))
        answers.append(second_stage.second_stage(p, which))
    for name, array in answers[0].arrays.items():
        assert name == "labels" or np.array_equal(array, answers[1].arrays[name]), name
    assert {**answers[0].metrics, "accuracy": 0} == {**answers[1].metrics, "accuracy": 0}
    assert answers[0].metrics["accuracy"] != answers[1].metrics["accuracy"]


def test_labels_of_the_sources_do():
    made = bank(noise=1.0)
    chosen = {chosen_variant(with_other_labels(made, name), "sketch") for name in NAMES} | {
        chosen_variant(made, "sketch")
    }
    assert chosen <= set(FEATURE_VARIANTS)
    first = second_stage.compute(SecondStage(**SHORT), made)[1]
    other = second_stage.compute(SecondStage(**SHORT), with_other_labels(made, "photo"))[1]
    assert not np.array_equal(first["predicted"], other["predicted"])


def test_tasks_with_shift_are_sources_seen_by_networks_of_other_sources():
    for name, domain in pairs("sketch", NAMES):
        without = name.split(" ")[0].split("+")
        assert sorted(without) == sorted([domain, "sketch"])
    assert [domain for _, domain in pairs("sketch", NAMES, held="photo")] == ["art", "cartoon"]


def test_without_steps_each_image_has_the_class_of_the_nearest_weight():
    made = bank()
    _, arrays = second_stage.compute(SecondStage(**SHORT, K=0, look="sources/own/1"), made)
    view = banks.view(made, banks.key(["sketch"], rot=True), "sketch", FeatureVariant("sources", "own", 1.0))
    assert np.array_equal(arrays["predicted"], (view.features @ view.start.T).argmax(1).numpy())
    assert set(arrays) == {"labels", "predicted"}


def test_a_rotation_step_of_length_zero_is_none():
    made = bank()
    steps = {"K": 0, "look": "sources/sources/0"}
    plain = second_stage.compute(SecondStage(**SHORT, **steps), made)[1]["predicted"]
    turned = second_stage.compute(SecondStage(**SHORT, **steps, start="turned", turn_rate=0.0), made)[1]["predicted"]
    far = second_stage.compute(SecondStage(**SHORT, **steps, start="turned", turn_rate=50.0), made)[1]["predicted"]
    assert np.array_equal(plain, turned)
    assert not np.array_equal(plain, far)


def test_rotations_need_a_network_that_learned_them():
    with pytest.raises(ValueError, match=r"eq. \(ssup\) needs rotated images"):
        second_stage.compute(SecondStage(**SHORT, K=0, network="source-only", start="turned", turn_rate=1.0), bank())


def test_the_step_size_is_the_best_on_sources_in_the_targets_place():
    made = bank(noise=1.0)
    record = second_stage.second_stage(SecondStage(**SHORT | {"eta": 0.0}), made)
    sums = {}
    for eta in second_stage.ETAS:
        trials = [SecondStage(**SHORT | {"eta": eta, "held": held, "images": 64}) for held in NAMES[:3]]
        sums[eta] = sum(second_stage.compute(p, made)[0]["accuracy"] for p in trials)
    assert sums[record.metrics["eta"]] == max(sums.values())


def test_what_xi_learns_from_is_the_best_on_sources_in_the_targets_place():
    made = bank(noise=1.0)
    record = second_stage.second_stage(SecondStage(**SHORT | {"tasks": ""}), made)
    sums = {}
    for tasks in second_stage.TASKS:
        trials = [SecondStage(**SHORT | {"tasks": tasks, "held": held, "images": 64}) for held in NAMES[:3]]
        sums[tasks] = sum(second_stage.compute(p, made)[0]["accuracy"] for p in trials)
    assert sums[record.metrics["tasks"]] == max(sums.values())


def test_in_the_targets_place_xi_learns_from_sources_that_the_network_of_two_has_seen():
    made = bank(noise=1.0)
    p = SecondStage(**SHORT | {"tasks": "sources", "held": "photo"})
    assert second_stage.network_of(p) == banks.key(["photo", "sketch"])
    _, plain = second_stage.compute(p, made)
    _, other = second_stage.compute(p, with_other_labels(made, "sketch"))
    assert np.array_equal(plain["predicted"], other["predicted"])


def test_the_rotation_rate_is_the_best_on_held_out_sources():
    made, name = bank(noise=1.0), banks.key(["sketch"], rot=True)
    scores = {
        rate: second_stage.rotation_accuracy(made, name, FeatureVariant(), rate) for rate in second_stage.ROTATION_RATES
    }
    best = chosen_rotation_rate(made, name, FeatureVariant())
    assert scores[best] == max(scores.values())
    assert best == min(rate for rate, score in scores.items() if score == max(scores.values()))


def test_a_task_has_lambda_for_its_support_and_images_of_one_view_for_its_queries():
    made = bank()
    views = [banks.view(made, *pair, FeatureVariant()) for pair in pairs("sketch", NAMES)]
    sampler = Minibatches(views, 10, 1.0, seed=3)
    (tasks,) = sampler.batches(5, 6, 6)
    again = next(iter(Minibatches(views, 10, 1.0, seed=3).batches(5, 6, 6)))
    assert torch.equal(tasks.query, again.query)
    for number in range(6):
        view = views[(5 * 6 + number) % 3]
        assert torch.equal(sampler.bank[tasks.support[number]], view.start)
        for row, label in zip(sampler.bank[tasks.query[number]], tasks.query_labels[number], strict=True):
            places = (view.features == row).all(1).nonzero()[:, 0]
            assert label in view.labels[places]


def test_every_image_is_predicted_once_in_minibatches_of_any_size():
    made = bank()
    view = banks.view(made, banks.key(["sketch"]), "sketch", FeatureVariant())
    method = second_stage.CosineClassifier(3)
    expected = (view.features @ view.start.T).argmax(1)
    for size in (7, 64):
        for order in ("shuffled", "file"):
            assert torch.equal(predict(method, view, size, order), expected)


def test_a_domain_is_seen_from_its_own_mean_or_from_the_sources():
    made = bank()
    name = banks.key(["sketch"])
    network = made.networks[name]
    raw = network.features[made.domains == NAMES.index("sketch")]
    mean = network.features[network.part == 0].mean(0)
    own = network.own["sketch"]
    mixed = unit(raw + own)
    expected = {
        FeatureVariant("sources", "own"): raw - raw.mean(0),
        FeatureVariant(): raw - mean,
        FeatureVariant("own", "own"): own - own.mean(0),
    }
    expected[FeatureVariant("mixed", "own")] = mixed - mixed.mean(0)
    for variant, values in expected.items():
        view = banks.view(made, name, "sketch", variant).features
        assert torch.allclose(view[:, :8], unit(values), atol=1e-6)
        assert not view[:, 8:].any(), "ImageNet's features have the weight 0"


def test_the_features_of_imagenet_stand_beside_with_their_weight():
    made = bank()
    name = banks.key(["sketch"], rot=True)
    network, there = made.networks[name], made.domains == NAMES.index("sketch")
    tuned, plain = network.features[there], made.imagenet[0, there]
    parts = [unit(part - part.mean(0)) for part in (tuned, plain)]
    view = banks.view(made, name, "sketch", FeatureVariant("sources", "own", 2.0))
    cosine = (parts[0] @ parts[0].T + 4 * parts[1] @ parts[1].T) / 5
    assert torch.allclose(view.features @ view.features.T, cosine, atol=1e-5)
    alone = banks.view(made, name, "sketch", FeatureVariant("sources", "own"))
    assert torch.allclose(alone.features @ alone.features.T, parts[0] @ parts[0].T, atol=1e-5)
    assert view.rotated.shape == (3, *view.features.shape)
    last = [unit(network.rotated["sketch"][2] - tuned.mean(0)), 2 * unit(made.imagenet[3, there] - plain.mean(0))]
    assert torch.allclose(view.rotated[2], unit(torch.cat(last, 1)), atol=1e-5)


def test_lambda_is_the_class_means_of_images_that_the_network_learned_from():
    made = bank()
    network = made.networks[banks.key(["sketch"])]
    learned = network.part == 0
    for centre in ("sources", "own"):
        features = network.features.clone()
        for part in [learned] if centre == "sources" else [learned & (made.domains == d) for d in range(3)]:
            features[part] -= network.features[part].mean(0)
        means = torch.stack([unit(features[learned & (made.labels == k)]).mean(0) for k in range(3)])
        found = banks.lambda_of(made, network, FeatureVariant("sources", centre))[0]
        assert torch.allclose(found[:, :8], unit(means), atol=1e-6)


def test_a_feature_variant_is_written_as_it_is_read():
    assert [FeatureVariant.parse(str(variant)) for variant in FEATURE_VARIANTS] == FEATURE_VARIANTS
    with pytest.raises(ValueError, match="there is no feature variant 'own/own/9': expected one of sources/sources/0"):
        FeatureVariant.parse("own/own/9")


def test_an_unknown_method_or_domain_is_an_error_that_lists_the_known():
    with pytest.raises(ValueError, match="there is no method 'magic': expected SIB or one of tent"):
        second_stage.second_stage(SecondStage(**SHORT, method="magic"), bank())
    with pytest.raises(ValueError, match="no domain 'video': expected one of art, cartoon, photo, sketch"):
        second_stage.second_stage(SecondStage(target="video"), bank())
