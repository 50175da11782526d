"""Collect the claims of all studies, and count how many of the paper's numbers we reproduce.

The verdict cells of the notebooks, the README's headline table and the claims of the site are made here, from published
runs alone.
"""

from __future__ import annotations

import functools

import pandas as pd

from sibrepro.claim import KINDS, OF_NUMBERS, Claim
from sibrepro.study import all_tables, studies


@functools.cache
def claims() -> dict[str, list[tuple[str, Claim]]]:
    """Return all claims by part, each as a pair of its notebook's number and the claim."""
    found: dict[str, list[tuple[str, Claim]]] = {}
    for study in studies().values():
        for claim in study.claims():
            found.setdefault(claim.part, []).append((study.number, claim))
    return found


def markdown(notebook: str = "") -> str:
    """Return the claims of a notebook as a Markdown table.

    Args:
        notebook: the notebook's number, such as "03"; all notebooks if it is empty.
    """
    if notebook:
        shown = [claim for study in studies().values() if study.number == notebook for claim in study.claims()]
    else:
        shown = [claim for part in claims().values() for _, claim in part]
    lines = ["| the paper says | it prints | we find | agrees? |", "|---|---|---|---|"]
    for claim in shown:
        verdict = f"{claim.verdict}: {claim.note}" if claim.note else claim.verdict
        lines.append(f"| {claim.claim} ({claim.where}) | {claim.paper} | {claim.ours} | {verdict} |")
    return "\n".join(lines)


def headline() -> str:
    """Return the headline claims as a Markdown table, for the README."""
    shown = [claim for part in claims().values() for _, claim in part if claim.headline]
    lines = ["| | the paper | here | verdict |", "|---|---|---|---|"]
    lines += [f"| {claim.headline} | {claim.paper} | {claim.ours} | {claim.verdict} |" for claim in shown]
    return "\n".join(lines)


@functools.cache
def compared() -> dict[str, pd.DataFrame]:
    """Return the paper's numbers of its own method beside ours, by table. Tables without such numbers are left out."""
    found = {}
    for name, table in all_tables().items():
        if table.own:
            rows = table.own(table.make())
            found[name] = rows[rows["paper"].notna()]
    return found


def counts(name: str) -> dict[str, int]:
    """Return how many of the paper's numbers in a table have each verdict, in the order of `KINDS`."""
    found = compared()[name]["verdict"].map(OF_NUMBERS).value_counts()
    return {kind: int(found[kind]) for kind in KINDS if kind in found}
