"""How fast are meta-training and evaluation, beside a straightforward loop (reference_loop.py)?

    python benchmarks/few_shot_speed.py [--rounds 7] [--threads 2] [--no-compile]

Conv-4-64 on 32x32 images, 5-way 1-shot, 15 queries, K = 3, batches of 8 tasks. Measurements take turns, so that a
busy moment of the machine hits all of them; each number is the median over the rounds. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import reference_loop as reference
import torch
from torch.nn import functional as F

from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibcore.train import Schedule, train
from sibcore.vision.backbones import backbone
from sibcore.vision.features import extract

WAYS, SHOTS, QUERIES, STEPS, ETA, BATCH = 5, 1, 15, 3, 1e-3, 8
CLASSES, PER_CLASS = 64, 100
TARGETS = {"train_ratio": 200, "eval_ratio": 400, "train_ratio_given_features": 4, "eval_ratio_given_features": 25}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="train without torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    measurements = prepare(options.compile)
    for measure in measurements.values():  # warm up, compile
        measure()
    rates: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(options.rounds):
        for name, measure in measurements.items():
            rates[name].append(measure())
    median = {name: statistics.median(values) for name, values in rates.items()}

    for name, value in median.items():
        print(f"{name:28s} {value:9.2f} per second   (from {min(rates[name]):.2f} to {max(rates[name]):.2f})")
    ratios = {
        f"{what}_ratio{given}": median[f"{what}, sibcore"] / median[f"{what}, loop{given.replace('_', ' ')}"]
        for given in ("", "_given_features")
        for what in ("train", "eval")
    }
    for name, ratio in ratios.items():
        print(f"{name:28s} {ratio:9.1f} x            (at least {TARGETS[name]})")
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}))


def prepare(compile: bool) -> dict[str, Callable[[], float]]:
    """Each measurement by name: called, it works for a moment and returns steps or tasks per second."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (CLASSES * PER_CLASS, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    f = backbone("conv4-64", 32).eval()
    bank = extract(f, images.permute(0, 2, 3, 1))
    sampler = EpisodeSampler(labels, WAYS, SHOTS, QUERIES, seed=0)
    tasks = sampler.sample(0, 2048)
    one_hot = F.one_hot(tasks.support_labels, WAYS).float()

    sib = SIB(WAYS, bank.shape[1], STEPS, ETA)
    plain = reference.ReferenceSIB(WAYS, bank.shape[1], STEPS, ETA)
    optimizer = torch.optim.SGD(plain.parameters(), 1e-3, 0.9, nesterov=True, weight_decay=5e-4)
    augmented, clean = reference.transform(augment=True), reference.transform(augment=False)

    def from_images(part: slice, transform) -> tuple:
        support = reference.features_of(f, images, tasks.support[part], transform)
        query = reference.features_of(f, images, tasks.query[part], transform)
        return support, one_hot[part], query, tasks.query_labels[part]

    def from_bank(part: slice) -> tuple:
        return bank[tasks.support[part]], one_hot[part], bank[tasks.query[part]], tasks.query_labels[part]

    def train_sibcore() -> float:
        history = train(sib, bank, sampler, Schedule(steps=150, every=150), compile=compile, report=lambda line: None)
        return history[-1]["steps_per_second"]

    def eval_sibcore() -> float:
        return rate(lambda: evaluate(sib, bank, sampler.sample(0, 2048)), 1) * 2048

    steps = iter(slice(i % 256 * BATCH, i % 256 * BATCH + BATCH) for i in range(10**9))
    single = iter(slice(i % 2048, i % 2048 + 1) for i in range(10**9))
    return {
        "train, loop": lambda: rate(
            lambda: reference.train_step(plain, optimizer, *from_images(next(steps), augmented)), 1
        ),
        "train, loop given features": lambda: rate(
            lambda: reference.train_step(plain, optimizer, *from_bank(next(steps))), 20
        ),
        "train, sibcore": train_sibcore,
        "eval, loop": lambda: rate(lambda: reference.accuracy(plain, *from_images(next(single), clean)), 8),
        "eval, loop given features": lambda: rate(lambda: reference.accuracy(plain, *from_bank(next(single))), 50),
        "eval, sibcore": eval_sibcore,
    }


def rate(function: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        function()
    return times / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
