"""Is a number that was computed again the published one? Threads and machines differ in the last digits, and a training
makes much of little, so each experiment states how far its metrics may move.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Collection, Mapping
from typing import Any

from sibrepro.facts.record import Record

EXACT = 1e-6  # relative: where an experiment states nothing
Tolerance = Mapping[str, "float | None"]  # pattern of metric names -> largest deviation; None: not compared
ENVIRONMENT = ("commit", "dirty", "versions", "device", "processor", "threads", "platform")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A run computed here against the published one; `deviation` in units of what is allowed."""

    id: str
    agrees: bool
    metric: str  # the one that moved most
    published: Any
    here: Any
    deviation: float
    environments: tuple[dict[str, Any], dict[str, Any]]

    def __str__(self) -> str:
        if self.agrees:
            return f"{self.id}: agrees with the published run (largest deviation: {self.moved})"
        theirs, ours = (_environment(known) for known in self.environments)
        return (
            f"{self.id}: DISAGREES with the published run: {self.moved}\n"
            f"    published with {theirs}\n    computed here with {ours}"
        )

    @property
    def moved(self) -> str:
        return f"{self.metric} {_short(self.published)} -> {_short(self.here)}, {self.deviation:.2g} of what is allowed"


def said(verdicts: Collection[Comparison]) -> str:
    """How many agree, in a line."""
    agree = sum(verdict.agrees for verdict in verdicts)
    largest = max((verdict.deviation for verdict in verdicts), default=0.0)
    return f"recomputed here {len(verdicts)}, agree {agree}, largest deviation {largest:.2g} of what is allowed"


def compare(published: Record, here: Record, tolerance: Tolerance) -> Comparison:
    """Metric by metric; one that only one of them has is a disagreement."""
    names = sorted({*published.metrics, *here.metrics})
    moved = {name: _deviation(name, published.metrics.get(name), here.metrics.get(name), tolerance) for name in names}
    worst = max(names, key=lambda name: moved[name])
    environments = tuple({key: r.provenance.get(key) for key in ENVIRONMENT} for r in (published, here))
    values = published.metrics.get(worst), here.metrics.get(worst)
    return Comparison(here.id, moved[worst] <= 1, worst, *values, moved[worst], environments)


def _deviation(name: str, published: Any, here: Any, tolerance: Tolerance) -> float:
    allowed = next((value for pattern, value in tolerance.items() if fnmatch.fnmatchcase(name, pattern)), EXACT)
    if allowed is None:
        return 0.0
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (published, here)):
        return 0.0 if published == here else float("inf")
    if allowed == EXACT:
        allowed *= max(abs(published), 1.0)
    return abs(published - here) / allowed


def _environment(known: Mapping[str, Any]) -> str:
    versions = known.get("versions") or {}
    commit = f"{str(known.get('commit'))[:8]}{' (changed)' if known.get('dirty') else ''}"
    return f"commit {commit}, torch {versions.get('torch')}, {known.get('processor')}, {known.get('threads')} threads"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
