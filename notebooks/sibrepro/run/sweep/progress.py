"""How far a sweep is: on a terminal a table redrawn in place, in a log one line per event."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from typing import TextIO

from sibrepro.run.sweep.point import Result


class Progress:
    """`start` and `finish` tell it of points; `show` is called often and draws now and then."""

    def __init__(self, name: str, total: int, slots: int, done: int = 0, failed: int = 0, stream: TextIO | None = None):
        self.name, self.total, self.slots = name, total, slots
        self.done, self.failed = done, failed
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.running: dict[str, float] = {}
        self.took: list[float] = []
        self.began = self.drawn = time.monotonic()
        self.lines = 0  # of the table on the screen

    def start(self, point: str) -> None:
        self.running[point] = time.monotonic()
        self._event(f"running  {point}")

    def finish(self, result: Result) -> None:
        self.running.pop(result.point, None)
        self.took.append(result.seconds or 0.0)
        self.failed += result.status == "failed"
        self.done += result.status == "done"
        first = f": {result.error.splitlines()[0]}" if result.error else ""
        self._event(f"{result.status:<8} {result.point}  {result.seconds:.1f} s{first}", keep=bool(result.error))

    def show(self, least: float = 0.25) -> None:
        """Draw the table anew, unless that was less than `least` seconds ago."""
        now = time.monotonic()
        if not self.live or now - self.drawn < least:
            return
        width, height = shutil.get_terminal_size()
        rows = [f"  {point:<60} {clock(now - since):>8}" for point, since in self.running.items()]
        table = [f"{self.name}  {self.counts()}", *rows[: max(height - 2, 0)]]
        self._clear()
        self.stream.write("".join(f"{line[: width - 1]}\n" for line in table))
        self.stream.flush()
        self.lines, self.drawn = len(table), now

    def close(self) -> None:
        """Leave the last line of the table on the screen, without the points that were running."""
        self.running = {}
        self.show(least=0)

    def counts(self) -> str:
        waiting = self.total - self.done - self.failed - len(self.running)
        parts = [f"done {self.done}/{self.total}", f"running {len(self.running)}", f"failed {self.failed}"]
        parts += [f"waiting {waiting}", f"after {clock(time.monotonic() - self.began)}"]
        return ", ".join([*parts, f"about {clock(self.left())} left"] if self.took and self.left() else parts)

    def left(self) -> float:
        """Seconds to go, if the rest takes as long as what was run."""
        now, mean = time.monotonic(), statistics.fmean(self.took)
        waiting = self.total - self.done - self.failed - len(self.running)
        work = mean * waiting + sum(max(mean - (now - since), 0.0) for since in self.running.values())
        return work / max(min(self.slots, waiting + len(self.running)), 1)

    def _event(self, text: str, keep: bool = False) -> None:
        if not self.live:
            print(f"{text}  ({self.counts()})", file=self.stream, flush=True)
        elif keep:  # failures scroll by above the table
            self._clear()
            print(text, file=self.stream, flush=True)
            self.lines = 0
            self.show(least=0)

    def _clear(self) -> None:
        if self.lines:
            self.stream.write(f"\x1b[{self.lines}F\x1b[J")


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
