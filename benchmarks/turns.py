"""What the speed benchmarks share: their options, measurements in turns, and the report.

Measurements take turns, so that a busy moment of the machine affects all of them alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping


def parser(doc: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all speed benchmarks have.

    Args:
        doc: the docstring of the benchmark's module; its first line becomes the help text.
    """
    options = argparse.ArgumentParser(description=doc.splitlines()[0])
    options.add_argument("--rounds", type=int, default=7, help="how often to take each measurement")
    options.add_argument("--threads", type=int, default=2, help="threads of torch")
    options.add_argument("--no-compile", dest="compile", action="store_false", help="train without torch.compile")
    return options


def median_rates(measurements: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Take all measurements in turn, print them, and return the median of each over the rounds.

    Args:
        measurements: by name, a function that works for a moment and returns how much it did per second.
        rounds: how many times each is called, after one call that does not count.
    """
    for measure in measurements.values():
        measure()  # warms up caches, and compiles
    rounds_of = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            rounds_of[name].append(measure())
    medians = {}
    for name, rates in rounds_of.items():
        medians[name] = statistics.median(rates)
        print(f"{name:28s} {medians[name]:9.2f} per second   (from {min(rates):.2f} to {max(rates):.2f})")
    return medians


def report(measured: Mapping[str, float], targets: Mapping[str, float], bound: str = "at least") -> None:
    """Print each number beside its target, which is a lower or upper `bound`. The last line is JSON, for programs."""
    for name, value in measured.items():
        print(f"{name:28s} {value:9.2f}              ({bound} {targets[name]})")
    print(json.dumps({name: round(value, 3) for name, value in measured.items()}))
