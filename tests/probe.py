"""Try to break the project: kill it, feed it broken files, fill its disk, take its permissions, leave strays about.

    python tests/probe.py                  a first look, half a minute
    python tests/probe.py --minutes 60     hundreds of kills, hundreds of thousands of inputs

Everything happens in a scratch folder. It prints what was tried, what held and what broke, with the seed that shows it
again (`--seed`), and its exit code is 1 if anything broke.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "helpers"), str(HERE.parent), str(HERE.parent / "notebooks")]

from probing import kills, readers, surroundings  # noqa: E402
from probing.table import Table  # noqa: E402
from probing.world import World  # noqa: E402

SHARES = {"surroundings": 0.1, "fuzz": 0.3, "kill": 0.6}  # of the time


def probe(minutes: float, seed: int = 0, only: str | None = None) -> Table:
    """Each kind of trouble in turn, or one of them, for its share of the time, and at least once."""
    fuzz = functools.partial(readers.rounds, minutes=minutes * (1 if only else SHARES["fuzz"]))
    kinds = {"surroundings": surroundings.rounds, "fuzz": fuzz, "kill": kills.rounds}
    with World() as world:
        table = Table()
        for kind, rounds in kinds.items():
            if only in (None, kind):
                _until(60 * minutes * (1 if only else SHARES[kind]), rounds(world, table, seed))
        return table


def _until(seconds: float, rounds) -> None:
    """Take steps of `rounds` until the time is over."""
    end = time.monotonic() + seconds
    for _ in rounds:
        if time.monotonic() > end:
            break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.5, help="about how long; default: half a minute")
    parser.add_argument("--seed", type=int, default=0, help="of the damage, and of the moments of the kills")
    parser.add_argument("--only", choices=SHARES, help="one kind of trouble; default: all")
    options = parser.parse_args()
    table = probe(options.minutes, options.seed, options.only)
    print(table)
    return 1 if table.broke else 0


if __name__ == "__main__":
    sys.exit(main())
