"""The tables of notebook 03, as data frames made of published runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sibcore.baselines import BASELINES
from sibrepro import paper
from sibrepro.facts import Record
from sibrepro.facts.experiment import named
from sibrepro.few_shot.plan import ORIGINS, REASONS, WEAK_START, Results, gain, published, queries, sib_score
from sibrepro.statistics import Score, metric, paired, right

BALANCE = (
    "running statistics",
    "no statistics",
    "equivariant ξ",
    "trained unbalanced",
)  # variants tried on unbalanced queries


def table_rows() -> pd.DataFrame:
    """Everything published, for `tables.few_shot`: one row for each setting, seeds together."""
    rows = [row for origin in ORIGINS for row in _rows(published(*origin))]
    columns = ["dataset", "backbone", "method", "transductive", "K", "eta", "shots", "ours", "ours_ci95"]
    columns += ["episodes", "seeds", "run"]
    order = ["dataset", "backbone", "method", "K", "eta", "shots"]
    return pd.DataFrame(rows, columns=columns).sort_values(order, kind="stable", ignore_index=True)


def _rows(results: Results) -> list[dict[str, Any]]:
    kinds = {("SIB", *key): records for key, records in results.sib.items()}
    kinds |= {("inductive SIB", *key): records for key, records in results.inductive.items()}
    kinds |= {(f"SIB, {name}", 1, K): records for (name, K), records in results.variants.items()}
    rows = []
    for (method, _, K), records in kinds.items():
        p = records[0].params
        named = {"method": method, "transductive": p["transductive"] and K > 0, "K": K, "eta": p["eta"]}
        rows.append(_row(p, sib_score(records), records) | named)
    for (name, _), record in results.rivals.items():
        named = {"method": BASELINES[name].title, "transductive": BASELINES[name].transductive}
        rows.append(_row(record.params, metric(record, "balanced"), [record]) | named)
    return rows


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
    """All methods on equal features: method, kind, shots, mean, ci95."""
    rows = []
    for (shots, K), records in results.sib.items():
        rows.append((f"SIB, K = {K}", "SIB", shots, sib_score(records)))
    for (shots, K), records in results.inductive.items():
        rows.append((f"inductive SIB (MAML), K = {K}", "inductive", shots, sib_score(records)))
    for (name, shots), record in results.rivals.items():
        kind = "transductive" if BASELINES[name].transductive else "inductive"
        rows.append((BASELINES[name].title, kind, shots, metric(record, "balanced")))
    flat = [(method, kind, shots, score.mean, score.ci95) for method, kind, shots, score in rows]
    return pd.DataFrame(flat, columns=["method", "kind", "shots", "mean", "ci95"])


def sib_against(results: Results, K: int) -> pd.DataFrame:
    """SIB with K steps minus each other method on the same tasks, in points, with the interval of the difference."""
    rows: dict[str, dict[str, Any]] = {}
    for (name, shots), record in results.rivals.items():
        seeds = results.sib.get((shots, K))
        tasks = record.arrays["balanced"]
        if seeds and seeds[0].params["test_episodes"] >= len(tasks):
            ours = right(seeds, f"best/{shots}shot")[:, : len(tasks)]
            score = paired(tasks, ours, queries(record))
            row = rows.setdefault(BASELINES[name].title, {"transductive": BASELINES[name].transductive})
            row |= {f"{shots}-shot": score.mean, f"{shots}-shot ±": score.ci95}
    return pd.DataFrame(rows).T.rename_axis("method")


def rival_table(rivals: Mapping[tuple[str, int], Record]) -> pd.DataFrame:
    """Each rival: what it sees, what it was given on validation classes, how accurate and how fast it is."""
    rows = {}
    for (name, shots), record in rivals.items():
        cls, metrics = BASELINES[name], record.metrics
        rows[cls.title, shots] = {
            "from": cls.paper,
            "transductive": cls.transductive,
            "trained": cls.trained,
            "options": ", ".join(f"{key} = {value}" for key, value in metrics["options"].items()),
            "accuracy": str(metric(record, "balanced")),
            "tasks per second": round(metrics["episodes_per_second"]),
        }
    return pd.DataFrame(rows).T.rename_axis(["method", "shots"])


def balance_scores(results: Results, K: int = 3) -> pd.DataFrame:
    """Balanced and unbalanced queries, 1-shot: method, sib (or not), balanced, unbalanced and their ..._ci95."""
    names = ("balanced", "unbalanced")
    shown = {(BASELINES[name].title, False): record for (name, shots), record in results.rivals.items() if shots == 1}
    kinds = {f"SIB, K = {k}": results.sib.get((1, k), []) for k in (0, K)}
    kinds |= {f"SIB, {name}, K = {K}": results.variants.get((name, K), []) for name in BALANCE}
    for label, records in kinds.items():
        if records and records[0].id in results.unbalanced:
            shown[label, True] = results.unbalanced[records[0].id]
    keys = [key for name in names for key in (name, f"{name}_ci95")]
    rows = [{"method": name, "sib": sib} | {key: r.metrics[key] for key in keys} for (name, sib), r in shown.items()]
    return pd.DataFrame(rows)


def literature_table(results: Results) -> pd.DataFrame:
    """Our rivals, 1- and 5-shot, beside what publications print for the same method."""
    ours = {
        name: {
            "title": cls.title,
            **{
                f"ours, {shots}-shot": str(metric(results.rivals[name, shots], "balanced"))
                for shots in (1, 5)
                if (name, shots) in results.rivals
            },
        }
        for name, cls in BASELINES.items()
    }
    printed = paper.literature()
    printed["printed, 1 / 5 shots"] = printed["one_shot"].astype(str) + " / " + printed["five_shot"].astype(str)
    both = pd.DataFrame(ours).T.join(printed.set_index("method"), how="left").set_index("title").rename_axis("method")
    both = both.rename(columns={"dataset": "on", "backbone": "network", "source": "read in"}).fillna("")
    shown = [name for name in ("ours, 1-shot", "ours, 5-shot") if name in both]
    return both[[*shown, "printed, 1 / 5 shots", "on", "network", "read in"]]


def order_table(results: Results) -> pd.DataFrame:
    """How much the order of the classes matters to each SIB that was tried: accuracies, and answers that change."""
    names = ["orders/lowest", "orders/highest", "averaged", "orders/changed"]
    kinds = {f"SIB, K = {K}": records for (shots, K), records in results.sib.items() if shots == 1}
    kinds |= {f"SIB, {name}, K = {K}": records for (name, K), records in results.variants.items()}
    rows = {}
    for label, records in kinds.items():
        tried = results.unbalanced.get(records[0].id)
        if tried and names[0] in tried.metrics:
            rows[label] = {name: tried.metrics[name] for name in names}
    return pd.DataFrame(rows, index=names).T.round(2)


def variant_scores(results: Results, *variants: str, K: int = 3) -> dict[str, Score]:
    """1-shot scores of K = 0, of SIB, and of these variants."""
    scores = {f"SIB, K = {k}": sib_score(results.sib[1, k]) for k in (0, K) if (1, k) in results.sib}
    there = [name for name in variants if (name, K) in results.variants]
    return scores | {f"SIB, {name}": sib_score(results.variants[name, K]) for name in there}


def order_scores(results: Results, K: int = 3) -> dict[str, Score]:
    """1-shot scores of one order of the classes, of probabilities averaged over orders, and of an equivariant xi."""
    scores = variant_scores(results, "equivariant ξ", K=K)
    for record in results.sib.get((1, K), [])[:1]:
        if record.id in results.unbalanced:
            scores["averaged over ten orders"] = metric(results.unbalanced[record.id], "averaged")
    return scores


def reasons(results: Results, K: int = 3) -> dict[str, Score]:
    """1-shot scores of the paper's SIB, of ours, and of ours with one thing changed."""
    printed = paper.few_shot().query(
        "dataset == 'cifar-fs' and backbone == 'conv4-64' and shots == 1 and method == 'SIB'"
    )
    scores = {f"paper, K = {row.K}": Score(row.value, row.ci95) for row in printed.itertuples() if row.K in (0, K)}
    scores |= {f"ours, K = {k}": sib_score(results.sib[1, k]) for k in (0, K) if (1, k) in results.sib}
    changed = [(WEAK_START, 0), *((name, K) for name in REASONS)]
    return scores | {
        f"{name}, K = {k}": sib_score(results.variants[name, k]) for name, k in changed if (name, k) in results.variants
    }


def gains(results: Results, K: int = 3) -> dict[int, Score]:
    """What K steps add to none, by shots, on the same tasks."""
    return {
        shots: gain(results.sib[shots, 0], results.sib[shots, K])
        for shots in (1, 5)
        if {(shots, 0), (shots, K)} <= set(results.sib)
    }


def _row(p: Mapping[str, Any], score: Score, records: Sequence[Record]) -> dict[str, Any]:
    return {
        **{name: p[name] for name in ("dataset", "backbone", "shots")},
        **{"ours": score.mean, "ours_ci95": score.ci95, "episodes": p["test_episodes"], "seeds": len(records)},
        **{"run": named(records)},
    }
