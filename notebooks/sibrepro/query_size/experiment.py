"""The appendix's study of the size of the query set: SIB trained with n queries per class, tested with 15 and with n.

Beside the accuracies it measures what can be measured of Theorem 2: w is inferred from the inputs of a query set d, and
its loss on d itself is set against its loss on further queries of the same task.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from sibcore import train as meta
from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.files import sha256
from sibcore.sib import SIB, unit
from sibcore.vision.features import Features
from sibrepro import tables
from sibrepro.facts import runs
from sibrepro.facts.runs import Record
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import shipped
from sibrepro.few_shot.experiment import SPLITS, FewShot
from sibrepro.few_shot.results import fullest, is_plain, right
from sibrepro.few_shot.rivals import Score, over_seeds, paired
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters
from sibrepro.theory.generalisation import subgaussian_variance

USUAL = 15  # queries per class in testing
FRESH = 30  # further queries per class, for the generalisation error
SIGMA_TASKS = 500  # of those that estimate sigma
GENERALISATION = ("risk", "gap", "gap_ci95", "sigma", "sigma_worst", "sigma_bound")
COEFFICIENTS = {"coefficient": "sigma", "coefficient_sure": "sigma_bound"}
PAPERS = {"val": "validation", "test": "test"}  # splits as the paper's table names them


@parameters
class QuerySizeNotebook:
    """Notebook 06."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbones: Annotated[list[str], one_or_several] = Field(["conv4-64"], min_length=1, description="feature networks")
    features: Literal["images", "shipped"] = Field(
        "shipped", description="from images, or the project's where it has them"
    )
    epochs: NonNegative = Field(
        0, description="of pretraining, of a network from images; 0: as many as its recipe says"
    )
    n: Annotated[list[Count], one_or_several] = Field(
        [3, 15, 30], min_length=1, description="queries per class in training"
    )
    shots: Annotated[list[Count], one_or_several] = Field([1], min_length=1, description="labelled images per class")
    K: NonNegative = Field(3, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    steps: Count = Field(1000, description="meta-training steps")
    seeds: Count = Field(1, description="meta-trainings of each experiment")
    val_episodes: Count = Field(200, description="tasks of validation classes that choose a checkpoint")
    test_episodes: Count = Field(1000, description="tasks of validation, and of test classes that are scored")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """All meta-trainings, the seeds of a setting together."""
        names = ("dataset", "K", "eta", "steps", "val_episodes", "test_episodes")
        base = FewShot(**{name: getattr(self, name) for name in names})
        return [
            dataclasses.replace(base, backbone=backbone, queries=n, shots=shots, seed=seed, **self._origin(backbone))
            for backbone in self.backbones
            for shots in self.shots
            for n in self.n
            for seed in range(self.seed, self.seed + self.seeds)
        ]

    def _origin(self, backbone: str) -> dict[str, object]:
        features = shipped.where(self.features, self.dataset, backbone)
        return {"features": features, "epochs": self.epochs if features == "images" else 0}


def query_size(trained: Record, **source: object) -> Record:
    """The record of testing the SIB of a few-shot run (its best checkpoint) with 15 and with n queries per class.

    metrics: accuracies in percent, such as "val/usual" and "test/own", each with "..._ci95"; those of `generalisation`
    arrays: such as "val/usual", queries answered rightly in each task
    """
    p, checkpoint = FewShot(**trained.params), trained.folder / meta.BEST
    origin = few_shot.source(p, **source)

    def compute(p: FewShot, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        sib = meta.load_sib(checkpoint)[0].to(pick_device())
        banks, metrics, arrays = origin.banks(), {}, {}
        for split in PAPERS:
            for name, queries in {"usual": USUAL, "own": p.queries}.items():
                setting = dataclasses.replace(p, queries=queries, val_episodes=p.test_episodes)
                tasks = few_shot.tasks(setting, banks[split], split).to(pick_device())
                score = evaluate(sib, banks[split].features, tasks)
                metrics |= {f"{split}/{name}": 100 * score.mean, f"{split}/{name}_ci95": 100 * score.interval}
                arrays[f"{split}/{name}"] = score.right(p.ways * queries)
        return metrics | generalisation(sib, banks["test"], p), arrays

    hashes = origin.hashes | {"trained": sha256(checkpoint)}
    return runs.compute_or_load("query_size", p, compute, data=hashes, long=True)


def rescaled(trained: Record, **source: object) -> Record:
    """The record of testing with 15 queries per class and a step size of eta n / 15: as long a step as with n.

    metrics: "test", accuracy in percent, with "test_ci95"; arrays: "test/usual", as in `query_size`
    """
    p, checkpoint = FewShot(**trained.params), trained.folder / meta.BEST
    origin = few_shot.source(p, **source)

    def compute(p: FewShot, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        sib = meta.load_sib(checkpoint)[0].to(pick_device())
        longer = sib.changed(eta=sib.eta * p.queries / USUAL)
        bank = origin.banks()["test"]
        tasks = few_shot.tasks(dataclasses.replace(p, queries=USUAL), bank, "test").to(pick_device())
        score = evaluate(longer, bank.features, tasks)
        metrics = {"test": 100 * score.mean, "test_ci95": 100 * score.interval}
        return metrics, {"test/usual": score.right(p.ways * USUAL)}

    hashes = origin.hashes | {"trained": sha256(checkpoint)}
    return runs.compute_or_load("query_size_rescaled", p, compute, data=hashes, long=True)


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
        by_class = features[tasks.query].unflatten(1, (p.ways, -1))  # a task's queries lie class by class
        labels = tasks.query_labels.unflatten(1, (p.ways, -1))
        seen, fresh = by_class[:, :, : p.queries].flatten(1, 2), by_class[:, :, p.queries :].flatten(1, 2)
        theta = sib.infer(features[tasks.support], tasks.support_labels, seen)[-1]
        parts.append(
            [
                _cross_entropy(sib.classify(seen, theta), labels[:, :, : p.queries].flatten(1)),
                _cross_entropy(sib.classify(fresh, theta), labels[:, :, p.queries :].flatten(1)),
            ]
        )
    seen, fresh = (torch.cat(part) for part in zip(*parts, strict=True))
    return seen, fresh


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """[B, n, k], [B, n] -> [B, n], in double precision on the CPU."""
    return F.cross_entropy(logits.mT, labels, reduction="none").double().cpu()


def gather(
    dataset: str, K: int = 3, eta: float = 1e-3, experiment: str = "query_size"
) -> dict[tuple[str, int, int], list[Record]]:
    """The records of `query_size` (or "query_size_rescaled") by (backbone, shots, n): the fullest, one of each seed."""
    groups: dict[tuple, list[Record]] = {}
    for record in runs.published(experiment):
        p = record.params
        if (p["dataset"], p["K"], p["eta"]) == (dataset, K, eta) and is_plain(p | {"queries": USUAL, "epochs": 0}):
            groups.setdefault((p["backbone"], p["shots"], p["queries"]), []).append(record)
    return {key: fullest(_longest_pretrained(groups[key])) for key in sorted(groups)}


def _longest_pretrained(records: list[Record]) -> list[Record]:
    """Those of one network, the recipe's own (epochs = 0) if there is one."""
    epochs = [record.params["epochs"] or math.inf for record in records]
    return [record for record, count in zip(records, epochs, strict=True) if count == max(epochs)]


def score(records: list[Record], split: str, tested: Literal["usual", "own"]) -> Score:
    """Accuracy in percent, seeds together."""
    p = records[0].params
    return over_seeds(right(records, f"{split}/{tested}"), p["ways"] * (USUAL if tested == "usual" else p["queries"]))


def difference(first: list[Record], second: list[Record], split: str = "test") -> Score:
    """Second minus first, on the same tasks of 15 queries per class."""
    name = f"{split}/usual"
    return paired(right(first, name).mean(0), right(second, name).mean(0), first[0].params["ways"] * USUAL)


def table_rows(found: dict[tuple[str, int, int], list[Record]]) -> pd.DataFrame:
    """For `tables.query_size`: one row for each setting, split and number of queries in testing, seeds together."""
    rows = []
    for (backbone, shots, n), records in found.items():
        p = records[0].params
        for split, name in PAPERS.items():
            for tested, how in {USUAL: "usual", n: "own"}.items():  # one and the same for n = 15
                got = score(records, split, how)
                rows.append(
                    {
                        **{"dataset": p["dataset"], "backbone": backbone, "K": p["K"], "eta": p["eta"], "n": n},
                        **{"tested": tested, "shots": shots, "split": name, "ours": got.mean, "ours_ci95": got.ci95},
                        **{"episodes": p["test_episodes"], "seeds": len(records), "steps": p["steps"]},
                        "run": " ".join(record.id for record in records),
                    }
                )
    return pd.DataFrame(rows, columns=[*tables.QUERY_SIZE, *tables.OURS, "episodes", "seeds", "steps", "run"])


def corollary_terms(found: dict[tuple[str, int, int], list[Record]]) -> pd.DataFrame:
    """What can be measured of the corollary, one row for each setting, seeds averaged: eq. (popeb) >= term + risk.

    |d| is all queries of a task; the coefficient |d| / 2 sigma² takes the average task's sigma, and `coefficient_sure`
    Hoeffding's. The term |d| gen(q)² / 2 sigma² is, by Theorem 2, at most I(w; d | t).
    """
    rows = []
    for (backbone, shots, n), records in found.items():
        mean = {name: float(np.mean([r.metrics[name] for r in records])) for name in GENERALISATION}
        size = records[0].params["ways"] * n
        half = {name: size / (2 * mean[sigma] ** 2) for name, sigma in COEFFICIENTS.items()}
        terms = {
            "term": half["coefficient"] * mean["gap"] ** 2,
            "term_sure": half["coefficient_sure"] * mean["gap"] ** 2,
        }
        rows.append({"backbone": backbone, "shots": shots, "n": n} | mean | half | terms)
    return pd.DataFrame(rows)
