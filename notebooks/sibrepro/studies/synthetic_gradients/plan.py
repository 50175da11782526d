"""The runs of notebook 04, the appendix's study of synthetic gradients.

They compare SIB with inductive SIB, which follows the true gradient on the support set, for several numbers of steps K
and step sizes η.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from pydantic import Field

from sibrepro.facts import Experiment, Record, facts, flat, single_facts
from sibrepro.meta_training.along_the_steps import DIAGNOSTICS
from sibrepro.meta_training.runs import SEEDS, protocol
from sibrepro.meta_training.settings import FewShot, Where
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.params import Count, NonNegative, Positive, Several, grid, one_or_several, parameters

Variant = Literal["SIB", "inductive SIB"]
Key = tuple[Variant, int, int, float]  # A setting: variant, shots in training, K, eta.
TESTED = (1, 5)  # The numbers of shots on which every SIB is tested.
RATE = 1e-3  # The learning rate of meta-training, and the step size eta unless a run varies it.
STEPS, ETAS = (1, 3, 5), (1e-1, 1e-2, 1e-3, 1e-4)  # The values of K and eta in the paper's table.
STAGES = (100, 300, 1000, 3000, 10_000, 40_000)  # Meta-training steps after which xi is examined.


@parameters
class SyntheticGradientsNotebook:
    """The parameters of notebook 04."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    features: Where = Field("shipped", description="computed from images, or the project's own")
    variants: Several[Variant] = Field(["SIB", "inductive SIB"], description="methods to train")
    trained_shots: Several[Count] = Field([1], description="labelled images per class in training")
    K: Several[NonNegative] = Field([0, 1, 3], description="steps of the inner update")
    eta: Several[Positive] = Field([1e-2, 1e-3], description="step sizes of the inner update")
    steps: Count = Field(1000, description="meta-training steps")
    stages: Annotated[list[Count], one_or_several] = Field(
        [100, 300], description="meta-training steps after which xi is examined"
    )
    equal_rates: bool = Field(False, description="also train with a learning rate equal to eta, as the release does")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: Count = Field(1000, description="tasks of test classes")
    seed: NonNegative = Field(0, description="of xi and of the training tasks")

    @property
    def base(self) -> FewShot:
        """Return the settings that all of the notebook's runs start from."""
        names = ("dataset", "backbone", "features", "steps", "val_episodes", "test_episodes", "seed")
        return FewShot(shots=1, K=3, **{name: getattr(self, name) for name in names})

    def experiments(self) -> list[FewShot]:
        """Return the grid over variants, shots, K and eta.

        Inductive SIB is trained on the first number of shots only. With K = 0 no step is taken and eta plays no part,
        so there is one such run.
        """
        found = []
        for kind in self.variants:
            shots = self.trained_shots if kind == "SIB" else self.trained_shots[:1]
            found += grid(self.base, transductive=[kind == "SIB"], shots=shots, K=self.K, eta=self.eta)
        return list(dict.fromkeys(p if p.K else dataclasses.replace(p, eta=RATE) for p in found))

    def equal_rate_experiments(self) -> list[FewShot]:
        """Return 1-shot runs with K = 3 whose learning rate equals eta, or none unless `equal_rates` is set."""
        etas = [eta for eta in self.eta if eta != RATE and self.equal_rates]
        return [dataclasses.replace(self.base, eta=eta, lr=eta) for eta in etas]

    def stage_experiments(self) -> list[FewShot]:
        """Return one training, stopped after several numbers of steps."""
        return grid(self.base, steps=(*self.stages, self.steps))


def variant(record: Record) -> Variant:
    """Return which of the two methods a run trained."""
    return "SIB" if record.params["transductive"] else "inductive SIB"


def key(record: Record) -> Key:
    """Return the setting of a run."""
    p = record.params
    return variant(record), p["shots"], p["K"], p["eta"]


def plan(dataset: str, backbone: str) -> dict[Key, list[FewShot]]:
    """Return the paper's grid by setting, at the paper's protocol.

    SIB has three seeds at eta = 1e-3, every other setting has one. Inductive SIB is trained on one shot only, as in the
    paper.

    Args:
        dataset: the image set.
        backbone: the feature network.
    """
    found: dict[Key, list[FewShot]] = {}
    for kind, shots in (("inductive SIB", 1), ("SIB", 1), ("SIB", 5)):
        base = protocol(dataset, backbone, shots=shots, transductive=kind == "SIB")
        for p in (*grid(base, K=[0], eta=[RATE]), *grid(base, K=STEPS, eta=ETAS)):
            seeds = SEEDS if kind == "SIB" and p.eta == RATE else SEEDS[:1]
            found[kind, shots, p.K, p.eta] = grid(p, seed=seeds)
    return found


def published(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[Key, list[Record]]:
    """Return the published runs of the grid by setting."""
    return facts(FEW_SHOT, plan(dataset, backbone))


def equal_rates(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[float, list[Record]]:
    """Return the published 1-shot runs with K = 3 whose learning rate equals eta, by eta.

    The authors' released code has one number for both.
    """
    return facts(FEW_SHOT, {eta: [protocol(dataset, backbone, K=3, eta=eta, lr=eta)] for eta in sorted(ETAS)})


def diagnostics(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[int, Record]:
    """Return the published diagnostics of the steps, at eta = 1e-3 on one shot, by K."""
    return single_facts(DIAGNOSTICS, {K: protocol(dataset, backbone, K=K) for K in STEPS})


def stages(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> list[Record]:
    """Return the published diagnostics of one training with K = 3 that was stopped at several lengths."""
    return DIAGNOSTICS.facts(grid(protocol(dataset, backbone, K=3), steps=STAGES))


def declared() -> dict[Experiment, list[FewShot]]:
    """Return the settings of every run of this study that is, or is to be, published, by experiment."""
    origin = "cifar-fs", "conv4-64"
    stopped = grid(protocol(*origin, K=3), steps=STAGES)
    equal = [protocol(*origin, K=3, eta=eta, lr=eta) for eta in ETAS]
    trained = [*flat(plan(*origin)), *equal, *stopped]
    return {FEW_SHOT: trained, DIAGNOSTICS: [*stopped, *grid(protocol(*origin), K=STEPS)]}


def asked(p: SyntheticGradientsNotebook) -> dict[Experiment, list[FewShot]]:
    """Return the runs that the notebook's parameters ask for."""
    stopped = p.stage_experiments()
    return {FEW_SHOT: [*p.experiments(), *stopped, *p.equal_rate_experiments()], DIAGNOSTICS: stopped}
