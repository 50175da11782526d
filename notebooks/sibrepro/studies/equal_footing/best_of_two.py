"""The best choice between two rivals, each the best on one kind of queries: a bound on what choosing can give.

Options of rivals that learn nothing are chosen separately for balanced and for unbalanced queries, so each of these
rivals knows which kind it faces. One SIB answers both kinds and does not know. To compare like with like, we let a rule
pick one of the two best rivals for each task. The rule estimates how unequal the classes are, from the answers of soft
k-means, and compares this number with a threshold. The threshold is the best one for the very test tasks that the rule
is scored on. No rule that uses this number can do better with these two rivals.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import torch
from scipy.stats import mannwhitneyu

from sibcore.evaluate import answers, most_likely
from sibrepro.meta_training import shipped
from sibrepro.meta_training.banks import tasks
from sibrepro.rivals import BASELINES
from sibrepro.statistics import Score, over_seeds, paired, right
from sibrepro.studies.equal_footing.experiment import QUERIES, UNTRAINED, MethodSettings
from sibrepro.studies.equal_footing.tables import Found, best, score, title


@dataclasses.dataclass(frozen=True)
class BestOfTwo:
    """How well the best rule does that picks one of two rivals for each task.

    Attributes:
        rivals: by kind of queries, the best method that learns nothing.
        auc: area under the ROC curve of the estimated imbalance, as a detector of unbalanced tasks.
        scores: by kind of queries, the rule's accuracy in percent.
        gain: the best SIB's accuracy minus the rule's, both over the tasks of both kinds.
    """

    rivals: dict[str, str]
    auc: float
    scores: dict[str, Score]
    gain: Score


def best_of_two(found: Found, shots: int, imbalance: dict[str, np.ndarray] | None = None) -> BestOfTwo:
    """Return how well the best choice does between the two best rivals that learn nothing.

    Args:
        found: published runs, as `plan.published` returns them.
        shots: the number of shots of the runs to compare.
        imbalance: by kind of queries, the number that the rule sees of each test task; by default
            `estimated_imbalance`.
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
    imbalance = imbalance or estimated_imbalance(params)

    def picked(threshold: float) -> dict[str, np.ndarray]:
        """Return the right answers to each task: up to the threshold, a task is taken for balanced."""
        return {
            kind: np.where(imbalance[kind] <= threshold, of_balanced[kind], of_unbalanced[kind]) for kind in QUERIES
        }

    thresholds = np.unique(np.concatenate([[-1.0], *imbalance.values()]))
    theirs = picked(max(thresholds, key=lambda t: sum(values.mean() for values in picked(t).values())))
    of_sib = np.concatenate([right(sib, kind) for kind in QUERIES], 1)
    queries = params["ways"] * params["queries"]
    # Mann and Whitney's U counts the pairs of tasks, one of each kind, that are ordered rightly.
    low, high = imbalance["balanced"], imbalance["dirichlet2"]
    ordered = mannwhitneyu(high, low).statistic
    return BestOfTwo(
        rivals=rivals,
        auc=float(ordered / len(high) / len(low)),
        scores={kind: over_seeds(values[np.newaxis], queries) for kind, values in theirs.items()},
        gain=paired(np.concatenate([*theirs.values()]), of_sib, queries),
    )


def table(results: dict[int, BestOfTwo]) -> pd.DataFrame:
    """Return a row for each number of shots, for readers.

    Args:
        results: by number of shots, what `best_of_two` returned.
    """
    rows = {}
    for shots, result in results.items():
        rows[f"{shots}-shot"] = {
            "picks": " or ".join(map(title, result.rivals.values())),
            "balanced (%)": str(result.scores["balanced"]),
            "Dirichlet(2) (%)": str(result.scores["dirichlet2"]),
            "AUC of the estimate": f"{result.auc:.2f}",
            "best SIB minus the best choice (points)": f"{result.gain.mean:+.2f} ± {result.gain.ci95:.2f}",
        }
    return pd.DataFrame(rows).T


def verdict(gain: Score) -> str:
    """Say in words whether a gain is above zero, below it, or neither for sure."""
    if gain.mean > gain.ci95:
        return "better than"
    return "worse than" if gain.mean < -gain.ci95 else "level with"


def estimated_imbalance(params: dict) -> dict[str, np.ndarray]:
    """Return how unequal the classes are among soft k-means' answers to each test task, by kind of queries.

    The measure is the sum over the k classes of (share of the answers - 1 / k)²; it is 0 if all shares are equal.

    Args:
        params: the parameters of a run, which name the features and the test tasks.
    """
    p = MethodSettings(**params)
    bank = shipped.load(p.dataset, p.backbone)["test"]
    method = BASELINES["soft-k-means"](p.ways)
    found = {}
    for kind, alpha in QUERIES.items():
        parts = answers(method, bank.features, tasks(p, bank, "test", alpha))
        labels = torch.cat([most_likely(logits) for logits, _ in parts])
        shares = torch.nn.functional.one_hot(labels, p.ways).double().mean(1)
        found[kind] = (shares - 1 / p.ways).square().sum(1).numpy()
    return found
