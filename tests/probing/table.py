"""What was tried, what held, what broke."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import traceback
from collections.abc import Iterator


@dataclasses.dataclass
class Line:
    tried: int = 0
    broke: list[str] = dataclasses.field(default_factory=list)


class Table:
    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], Line] = collections.defaultdict(Line)

    def add(self, kind: str, what: str, tried: int, broke: list[str]) -> None:
        line = self.lines[kind, what]
        line.tried += tried
        line.broke += broke

    @contextlib.contextmanager
    def attempt(self, kind: str, what: str, how: str) -> Iterator[None]:
        """One try: an exception inside means that it broke."""
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
        return [f"{kind} {what}, {how}" for (kind, what), line in self.lines.items() for how in line.broke]

    def tried(self, kind: str) -> int:
        return sum(line.tried for (each, _), line in self.lines.items() if each == kind)

    def __str__(self) -> str:
        rows = [("trouble", "with", "tried", "held", "broke")]
        rows += [(*key, line.tried, line.tried - len(line.broke), len(line.broke)) for key, line in self.lines.items()]
        for kind in dict.fromkeys(kind for kind, _ in self.lines):
            several = [line for (each, _), line in self.lines.items() if each == kind]
            tried, broke = sum(line.tried for line in several), sum(len(line.broke) for line in several)
            rows.append((kind, "all", tried, tried - broke, broke))
        text = "\n".join(f"{a:<12} {b:<28} {c!s:>9} {d!s:>9} {e!s:>6}" for a, b, c, d, e in rows)
        return "\n".join([text, "", *(f"BROKE: {line}" for line in self.broke[:50])])
