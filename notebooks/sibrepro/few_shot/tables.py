"""The tables of notebook 03, as data frames made of run records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sibcore.baselines import BASELINES
from sibrepro.facts import runs
from sibrepro.facts.runs import Record
from sibrepro.few_shot.literature import LITERATURE
from sibrepro.few_shot.results import Results, balanced, profile, queries, right, sib_label, sib_score
from sibrepro.few_shot.rivals import Score, paired


def table_rows() -> pd.DataFrame:
    """Everything measured, for `tables.few_shot`: one row for each setting and profile, seeds together."""
    groups: dict[tuple, list[Record]] = {}
    for record in runs.published("few_shot"):
        if record.params["ways"] == 5:
            key = tuple((name, value) for name, value in record.params.items() if name != "seed")
            groups.setdefault(key, []).append(record)
    rows = []
    for records in groups.values():
        p = records[0].params
        sib = {"method": sib_label(p), "transductive": p["transductive"] and p["K"] > 0, "K": p["K"], "eta": p["eta"]}
        rows.append(_row(p, sib_score(records), records) | sib)
    for record in runs.published("baseline"):
        cls = BASELINES[record.params["method"]]
        named = {"method": cls.title, "transductive": cls.transductive}
        rows.append(_row(record.params, balanced(record), [record]) | named)
    columns = ["dataset", "backbone", "method", "transductive", "K", "eta", "shots", "ours", "ours_ci95"]
    columns += ["episodes", "seeds", "profile", "run"]
    order = ["profile", "dataset", "backbone", "method", "K", "eta", "shots"]
    return pd.DataFrame(rows, columns=columns).sort_values(order, kind="stable", ignore_index=True)


def fullest_rows(table: pd.DataFrame) -> pd.DataFrame:
    """One number for each setting, of the full protocol where it has one, and with eta = 1e-3 alone."""
    settings = ["dataset", "backbone", "method", "K", "shots"]
    table = table[table["eta"].isna() | (table["eta"] == 1e-3)]
    effort = pd.DataFrame({"quick": table["profile"] == "quick", "seeds": -table["seeds"].fillna(0).astype(int)})
    first = table.loc[effort.sort_values(["quick", "seeds"], kind="stable").index].drop_duplicates(settings)
    return first.sort_index()


def checkpoints_and_seeds(results: Results) -> pd.DataFrame:
    """The accuracy of each seed at its best and at its last checkpoint, in percent."""
    rows = {}
    for (shots, K), records in results.sib.items():
        for record in records:
            name = f"{shots}shot"
            row = {kind: record.metrics[f"{kind}/{name}"] for kind in ("best", "last")}
            rows[shots, K, record.params["seed"]] = row | {"± (tasks)": record.metrics[f"best/{name}_ci95"]}
    return pd.DataFrame(rows).T.rename_axis(["shots", "K", "seed"])


def method_scores(results: Results) -> pd.DataFrame:
    """All methods on equal features: method, transductive, shots, mean, ci95."""
    rows = []
    for (shots, K), records in results.sib.items():
        rows.append((f"SIB, K = {K}", K > 0, shots, sib_score(records)))
    for (shots, K), records in results.inductive.items():
        if K == 3:
            rows.append((f"inductive SIB (MAML), K = {K}", False, shots, sib_score(records)))
    for (name, shots), record in results.baselines.items():
        rows.append((BASELINES[name].title, BASELINES[name].transductive, shots, balanced(record)))
    flat = [(method, kind, shots, score.mean, score.ci95) for method, kind, shots, score in rows]
    return pd.DataFrame(flat, columns=["method", "transductive", "shots", "mean", "ci95"])


def sib_against(results: Results, K: int) -> pd.DataFrame:
    """SIB with K steps minus each other method on the same tasks, in points, with the interval of the difference."""
    rows: dict[str, dict[str, Any]] = {}
    for (name, shots), record in results.baselines.items():
        seeds = results.sib.get((shots, K))
        tasks = record.arrays["balanced"]
        if seeds and seeds[0].params["test_episodes"] >= len(tasks):
            ours = right(seeds, f"best/{shots}shot")[:, : len(tasks)]
            score = paired(tasks, ours, queries(record))
            row = rows.setdefault(BASELINES[name].title, {"transductive": BASELINES[name].transductive})
            row |= {f"{shots}-shot": score.mean, f"{shots}-shot ±": score.ci95}
    return pd.DataFrame(rows).T.rename_axis("method")


def baseline_table(results: Results) -> pd.DataFrame:
    """Each baseline: what it sees, what it was given on validation classes, how accurate and how fast it is."""
    rows = {}
    for (name, shots), record in results.baselines.items():
        cls, metrics = BASELINES[name], record.metrics
        rows[cls.title, shots] = {
            "from": cls.paper,
            "transductive": cls.transductive,
            "trained": cls.trained,
            "options": ", ".join(f"{key} = {value}" for key, value in metrics["options"].items()),
            "accuracy": str(balanced(record)),
            "tasks per second": round(metrics["episodes_per_second"]),
        }
    return pd.DataFrame(rows).T.rename_axis(["method", "shots"])


def balance_scores(results: Results, K: int = 3) -> pd.DataFrame:
    """Balanced and unbalanced queries, 1-shot: method, balanced, unbalanced and their ..._ci95."""
    names = ("balanced", "unbalanced")
    shown = {BASELINES[name].title: record for (name, shots), record in results.baselines.items() if shots == 1}
    kinds = {f"SIB, K = {k}": results.sib.get((1, k), []) for k in (0, K)}
    shown_variants = ("SIB, normalise", "SIB, alpha", "SIB, equivariant")
    for (shots, k, label), records in results.variants.items():
        if shots == 1 and label.startswith(shown_variants):
            kinds[f"{label}, K = {k}"] = records
    for label, records in kinds.items():
        if records and records[0].id in results.realism:
            shown[label] = results.realism[records[0].id]
    keys = [key for name in names for key in (name, f"{name}_ci95")]
    return pd.DataFrame([{"method": name} | {key: r.metrics[key] for key in keys} for name, r in shown.items()])


def literature_table(results: Results) -> pd.DataFrame:
    """Our baselines, 1- and 5-shot, beside what publications print for the same method."""
    rows = []
    for name, cls in BASELINES.items():
        ours = [
            balanced(results.baselines[name, shots]) if (name, shots) in results.baselines else "" for shots in (1, 5)
        ]
        row = {"method": cls.title, "ours, 1-shot": str(ours[0]), "ours, 5-shot": str(ours[1])}
        for published in LITERATURE.get(name, ()):
            printed = f"{published.one_shot} / {published.five_shot}"
            rows.append(row | {"printed, 1 / 5 shots": printed, "on": published.dataset, "network": published.backbone})
            rows[-1]["read in"] = published.source
        if name not in LITERATURE:
            rows.append(row)
    return pd.DataFrame(rows).fillna("").set_index("method")


def order_table(results: Results) -> pd.DataFrame:
    """How much the order of the classes matters to each SIB that was tried: accuracies, and answers that change."""
    names = ["orders/lowest", "orders/highest", "averaged", "orders/changed"]
    kinds = {(shots, K, "SIB"): records for (shots, K), records in results.sib.items()} | dict(results.variants)
    rows = {}
    for (shots, K, label), records in kinds.items():
        tried = results.realism.get(records[0].id)
        if tried and names[0] in tried.metrics:
            rows[f"{shots}-shot, {label}, K = {K}"] = {name: tried.metrics[name] for name in names}
    return pd.DataFrame(rows, index=names).T.round(2)


def _row(p: Mapping[str, Any], score: Score, records: Sequence[Record]) -> dict[str, Any]:
    return {
        **{name: p[name] for name in ("dataset", "backbone", "shots")},
        **{"ours": score.mean, "ours_ci95": score.ci95, "episodes": p["test_episodes"], "seeds": len(records)},
        **{"profile": profile(p), "run": " ".join(record.id for record in records)},
    }
