"""Made-up records of domain adaptation: their answers are given, nothing is trained."""

from __future__ import annotations

import made_up
import numpy as np

from sibcore.datasets.pacs import DOMAINS
from sibrepro.facts import Record, flat
from sibrepro.statistics import by
from sibrepro.studies.pacs import plan
from sibrepro.studies.pacs.experiment import ADAPTATION, ORDERS, SIZES, Adaptation
from sibrepro.studies.pacs.plan import Scores
from sibrepro.studies.pacs.second_stage import SECOND_STAGE

IMAGES = 210  # target images of a record


def record(accuracy: float, **changes: object) -> Record:
    """Return the record of an adaptation with this accuracy in percent on the target images.

    Images that are classified wrongly get the next class. Which ones these are depends on the seed.
    """
    p = Adaptation(**({"features": "shipped", "alpha": 1.0} | changes))
    labels = np.arange(IMAGES) % 7
    right = np.random.default_rng(p.seed).permutation(IMAGES) < round(IMAGES * accuracy / 100)
    predicted = np.where(right, labels, (labels + 1) % 7).astype(np.uint8)
    arrays = {"labels": labels.astype(np.uint8), "predicted": predicted}
    for size in SIZES:
        arrays |= {f"predicted/{size}/{order}": predicted for order in ORDERS}
    return made_up.record(ADAPTATION, p, {"accuracy": accuracy, "held_out": 90.0}, arrays)


def stages(accuracies: dict[tuple[str, int], float]) -> list[Record]:
    """Return records of all planned runs of stage 2, with accuracies by (method, K)."""
    found = []
    for key, accuracy in accuracies.items():
        for p in flat(plan.stages(plan.TWO_STAGES[key])):
            same = record(accuracy, target=p.target, seed=p.seed)
            found.append(made_up.record(SECOND_STAGE, p, same.metrics, same.arrays))
    return found


def grid(accuracies: dict[tuple[str, int], float], seeds: int = 2, **changes: object) -> list[Record]:
    """Return records of every target domain and several seeds, with accuracies by (method, K)."""
    return [
        record(accuracy, target=target, method=method, K=K, seed=seed, **changes)
        for (method, K), accuracy in accuracies.items()
        for target in DOMAINS
        for seed in range(seeds)
    ]


def scores_of(records: list[Record]) -> Scores:
    """Group records by (method, K), and then by target domain."""
    return {key: by(found, "target") for key, found in by(records, "method", "K").items()}
