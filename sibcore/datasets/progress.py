"""Progress bars that read well in a terminal, in a notebook and in a log file."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tqdm import tqdm


def steps(total: int, what: str, unit: str = "step") -> Iterator[int]:
    """Count from 0 to `total - 1` and show the progress, as `meter` does."""
    with meter(total, what, f" {unit}s") as bar:
        for step in range(total):
            yield step
            bar.update()


def meter(total: int | None, what: str, unit: str, **options: object) -> tqdm:
    """Return a progress bar that is moved by `update(n)`.

    On a terminal it is a bar. Elsewhere, as in a log file, it is a plain line every five seconds.

    Args:
        total: number of units, or None if it is unknown.
        what: the title.
        unit: the name of a unit.
        options: further options of tqdm.
    """
    watched = sys.stderr.isatty()
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        mininterval=0.1 if watched else 5,
        leave=False,
        ascii=not watched,
        bar_format=None if watched else "{desc}: {n_fmt}/{total_fmt}{unit}, {rate_fmt}, {elapsed}, {remaining} left\n",
        **options,
    )
