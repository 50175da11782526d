from __future__ import annotations

import pytest
import torch
from adaptation_domains import domains

from sibcore.datasets import pacs
from sibcore.sib import unit
from sibrepro.few_shot import shipped
from sibrepro.pacs import shipped as shipped_rotations


def test_what_is_shipped_has_the_cosines_of_what_was_there(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    bank = domains(dim=12)
    shipped_rotations.make(bank, "tiny", "small", 16, dim=12)
    found = shipped_rotations.load("tiny", "small")
    before, after = (unit(b.inputs.flatten(0, 1)) for b in (bank, found))
    assert torch.allclose(after @ after.mT, before @ before.mT, atol=0.02)
    assert found.inputs.shape == bank.inputs.shape
    assert torch.equal(found.labels, bank.labels)
    assert torch.equal(found.domains, bank.domains)
    assert (found.classes, found.domain_names) == (bank.classes, bank.domain_names)
    about = shipped.about("tiny", "small")
    assert about["hashes"] == bank.hashes
    assert about["kept"] == pytest.approx(1, abs=1e-5)


def test_the_directions_are_the_right_singular_vectors():
    features = torch.randn(40, 7, generator=torch.Generator().manual_seed(0)) + 1
    expected = torch.linalg.svd(features)[2][:3]
    found = shipped_rotations.directions(features, 3).mT
    assert torch.allclose((found * expected).sum(1).abs(), torch.ones(3), atol=1e-4)


def test_the_committed_features_are_all_of_pacs_in_four_turns():
    bank = shipped_rotations.load()
    assert shipped.file("pacs", "efficientnet-lite0").stat().st_size <= 12_000_000
    assert bank.inputs.shape[:2] == (4, 9991)
    for number, domain in enumerate(pacs.DOMAINS):
        counts = bank.labels[bank.domains == number].bincount()
        assert tuple(counts.tolist()) == pacs.COUNTS[domain]
    assert bank.inputs.isfinite().all()
