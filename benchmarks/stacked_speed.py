"""Measure how much faster it is to meta-train many settings in one pass than one after another.

    python benchmarks/stacked_speed.py [--rounds 7] [--threads 2] [--steps 50] [--no-compile]

The 13 settings of the paper's table of K and eta (K = 0, and K = 1, 3, 5 with four step sizes each): 5-way 1-shot, 15
queries, d = 256, batches of 8 tasks. Each number is the median over the rounds. The four settings of one K differ in
eta only, which does not change the time of a step, so one of them is measured for all four. The last line is JSON.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import turns

from sibcore.episodes import EpisodeSampler
from sibcore.sib import SIB
from sibcore.train import Schedule, train

WAYS, SHOTS, QUERIES, DIM = 5, 1, 15, 256
CLASSES, PER_CLASS = 64, 100
ETAS = (1e-1, 1e-2, 1e-3, 1e-4)
SETTINGS = [(0, 1e-3), *((K, eta) for K in (1, 3, 5) for eta in ETAS)]
TARGETS = {"stacked_ratio": 3}


def main() -> None:
    """Measure, and print the time of all settings one after another over their time in one pass."""
    parser = turns.parser(__doc__)
    parser.add_argument("--steps", type=int, default=50, help="steps of a measurement")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    median = turns.median_rates(prepare(options.steps, options.compile), options.rounds)
    one_after_another = sum(1 / median[f"alone, K = {K}"] for K, _ in SETTINGS)
    turns.report({"stacked_ratio": one_after_another * median["stacked, 13 settings"]}, TARGETS)


def prepare(steps: int, compile: bool) -> dict[str, Callable[[], float]]:
    """Return the measurements by name: functions that train for a moment and return steps per second.

    Args:
        steps: how many steps a measurement trains for.
        compile: whether to train with `torch.compile`.
    """
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(CLASSES * PER_CLASS, DIM, generator=generator)
    sampler = EpisodeSampler(torch.arange(CLASSES).repeat_interleave(PER_CLASS), WAYS, SHOTS, QUERIES, seed=0)
    schedule = Schedule(steps=steps, every=steps)
    options = {"compile": compile, "report": lambda line: None}

    def alone(K: int) -> Callable[[], float]:
        """Return the measurement of one setting that trains by itself."""
        model = SIB(WAYS, DIM, K, 1e-3)
        return lambda: train(model, bank, sampler, schedule, **options)[-1]["steps_per_second"]

    stack = [SIB(WAYS, DIM, K, eta) for K, eta in SETTINGS]

    def together() -> float:
        """Train all settings in one pass. A step of the stack is a step of each."""
        return train([stack], bank, [sampler], schedule, **options)[0][0][-1]["steps_per_second"]

    measurements = {f"alone, K = {K}": alone(K) for K in dict(SETTINGS)}
    measurements["stacked, 13 settings"] = together
    return measurements


if __name__ == "__main__":
    main()
