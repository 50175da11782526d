"""The claims of notebook 07: SIB against the methods of the paper's Table 1, and against the strongest ones of today.

Every method has the same features and test tasks, and trained ones the same training tasks. The paper claims that SIB
outperforms previous methods. The other claims are our own and ask whether any method beats the best SIB.
"""

from __future__ import annotations

import pandas as pd

from sibrepro.claim import AGREES, DIFFERS, EQUAL_FOOTING, Claim, points
from sibrepro.facts import Record
from sibrepro.statistics import Score
from sibrepro.studies.equal_footing import plan, tables


def claims() -> list[Claim]:
    """Return the claims of this study, each judged by the method that comes closest to SIB."""
    compared = plan.published()
    gains = tables.differences(compared, "sib")
    of_paper = gains[gains["method"].isin(map(tables.title, plan.TABLE_1))]
    judged = []
    for shots in plan.SHOTS:
        text = f"SIB outperforms previous methods, {shots}‑shot, on the same features"
        claim = Claim(EQUAL_FOOTING, text, "section 5.1", "“significantly”")
        records = compared.get(("sib", "mixture", shots))
        judged.append(_judge(claim, of_paper, shots, "balanced", records, must_win=True))
    judged += _against_all(compared, "")
    judged += _against_all(plan.published(plan.confirmation()), " on mini‑ImageNet, where no SIB was tuned")
    return judged


def _against_all(compared: tables.Found, where: str) -> list[Claim]:
    """Return the claims that no method beats the best SIB, for each number of shots and kind of queries."""
    gains = tables.differences(compared)
    judged = []
    for shots in plan.SHOTS:
        records = compared.get((tables.best(compared, shots), "mixture", shots))
        for queries, name in tables.KINDS.items():
            text = f"no other method beats the best SIB{where}, {shots}‑shot, {name} queries"
            headline = (
                f"Best SIB over the best other method, 1-shot, {name} queries" if shots == 1 and not where else ""
            )
            claim = Claim(EQUAL_FOOTING, text, "not in the paper", "–", headline=headline)
            judged.append(_judge(claim, gains, shots, queries, records))
    return judged


def _judge(
    claim: Claim, gains: pd.DataFrame, shots: int, queries: str, records: list[Record], must_win: bool = False
) -> Claim:
    """Judge a claim by SIB's smallest gain: with `must_win` it has to be above zero, else it may be within the error.

    Args:
        claim: the claim, not yet measured.
        gains: rows of `tables.differences`.
        shots: number of shots to compare at.
        queries: kind of test queries to compare on.
        records: SIB's runs, which the claim cites.
        must_win: whether SIB has to be better than each method, or just not worse.
    """
    rows = gains[(gains["shots"] == shots) & (gains["queries"] == queries)]
    if rows.empty:
        return claim
    closest = rows.loc[rows["gain"].idxmin()]
    score = Score(closest["gain"], closest["ci95"])
    holds = score.mean > score.ci95 if must_win else score.mean >= -score.ci95
    ours = f"{points(score)} over {closest['method']}, the strongest of {len(rows)} rivals"
    return claim.measured(ours, AGREES if holds else DIFFERS, records)
