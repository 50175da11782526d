"""The paper's claims, what was measured of each, and whether the two agree.

A finding is judged here from run records and tables alone, so that it changes when they do. What has no run behind it
is "not measured".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sibrepro import tables
from sibrepro.facts.runs import Record
from sibrepro.few_shot import results as few_shot_results
from sibrepro.few_shot.tables import fullest_rows

AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN = "agrees", "partly", "higher", "lower", "differs", "not measured"
KINDS = (AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN)
OF_NUMBERS = {tables.INSIDE: AGREES, tables.ABOVE: HIGHER, tables.BELOW: LOWER, tables.NOT_MEASURED: OPEN}
SETTINGS = {*tables.FEW_SHOT, *tables.SYNTHETIC_GRADIENTS, *tables.QUERY_SIZE, "target"}
PACS_NETWORK = "resnet18"
ENOUGH_SEEDS = 3  # to judge by
TRAINED = ("all", "upper", "frozen", "shipped")  # how much of the feature network is trained on PACS, most first
NO_STEP = 1.0  # points; a smaller change counts as none, as in notebook 04


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the front page; texts are Markdown with maths."""

    claim: str
    where: str  # in the paper
    notebook: str  # its number
    paper: str
    ours: str = "–"
    verdict: str = OPEN
    note: str = ""
    runs: tuple[str, ...] = ()


def findings(found: Mapping[str, Record], frames: Mapping[str, pd.DataFrame]) -> dict[str, list[Finding]]:
    """All findings, by the part of the paper that they belong to."""
    return {
        "Theory": theory(found),
        "Spinning lines": spinning_lines(found),
        "Few-shot classification (CIFAR-FS, Conv‑4‑64, 5-way)": [
            *gains(found, frames.get("few_shot")),
            inductive(frames.get("synthetic_gradients")),
            *few_shot(frames.get("few_shot")),
        ],
        "Further tables": [query_size(frames.get("query_size")), pacs(frames.get("pacs"))],
    }


def theory(found: Mapping[str, Record]) -> list[Finding]:
    first = Finding(
        r"The objective is bounded below by $I_q(w;d|t)+H_q(d|w,t)$", "Theorem 1", "01", "holds, and is tight"
    )
    second = Finding(r"$\lvert\mathrm{gen}(q)\rvert\le\sqrt{2\sigma^2I_q(w;d|t)/n}$", "Theorem 2", "01", "holds")
    record = _fullest(found, "elbo_and_information_bottleneck", "worlds")
    if record is None:
        return [first, second]
    m, worlds = record.metrics, f"{record.params['worlds']:,}"
    holds = m["bound_slack"] > 0 and m["tightness_error"] < 1e-10
    first = dataclasses.replace(
        first,
        ours=f"{'true' if holds else 'violated'} in all of {worlds} random worlds",
        verdict=REMARK if holds and m["constant_error"] < 1e-10 else AGREES if holds else DIFFERS,
        note="the right side equals $H_q(d|t)$ whatever $q(w|d,t)$ is: true, but nothing to optimise",
        runs=(record.id,),
    )
    second = dataclasses.replace(
        second,
        ours=f"at most {m['largest_ratio']:.2f} of the bound in {worlds} random worlds",
        verdict=DIFFERS if m["largest_ratio"] > 1 else REMARK if m["proof_step_fails"] > 0 else AGREES,
        note=f"a step of the proof fails in {100 * m['proof_step_fails']:.1f} % of them; the notebook repairs it",
        runs=(record.id,),
    )
    return [first, second]


def spinning_lines(found: Mapping[str, Record]) -> list[Finding]:
    """At the paper's settings; "close to zero" is taken as below a tenth of the true I(w; d), as in notebook 02."""
    posterior = Finding(r"$D_{\rm KL}(q\|p(w|d))$ ends close to zero", "Section 5.2", "02", "“close to zero”")
    prior = Finding(r"$D_{\rm KL}(p_\psi\|p(w))$ ends close to zero", "Section 5.2", "02", "“close to zero”")
    towards = Finding(r"$\theta^k$ moves towards the truth", "Figure 3", "02", "better than a BNN")
    settings = {"n": 32, "K": 3, "sigma": 1.0, "sigma_w": 0.1, "mu": 0.0, "mu_w": 1.0, "epochs": 150}
    record = _fullest(found, "spinning_lines", "seeds", **settings)
    if record is None:
        return [posterior, prior, towards]
    p, m = record.params, record.metrics
    information = 0.5 * math.log(1 + p["sigma"] ** 2 / (p["n"] * p["sigma_w"] ** 2))
    values = m["sum/kl_posterior"], m["sum/kl_prior"]
    judged = [
        dataclasses.replace(
            finding,
            ours=f"{value:.2f} nats, where all there is to know is {information:.2f}",
            verdict=AGREES if value < information / 10 else REMARK,
            note="" if value < information / 10 else "small only against the 50 nats at which training starts",
            runs=(record.id,),
        )
        for finding, value in zip((posterior, prior), values, strict=True)
    ]
    bnn = _fullest(found, "spinning_lines_bnn", "seeds", **settings)
    if bnn is not None:
        judged.append(
            dataclasses.replace(
                towards,
                ours=f"squared error {m['sum/mse']:.3f}, BNN {bnn.metrics['mse']:.3f}",
                verdict=AGREES if m["sum/mse"] < bnn.metrics["mse"] else DIFFERS,
                runs=(record.id, bnn.id),
            )
        )
    return judged if bnn is not None else [*judged, towards]


def few_shot(table: pd.DataFrame | None) -> list[Finding]:
    """The four numbers of SIB in Table 1 that need neither a large network nor mini-ImageNet."""
    shown = []
    for shots in (1, 5):
        for K in (0, 3):
            row = _sib(table, shots, K)
            claim = f"SIB, {shots}‑shot, $K={K}$"
            if row is None:
                shown.append(Finding(claim, "Table 1", "03", "–"))
                continue
            measured = pd.notna(row["ours"])
            shown.append(
                Finding(
                    claim,
                    "Table 1",
                    "03",
                    _percent(row["paper"], row["paper_ci95"]),
                    _percent(row["ours"], row["ours_ci95"]) if measured else "–",
                    OF_NUMBERS[row["verdict"]],
                    "a stronger feature network: no step is taken" if K == 0 and row["verdict"] == tables.ABOVE else "",
                    tuple(str(row["run"]).split()) if measured else (),
                )
            )
    return shown


def gains(found: Mapping[str, Record], table: pd.DataFrame | None) -> list[Finding]:
    """What three synthetic gradient steps add: on the same tasks, where the records of both are here."""
    shown = []
    for shots in (1, 5):
        before, after = _sib(table, shots, 0), _sib(table, shots, 3)
        claim = f"Three synthetic gradient steps improve on none, {shots}‑shot"
        if before is None or after is None:
            shown.append(Finding(claim, "Table 1", "03", "–"))
            continue
        finding = Finding(claim, "Table 1", "03", f"{after['paper'] - before['paper']:+.1f} points")
        if pd.notna(before["ours"]) and pd.notna(after["ours"]):
            finding = _gain(finding, found, before, after)
        shown.append(finding)
    return shown


def _gain(finding: Finding, found: Mapping[str, Record], before: pd.Series, after: pd.Series) -> Finding:
    ids = [str(row["run"]).split() for row in (before, after)]
    if all(name in found for part in ids for name in part):
        score = few_shot_results.gain(*([found[name] for name in part] for part in ids))
        mean, ci95 = score.mean, score.ci95
    else:  # two independent means: a wider interval
        mean, ci95 = after["ours"] - before["ours"], math.hypot(after["ours_ci95"], before["ours_ci95"])
    ours, verdict = f"{_signed(mean)} ± {ci95:.2f} points", AGREES if mean - ci95 > 0 else DIFFERS
    return dataclasses.replace(finding, ours=ours, verdict=verdict, runs=(*ids[0], *ids[1]))


def inductive(table: pd.DataFrame | None) -> Finding:
    finding = Finding(
        "The true gradient on the support set alone does not improve on no step (inductive SIB)",
        "Appendix, $K$ and $\\eta$",
        "04",
        "“no improvement”",
    )
    if table is None:
        return finding
    rows = table[(table["variant"] == "inductive SIB") & (table["tested_shots"] == 1) & table["ours"].notna()]
    start, steps = rows[rows["K"] == 0], rows[rows["K"] > 0]
    if start.empty or steps.empty:
        return finding
    by_protocol = start.drop_duplicates("steps").set_index("steps")["ours"]  # short trainings apart
    change = (steps["ours"] - steps["steps"].map(by_protocol)).dropna()
    if change.empty:
        return finding
    largest = change.loc[change.abs().astype(float).idxmax()]
    return dataclasses.replace(
        finding,
        ours=f"at most {_signed(largest)} points in {len(change)} settings",
        verdict=AGREES if abs(largest) < NO_STEP else DIFFERS,
        runs=tuple(dict.fromkeys(" ".join(rows["run"]).split())),
    )


def query_size(table: pd.DataFrame | None) -> Finding:
    """Judged on one shot, tested with 15 queries, by the longest trainings and the network with most of them."""
    finding = Finding(
        "Too many queries $n$ in training hurt", "Appendix, query size", "06", "best at $n=10$, $-3.6$ at $n=45$"
    )
    if table is None or table["ours"].isna().all():
        return finding
    rows = table[(table["split"] == "test") & (table["shots"] == 1) & (table["tested"] == 15) & table["ours"].notna()]
    rows = rows[rows["steps"] == rows["steps"].max()]
    rows = rows[rows["backbone"] == rows["backbone"].mode().max()].sort_values("n")
    if rows["n"].nunique() < 2:
        return finding
    best, most = rows.loc[rows["ours"].astype(float).idxmax()], rows.iloc[-1]
    lost = best["ours"] - most["ours"]
    hurts = lost > math.hypot(best["ours_ci95"], most["ours_ci95"])
    return dataclasses.replace(
        finding,
        ours=f"best at $n={best['n']}$, ${-lost:+.1f}$ at $n={most['n']}$",
        verdict=AGREES if hurts else DIFFERS,
        note=f"on {tables.DATASETS.get(best['dataset'], best['dataset'])}, {best['backbone']}",
        runs=tuple(dict.fromkeys(" ".join(rows["run"]).split())),
    )


def pacs(table: pd.DataFrame | None) -> Finding:
    """Judged by the average over targets, with as much of the feature network trained as there are seeds enough for."""
    finding = Finding(
        "SIB-Rot's steps help on an unseen domain (PACS, average)", "Appendix, PACS", "05", "87.7 → 89.6 %"
    )
    if table is None:
        return finding
    rows = table[(table["method"] == "SIB-Rot") & (table["target"] == "average") & (table["seeds"] >= ENOUGH_SEEDS)]
    for kind in TRAINED:
        pair = rows[rows["features"] == kind].drop_duplicates("K").set_index("K")
        if {0, 3} <= set(pair.index):
            break
    else:
        return finding
    before, after = pair.loc[0], pair.loc[3]
    gain, reach = after["ours"] - before["ours"], math.hypot(before["ours_ci95"], after["ours_ci95"])
    remarks = [] if after["backbone"] == PACS_NETWORK else [f"with {after['backbone']}, {kind}"]
    remarks += ["not told apart"] if abs(gain) <= reach else []
    return dataclasses.replace(
        finding,
        ours=f"{before['ours']:.1f} → {after['ours']:.1f} %",
        verdict=AGREES if gain > reach else DIFFERS,
        note="; ".join(remarks),
        runs=tuple(dict.fromkeys(" ".join(pair.loc[[0, 3], "run"]).split())),
    )


def counts(name: str, table: pd.DataFrame) -> dict[str, int]:
    """How many of the paper's numbers of its own method have which verdict, in the order of `KINDS`."""
    if name == "few_shot":
        table = fullest_rows(table[table["method"] == "SIB"])
    elif name == "pacs":
        table = table[table["method"] == "SIB-Rot"]
        table = table.assign(verdict=[_pacs_verdict(row) for row in table.to_dict("records")])
    printed = table[table["paper"].notna()]
    settings = [column for column in printed if column in SETTINGS]
    kinds = printed.drop_duplicates(settings)["verdict"].map(OF_NUMBERS)
    return {kind: int((kinds == kind).sum()) for kind in KINDS if (kinds == kind).any()}


def _pacs_verdict(row: Mapping[str, Any]) -> str:
    """A number of another network is no measurement of the paper's."""
    if row.get("backbone") != PACS_NETWORK:
        return tables.NOT_MEASURED
    return tables.verdict(row["paper"], None, *(row[key] if pd.notna(row[key]) else None for key in tables.OURS))


def _sib(table: pd.DataFrame | None, shots: int, K: int) -> pd.Series | None:
    if table is None:
        return None
    rows = table.query("method == 'SIB' and dataset == 'cifar-fs' and backbone == 'conv4-64'")
    rows = fullest_rows(rows[(rows["shots"] == shots) & (rows["K"] == K)])
    return rows.iloc[0] if len(rows) else None


def _fullest(found: Mapping[str, Record], experiment: str, measure: str, **settings: Any) -> Record | None:
    """The run of these settings that has most of `measure`."""
    fitting = [
        record
        for name, record in found.items()
        if name.rpartition("-")[0] == experiment
        and all(np.isclose(record.params.get(key, value), value) for key, value in settings.items())
    ]
    return max(fitting, key=lambda record: record.params.get(measure, 0), default=None)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _percent(value: float, ci95: float) -> str:
    return f"{value:.1f} ± {ci95:.1f} %" if pd.notna(ci95) else f"{value:.1f} %"
