from __future__ import annotations

import numpy as np
import pytest
import torch
from adaptation_domains import NAMES, domains, setting
from torch import nn

from sibrepro.facts import Inputs
from sibrepro.studies.pacs.experiment import ADAPTATION, Adaptation, Pictures, adapt, compute, domain_rows


def origin(bank):
    return Inputs(bank.hashes, lambda: (bank, nn.Identity()))


def test_a_record_has_one_prediction_for_each_image_of_the_target():
    bank = domains()
    record = adapt(setting(), origin(bank))
    rows = (bank.domains == NAMES.index("sketch")).nonzero()[:, 0]
    assert record.arrays["labels"].tolist() == bank.labels[rows].tolist()
    for name, array in record.arrays.items():
        if name.startswith("predicted"):
            assert array.shape == rows.shape, name
    assert "predicted/8/file" in record.arrays
    right = (record.arrays["predicted"] == record.arrays["labels"]).mean()
    assert record.metrics["accuracy"] == pytest.approx(100 * right)


@pytest.mark.thorough
def test_the_same_parameters_give_the_same_answers_and_another_seed_others():
    bank = domains()
    first, again, other = (compute(setting(seed=s), (bank, nn.Identity()))[1] for s in (0, 0, 1))
    assert (first["loss"] == again["loss"]).all()
    assert (first["predicted"] == again["predicted"]).all()
    assert (first["loss"] != other["loss"]).any()


def test_sources_target_and_held_out_images_do_not_overlap():
    bank = domains()
    learn, held_out, target = domain_rows(setting(target="art", left_out="photo"), bank)
    assert len(learn) == len(held_out) == 2
    parts = [*learn, *held_out, target, (bank.domains == NAMES.index("photo")).nonzero()[:, 0]]
    assert sorted(torch.cat(parts).tolist()) == list(range(len(bank.labels)))
    assert [NAMES[int(bank.domains[rows].unique())] for rows in learn] == ["cartoon", "sketch"]
    assert [len(rows) for rows in held_out] == [4, 4]


def test_an_unknown_domain_is_an_error_that_lists_the_known():
    with pytest.raises(ValueError, match="no domain 'video': expected one of art, cartoon, photo, sketch"):
        domain_rows(setting(target="video"), domains())


def test_pictures_are_turned_when_they_are_asked_for():
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3)).astype(np.uint8)
    bank = Pictures(images, torch.arange(3), torch.zeros(3), ("a", "b", "c"), ("d",))
    found = bank.take(torch.tensor([[2, 0]]), torch.tensor([[1, 3]]))
    assert found.shape == (1, 2, 3, 4, 4)
    for place, (row, turn) in enumerate([(2, 1), (0, 3)]):
        expected = np.rot90(images[row], turn).transpose(2, 0, 1) / 255
        assert np.allclose(found[0, place], expected)


def test_features_that_no_longer_come_with_the_project_are_an_error_that_says_what_to_take():
    with pytest.raises(FileNotFoundError, match="no longer come with the project: features='frozen' takes them"):
        adapt(Adaptation(features="shipped", target="photo", steps=3))


def test_a_training_is_done_once_and_again_for_other_features(capsys):
    first, again = (adapt(setting(steps=2), origin(domains())) for _ in range(2))
    assert first.id == again.id == ADAPTATION.id(setting(steps=2))
    adapt(setting(steps=2), origin(domains(seed=1)))
    said = [line.split(": ", 1)[1] for line in capsys.readouterr().err.splitlines() if line.startswith(first.id)]
    assert said == ["computing (not done yet)", "computed", "loaded", "computing (its data changed)", "computed"]


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="method"):
        Adaptation(method="JiGen")
