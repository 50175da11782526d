"""SIB trained with n queries per class, tested with 15 and with n (the appendix's study of the query set's size).

Beside the accuracies it measures what can be measured of Theorem 2: w is inferred from the inputs of a query set d, and
its loss on d itself is set against its loss on further queries of the same task.
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
from sibrepro.meta_training.settings import OLDEST, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with
from sibrepro.theory.generalisation import subgaussian_variance

USUAL = 15  # queries per class in testing
FRESH = 30  # further queries per class, for the generalisation error
SIGMA_TASKS = 500  # of those that estimate sigma


def query_size(trained: Record) -> Record:
    """Return the run of testing the SIB of a few-shot run with 15 and with n queries per class."""
    return QUERY_SIZE.run(FEW_SHOT.settings_of(trained), trained=trained)


def compute(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Test with 15 queries per class and with n, on validation and on test classes.

    Returns:
        metrics: accuracies in percent, such as "val/usual" and "test/own", each with "..._ci95"; those of
            `generalisation`.
        arrays: such as "val/usual", queries answered rightly in each task.
    """
    sib, banks = inputs
    metrics, arrays = generalisation(sib, banks["test"], p), {}
    for how, queries in {"usual": USUAL, "own": p.queries}.items():
        scores = {f"{split}/{how}": _tested(sib, banks, p, split, queries) for split in ("val", "test")}
        more, right = numbers(scores, p.ways * queries)
        metrics, arrays = metrics | more, arrays | right
    return metrics, arrays


def rescaled(trained: Record) -> Record:
    """Return the run of testing the SIB of a few-shot run with steps as long as those it was trained with."""
    return RESCALED.run(FEW_SHOT.settings_of(trained), trained=trained)


def compute_rescaled(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Test with 15 queries per class and a step size of eta n / 15: as long a step as with n.

    Returns:
        metrics: "test", accuracy in percent, with "test_ci95".
        arrays: "test/usual", as in `compute`.
    """
    sib, banks = inputs
    longer = sib.changed(eta=sib.eta * p.queries / USUAL)
    metrics, arrays = numbers({"test": _tested(longer, banks, p, "test", USUAL)}, p.ways * USUAL)
    return metrics, {"test/usual": arrays["test"]}


def _tested(sib: SIB, banks: Banks, p: FewShot, split: str, queries: int) -> Evaluation:
    """With so many queries per class; validation classes have as many tasks as test classes."""
    setting = dataclasses.replace(p, queries=queries, val_episodes=p.test_episodes)
    return evaluate(sib, banks[split].features, tasks(setting, banks[split], split).to(pick_device()))


def generalisation(sib: SIB, bank: Features, p: FewShot) -> dict[str, float]:
    """What Theorem 2 speaks of, on tasks of `bank` with n queries per class.

    "risk", E L_t(w, d); "gap", gen(q), with "gap_ci95"; "sigma": a task's sigma² is the smallest that serves the losses
    of fresh queries, here averaged over tasks; "sigma_worst", of the worst task, which is the theorem's; "sigma_bound":
    half the range of any loss of this cosine classifier, so surely enough (Hoeffding)
    """
    seen, fresh = losses(sib, bank, p)
    gaps = (fresh.mean(1) - seen.mean(1)).numpy()
    some = fresh[:SIGMA_TASKS]
    squares = subgaussian_variance(some, torch.full_like(some, 1 / some.shape[1]))
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
    """Losses of the queries that w was inferred from, [T, k n], and of fresh ones of the same classes, [T, k FRESH]."""
    seed = 2_000_000 + SPLITS.index("test")  # far from the seeds of training and testing
    sampler = EpisodeSampler(bank.labels, p.ways, p.shots, p.queries + FRESH, seed, class_names=bank.classes)
    features, parts = unit(bank.features).to(sib.scale), []
    for start in range(0, p.test_episodes, batch):
        tasks = sampler.sample(start, min(batch, p.test_episodes - start)).to(features.device)
        query, labels = (_split(part, p) for part in (features[tasks.query], tasks.query_labels))
        theta = sib.infer(features[tasks.support], tasks.support_labels, query[0])[-1]
        logits = (sib.classify(x, theta).mT for x in query)
        parts.append([F.cross_entropy(z, y, reduction="none") for z, y in zip(logits, labels, strict=True)])
    seen, fresh = (torch.cat(part).double().cpu() for part in zip(*parts, strict=True))
    return seen, fresh


def _split(queries: Tensor, p: FewShot) -> list[Tensor]:
    """The queries to infer w from, and the fresh ones; a task's queries lie class by class."""
    by_class = queries.unflatten(1, (p.ways, -1))
    return [part.flatten(1, 2) for part in by_class.split([p.queries, FRESH], dim=2)]


QUERY_SIZE = Experiment(
    "query_size", FewShot, compute, trained_with, oldest=OLDEST, tolerance={"sigma*": 0.1, "*": 0.2}
)
RESCALED = Experiment(
    "query_size_rescaled", FewShot, compute_rescaled, trained_with, oldest=OLDEST, tolerance={"*": 0.2}
)
