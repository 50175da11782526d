"""Estimate what the whole paper profile costs, stage by stage: FLOPs, CPU time and GPU-hours.

    python benchmarks/sizing.py [--quick]

FLOPs are counted on the project's own networks, forward and backward. Only matrix products and convolutions count; a
multiplication and an addition are two FLOPs. CPU time is measured on this machine with one thread, in seconds of that
thread, so that other load does not count. GPU-hours are estimated: FLOPs over the peak of one A100 in TF32 (156
TFLOP/s) times an assumed utilisation. Meta-training, whose kernels are tiny, takes at least an assumed time per step.

The table is written to `results/tables/sizing.csv`, `.md` and `.tex`. With `--quick` no CPU time is measured and
nothing is written.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from sibcore.sib import SIB
from sibcore.train import Schedule
from sibcore.vision.backbones import backbone
from sibcore.vision.pretrain import CosineHead, Recipe
from sibrepro import tables
from sibrepro.meta_training.settings import FewShot
from sibrepro.params import grid, of_profile
from sibrepro.studies.few_shot.plan import FewShotNotebook
from sibrepro.studies.synthetic_gradients.plan import SyntheticGradientsNotebook

PEAK = 156e12  # FLOP/s of one A100, dense TF32 (NVIDIA's data sheet)
UTILISATION = {"conv4-64": 0.03, "conv4-128": 0.03, "wrn-28-10": 0.2, "resnet18": 0.15, "sib": 0.02}  # assumed
LAUNCH = 4e-3  # least seconds of a meta-training step, which launches hundreds of tiny kernels in turn (assumed)
GPUS = (1, 8, 64)

PIXELS = {"mini-imagenet": 84, "cifar-fs": 32}
TRAINING, ALL = 64 * 600, 100 * 600  # images of the training classes, and of all classes, in either image set
PACS_IMAGES = 60 * 9991 * 4  # epochs, images, rotations
PACS_RUNS = 4 * 3 * 3  # target domains, methods, seeds
QUERY_SIZES = (3, 5, 10, 15, 30, 45)


@dataclasses.dataclass(frozen=True)
class Stage:
    """Runs of one kind, which do not depend on one another.

    Attributes:
        phase: a stage begins when all stages of earlier phases are finished.
        name: the stage's name in the table.
        runs: number of runs.
        items: number of images, training steps or test tasks in a run.
        flops: FLOPs of an item.
        cpu_seconds: measured CPU seconds of an item, or NaN.
        utilisation: the share of a GPU's peak that is assumed to be reached.
        least: GPU seconds that an item takes at least.
    """

    phase: int
    name: str
    runs: int
    items: float
    flops: float
    cpu_seconds: float
    utilisation: float
    least: float = 0.0

    @property
    def run_hours(self) -> float:
        """Estimate the hours of one run on one GPU."""
        return self.items * max(self.flops / (PEAK * self.utilisation), self.least) / 3600

    @property
    def gpu_hours(self) -> float:
        """Estimate the GPU-hours of all runs."""
        return self.runs * self.run_hours


def flops(work: Callable[[], object]) -> int:
    """Count the FLOPs of matrix products and convolutions in `work()`, with its backward pass if it has one."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def cpu_seconds(work: Callable[[], object], least: float) -> float:
    """Measure the CPU seconds of one call of `work()`.

    It is called once to warm up, and then until the calls took `least` seconds together.
    """
    work()
    calls, start = 0, time.process_time()
    while (spent := time.process_time() - start) < least:
        work()
        calls += 1
    return spent / calls


def network_work(name: str, pixels: int, batch: int, train: bool, device: str = "cpu") -> Callable[[], object]:
    """Return a function that passes one batch of images through a backbone.

    In training it includes the cosine head, the loss and the backward pass.
    """
    with torch.device(device):
        network = backbone(name, pixels).train(train)
        head = CosineHead(network.dim, 64, 10.0)
        images, labels = torch.zeros(batch, 3, pixels, pixels), torch.zeros(batch, dtype=torch.long)
    if train:
        return lambda: F.cross_entropy(head(network(images)), labels).backward()
    return torch.no_grad()(lambda: network(images))


def sib_work(p: FewShot, train: bool) -> Callable[[], object]:
    """Return a function that takes one step of meta-training on a batch of tasks, or answers one test task.

    It trains one SIB alone. Trainings that run together in a stack need the same FLOPs but fewer kernels.
    """
    with torch.device("meta"):
        dim = backbone(p.backbone, PIXELS[p.dataset]).dim
    tasks = Schedule().batch if train else 1
    sib = SIB(p.ways, dim, p.K, p.eta)
    support = torch.ones(tasks, p.ways * p.shots, dim)
    query = torch.ones(tasks, p.ways * p.queries, dim)
    labels = torch.arange(p.ways).repeat_interleave(p.shots).expand(tasks, -1)
    answers = torch.arange(p.ways).repeat_interleave(p.queries).repeat(tasks)

    def logits() -> Tensor:
        return sib(support, labels, query).flatten(0, 1)

    if train:
        return lambda: F.cross_entropy(logits(), answers).backward()
    return torch.no_grad()(logits)


def stages(measure: bool) -> list[Stage]:
    """Return the stages of the paper profile in the order of their phases, and measure CPU times if asked to."""
    table_1 = FewShotNotebook(**of_profile("paper", "03_few_shot_tables"))
    gradients = SyntheticGradientsNotebook(**of_profile("paper", "04_synthetic_gradients"))
    origins = list(itertools.product(table_1.datasets, table_1.backbones))
    learned = TRAINING * Recipe().epochs
    sizes = FewShot(dataset="mini-imagenet", backbone="conv4-128", K=3)
    return [
        *(_images(1, f"pretraining {data}", net, PIXELS[data], learned, measure) for data, net in origins),
        _images(1, "PACS,", "resnet18", 224, PACS_IMAGES, measure, PACS_RUNS),
        *(_images(2, f"features {data}", net, PIXELS[data], ALL, measure) for data, net in origins),
        *_meta("Table 1", table_1.experiments(), measure),
        *_meta("K and eta", [*gradients.experiments(), *gradients.equal_rate_experiments()], measure),
        *_meta("query size", grid(sizes, queries=QUERY_SIZES, shots=(1, 5), seed=(0, 1, 2)), measure),
    ]


def _images(phase: int, what: str, name: str, pixels: int, images: int, measure: bool, runs: int = 1) -> Stage:
    """Return a stage that passes images through a backbone, which learns from them in phase 1.

    Args:
        phase: 1 for pretraining, 2 for the extraction of features.
        what: what is done, for the stage's name.
        name: the backbone.
        pixels: width and height of the images.
        images: how many images pass in a run; in training, in all epochs.
        measure: whether to measure CPU time.
        runs: number of runs.
    """
    batch, train, seconds = 2, phase == 1, math.nan
    counted = flops(network_work(name, pixels, batch, train, "meta"))  # counting needs no numbers, so no time either
    if measure:
        seconds = cpu_seconds(network_work(name, pixels, batch, train), 0.5)
    return Stage(phase, f"{what} {name}", runs, images, counted / batch, seconds / batch, UTILISATION[name])


def _meta(what: str, experiments: Iterable[FewShot], measure: bool) -> list[Stage]:
    """Return the stages of meta-training and evaluation of a table.

    Args:
        what: the table, for the stages' names.
        experiments: its runs. Costs are averaged over them.
        measure: whether to measure CPU time.
    """
    kinds = Counter(dataclasses.replace(p, seed=0, eta=1.0) for p in experiments)  # neither changes the costs
    p, schedule = next(iter(kinds)), Schedule()
    tested = schedule.steps // schedule.every * p.val_episodes + 2 * 2 * p.test_episodes  # 1 and 5 shots, best and last

    def stage(name: str, items: int, train: bool, least: float = 0.0) -> Stage:
        costs = []
        for kind in kinds:
            work = sib_work(kind, train)
            costs.append([flops(work), cpu_seconds(work, 0.1) if measure else math.nan])
        mean = np.average(costs, axis=0, weights=list(kinds.values()))
        return Stage(3, f"{name}, {what}", kinds.total(), items, *mean, UTILISATION["sib"], least)

    return [stage("meta-training", schedule.steps, True, LAUNCH), stage("evaluation", tested, False)]


def table(found: Iterable[Stage]) -> pd.DataFrame:
    """Return the published table, a row for each stage."""
    rows = [
        {
            "phase": stage.phase,
            "stage": stage.name,
            "runs": stage.runs,
            "MFLOP per item": stage.flops / 1e6,
            "items per run": stage.items,
            "PFLOP": stage.runs * stage.items * stage.flops / 1e15,
            "CPU core-hours (measured rate)": stage.runs * stage.items * stage.cpu_seconds / 3600,
            "GPU-hours (estimate)": stage.gpu_hours,
            "longest run, GPU-hours (estimate)": stage.run_hours,
        }
        for stage in found
    ]
    return pd.DataFrame(rows).round(4)


def wall_hours(found: Sequence[Stage], gpus: int) -> float:
    """Estimate the hours of all stages on several GPUs.

    Phases follow one another. The runs of a phase are shared out among the GPUs, but a run uses one GPU only, so a
    phase takes at least as long as its longest run.
    """
    hours = 0.0
    for _, phase in itertools.groupby(found, lambda stage: stage.phase):
        several = [*phase]
        longest = max(stage.run_hours for stage in several)
        hours += max(longest, sum(stage.gpu_hours for stage in several) / gpus)
    return hours


def main() -> None:
    """Print the table and the estimates, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="count FLOPs only, measure no CPU time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = stages(measure=not options.quick)
    shown = table(found)
    print(shown.to_string(index=False))
    print(f"total: {shown['PFLOP'].sum():,.0f} PFLOP, {sum(s.gpu_hours for s in found):.1f} GPU-hours (estimate)")
    for gpus in GPUS:
        print(f"{gpus:3d} GPUs: {wall_hours(found, gpus):6.1f} hours (estimate)")
    if not options.quick:
        for file in tables.write(shown, "sizing"):
            print(file)


if __name__ == "__main__":
    main()
