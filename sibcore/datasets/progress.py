"""Progress that reads well in a terminal, in a notebook and in a log file."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tqdm import tqdm


def steps(total: int, what: str, unit: str = "step") -> Iterator[int]:
    """`range(total)` with a bar; where nobody watches a terminal, a plain line every few seconds instead."""
    with meter(total, what, f" {unit}s") as bar:
        for step in range(total):
            yield step
            bar.update()


def meter(total: int | None, what: str, unit: str, **options: object) -> tqdm:
    """A bar that is moved by hand, with `update(n)`; `total` is None where it is unknown."""
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
