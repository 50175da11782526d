"""What does a second process gain in a sweep, and what does each point cost besides its notebook?

    python benchmarks/sweep_overlap.py [--points 6] [--epochs 150]

Notebook 02 is swept over seeds, once with one process and once with two, each into an empty scratch folder and with
one thread a point, so that the second process is the only difference. The ratio is that of the wall times of the whole
commands. The overhead is a point's time beyond that of its cells: starting the kernel, and ending it.
The machine should have nothing else to do. The last line is JSON.
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
TARGETS = {"ratio": 0.6, "overhead_seconds": 4.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=150)
    options = parser.parse_args()

    one, points = sweep(1, options.points, options.epochs)
    two, points_of_two = sweep(2, options.points, options.epochs)
    overheads = [seconds - in_cells for seconds, in_cells in points + points_of_two]
    measured = {"ratio": two / one, "overhead_seconds": statistics.median(overheads)}
    print(f"{options.points} points: {one:.1f} s with one process, {two:.1f} s with two, load {os.getloadavg()[0]:.1f}")
    print(f"cells of a point: {statistics.median(cells for _, cells in points):.1f} s in the median, one process")
    turns.report(measured, TARGETS, "at most")


def sweep(processes: int, points: int, epochs: int) -> tuple[float, list[tuple[float, float]]]:
    """Wall seconds of one sweep from nothing; of each of its points, and of these inside its cells."""
    notebook = paths.notebooks() / f"{NOTEBOOK}.ipynb"
    command = [sys.executable, "-m", "sibrepro", "sweep", str(notebook), "-g", f"seed=0:{points}"]
    command += ["-p", "epochs", str(epochs), "-j", str(processes), "--threads", "1"]
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        subprocess.run(command, env=os.environ | {"SIB_OUTPUT": scratch}, check=True)
        wall = time.perf_counter() - start
        return wall, [seconds_of(path) for path in Path(scratch).glob(f"sweeps/{NOTEBOOK}/*.ipynb")]


def seconds_of(executed: Path) -> tuple[float, float]:
    content = json.loads(executed.read_text(encoding="utf-8"))
    in_cells = [cell["metadata"]["papermill"]["duration"] or 0.0 for cell in content["cells"]]
    return content["metadata"]["sweep"]["seconds"], sum(in_cells)


if __name__ == "__main__":
    main()
