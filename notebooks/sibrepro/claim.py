"""`Claim`: a statement of the paper, what we measured about it, and whether the two agree.

A claim is based on published runs, or it is "not measured". The two identities of notebook 01 are the exception: the
notebook and the tests check them up to rounding wherever they run.
"""

from __future__ import annotations

import dataclasses

from sibrepro import tables
from sibrepro.facts import Record
from sibrepro.statistics import Score

# The possible verdicts on a claim. OF_NUMBERS maps a table's verdicts on single numbers to them.
AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN = "agrees", "partly", "higher", "lower", "differs", "not measured"
KINDS = (AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN)
OF_NUMBERS = {tables.INSIDE: AGREES, tables.ABOVE: HIGHER, tables.BELOW: LOWER, tables.NOT_MEASURED: OPEN}

# The parts into which the list of all claims is divided.
THEORY, TOY = "Theory", "Spinning lines"
FEW_SHOT = "Few-shot classification (CIFAR-FS, Conv‑4‑64, 5-way)"
FURTHER = "Further tables"
EQUAL_FOOTING = "Equal footing (the same features, tasks and budget for all)"


@dataclasses.dataclass(frozen=True)
class Claim:
    """One claim. All texts are Markdown, with formulae in LaTeX.

    Attributes:
        part: the heading in the list of all claims under which it is shown.
        claim: what the paper says.
        where: where the paper says it, such as "Table 1".
        paper: the numbers that the paper prints.
        ours: the numbers that we found.
        verdict: one of `KINDS`.
        note: a remark that follows the verdict.
        records: the published runs that `ours` was computed from.
        headline: the claim in a few words, if it is one of the few that the README shows.
    """

    part: str
    claim: str
    where: str
    paper: str
    ours: str = "–"
    verdict: str = OPEN
    note: str = ""
    records: tuple[Record, ...] = ()
    headline: str = ""

    def measured(self, ours: str, verdict: str, records: list[Record], note: str = "") -> Claim:
        """Return the claim with what we found, and the runs that this is based on."""
        return dataclasses.replace(self, ours=ours, verdict=verdict, records=tuple(records), note=note)

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the ids of the runs that the claim is based on."""
        return tuple(record.id for record in self.records)


def above_zero(score: Score) -> str:
    """Return the verdict on a gain: the claim holds if the whole 95 % interval is above zero."""
    return AGREES if score.mean - score.ci95 > 0 else DIFFERS


def points(score: Score) -> str:
    """Return a difference as a text, such as "+10.41 ± 0.22 points"."""
    return f"{round(score.mean, 2) + 0.0:+.2f} ± {score.ci95:.2f} points".replace("-", "−")
