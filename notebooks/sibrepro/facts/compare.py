"""Is a number that was computed again the published one? Threads and machines differ in the last digits, and a training
makes much of little, so each experiment states how far its metrics may move.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sibrepro.facts.record import Record

EXACT = 1e-6  # relative: where an experiment states nothing
Tolerance = Mapping[str, "float | None"]  # pattern of metric names -> largest deviation; None: not compared


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A run computed here against the published one; `deviation` in units of what is allowed."""

    id: str
    metric: str  # the one that moved most
    published: Any
    here: Any
    deviation: float
    environments: Sequence[str]  # theirs and ours
    lines: Sequence[str] = ()  # every metric: published, here, and how far it may move

    @property
    def agrees(self) -> bool:
        return self.deviation <= 1

    def __str__(self) -> str:
        values = f"{self.metric} {_short(self.published)} -> {_short(self.here)}"
        moved = f"{values}, {self.deviation:.2g} of what is allowed"
        if self.agrees:
            return f"{self.id}: agrees with the published run (largest deviation: {moved})"
        theirs, ours = self.environments
        said = f"{self.id}: DISAGREES with the published run: {moved}"
        return f"{said}\n    published with {theirs}\n    computed here with {ours}"


def compare(published: Record, here: Record, tolerance: Tolerance) -> Comparison:
    """Metric by metric; one that only one of them has is a disagreement."""
    names = sorted({*published.metrics, *here.metrics})
    moved = {name: _deviation(name, published.metrics.get(name), here.metrics.get(name), tolerance) for name in names}
    worst = max(names, key=lambda name: moved[name])
    values = published.metrics.get(worst), here.metrics.get(worst)
    environments = [_environment(record.provenance) for record in (published, here)]
    lines = [_line(name, published.metrics.get(name), here.metrics.get(name), tolerance) for name in names]
    return Comparison(here.id, worst, *values, moved[worst], environments, lines)


def said(verdicts: Collection[Comparison]) -> str:
    """How many agree, in a line."""
    agree = sum(verdict.agrees for verdict in verdicts)
    largest = max((verdict.deviation for verdict in verdicts), default=0.0)
    return f"recomputed here {len(verdicts)}, agree {agree}, largest deviation {largest:.2g} of what is allowed"


def _line(name: str, published: Any, here: Any, tolerance: Tolerance) -> str:
    allowed = _allowed(name, published, tolerance)
    within = (
        "not compared" if allowed is None else "must be equal" if isinstance(here, str) else f"within {allowed:.3g}"
    )
    return f"{name}: {_short(here)} (published {_short(published)}, {within})"


def _allowed(name: str, published: Any, tolerance: Tolerance) -> float | None:
    """Return how far a metric may move; None if it is not compared."""
    allowed = next((value for pattern, value in tolerance.items() if fnmatch.fnmatchcase(name, pattern)), EXACT)
    known = isinstance(published, (int, float)) and math.isfinite(published)
    return EXACT * max(abs(published), 1.0) if allowed == EXACT and known else allowed


def _deviation(name: str, published: Any, here: Any, tolerance: Tolerance) -> float:
    allowed = _allowed(name, published, tolerance)
    if allowed is None:
        return 0.0
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (published, here)):
        return 0.0 if published == here else float("inf")
    if math.isnan(published) or math.isnan(here):  # what diverged there has to diverge here
        return 0.0 if math.isnan(published) and math.isnan(here) else math.inf
    return abs(published - here) / allowed


def _environment(made: Mapping[str, Any]) -> str:
    commit = f"{str(made.get('commit'))[:8]}{' (changed)' if made.get('dirty') else ''}"
    torch = (made.get("versions") or {}).get("torch")
    return f"commit {commit}, torch {torch}, {made.get('processor')}, {made.get('threads')} threads"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
