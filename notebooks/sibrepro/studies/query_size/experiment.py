"""Runs that test a SIB, trained with n queries per class, with 15 and with n queries per class.

This is the appendix's study of the size of the query set. Besides accuracies it measures what can be measured of
Theorem 2: w is inferred from the inputs of a query set d, and its loss on d is compared with its loss on further
queries of the same task.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import Evaluation, evaluate
from sibcore.sib import SIB, unit
from sibcore.vision.features import Features
from sibrepro.facts import Experiment, Numbers, Record
from sibrepro.meta_training.banks import SPLITS, Banks, numbers, tasks
from sibrepro.meta_training.settings import OLDEST, SPELLING, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with
from sibrepro.theory.generalisation import subgaussian_variance

USUAL = 15  # Queries per class in the usual test.
FRESH = 30  # Further queries per class, for the generalisation error.
SIGMA_TASKS = 500  # The number of tasks that sigma is estimated from.


def query_size(trained: Record) -> Record:
    """Return the run that tests the SIB of a few-shot run with 15 and with n queries per class."""
    return QUERY_SIZE.run(FEW_SHOT.settings_of(trained), trained=trained)


def rescaled(trained: Record) -> Record:
    """Return the run that tests the SIB of a few-shot run with 15 queries and steps of the trained length.

    A step is a sum over the queries. So a SIB that was trained with n queries per class takes shorter steps when it is
    tested with fewer.
    """
    return RESCALED.run(FEW_SHOT.settings_of(trained), trained=trained)


def compute(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Test with 15 queries per class and with n, on validation and on test classes.

    Returns:
        metrics: accuracies in percent, such as "val/usual" (15 queries) and "test/own" (n queries), each with
            "..._ci95"; and those that `generalisation` returns.
        arrays: the number of correctly answered queries of each task, such as "val/usual".
    """
    sib, banks = inputs
    metrics, arrays = generalisation(sib, banks["test"], p), {}
    for name, queries in {"usual": USUAL, "own": p.queries}.items():
        scores = {f"{split}/{name}": _tested(sib, banks[split], p, split, queries) for split in ("val", "test")}
        accuracies, right = numbers(scores, p.ways * queries)
        metrics |= accuracies
        arrays |= right
    return metrics, arrays


def compute_rescaled(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Test with 15 queries per class and a step size of η n / 15, which makes a step as long as with n queries.

    Returns:
        metrics: "test", accuracy in percent, with "test_ci95".
        arrays: the number of correctly answered queries of each task, "test/usual".
    """
    sib, banks = inputs
    longer = sib.changed(eta=sib.eta * p.queries / USUAL)
    metrics, arrays = numbers({"test": _tested(longer, banks["test"], p, "test", USUAL)}, p.ways * USUAL)
    return metrics, {"test/usual": arrays["test"]}


def _tested(sib: SIB, bank: Features, p: FewShot, split: str, queries: int) -> Evaluation:
    """Test with so many queries per class, on as many tasks of validation classes as of test classes."""
    setting = dataclasses.replace(p, queries=queries, val_episodes=p.test_episodes)
    return evaluate(sib, bank.features, tasks(setting, bank, split).to(pick_device()))


def generalisation(sib: SIB, bank: Features, p: FewShot) -> dict[str, float]:
    """Measure the quantities of Theorem 2 on tasks of `bank` with n queries per class.

    Returns:
        "risk": the empirical risk E L_t(w, d), with d the queries that w was inferred from.
        "gap": the generalisation error gen(q), with "gap_ci95".
        "sigma": the root of the average over tasks of sigma², the smallest sub-Gaussian variance of the losses of fresh
            queries.
        "sigma_worst": sigma of the worst task, which the theorem needs.
        "sigma_bound": half the range of a loss of this cosine classifier, certainly large enough (Hoeffding).
    """
    seen, fresh = losses(sib, bank, p)
    gaps = (fresh.mean(1) - seen.mean(1)).numpy()
    some = fresh[:SIGMA_TASKS]
    squares = subgaussian_variance(some, torch.full_like(some, 1 / some.shape[1]))
    # Logits lie between -scale and scale, so the loss is smallest and largest where they are as far apart as possible.
    spread = torch.tensor([-2.0, 2.0], dtype=torch.float64) * sib.scale.detach().double().cpu().abs()
    lowest, highest = torch.log1p((p.ways - 1) * spread.exp()).tolist()
    return {
        "risk": seen.mean().item(),
        "gap": float(gaps.mean()),
        "gap_ci95": float(1.96 * gaps.std(ddof=1) / len(gaps) ** 0.5),
        "sigma": squares.mean().sqrt().item(),
        "sigma_worst": squares.max().sqrt().item(),
        "sigma_bound": (highest - lowest) / 2,
    }


@torch.no_grad()
def losses(sib: SIB, bank: Features, p: FewShot, batch: int = 100) -> tuple[Tensor, Tensor]:
    """Return the losses of the queries that w was inferred from, and of further queries of the same tasks.

    Returns:
        `[T, k n]` and `[T, k FRESH]`, for T test tasks of k classes.
    """
    seed = 2_000_000 + SPLITS.index("test")  # Far from the seeds of training and testing.
    sampler = EpisodeSampler(bank.labels, p.ways, p.shots, p.queries + FRESH, seed, class_names=bank.classes)
    features = unit(bank.features).to(sib.scale)
    seen, fresh = [], []
    for start in range(0, p.test_episodes, batch):
        tasks = sampler.sample(start, min(batch, p.test_episodes - start)).to(features.device)
        known, further = _split(features[tasks.query], p)
        theta = sib.infer(features[tasks.support], tasks.support_labels, known)[-1]
        for found, query, labels in zip((seen, fresh), (known, further), _split(tasks.query_labels, p), strict=True):
            found.append(F.cross_entropy(sib.classify(query, theta).mT, labels, reduction="none"))
    return torch.cat(seen).double().cpu(), torch.cat(fresh).double().cpu()


def _split(queries: Tensor, p: FewShot) -> tuple[Tensor, Tensor]:
    """Split `[T, k (n + FRESH), ...]` into the n queries of each class that w is inferred from, and the fresh ones."""
    by_class = queries.unflatten(1, (p.ways, -1))  # The queries of a task are ordered by class.
    known, fresh = by_class.split([p.queries, FRESH], dim=2)
    return known.flatten(1, 2), fresh.flatten(1, 2)


QUERY_SIZE = Experiment(
    "query_size", FewShot, compute, trained_with, oldest=OLDEST, spelling=SPELLING, tolerance={"sigma*": 0.1, "*": 0.2}
)
RESCALED = Experiment(
    "query_size_rescaled",
    FewShot,
    compute_rescaled,
    trained_with,
    oldest=OLDEST,
    spelling=SPELLING,
    tolerance={"*": 0.2},
)
