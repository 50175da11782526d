"""Measure what a second process gains in a sweep, and what each point costs besides its notebook.

    python benchmarks/sweep_overlap.py [--points 6] [--epochs 150]

Notebook 02 is swept over seeds twice, with one process and with two, each time into an empty scratch folder. Each point
has one thread, so that the second process is the only difference. The "ratio" is the wall time of the whole command
with two processes over that with one. The "overhead" of a point is its time minus that of its cells: starting the
kernel and ending it. The machine should have nothing else to do. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import turns

from sibrepro import paths

NOTEBOOK = "02_spinning_lines"
# What each number should be at most.
TARGETS = {"ratio": 0.6, "overhead_seconds": 4.0}


def main() -> None:
    """Sweep with one process and with two, and print ratio and overhead."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=6, help="points of the sweep")
    parser.add_argument("--epochs", type=int, default=150, help="epochs of each point's trainings")
    options = parser.parse_args()

    one, points = sweep(1, options.points, options.epochs)
    two, points_of_two = sweep(2, options.points, options.epochs)
    load, cells = os.getloadavg()[0], statistics.median(in_cells for _, in_cells in points)
    print(f"{options.points} points: {one:.1f} s with one process, {two:.1f} s with two, load {load:.1f}")
    print(f"cells of a point: {cells:.1f} s in the median, one process")
    overhead = statistics.median(seconds - in_cells for seconds, in_cells in points + points_of_two)
    turns.report({"ratio": two / one, "overhead_seconds": overhead}, TARGETS, "at most")


def sweep(processes: int, points: int, epochs: int) -> tuple[float, list[tuple[float, float]]]:
    """Run one sweep from nothing.

    Args:
        processes: how many points are computed at the same time.
        points: number of points, each with a seed of its own.
        epochs: epochs of each point's trainings.

    Returns:
        The wall time of the command in seconds, and `seconds_of` each point.
    """
    notebook = paths.notebooks() / f"{NOTEBOOK}.ipynb"
    command = [sys.executable, "-m", "sibrepro", "sweep", str(notebook), "-g", f"seed=0:{points}"]
    command += ["-p", "epochs", str(epochs), "-j", str(processes), "--threads", "1"]
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        subprocess.run(command, env=os.environ | {"SIB_OUTPUT": scratch}, check=True)
        wall = time.perf_counter() - start
        return wall, [seconds_of(path) for path in Path(scratch).glob(f"sweeps/{NOTEBOOK}/*.ipynb")]


def seconds_of(executed: Path) -> tuple[float, float]:
    """Return how many seconds an executed notebook of a sweep took, and how many of them were spent in its cells."""
    content = json.loads(executed.read_text(encoding="utf-8"))
    in_cells = [cell["metadata"]["papermill"]["duration"] or 0.0 for cell in content["cells"]]
    return content["metadata"]["sweep"]["seconds"], sum(in_cells)


if __name__ == "__main__":
    main()
