"""What it costs not to be told whether the queries are balanced: two rivals, each the best on its kind of queries, and
a switch between them.

Rivals that learn nothing have their options chosen for each kind of test tasks, so they are told the kind; a SIB is one
set of weights for both. The switch looks at how unequal the classes are among soft k-means' answers. Its threshold is
the best for the very tasks it is tested on, and its rivals keep their options for each kind: no switch on this number
does better with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from sibcore.evaluate import answers, most_likely
from sibrepro.equal_footing.experiment import QUERIES, UNTRAINED, Contender
from sibrepro.equal_footing.tables import Found, best, score
from sibrepro.facts import Record
from sibrepro.few_shot import shipped
from sibrepro.few_shot.experiment import tasks
from sibrepro.rivals import BASELINES
from sibrepro.statistics import Score, over_seeds, paired, right


@dataclasses.dataclass(frozen=True)
class Switch:
    """Scores by kind of queries; "gain": the best SIB's mean over both kinds, less the switch's."""

    rivals: dict[str, str]  # by kind of queries, the best that learns nothing
    told_apart: float  # how often a task of each kind is rightly ordered by how unequal its answers are
    scores: dict[str, Score]
    gain: Score


def switch(found: Found, shots: int, unequal: dict[str, np.ndarray] | None = None) -> Switch:
    """Of published runs."""
    rivals = {kind: _best_rival(found, shots, kind) for kind in QUERIES}
    sib = found[best(found, shots), "mixture", shots]
    p = sib[0].params
    unequal = unequal or inequality(p)
    of = {name: {kind: _right(found[name, "", shots], kind) for kind in QUERIES} for name in rivals.values()}

    def chosen(kind: str, threshold: float) -> np.ndarray:
        return np.where(unequal[kind] <= threshold, of[rivals["balanced"]][kind], of[rivals["dirichlet2"]][kind])

    thresholds = np.unique(np.concatenate([[-1.0], *unequal.values()]))
    threshold = max(thresholds, key=lambda t: sum(chosen(kind, t).mean() for kind in QUERIES))
    after = {kind: chosen(kind, threshold) for kind in QUERIES}
    count = p["ways"] * p["queries"]
    both = np.concatenate([right(sib, kind) for kind in QUERIES], 1)
    return Switch(
        rivals,
        _order(unequal["balanced"], unequal["dirichlet2"]),
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


def _best_rival(found: Found, shots: int, kind: str) -> str:
    several = {method: records for (method, _, s), records in found.items() if s == shots and method in UNTRAINED}
    return max(several, key=lambda method: score(several[method], kind).mean)


def _right(records: Sequence[Record], kind: str) -> np.ndarray:
    return right(records, kind)[0].astype(float)


def _order(low: np.ndarray, high: np.ndarray) -> float:
    """The area under the curve of true and false alarms: the share of pairs with low < high, ties counting half."""
    ranks = np.searchsorted(np.sort(low), high, "left") + np.searchsorted(np.sort(low), high, "right")
    return float(ranks.mean() / 2 / len(low))
