from __future__ import annotations

import torch

from sibcore.datasets import pacs
from sibrepro.meta_training import shipped
from sibrepro.studies.pacs import banks, plan


def test_the_committed_features_are_of_every_network_and_all_of_pacs():
    bank = banks.load()
    assert shipped.file(*banks.FILE).stat().st_size <= 12_000_000
    assert len(bank.networks) == len(plan.TWO_SOURCES) + len(plan.THREE_SOURCES)
    for number, domain in enumerate(pacs.DOMAINS):
        counts = bank.labels[bank.domains == number].bincount()
        assert tuple(counts.tolist()) == pacs.COUNTS[domain]
    assert bank.imagenet.shape[:2] == (4, 9991)
    for name, network in bank.networks.items():
        without = name.split(" ")[0].split("+")
        others = bank.domains[network.rows[network.part == 2]].unique()
        assert [pacs.DOMAINS[d] for d in others] == without == list(network.own)
        assert ("Rot" in name) == bool(network.rotated)
        assert torch.allclose(network.features.norm(dim=1), torch.ones(len(network.features)))


def test_their_header_names_the_published_runs_of_stage_1():
    about = shipped.about(*banks.FILE)
    published = {record.id for record in plan.FINE_TUNED.facts([*plan.TWO_SOURCES, *plan.THREE_SOURCES])}
    assert set(about["runs"].values()) == published
    assert all(0.6 < kept <= 1 for kept in about["kept"].values())
