"""The tables of notebook 03, as data frames made of published runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import pandas as pd

from sibrepro import paper, tables
from sibrepro.facts import Record
from sibrepro.meta_training.runs import gain, sib_score
from sibrepro.rivals import BASELINES
from sibrepro.statistics import Score, metric
from sibrepro.studies.few_shot.plan import ORIGINS, REASONS, SHOTS, WEAK_START, FewShotRuns, published

BALANCE = ("running statistics", "no statistics", "equivariant ξ", "trained unbalanced")  # of the variants
STEPS = 3  # of SIB, where it is studied


@functools.cache
def table() -> pd.DataFrame:
    """Table 1: every number of the paper's, and every number of ours."""
    return tables.few_shot(table_rows())


def cite(origin: str, *words: str) -> float:
    """A cell of Table 1: "cifar-fs/conv4-64", the words of a method, K ("-" where it has none), shots, a column."""
    dataset, backbone = origin.split("/")
    *of_method, K, shots, column = words
    method = " ".join(of_method)
    rows = table().dropna(subset="ours")
    rows = rows[(rows["dataset"] == dataset) & (rows["backbone"] == backbone)]
    rows = rows[(rows["method"] == method) & (rows["shots"] == int(shots))]
    (value,) = (rows if K == "-" else rows[rows["K"] == int(K)])[column]
    return value


def table_rows() -> pd.DataFrame:
    """Return everything published, for `tables.few_shot`: one row for each setting, seeds together."""
    rows = []
    for results in (published(*origin) for origin in ORIGINS):
        for (method, shots, K), records in trained(results).items():
            p = records[0].params
            setting = {"transductive": p["transductive"] and K > 0, "K": K, "eta": p["eta"], "shots": shots}
            rows.append(tables.row(records, sib_score(records), method=method, **setting))
        for (name, shots), record in results.rivals.items():
            cls, score = BASELINES[name], metric(record, "balanced")
            rows.append(tables.row([record], score, method=cls.title, transductive=cls.transductive, shots=shots))
    columns = [*tables.FEW_SHOT, *tables.OURS, "episodes", "seeds", "run"]
    order = ["dataset", "backbone", "method", "K", "eta", "shots"]
    return pd.DataFrame(rows, columns=columns).sort_values(order, kind="stable", ignore_index=True)


def trained(results: FewShotRuns) -> dict[tuple[str, int, int], Sequence[Record]]:
    """Return all SIBs by (method, shots, K)."""
    kinds = {("SIB", *key): records for key, records in results.sib.items()}
    kinds |= {("inductive SIB", *key): records for key, records in results.inductive.items()}
    kinds |= {("SIB, rotation", *key): records for key, records in results.rotation.items()}
    return kinds | {(f"SIB, {name}", 1, K): records for (name, K), records in results.variants.items()}


def method_scores(results: FewShotRuns) -> pd.DataFrame:
    """All methods on equal features: method, kind, shots, mean, ci95."""
    rows = [(f"SIB, K = {K}", "SIB", shots, *sib_score(found)) for (shots, K), found in results.sib.items()]
    for (shots, K), records in results.inductive.items():
        rows.append((f"inductive SIB (MAML), K = {K}", "inductive", shots, *sib_score(records)))
    for (name, shots), record in results.rivals.items():
        kind = "transductive" if BASELINES[name].transductive else "inductive"
        rows.append((BASELINES[name].title, kind, shots, *metric(record, "balanced")))
    return pd.DataFrame(rows, columns=["method", "kind", "shots", "mean", "ci95"])


def balance_scores(results: FewShotRuns) -> pd.DataFrame:
    """Balanced and unbalanced queries, 1-shot: method, sib (or not), balanced, unbalanced and their ..._ci95."""
    found = tried(results)
    kinds = ["SIB, K = 0", f"SIB, K = {STEPS}", *(f"SIB, {name}, K = {STEPS}" for name in BALANCE)]
    shown = {BASELINES[name].title: record for (name, shots), record in results.rivals.items() if shots == 1}
    shown |= {kind: found[kind] for kind in kinds if kind in found}
    keys = ["balanced", "balanced_ci95", "unbalanced", "unbalanced_ci95"]
    table = pd.DataFrame({method: record.metrics for method, record in shown.items()}, index=keys).T.astype(float)
    return table.rename_axis("method").reset_index().assign(sib=lambda table: table["method"].isin(kinds))


def variant_scores(results: FewShotRuns, *variants: str) -> dict[str, Score]:
    """1-shot scores of K = 0, of SIB, and of these variants."""
    found = {f"SIB, K = {K}": results.sib.get((1, K)) for K in (0, STEPS)}
    return _scores(found | {f"SIB, {name}": results.variants.get((name, STEPS)) for name in variants})


def order_scores(results: FewShotRuns) -> dict[str, Score]:
    """1-shot scores of one order of the classes, of probabilities averaged over orders, and of an equivariant xi."""
    scores, found = variant_scores(results, "equivariant ξ"), tried(results).get(f"SIB, K = {STEPS}")
    return scores | ({"averaged over ten orders": metric(found, "averaged")} if found else {})


def reasons(results: FewShotRuns) -> dict[str, Score]:
    """1-shot scores of the paper's SIB, of ours, and of ours with one thing changed."""
    printed = paper.few_shot().query(
        "dataset == 'cifar-fs' and backbone == 'conv4-64' and shots == 1 and method == 'SIB'"
    )
    scores = {f"paper, K = {row.K}": Score(row.value, row.ci95) for row in printed.itertuples() if row.K in (0, STEPS)}
    found = {f"ours, K = {K}": results.sib.get((1, K)) for K in (0, STEPS)}
    changed = [(WEAK_START, 0), *((name, STEPS) for name in REASONS)]
    return scores | _scores(found | {f"{name}, K = {K}": results.variants.get((name, K)) for name, K in changed})


def gains(results: FewShotRuns, K: int = STEPS) -> dict[int, Score]:
    """What K steps add to none, by shots, on the same tasks."""
    return {shots: gain(*pair) for shots, pair in _pairs(results.sib, K).items()}


def _pairs(runs: Mapping[tuple[int, int], list[Record]], K: int) -> dict[int, tuple[list[Record], list[Record]]]:
    """Runs without and with K steps, by shots, where there are both."""
    return {shots: (runs[shots, 0], runs[shots, K]) for shots in SHOTS if {(shots, 0), (shots, K)} <= set(runs)}


def network_gains() -> pd.DataFrame:
    """What three steps add to the accuracy at K = 0, of every network, data set and number of shots.

    Columns: whose ("ours" or "paper"), dataset, backbone, shots, start, gain, ci95 (ours on the same tasks; the paper
    has none).
    """
    rows = []
    for dataset, backbone in ORIGINS:
        results = published(dataset, backbone)
        weak = {(1, K): records for (name, K), records in results.variants.items() if name == WEAK_START}
        for name, runs in {backbone: results.sib, f"{backbone}, {WEAK_START}": weak}.items():
            for shots, pair in _pairs(runs, STEPS).items():
                rows.append(("ours", dataset, name, shots, sib_score(pair[0]).mean, *gain(*pair)))
    printed = paper.few_shot().query("method == 'SIB' and K in (0, @STEPS)").dropna(subset="value")
    for origin, part in printed.groupby(["dataset", "backbone", "shots"]):
        before, after = part.sort_values("K")["value"]
        rows.append(("paper", *origin, before, after - before, float("nan")))
    return pd.DataFrame(rows, columns=["whose", "dataset", "backbone", "shots", "start", "gain", "ci95"])


def tried(results: FewShotRuns) -> dict[str, Record]:
    """What was tried on unbalanced queries and in other orders, on one shot, by the name of its SIB."""
    kinds = {f"{method}, K = {K}": runs[0].id for (method, shots, K), runs in trained(results).items() if shots == 1}
    return {kind: results.unbalanced[name] for kind, name in kinds.items() if name in results.unbalanced}


def _scores(found: Mapping[str, Sequence[Record] | None]) -> dict[str, Score]:
    """Of what there is."""
    return {label: sib_score(records) for label, records in found.items() if records}
