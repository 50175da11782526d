"""Made-up records of domain adaptation for tests: the answers are given, nothing is trained."""

from __future__ import annotations

import dataclasses

import numpy as np

from sibcore.datasets.pacs import DOMAINS
from sibrepro.facts import Record, flat
from sibrepro.statistics import by
from sibrepro.studies.pacs import plan
from sibrepro.studies.pacs.experiment import ADAPTATION, ORDERS, SIZES, Adaptation
from sibrepro.studies.pacs.plan import Scores
from sibrepro.studies.pacs.second_stage import SECOND_STAGE

IMAGES = 210


def record(accuracy: float, **changes: object) -> Record:
    """The record of a training that classifies so many percent of 210 target images rightly, others as the next."""
    p = Adaptation(**({"features": "shipped", "alpha": 1.0} | changes))
    labels = np.arange(IMAGES) % 7
    right = np.random.default_rng(p.seed).permutation(IMAGES) < round(IMAGES * accuracy / 100)
    predicted = np.where(right, labels, (labels + 1) % 7).astype(np.uint8)
    arrays = {"labels": labels.astype(np.uint8), "predicted": predicted}
    arrays |= {f"predicted/{size}/{order}": predicted for size in SIZES for order in ORDERS}
    metrics = {"accuracy": accuracy, "held_out": 90.0}
    return Record(ADAPTATION.id(p), ADAPTATION.version, dataclasses.asdict(p), metrics, {"data": {}}, arrays, None)


def stages(accuracies: dict[tuple[str, int], float]) -> list[Record]:
    """Records of stage 2 as they are published, by (method, K)."""
    found = []
    for key, accuracy in accuracies.items():
        for p in flat(plan.stages(plan.STAGES[key])):
            made = record(accuracy, target=p.target, seed=p.seed)
            params = dataclasses.asdict(p)
            found.append(dataclasses.replace(made, id=SECOND_STAGE.id(p), version=SECOND_STAGE.version, params=params))
    return found


def grid(accuracies: dict[tuple[str, int], float], seeds: int = 2, **changes: object) -> list[Record]:
    """Records of all targets, by (method, K)."""
    return [
        record(accuracy, target=target, method=method, K=K, seed=seed, **changes)
        for (method, K), accuracy in accuracies.items()
        for target in DOMAINS
        for seed in range(seeds)
    ]


def scores_of(records: list[Record]) -> Scores:
    """By (method, K), then by target."""
    return {key: by(found, "target") for key, found in by(records, "method", "K").items()}
