"""The results of the probe: what was tried, what held and what broke."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import traceback
from collections.abc import Iterator

ROW = "{:<12} {:<28} {:>9} {:>9} {:>6}"


@dataclasses.dataclass
class Line:
    """The results of one kind of trouble with one part of the project.

    Attributes:
        tried: number of attempts.
        broke: a description of each attempt that broke something.
    """

    tried: int = 0
    broke: list[str] = dataclasses.field(default_factory=list)


class Table:
    """The results so far, by kind of trouble and by what had the trouble."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], Line] = collections.defaultdict(Line)

    def add(self, kind: str, what: str, tried: int, broke: list[str]) -> None:
        """Add the results of some attempts.

        Args:
            kind: the kind of trouble, such as "kill".
            what: the part of the project that had the trouble.
            tried: number of attempts.
            broke: a description of each that broke something.
        """
        line = self.lines[kind, what]
        line.tried += tried
        line.broke += broke

    @contextlib.contextmanager
    def attempt(self, kind: str, what: str, how: str) -> Iterator[None]:
        """Count a block as one attempt, which broke something if it raises an exception.

        Args:
            kind: the kind of trouble.
            what: what had the trouble.
            how: what somebody needs to know to repeat the attempt, such as its seed.
        """
        try:
            yield
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error}"[:300]
            self.add(kind, what, 1, [f"{how}: {said} ({where.name}, line {where.lineno})"])
        else:
            self.add(kind, what, 1, [])

    @property
    def broke(self) -> list[str]:
        """Return a description of everything that broke."""
        return [f"{kind} {what}, {how}" for (kind, what), line in self.lines.items() for how in line.broke]

    def __str__(self) -> str:
        """Return the table as text: a row for each line, then the sums of each kind, then what broke."""
        sums: dict[tuple[str, str], Line] = collections.defaultdict(Line)
        for (kind, _), line in self.lines.items():
            sums[kind, "all"].tried += line.tried
            sums[kind, "all"].broke += line.broke
        text = [ROW.format("trouble", "with", "tried", "held", "broke")]
        for (kind, what), line in (self.lines | sums).items():
            failures = len(line.broke)
            text.append(ROW.format(kind, what, line.tried, line.tried - failures, failures))
        broke = [f"BROKE: {line}" for line in self.broke[:50]]
        return "\n".join([*text, "", *broke])
