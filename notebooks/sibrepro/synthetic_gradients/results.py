"""The appendix's study of synthetic gradients: inductive SIB against SIB over K and eta, and its run records."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from sibrepro import tables
from sibrepro.facts import runs
from sibrepro.facts.runs import Record
from sibrepro.few_shot.experiment import FewShot
from sibrepro.few_shot.results import PLAIN, fullest, is_plain, queries, right
from sibrepro.few_shot.rivals import over_seeds
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters

Variant = Literal["SIB", "inductive SIB"]
TESTED = (1, 5)  # shots


@parameters
class SyntheticGradientsNotebook:
    """Notebook 04."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    features: Literal["images", "shipped"] = Field("shipped", description="computed from images, or the project's own")
    variants: Annotated[list[Variant], one_or_several] = Field(
        ["SIB", "inductive SIB"], min_length=1, description="which kinds to train"
    )
    trained_shots: Annotated[list[Count], one_or_several] = Field(
        [1], min_length=1, description="labelled images per class in training"
    )
    K: Annotated[list[NonNegative], one_or_several] = Field([0, 1, 3], min_length=1, description="steps")
    eta: Annotated[list[Positive], one_or_several] = Field(
        [1e-2, 1e-3], min_length=1, description="step sizes of the inner update"
    )
    steps: Count = Field(1000, description="meta-training steps")
    stages: Annotated[list[Count], one_or_several] = Field(
        [100, 300], description="further numbers of steps, to watch xi learn"
    )
    tied: bool = Field(False, description="train with the outer learning rate tied to eta too, as the release does")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: Count = Field(1000, description="tasks of test classes")
    seed: NonNegative = Field(0, description="of xi and of the training tasks")

    @property
    def base(self) -> FewShot:
        names = ("dataset", "backbone", "features", "steps", "val_episodes", "test_episodes", "seed")
        return FewShot(**{name: getattr(self, name) for name in names})

    def experiments(self) -> list[FewShot]:
        """The grid; with K = 0 there is no step and no eta, and inductive SIB is trained on the first shots alone."""
        settings = [
            dataclasses.replace(
                self.base, transductive=variant == "SIB", shots=shots, K=K, eta=eta if K else PLAIN["eta"]
            )
            for variant in self.variants
            for shots in (self.trained_shots if variant == "SIB" else self.trained_shots[:1])
            for K in self.K
            for eta in self.eta
        ]
        return list(dict.fromkeys(settings))

    def tied_experiments(self) -> list[FewShot]:
        """1-shot, K = 3, with one number for the inner and the outer rate."""
        etas = [eta for eta in self.eta if eta != PLAIN["lr"]]
        return [dataclasses.replace(self.base, shots=1, K=3, eta=eta, lr=eta) for eta in etas if self.tied]

    def stage_experiments(self) -> list[FewShot]:
        """The beginnings of one training: the same tasks in the same order, stopped earlier."""
        return [dataclasses.replace(self.base, shots=1, K=3, steps=steps) for steps in (*self.stages, self.steps)]


def variant(record: Record) -> Variant:
    return "SIB" if record.params["transductive"] else "inductive SIB"


def settings(dataset: str, backbone: str) -> dict[tuple[Variant, int, int, float], list[Record]]:
    """The fullest runs by (variant, trained shots, K, eta); a list has one record of each seed."""
    groups: dict[tuple, list[Record]] = {}
    for record in runs.published("few_shot"):
        p = record.params
        if (p["dataset"], p["backbone"]) == (dataset, backbone) and is_plain(p):
            groups.setdefault((variant(record), p["shots"], p["K"], p["eta"]), []).append(record)
    return {key: fullest(groups[key]) for key in sorted(groups)}


def readings(dataset: str, backbone: str) -> tuple[dict[float, list[Record]], dict[float, list[Record]]]:
    """1-shot runs with K = 3 by eta: with an outer rate of 1e-3, and with one tied to eta; at 1e-3 they meet."""
    own = {key[3]: records for key, records in settings(dataset, backbone).items() if key[:3] == ("SIB", 1, 3)}
    groups: dict[float, list[Record]] = {}
    for record in runs.published("few_shot"):
        p = record.params
        same = (p["dataset"], p["backbone"], p["shots"], p["K"]) == (dataset, backbone, 1, 3)
        if same and p["lr"] == p["eta"] and is_plain(p | {"lr": PLAIN["lr"]}) and p["transductive"]:
            groups.setdefault(p["eta"], []).append(record)
    return own, {eta: fullest(groups[eta]) for eta in sorted(groups)}


def stages(dataset: str, backbone: str) -> list[Record]:
    """One 1-shot training with K = 3 and eta = 1e-3, stopped at several lengths: the longest that there is."""
    trainings: dict[tuple, list[Record]] = {}
    for record in runs.published("few_shot"):
        p = record.params
        same = (p["dataset"], p["backbone"], p["shots"], p["K"], p["eta"]) == (dataset, backbone, 1, 3, PLAIN["eta"])
        if same and p["transductive"] and is_plain(p):
            trainings.setdefault((p["features"], p["seed"], p["val_episodes"], p["test_episodes"]), []).append(record)
    several = [found for found in trainings.values() if len(found) > 1]
    longest = max(several, key=lambda found: max(r.params["steps"] for r in found), default=[])
    return sorted(longest, key=lambda record: record.params["steps"])


def table_rows(found: dict[tuple[Variant, int, int, float], list[Record]]) -> pd.DataFrame:
    """For `tables.synthetic_gradients`: one row for each setting and number of shots in testing, seeds together."""
    rows = []
    for (kind, shots, K, eta), records in found.items():
        p = records[0].params
        for tested in TESTED:
            score = over_seeds(right(records, f"best/{tested}shot"), queries(records[0]))
            rows.append(
                {
                    **{"dataset": p["dataset"], "backbone": p["backbone"], "variant": kind, "K": K, "eta": eta},
                    **{"trained_shots": shots, "tested_shots": tested, "ours": score.mean, "ours_ci95": score.ci95},
                    **{"episodes": p["test_episodes"], "seeds": len(records), "steps": p["steps"]},
                    "run": " ".join(record.id for record in records),
                }
            )
    columns = [*tables.SYNTHETIC_GRADIENTS, *tables.OURS, "episodes", "seeds", "steps", "run"]
    return pd.DataFrame(rows, columns=columns)


def validation_table(found: dict[tuple[Variant, int, int, float], list[Record]], shots: int = 1) -> pd.DataFrame:
    """Best accuracy on validation classes (percent, seeds averaged) over K and eta, of transductive SIB."""
    scores = {
        (K, eta): sum(r.metrics["validation"] for r in records) / len(records)
        for (kind, trained, K, eta), records in found.items()
        if (kind, trained) == ("SIB", shots) and K
    }
    return pd.Series(scores, dtype=float).rename_axis(["K", "η"]).unstack()
