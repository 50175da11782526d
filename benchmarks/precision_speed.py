"""Measure how much faster bfloat16 is than float32 in training a backbone and in extracting features.

    python benchmarks/precision_speed.py [--rounds 3] [--threads 2] [--backbones conv4-64 wrn-16-2 wrn-28-10]

Images have 32 x 32 pixels, in batches of 64. Each number is the median over the rounds, in images per second. The last
line is JSON. Where the processor does not multiply bfloat16 in hardware, the ratios are below 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import turns

from sibcore.device import autocast
from sibcore.vision.backbones import feature_network
from sibcore.vision.features import extract
from sibcore.vision.pretrain import CosineHead, Recipe, batch_loss

SIZE, BATCH, CLASSES = 32, 64, 64
BACKBONES = ["conv4-64", "wrn-16-2", "wrn-28-10"]
PRECISIONS = ("float32", "bfloat16")
CPU = torch.device("cpu")


def main() -> None:
    """Measure, and print for each backbone the images per second in bfloat16 over those in float32."""
    parser = turns.parser(__doc__)
    parser.add_argument(
        "--backbones", nargs="+", default=["conv4-64", "wrn-16-2", "wrn-28-10"], help="which to measure"
    )
    parser.set_defaults(rounds=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ratios = {}
    for backbone in options.backbones:
        median = turns.median_rates(prepare(backbone), options.rounds)
        for work in ("train", "extract"):
            bfloat16, float32 = (median[f"{backbone}, {work}, {precision}"] for precision in PRECISIONS[::-1])
            ratios[f"{backbone}, {work}"] = bfloat16 / float32
    turns.report(ratios, dict.fromkeys(ratios, 1))


def prepare(backbone: str) -> dict[str, Callable[[], float]]:
    """Return the measurements of a backbone by name: functions that return images per second."""
    f = feature_network(backbone, SIZE, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    network = torch.nn.Sequential(f, CosineHead(f.backbone.dim, CLASSES, 10.0)).to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (BATCH, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)
    batch = (images.permute(0, 3, 1, 2) / 255).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)

    def train(precision: str) -> Callable[[], float]:
        """Return the measurement of a forward and a backward pass."""
        recipe = Recipe(precision=precision)

        def measure() -> float:
            began = time.perf_counter()
            network.zero_grad()
            batch_loss(network, batch, labels, recipe)[0].backward()
            return BATCH / (time.perf_counter() - began)

        return measure

    def extraction(precision: str) -> Callable[[], float]:
        """Return the measurement of extracting features."""

        def measure() -> float:
            began = time.perf_counter()
            with torch.no_grad(), autocast(precision, CPU):
                extract(f, images)
            return BATCH / (time.perf_counter() - began)

        return measure

    found = {f"{backbone}, train, {precision}": train(precision) for precision in PRECISIONS}
    return found | {f"{backbone}, extract, {precision}": extraction(precision) for precision in PRECISIONS}


if __name__ == "__main__":
    main()
