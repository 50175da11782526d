"""All claims and all numbers of the paper, as the studies declare them, for readers.

Verdict cells of the notebooks, the README's table and the site's front page all come from here, from published facts
alone.
"""

from __future__ import annotations

import functools

import pandas as pd

from sibrepro.claim import KINDS, OF_NUMBERS, Claim
from sibrepro.study import all_tables, studies


@functools.cache
def claims() -> dict[str, list[tuple[str, Claim]]]:
    """Return all claims, each after the number of its notebook, by the part of the list they stand in."""
    found: dict[str, list[tuple[str, Claim]]] = {}
    for study in studies().values():
        for claim in study.claims():
            found.setdefault(claim.part, []).append((study.number, claim))
    return found


def markdown(notebook: str = "") -> str:
    """Return the claims of a notebook (or of all) as a table."""
    if notebook:
        shown = [claim for study in studies().values() if study.number == notebook for claim in study.claims()]
    else:
        shown = [claim for part in claims().values() for _, claim in part]
    lines = ["| the paper says | it prints | we find | agrees? |", "|---|---|---|---|"]
    for claim in shown:
        verdict = f"{claim.verdict}: {claim.note}" if claim.note else claim.verdict
        lines.append(f"| {claim.claim} ({claim.where}) | {claim.paper} | {claim.ours} | {verdict} |")
    return "\n".join(lines)


@functools.cache
def compared() -> dict[str, pd.DataFrame]:
    """Return the paper's numbers of its own method beside ours, by table, of tables that have such numbers."""
    counted = {name: table for name, table in all_tables().items() if table.own}
    found = {name: table.own(table.make()) for name, table in counted.items()}
    return {name: rows[rows["paper"].notna()] for name, rows in found.items()}


def counts(name: str) -> dict[str, int]:
    """Return how many of the paper's numbers in a table have which verdict, in the order of `KINDS`."""
    kinds = compared()[name]["verdict"].map(OF_NUMBERS)
    return {kind: int((kinds == kind).sum()) for kind in KINDS if (kinds == kind).any()}
