"""What the whole paper profile costs, stage by stage: FLOPs counted, CPU time measured, GPU-hours estimated.

    python benchmarks/sizing.py [--quick]

FLOPs are those of matrix products and convolutions (a multiplication and an addition are two), counted on the project's
own networks, forward and backward. CPU time is this machine's, one thread, in seconds of that thread, so that other
load does not count. GPU-hours are an estimate: FLOPs over the peak of one A100 in TF32 (156 TFLOP/s) times an assumed
utilisation, and for meta-training, whose kernels are tiny, at least an assumed time a step. Writes
`results/tables/sizing.csv`, `.md` and `.tex`. `--quick` measures no CPU time.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable

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
LAUNCH = 4e-3  # seconds a meta-training step takes at least: hundreds of tiny kernels, one after the other (assumed)
GPUS = (1, 8, 64)

PIXELS = {"mini-imagenet": 84, "cifar-fs": 32}
TRAINING, ALL = 64 * 600, 100 * 600  # images of either set: of the training classes, of all classes
PACS_IMAGES, PACS_RUNS = 60 * 9991 * 4, 4 * 3 * 3  # epochs, images, turns; targets, methods, seeds
QUERY_SIZES = (3, 5, 10, 15, 30, 45)


@dataclasses.dataclass(frozen=True)
class Stage:
    """Runs that do not depend on one another; `phase` says what must be finished before."""

    phase: int
    name: str
    runs: int
    items: float  # of a run: images, steps or tasks
    flops: float  # of an item
    cpu_seconds: float  # of an item, on one thread here
    utilisation: float
    least: float = 0.0  # GPU seconds an item takes at least

    @property
    def run_hours(self) -> float:
        """Estimated hours of one run on one GPU."""
        return self.items * max(self.flops / (PEAK * self.utilisation), self.least) / 3600

    @property
    def gpu_hours(self) -> float:
        return self.runs * self.run_hours


def flops(work: Callable[[], object]) -> int:
    """FLOPs of matrix products and convolutions in `work()`, backward pass included if it has one."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def cpu_seconds(work: Callable[[], object], least: float = 0.5) -> float:
    """CPU seconds of one call on one thread, from calls of at least `least` seconds together, after a first one."""
    work()
    calls, start = 0, time.process_time()
    while (spent := time.process_time() - start) < least:
        work()
        calls += 1
    return spent / calls


def network_work(name: str, pixels: int, batch: int, train: bool, device: str = "cpu") -> Callable[[], object]:
    """One batch through a feature network; in training with its cosine head and backward."""
    with torch.device(device):
        network = backbone(name, pixels).train(train)
        head = CosineHead(network.dim, 64, 10.0)
        images, labels = torch.zeros(batch, 3, pixels, pixels), torch.zeros(batch, dtype=torch.long)
    return _step(lambda: head(network(images)), labels) if train else torch.no_grad()(lambda: network(images))


def sib_work(p: FewShot, train: bool) -> Callable[[], object]:
    """A meta-training step (a batch of tasks), or one test task, without the stacking of many settings."""
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

    return _step(logits, answers) if train else torch.no_grad()(logits)


def _step(logits: Callable[[], Tensor], labels: Tensor) -> Callable[[], object]:
    return lambda: F.cross_entropy(logits(), labels).backward()


def stages(measure: bool) -> list[Stage]:
    """The paper profile's, in the order of their phases."""
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
        *_meta("K and eta", [*gradients.experiments(), *gradients.tied_experiments()], measure),
        *_meta("query size", grid(sizes, queries=QUERY_SIZES, shots=(1, 5), seed=(0, 1, 2)), measure),
    ]


def _images(phase: int, what: str, name: str, pixels: int, images: int, measure: bool, runs: int = 1) -> Stage:
    """Images through a feature network, which learns from them in phase 1."""
    batch = 2
    counted = flops(network_work(name, pixels, batch, phase == 1, "meta")) / batch
    seconds = cpu_seconds(network_work(name, pixels, batch, phase == 1)) / batch if measure else float("nan")
    return Stage(phase, f"{what} {name}", runs, images, counted, seconds, UTILISATION[name])


def _meta(what: str, experiments: Iterable[FewShot], measure: bool) -> list[Stage]:
    """Meta-training and evaluation, averaged over the experiments of a table."""
    kinds = Counter(dataclasses.replace(p, seed=0, eta=1.0) for p in experiments)
    p, schedule = next(iter(kinds)), Schedule()
    tested = schedule.steps // schedule.every * p.val_episodes + 2 * 2 * p.test_episodes  # 1 and 5 shots, best and last

    def stage(name: str, items: int, train: bool, least: float = 0.0) -> Stage:
        works = [sib_work(kind, train) for kind in kinds]
        costs = [(flops(work), cpu_seconds(work, 0.1) if measure else float("nan")) for work in works]
        mean = np.average(costs, axis=0, weights=list(kinds.values()))
        return Stage(3, f"{name}, {what}", kinds.total(), items, *mean, UTILISATION["sib"], least)

    return [stage("meta-training", schedule.steps, True, LAUNCH), stage("evaluation", tested, False)]


def table(found: Iterable[Stage]) -> pd.DataFrame:
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


def wall_hours(found: Iterable[Stage], gpus: int) -> float:
    """Hours with so many GPUs: phases follow one another, runs of a phase are dealt out, none is shared."""
    phases: dict[int, list[Stage]] = {}
    for stage in found:
        phases.setdefault(stage.phase, []).append(stage)
    return sum(max(*(s.run_hours for s in p), sum(s.gpu_hours for s in p) / gpus) for p in phases.values())


def main() -> None:
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
