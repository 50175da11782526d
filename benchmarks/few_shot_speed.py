"""Measure how much faster meta-training and evaluation are than a straightforward loop (reference_loop.py).

    python benchmarks/few_shot_speed.py [--rounds 7] [--threads 2] [--no-compile]

The task is 5-way 1-shot with 15 queries per class, K = 3 and batches of 8 tasks, on 32x32 images with Conv-4-64. The
loop is measured twice: from images, which it passes through the backbone in each step, and from features that are
given. sibcore always extracts features once. Each number is the median over the rounds; the last line is JSON.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import reference_loop as reference
import torch
import turns
from torch.nn import functional as F

from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibcore.train import Schedule, train
from sibcore.vision.backbones import backbone
from sibcore.vision.features import extract

# The paper's protocol for Table 1.
WAYS, SHOTS, QUERIES, STEPS, ETA, BATCH = 5, 1, 15, 3, 1e-3, 8
CLASSES, PER_CLASS = 64, 100
# What each ratio should be at least.
TARGETS = {"train_ratio": 200, "eval_ratio": 400, "train_ratio_given_features": 4, "eval_ratio_given_features": 25}


def main() -> None:
    """Measure, and print the ratios of sibcore's speed to the loop's."""
    options = turns.parser(__doc__).parse_args()
    torch.set_num_threads(options.threads)
    median = turns.median_rates(prepare(options.compile), options.rounds)
    training, evaluation = median["train, sibcore"], median["eval, sibcore"]
    ratios = {
        "train_ratio": training / median["train, loop"],
        "eval_ratio": evaluation / median["eval, loop"],
        "train_ratio_given_features": training / median["train, loop given features"],
        "eval_ratio_given_features": evaluation / median["eval, loop given features"],
    }
    turns.report(ratios, TARGETS)


def prepare(compile: bool) -> dict[str, Callable[[], float]]:
    """Return the measurements by name: functions that work for a moment and return steps or tasks per second.

    Random images and an untrained backbone take as long as real ones. Training is measured in steps, which are batches
    of tasks, and evaluation in tasks.

    Args:
        compile: whether sibcore trains with `torch.compile`.
    """
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

    def from_images(part: slice, transform: Callable) -> reference.Batch:
        """Return the features of some tasks, extracted from their images now."""
        support = reference.features_of(f, images, tasks.support[part], transform)
        query = reference.features_of(f, images, tasks.query[part], transform)
        return support, one_hot[part], query, tasks.query_labels[part]

    def from_bank(part: slice) -> reference.Batch:
        """Return the features of some tasks, extracted beforehand."""
        return bank[tasks.support[part]], one_hot[part], bank[tasks.query[part]], tasks.query_labels[part]

    def train_sibcore() -> float:
        """Train for 150 steps, and return the speed that the training itself reports."""
        history = train(sib, bank, sampler, Schedule(steps=150, every=150), compile=compile, report=lambda line: None)
        return history[-1]["steps_per_second"]

    def eval_sibcore() -> float:
        """Draw 2,048 tasks and answer them."""
        return rate(lambda: evaluate(sib, bank, sampler.sample(0, 2048)), 1) * 2048

    # The loop trains on batches of tasks, and evaluates one task at a time.
    steps = itertools.cycle(slice(i, i + BATCH) for i in range(0, 2048, BATCH))
    single = itertools.cycle(slice(i, i + 1) for i in range(2048))

    def train_from_images() -> None:
        reference.train_step(plain, optimizer, from_images(next(steps), augmented))

    def train_from_bank() -> None:
        reference.train_step(plain, optimizer, from_bank(next(steps)))

    return {
        "train, loop": lambda: rate(train_from_images, 1),
        "train, loop given features": lambda: rate(train_from_bank, 20),
        "train, sibcore": train_sibcore,
        "eval, loop": lambda: rate(lambda: reference.accuracy(plain, from_images(next(single), clean)), 8),
        "eval, loop given features": lambda: rate(lambda: reference.accuracy(plain, from_bank(next(single))), 50),
        "eval, sibcore": eval_sibcore,
    }


def rate(function: Callable[[], object], times: int) -> float:
    """Return how many times a second a function runs, measured over `times` calls."""
    start = time.perf_counter()
    for _ in range(times):
        function()
    return times / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
