"""A switch between two rivals, each the best on one kind of queries, as a bound on what choosing between them can give.

Options of rivals that learn nothing are chosen separately for balanced and for unbalanced queries, so these rivals are
told which kind they face. A SIB is one set of weights for both kinds. The switch has to guess the kind: it measures how
unequal the classes are among the answers of soft k-means and picks a rival by a threshold on that number. We choose
the threshold on the very test tasks it is scored on, and its rivals keep the options for each kind. No switch on this
number can therefore do better with these two rivals.
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
    """How well the best switch between two rivals does.

    Attributes:
        rivals: by kind of queries, the best method that learns nothing.
        told_apart: how often a pair of tasks, one of each kind, is ordered rightly by how unequal its answers are; a
            tie counts one half.
        scores: by kind of queries, the switch's accuracy in percent.
        gain: the best SIB's accuracy minus the switch's, both over the tasks of both kinds.
    """

    rivals: dict[str, str]
    told_apart: float
    scores: dict[str, Score]
    gain: Score


def switch(found: Found, shots: int, unequal: dict[str, np.ndarray] | None = None) -> Switch:
    """Return the best switch between the two best rivals that learn nothing.

    Args:
        found: published runs, as `plan.published` returns them.
        shots: the number of shots of the runs to compare.
        unequal: by kind of queries, the number that the switch looks at for each test task; by default `inequality`.
    """
    rivals, right_answers = {}, []
    for kind in QUERIES:
        scores = {
            method: score(records, kind).mean
            for (method, _, number), records in found.items()
            if number == shots and method in UNTRAINED
        }
        rivals[kind] = max(scores, key=scores.get)
        chosen = found[rivals[kind], "", shots]
        right_answers.append({queries: right(chosen, queries)[0].astype(float) for queries in QUERIES})
    of_balanced, of_unbalanced = right_answers
    sib = found[best(found, shots), "mixture", shots]
    params = sib[0].params
    unequal = unequal or inequality(params)

    def switched(threshold: float) -> dict[str, np.ndarray]:
        """Return the right answers to each task: up to the threshold, a task is taken for balanced."""
        return {kind: np.where(unequal[kind] <= threshold, of_balanced[kind], of_unbalanced[kind]) for kind in QUERIES}

    thresholds = np.unique(np.concatenate([[-1.0], *unequal.values()]))
    ours = switched(max(thresholds, key=lambda t: sum(values.mean() for values in switched(t).values())))
    of_sib = np.concatenate([right(sib, kind) for kind in QUERIES], 1)
    queries = params["ways"] * params["queries"]
    # Mann and Whitney's U counts the pairs that are ordered rightly.
    low, high = unequal["balanced"], unequal["dirichlet2"]
    ordered = mannwhitneyu(high, low).statistic
    return Switch(
        rivals=rivals,
        told_apart=float(ordered / len(high) / len(low)),
        scores={kind: over_seeds(values[np.newaxis], queries) for kind, values in ours.items()},
        gain=paired(np.concatenate([*ours.values()]), of_sib, queries),
    )


def inequality(params: dict) -> dict[str, np.ndarray]:
    """Return how unequal the classes are among soft k-means' answers to each test task, by kind of queries.

    The measure is the sum over the k classes of (share of the answers - 1 / k)²; it is 0 if all shares are equal.

    Args:
        params: the parameters of a run, which name the features and the test tasks.
    """
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
