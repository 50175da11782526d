from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from fine_tuned_domains import NAMES, bank

from sibrepro.pacs import banks, second_stage
from sibrepro.pacs.banks import Look
from sibrepro.pacs.second_stage import (
    LOOKS,
    RIVALS,
    Minibatches,
    SecondStage,
    chosen_look,
    chosen_turn_rate,
    pairs,
    predict,
)

SHORT = {"target": "sketch", "steps": 4, "batch": 2, "images": 10}


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
        {"K": 2, "start": "turned", "tasks": "sources"},
        {"K": 2, "xi": "paper"},
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
    looks = {chosen_look(with_other_labels(made, name), "sketch") for name in NAMES} | {chosen_look(made, "sketch")}
    assert looks <= set(LOOKS)
    first = second_stage._compute(SecondStage(**SHORT), made)[1]
    other = second_stage._compute(SecondStage(**SHORT), with_other_labels(made, "photo"))[1]
    assert not np.array_equal(first["predicted"], other["predicted"])


def test_tasks_with_shift_are_sources_seen_by_networks_of_other_sources():
    for name, domain in pairs("sketch", NAMES):
        without = name.split(" ")[0].split("+")
        assert sorted(without) == sorted([domain, "sketch"])
    assert [domain for _, domain in pairs("sketch", NAMES, held="photo")] == ["art", "cartoon"]


def test_without_steps_each_image_has_the_class_of_the_nearest_weight():
    made = bank()
    _, arrays = second_stage._compute(SecondStage(**SHORT, K=0, look="sources/own"), made)
    seen = banks.view(made, banks.key(["sketch"], rot=True), "sketch", Look("sources", "own"))
    assert np.array_equal(arrays["predicted"], (seen.features @ seen.start.T).argmax(1).numpy())
    assert set(arrays) == {"labels", "predicted"}


def test_a_rotation_step_of_length_zero_is_none():
    made = bank()
    steps = {"K": 0, "look": "sources/sources"}
    plain = second_stage._compute(SecondStage(**SHORT, **steps), made)[1]["predicted"]
    turned = second_stage._compute(SecondStage(**SHORT, **steps, start="turned", turn_rate=0.0), made)[1]["predicted"]
    far = second_stage._compute(SecondStage(**SHORT, **steps, start="turned", turn_rate=50.0), made)[1]["predicted"]
    assert np.array_equal(plain, turned)
    assert not np.array_equal(plain, far)


def test_rotations_need_a_network_that_learned_them():
    with pytest.raises(ValueError, match=r"eq. \(ssup\) needs turned images"):
        second_stage._compute(SecondStage(**SHORT, K=0, network="source-only", start="turned", turn_rate=1.0), bank())


def test_the_rotation_rate_is_the_best_on_held_out_sources():
    made, name = bank(noise=1.0), banks.key(["sketch"], rot=True)
    scores = {rate: second_stage.turn_score(made, name, Look(), rate) for rate in second_stage.TURN_RATES}
    best = chosen_turn_rate(made, name, Look())
    assert scores[best] == max(scores.values())
    assert best == min(rate for rate, score in scores.items() if score == max(scores.values()))


def test_a_task_has_lambda_for_its_support_and_images_of_one_view_for_its_queries():
    made = bank()
    views = [banks.view(made, *pair, Look()) for pair in pairs("sketch", NAMES)]
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
    seen = banks.view(made, banks.key(["sketch"]), "sketch", Look())
    method = second_stage.CosineClassifier(3)
    expected = (seen.features @ seen.start.T).argmax(1)
    for size in (7, 64):
        for order in ("shuffled", "file"):
            assert torch.equal(predict(method, seen, size, order), expected)


def test_a_domain_is_seen_from_its_own_mean_or_from_the_sources():
    made = bank()
    name = banks.key(["sketch"])
    network = made.networks[name]
    there = made.domains == NAMES.index("sketch")
    raw = network.features[there]
    own = banks.view(made, name, "sketch", Look("sources", "own")).features
    assert torch.allclose(own, torch.nn.functional.normalize(raw - raw.mean(0), dim=1))
    from_sources = banks.view(made, name, "sketch", Look()).features
    mean = network.features[network.part == 0].mean(0)
    assert torch.allclose(from_sources, torch.nn.functional.normalize(raw - mean, dim=1))
    statistics = banks.view(made, name, "sketch", Look("own", "own")).features
    assert torch.allclose(
        statistics, torch.nn.functional.normalize(network.own["sketch"] - network.own["sketch"].mean(0), dim=1)
    )


def test_an_unknown_method_or_domain_is_an_error_that_lists_the_known():
    with pytest.raises(ValueError, match="there is no method 'magic': expected SIB or one of tent"):
        second_stage.second_stage(SecondStage(**SHORT, method="magic"), bank())
    with pytest.raises(ValueError, match="no domain 'video': expected one of art, cartoon, photo, sketch"):
        second_stage.second_stage(SecondStage(target="video"), bank())
