"""What the paper claims of previous methods, and how SIB and its rivals stand on equal features and budgets."""

from __future__ import annotations

import itertools

import pandas as pd

from sibrepro.claim import AGREES, DIFFERS, EQUAL_FOOTING, Claim, points
from sibrepro.facts import Record
from sibrepro.statistics import Score
from sibrepro.studies.equal_footing import plan
from sibrepro.studies.equal_footing import tables as footing_tables

NAMES = {"balanced": "balanced", "dirichlet2": "Dirichlet(2)"}  # of kinds of queries


def claims() -> list[Claim]:
    """SIB beside the trained systems of Table 1, and the best SIB beside all methods; the nearest one decides."""
    found, shown = plan.published(), []
    printed = [footing_tables.title(method) for method in plan.TABLE_1]
    gaps = footing_tables.differences(found, "sib")
    gaps = gaps[gaps["method"].isin(printed)]
    for shots in plan.SHOTS:
        claim = Claim(
            EQUAL_FOOTING, f"SIB outperforms previous methods, {shots}‑shot", "section 5.1", "“significantly”"
        )
        shown.append(_nearest(claim, gaps, shots, "balanced", found.get(("sib", "mixture", shots)), ahead=True))
    confirmed = plan.published(plan.confirmation())
    for runs, where in ((found, ""), (confirmed, " on features used for no choice")):
        gaps = footing_tables.differences(runs)
        for shots, queries in itertools.product(plan.SHOTS, NAMES):
            text = f"no method of today is ahead of the best SIB{where}, {shots}‑shot, {NAMES[queries]} queries"
            records = runs.get((footing_tables.best(runs, shots), "mixture", shots))
            shown.append(_nearest(Claim(EQUAL_FOOTING, text, "not in the paper", "–"), gaps, shots, queries, records))
    return shown


def _nearest(
    claim: Claim, gaps: pd.DataFrame, shots: int, queries: str, records: list[Record], ahead: bool = False
) -> Claim:
    """Judged by the least gain of a SIB: is it ahead, or at least not behind?"""
    part = gaps.query("shots == @shots and queries == @queries")
    if part.empty:
        return claim
    nearest = part.loc[part["gain"].idxmin()]
    score = Score(nearest["gain"], nearest["ci95"])
    good = score.mean > score.ci95 if ahead else score.mean + score.ci95 >= 0
    ours = f"{points(score)} over {nearest['method']}, the nearest of {len(part)} on the same features"
    return claim.measured(ours, AGREES if good else DIFFERS, records)
