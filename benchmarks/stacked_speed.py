"""How fast is meta-training many settings in one pass, beside one after another?

    python benchmarks/stacked_speed.py [--rounds 7] [--threads 2] [--steps 50] [--no-compile]

The 13 settings of the paper's table of K and eta (K = 0, and K = 1, 3, 5 with four step sizes each): 5-way 1-shot, 15
queries, d = 256, batches of 8 tasks. Measurements take turns, so that a busy moment of the machine hits all of them;
each number is the median over the rounds. The four settings of one K alone differ in eta only, which costs nothing:
one of them is measured for all. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable

import torch

from sibcore.episodes import EpisodeSampler
from sibcore.sib import SIB
from sibcore.train import Schedule, train

WAYS, SHOTS, QUERIES, DIM = 5, 1, 15, 256
CLASSES, PER_CLASS = 64, 100
ETAS = (1e-1, 1e-2, 1e-3, 1e-4)
SETTINGS = [(0, 1e-3), *((K, eta) for K in (1, 3, 5) for eta in ETAS)]
TARGETS = {"stacked_ratio": 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50, help="steps of a measurement")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="train without torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    measurements = prepare(options.steps, options.compile)
    for measure in measurements.values():  # warm up, compile
        measure()
    seconds: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(options.rounds):
        for name, measure in measurements.items():
            seconds[name].append(measure())
    median = {name: statistics.median(values) for name, values in seconds.items()}

    for name, value in median.items():
        low, high = 1 / max(seconds[name]), 1 / min(seconds[name])
        print(f"{name:28s} {1 / value:9.2f} steps per second   (from {low:.2f} to {high:.2f})")
    one_after_another = sum(median[f"alone, K = {K}"] for K, _ in SETTINGS)
    ratios = {"stacked_ratio": one_after_another / median["stacked, 13 settings"]}
    for name, ratio in ratios.items():
        print(f"{name:28s} {ratio:9.1f} x                  (at least {TARGETS[name]})")
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}))


def prepare(steps: int, compile: bool) -> dict[str, Callable[[], float]]:
    """Each measurement by name: called, it trains for a moment and returns the seconds of a step."""
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(CLASSES * PER_CLASS, DIM, generator=generator)
    sampler = EpisodeSampler(torch.arange(CLASSES).repeat_interleave(PER_CLASS), WAYS, SHOTS, QUERIES, seed=0)
    schedule = Schedule(steps=steps, every=steps)
    options = {"compile": compile, "report": lambda line: None}

    def alone(K: int) -> Callable[[], float]:
        model = SIB(WAYS, DIM, K, 1e-3)
        return lambda: 1 / train(model, bank, sampler, schedule, **options)[-1]["steps_per_second"]

    def together(models: list[SIB]) -> float:
        return 1 / train([models], bank, [sampler], schedule, **options)[0][0][-1]["steps_per_second"]

    stack = [SIB(WAYS, DIM, K, eta) for K, eta in SETTINGS]
    measurements = {f"alone, K = {K}": alone(K) for K in sorted({K for K, _ in SETTINGS})}
    return measurements | {"stacked, 13 settings": lambda: together(stack)}


if __name__ == "__main__":
    main()
