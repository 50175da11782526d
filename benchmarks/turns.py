"""What speed benchmarks share: measurements that take turns, so that a busy moment of the machine hits all of them."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping


def parser(doc: str) -> argparse.ArgumentParser:
    """The options of a benchmark whose module says `doc`."""
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    found.add_argument("--rounds", type=int, default=7)
    found.add_argument("--threads", type=int, default=2)
    found.add_argument("--no-compile", dest="compile", action="store_false", help="train without torch.compile")
    return found


def median_rates(measurements: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median over the rounds of what each measurement returns, a number per second."""
    for measure in measurements.values():  # warm up, compile
        measure()
    turns = [{name: measure() for name, measure in measurements.items()} for _ in range(rounds)]
    rates = {name: [turn[name] for turn in turns] for name in measurements}
    for name, values in rates.items():
        print(f"{name:28s} {statistics.median(values):9.2f} per second   (from {min(values):.2f} to {max(values):.2f})")
    return {name: statistics.median(values) for name, values in rates.items()}


def report(measured: Mapping[str, float], targets: Mapping[str, float], bound: str = "at least") -> None:
    """Each number beside its target; the last line is JSON."""
    for name, value in measured.items():
        print(f"{name:28s} {value:9.2f}              ({bound} {targets[name]})")
    print(json.dumps({name: round(value, 3) for name, value in measured.items()}))
