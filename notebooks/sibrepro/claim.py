"""What a claim is: something the paper says, what was measured of it, and whether the two agree.

A claim has published runs behind it, or it is "not measured"; but for the two identities that notebook 01 and the tests
check to rounding wherever they run.
"""

from __future__ import annotations

import dataclasses

from sibrepro import tables
from sibrepro.facts import Record
from sibrepro.statistics import Score

AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN = "agrees", "partly", "higher", "lower", "differs", "not measured"
KINDS = (AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN)
OF_NUMBERS = {tables.INSIDE: AGREES, tables.ABOVE: HIGHER, tables.BELOW: LOWER, tables.NOT_MEASURED: OPEN}

THEORY, TOY = "Theory", "Spinning lines"
FEW_SHOT = "Few-shot classification (CIFAR-FS, Conv‑4‑64, 5-way)"
FURTHER = "Further tables"
EQUAL_FOOTING = "Equal footing (the same features, tasks and budget for all)"


@dataclasses.dataclass(frozen=True)
class Claim:
    """One claim; texts are Markdown with maths."""

    part: str  # of the list of all claims, under which it stands
    claim: str
    where: str  # in the paper
    paper: str  # what the paper prints
    ours: str = "–"
    verdict: str = OPEN
    note: str = ""
    records: tuple[Record, ...] = ()

    def measured(self, ours: str, verdict: str, records: list[Record], note: str = "") -> Claim:
        """Return the claim with what was found, and the runs behind it."""
        return dataclasses.replace(self, ours=ours, verdict=verdict, records=tuple(records), note=note)

    @property
    def runs(self) -> tuple[str, ...]:
        """The ids of the runs behind it."""
        return tuple(record.id for record in self.records)


def above_zero(score: Score) -> str:
    """Return the verdict on a gain: it counts if its interval lies above zero."""
    return AGREES if score.mean - score.ci95 > 0 else DIFFERS


def points(score: Score) -> str:
    """Return a difference for reading, such as "+10.41 ± 0.22 points"."""
    return f"{round(score.mean, 2) + 0.0:+.2f} ± {score.ci95:.2f} points".replace("-", "−")
