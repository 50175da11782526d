"""Running the points of a sweep on this machine, some at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from filelock import Timeout

from sibrepro.run.sweep.attempt import Attempt, Limits
from sibrepro.run.sweep.point import Point
from sibrepro.run.sweep.progress import Progress


def run(points: Iterable[Point], output: Path, processes: int, limits: Limits, progress: Progress) -> None:
    """Execute all points, `processes` at a time. One that another sweep is executing is asked for again later."""
    waiting, running = deque(points), []
    try:
        while waiting or running:
            for _ in range(len(waiting)):
                if len(running) == processes:
                    break
                try:
                    running.append(Attempt(waiting[0], output, limits))
                    progress.start(waiting.popleft().name)
                except Timeout:
                    waiting.rotate(-1)
            for attempt in list(running):
                if result := attempt.poll():
                    running.remove(attempt)
                    progress.finish(result)
            progress.show()
            time.sleep(0.1)
    finally:
        for attempt in running:
            attempt.stop()
