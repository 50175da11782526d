"""What the report says besides numbers, and how records and tables read on a page."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from sibrepro.claims import KINDS, OF_NUMBERS, OPEN
from sibrepro.facts import Record
from sibrepro.facts.experiment import is_stale
from sibrepro.tables import MISSING, readable

TITLES = {
    "few_shot": "Table 1",
    "synthetic_gradients": "K and η",
    "query_size": "Query size",
    "pacs": "PACS",
    "sizing": "Sizing",
}
LEAD = r"""
A few-shot task comes with a few labelled examples $d_t^l$ and many unlabelled ones, $x_t$. The paper starts a
classifier from the labelled ones, $\theta_t^0=\lambda(d_t^l)$, and then improves it on the *unlabelled* ones: where a
gradient step would need labels, a small network $\xi$, learned over many tasks, supplies a *synthetic* gradient,

$$\theta_t^{k+1}=\theta_t^k-\eta\sum_{i=1}^n\left(\frac{\partial\hat y_i}{\partial\theta_t^k}\right)^\top
\xi(\hat y_i).$$

It claims that this is variational inference in an empirical Bayes model, that the objective is an information
bottleneck, and that a few such steps lift accuracy well above the start. This report puts each claim beside what was
measured.
"""


def columns(table: pd.DataFrame) -> list[str]:
    """Its columns for reading: intervals stand beside their numbers, and runs, which are long, at the end."""
    shown = [name for name in table if not name.endswith("_ci95")]
    return sorted(shown, key=lambda name: name == "run")


def rows(table: pd.DataFrame, run_link: Callable[[str], Markup]) -> list[dict[str, Any]]:
    """Its rows for reading, those that were measured first: numbers rounded, runs as links."""
    shown = []
    for row in table.to_dict("records"):
        cells = [_cell(name, row[name], row.get(f"{name}_ci95"), run_link) for name in columns(table)]
        shown.append({"cells": cells, "faint": "ours" in row and pd.isna(row["ours"])})
    return sorted(shown, key=lambda row: row["faint"])


def run(record: Record) -> dict[str, Any]:
    """A record, for the page of all runs."""
    made = record.provenance
    named = {key: value for key, value in made.items() if key not in ("versions", "data", "finished", "wall_seconds")}
    facts = {
        "parameters": _listed(record.params),
        "numbers": _listed(record.metrics),
        "made with": _listed(made.get("versions", {})),
        "data": _listed(made.get("data", {})) or "none",
        "provenance": _listed(named),
    }
    commit = f"{(made.get('commit') or 'unknown')[:10]}{' (changed)' if made.get('dirty') else ''}"
    known = made.get("wall_seconds")
    seconds = "time unknown" if known is None else f"{known:.1f} s"
    stale = f"of an older version ({record.version})" if is_stale(record) else ""
    about = {"id": record.id, "finished": _when(made), "seconds": seconds, "commit": commit, "facts": facts}
    return about | {"stale": stale}


def provenance(records: Sequence[Record], now: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about all runs together, and about the machine that built the report (`now`)."""
    kinds = Counter(record.id.rpartition("-")[0] for record in records)
    made = [record.provenance for record in records]
    data = {(name, hash[:16]) for about in made for name, hash in about.get("data", {}).items()}
    hours = sum(about.get("wall_seconds") or 0 for about in made) / 3600
    apart = f"{sum(about.get('wall_seconds') is None for about in made)} runs of unknown time apart"
    changed = sum(bool(about.get("dirty")) for about in made)
    processors = sorted({str(about.get("processor")) for about in made if about.get("processor")})
    return {
        "runs": f"{len(records)}: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())),
        "made": f"{_when(made[0])} to {_when(made[-1])}" if made else "nothing yet",
        "computing": f"{hours:.1f} hours, {apart}",
        "on": ", ".join(processors) or "–",
        "from commits": f"{len({about.get('commit') for about in made})}, {changed} runs with uncommitted changes",
        "data, sha256": ", ".join(f"{name} {hash}…" for name, hash in sorted(data)) or "none",
        "report built with": _listed(now["versions"]),
    }


def place(name: str) -> int:
    """Where a table stands in the menu: the paper's first, in its order."""
    return [*TITLES, name].index(name)


def verdict(kind: str) -> Markup:
    return Markup('<span class="verdict {}">{}</span>').format(slug(kind), kind)


def slug(kind: str) -> str:
    return kind.replace(" ", "-")


def _cell(name: str, value: Any, ci95: Any, run_link: Callable[[str], Markup]) -> Any:
    if pd.isna(value):
        return MISSING
    if ci95 is not None and pd.notna(ci95):
        return f"{value:.2f} ± {ci95:.2f}"
    if name == "run":
        return Markup(" ").join(run_link(part) for part in str(value).split())
    if name == "verdict":
        kind = OF_NUMBERS.get(value)
        return verdict(kind) if kind in KINDS and kind != OPEN else value
    return readable(value)


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in values.items())


def _plain(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _when(made: Mapping[str, Any]) -> str:
    finished = made.get("finished")
    return f"{datetime.datetime.fromisoformat(finished):%d %B %Y}" if finished else "unknown date"
