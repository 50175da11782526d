"""What it costs not to be told whether the queries are balanced: two rivals, each the best on its kind of queries, and
a switch between them.

Rivals that learn nothing have their options chosen for each kind of test tasks, so they are told the kind; a SIB is one
set of weights for both. The switch looks at how unequal the classes are among soft k-means' answers. Its threshold is
the best for the very tasks it is tested on, and its rivals keep their options for each kind: no switch on this number
does better with them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from scipy.stats import mannwhitneyu

from sibcore.evaluate import answers, most_likely
from sibrepro.meta_training import shipped
from sibrepro.meta_training.banks import tasks
from sibrepro.rivals import BASELINES
from sibrepro.statistics import Score, over_seeds, paired, right
from sibrepro.studies.equal_footing.experiment import QUERIES, UNTRAINED, Contender
from sibrepro.studies.equal_footing.tables import Found, best, score


@dataclasses.dataclass(frozen=True)
class Switch:
    """Scores by kind of queries; "gain": the best SIB's mean over both kinds, less the switch's."""

    rivals: dict[str, str]  # by kind of queries, the best that learns nothing
    told_apart: float  # how often a task of each kind is rightly ordered by how unequal its answers are; ties: half
    scores: dict[str, Score]
    gain: Score


def switch(found: Found, shots: int, unequal: dict[str, np.ndarray] | None = None) -> Switch:
    """Of published runs."""
    several = {method: records for (method, _, s), records in found.items() if s == shots and method in UNTRAINED}
    sib = found[best(found, shots), "mixture", shots]
    p = sib[0].params
    unequal = unequal or inequality(p)

    def best_rival(kind: str) -> str:
        return max(several, key=lambda method: score(several[method], kind).mean)

    rivals = {kind: best_rival(kind) for kind in QUERIES}
    low, high = ({kind: right(several[name], kind)[0].astype(float) for kind in QUERIES} for name in rivals.values())

    def chosen(kind: str, threshold: float) -> np.ndarray:
        return np.where(unequal[kind] <= threshold, low[kind], high[kind])

    thresholds = np.unique(np.concatenate([[-1.0], *unequal.values()]))
    threshold = max(thresholds, key=lambda t: sum(chosen(kind, t).mean() for kind in QUERIES))
    after = {kind: chosen(kind, threshold) for kind in QUERIES}
    count = p["ways"] * p["queries"]
    both = np.concatenate([right(sib, kind) for kind in QUERIES], 1)
    # the area under the curve of true and false alarms
    above = mannwhitneyu(unequal["dirichlet2"], unequal["balanced"]).statistic
    return Switch(
        rivals,
        float(above / len(unequal["dirichlet2"]) / len(unequal["balanced"])),
        {kind: over_seeds(np.atleast_2d(values), count) for kind, values in after.items()},
        paired(np.concatenate([*after.values()]), both, count),
    )


def inequality(params: dict) -> dict[str, np.ndarray]:
    """Of each test task, the sum over classes of (share among soft k-means' answers - 1 / k)^2."""
    p = Contender(**params)
    bank = shipped.load(p.dataset, p.backbone)["test"]
    method = BASELINES["soft-k-means"](p.ways)
    found = {}
    for kind, alpha in QUERIES.items():
        parts = answers(method, bank.features, tasks(p, bank, "test", alpha))
        labels = torch.cat([most_likely(logits) for logits, _ in parts])
        shares = torch.nn.functional.one_hot(labels, p.ways).double().mean(1)
        found[kind] = (shares - 1 / p.ways).square().sum(1).numpy()
    return found
