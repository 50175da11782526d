"""Compare a run that was computed again with the published one.

Threads and machines differ in the last digits, and training amplifies such differences. So each experiment states how
far its metrics may move; a run agrees with the published one if no metric moves further.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sibrepro.facts.record import Record

EXACT = 1e-6  # the largest relative deviation of a metric for which the experiment states no tolerance
Tolerance = Mapping[str, "float | None"]  # pattern of metric names -> largest deviation; None: not compared


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison of a run computed here with the published run of the same id.

    Attributes:
        id: the id of both runs.
        metric: the metric that moved most, relative to its tolerance.
        published: the published value of that metric.
        here: its value here.
        deviation: how far it moved, as a multiple of its tolerance.
        environments: the commit, torch version and machine of the published run and of this one.
        lines: a text for every metric: its value, the published value and its tolerance.
    """

    id: str
    metric: str
    published: Any
    here: Any
    deviation: float
    environments: Sequence[str]
    lines: Sequence[str] = ()

    @property
    def agrees(self) -> bool:
        """Tell whether no metric moved further than its tolerance."""
        return self.deviation <= 1

    def __str__(self) -> str:
        values = f"{self.metric} {_short(self.published)} -> {_short(self.here)}"
        moved = f"{values}, {self.deviation:.2g} times the tolerance"
        if self.agrees:
            return f"{self.id}: agrees with the published run (largest deviation: {moved})"
        theirs, ours = self.environments
        said = f"{self.id}: DISAGREES with the published run: {moved}"
        return f"{said}\n    published with {theirs}\n    computed here with {ours}"


def compare(published: Record, here: Record, tolerance: Tolerance) -> Comparison:
    """Compare two runs metric by metric. A metric that only one of them has is a disagreement."""
    deviations, lines = {}, []
    for name in sorted({*published.metrics, *here.metrics}):
        theirs, ours = published.metrics.get(name), here.metrics.get(name)
        allowed = _allowed(name, theirs, tolerance)
        deviations[name] = _deviation(theirs, ours, allowed)
        lines.append(f"{name}: {_short(ours)} (published {_short(theirs)}, {_within(ours, allowed)})")
    worst = max(deviations, key=deviations.__getitem__)
    return Comparison(
        id=here.id,
        metric=worst,
        published=published.metrics.get(worst),
        here=here.metrics.get(worst),
        deviation=deviations[worst],
        environments=[_environment(published.provenance), _environment(here.provenance)],
        lines=lines,
    )


def said(verdicts: Collection[Comparison]) -> str:
    """Return a line that says how many published runs were recomputed, how many agree, and the largest deviation."""
    if not verdicts:
        return "No published run was recomputed."
    runs = "1 published run" if len(verdicts) == 1 else f"{len(verdicts)} published runs"
    agree = sum(verdict.agrees for verdict in verdicts)
    largest = max(verdict.deviation for verdict in verdicts)
    return f"Recomputed {runs}: {agree} of {len(verdicts)} agree, largest deviation {largest:.2g} times the tolerance."


def _allowed(name: str, published: Any, tolerance: Tolerance) -> float | None:
    """Return how far a metric may move, or None if it is not compared. The first pattern that fits its name counts."""
    allowed = next((value for pattern, value in tolerance.items() if fnmatch.fnmatchcase(name, pattern)), EXACT)
    if allowed == EXACT and isinstance(published, (int, float)) and math.isfinite(published):
        return EXACT * max(abs(published), 1.0)
    return allowed


def _deviation(published: Any, here: Any, allowed: float | None) -> float:
    """Return how far a metric moved, as a multiple of what is allowed."""
    if allowed is None:
        return 0.0
    if not (_is_number(published) and _is_number(here)):
        return 0.0 if published == here else math.inf
    if math.isnan(published) or math.isnan(here):  # a run that diverged has to diverge again
        return 0.0 if math.isnan(published) and math.isnan(here) else math.inf
    return abs(published - here) / allowed


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _within(here: Any, allowed: float | None) -> str:
    """Return how far a metric may move, as a text."""
    if allowed is None:
        return "not compared"
    return "must be equal" if isinstance(here, str) else f"within {allowed:.3g}"


def _environment(made: Mapping[str, Any]) -> str:
    """Return where a run with this provenance was computed, as a text."""
    commit = f"{str(made.get('commit'))[:8]}{' (changed)' if made.get('dirty') else ''}"
    torch = (made.get("versions") or {}).get("torch")
    return f"commit {commit}, torch {torch}, {made.get('processor')}, {made.get('threads')} threads"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
