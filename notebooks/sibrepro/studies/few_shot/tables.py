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

Runs = Mapping[tuple[int, int], list[Record]]  # By (shots, K), one run of each seed.
# The variants of SIB that are compared on balanced and unbalanced queries.
BALANCE = ("running statistics", "no statistics", "equivariant ξ", "trained unbalanced")
STEPS = 3  # The number of synthetic gradient steps K that the studies compare with K = 0.


@functools.cache
def table() -> pd.DataFrame:
    """Return Table 1 with every number of the paper and, beside it, every number of ours."""
    return tables.few_shot(table_rows())


def cite(origin: str, *words: str) -> float:
    """Return one of our numbers in Table 1, for the README and the documents.

    Args:
        origin: the image set and the backbone, such as "cifar-fs/conv4-64".
        words: the words of the method's name, K ("-" for a method without K), the number of shots, and the column.
    """
    *method, K, shots, column = words
    cells = table().dropna(subset="ours").set_index(["dataset", "backbone", "method", "shots"])
    cells = cells.loc[[(*origin.split("/"), " ".join(method), int(shots))]]
    if K != "-":
        cells = cells[cells["K"] == int(K)]
    return cells[column].item()


def table_rows() -> pd.DataFrame:
    """Return our published numbers as rows for `tables.few_shot`: one row a setting, averaged over its seeds.

    SIB in all its kinds comes first, then the rivals, which have neither K nor η.
    """
    rows = []
    for origin in ORIGINS:
        results = published(*origin)
        for (method, shots, K), records in trained(results).items():
            p = records[0].params
            setting = {"transductive": p["transductive"] and K > 0, "K": K, "eta": p["eta"], "shots": shots}
            rows.append(tables.row(records, sib_score(records), method=method, **setting))
        for (name, shots), record in results.rivals.items():
            rival, score = BASELINES[name], metric(record, "balanced")
            rows.append(tables.row([record], score, method=rival.title, transductive=rival.transductive, shots=shots))
    columns = [*tables.FEW_SHOT, *tables.OURS, "episodes", "seeds", "run"]
    order = ["dataset", "backbone", "method", "K", "eta", "shots"]
    return pd.DataFrame(rows, columns=columns).sort_values(order, kind="stable", ignore_index=True)


def trained(results: FewShotRuns) -> dict[tuple[str, int, int], Sequence[Record]]:
    """Return the runs of every kind of SIB by (method, shots, K), where the method is its name in Table 1.

    Args:
        results: the published runs of one image set and backbone.
    """
    kinds = {"SIB": results.sib, "inductive SIB": results.inductive, "SIB, rotation": results.rotation}
    found = {(method, *key): records for method, runs in kinds.items() for key, records in runs.items()}
    for (name, K), records in results.variants.items():
        found[f"SIB, {name}", 1, K] = records
    return found


def method_scores(results: FewShotRuns) -> pd.DataFrame:
    """Return the accuracy of every method on the same features and tasks.

    Args:
        results: the published runs of one image set and backbone.

    Returns:
        a row for each method and number of shots, with the columns method, kind ("SIB", "transductive" or "inductive"),
        shots, mean and ci95, both in percent.
    """
    rows = [(f"SIB, K = {K}", "SIB", shots, *sib_score(records)) for (shots, K), records in results.sib.items()]
    for (shots, K), records in results.inductive.items():
        rows.append((f"inductive SIB (MAML), K = {K}", "inductive", shots, *sib_score(records)))
    for (name, shots), record in results.rivals.items():
        kind = "transductive" if BASELINES[name].transductive else "inductive"
        rows.append((BASELINES[name].title, kind, shots, *metric(record, "balanced")))
    return pd.DataFrame(rows, columns=["method", "kind", "shots", "mean", "ci95"])


def balance_scores(results: FewShotRuns) -> pd.DataFrame:
    """Return the 1-shot accuracy of every method on balanced and on unbalanced queries.

    Args:
        results: the published runs of one image set and backbone.

    Returns:
        a row for each method, with the columns method; balanced and unbalanced, each with its ..._ci95, in percent; and
        sib, whether the method is a SIB.
    """
    rows = []
    for (name, shots), record in results.rivals.items():
        if shots == 1:
            rows.append({"method": BASELINES[name].title, "sib": False, **record.metrics})
    found = tried(results)
    for name in ("SIB, K = 0", f"SIB, K = {STEPS}", *(f"SIB, {variant}, K = {STEPS}" for variant in BALANCE)):
        if name in found:
            rows.append({"method": name, "sib": True, **found[name].metrics})
    columns = ["method", "balanced", "balanced_ci95", "unbalanced", "unbalanced_ci95", "sib"]
    return pd.DataFrame(rows, columns=columns)


def variant_scores(results: FewShotRuns, *variants: str) -> dict[str, Score]:
    """Return the 1-shot scores of SIB with K = 0 and K = 3, and of these variants of it with K = 3.

    Args:
        results: the published runs of one image set and backbone.
        variants: names of variants, keys of `plan.VARIANTS`.
    """
    found = {f"SIB, K = {K}": results.sib.get((1, K)) for K in (0, STEPS)}
    return _scores(found | {f"SIB, {name}": results.variants.get((name, STEPS)) for name in variants})


def order_scores(results: FewShotRuns) -> dict[str, Score]:
    """Return 1-shot scores that show how much the order of the classes matters to SIB.

    These are SIB under one order, SIB with an equivariant ξ, and SIB with probabilities averaged over several orders.
    """
    scores, found = variant_scores(results, "equivariant ξ"), tried(results)
    if f"SIB, K = {STEPS}" in found:
        scores["averaged over ten orders"] = metric(found[f"SIB, K = {STEPS}"], "averaged")
    return scores


def reasons(results: FewShotRuns) -> dict[str, Score]:
    """Return the 1-shot scores of the paper's SIB, of ours, and of ours with one thing changed.

    Our SIB is more accurate than the paper's. Each change is a possible reason for that.

    Args:
        results: the published runs of one image set and backbone.
    """
    printed = paper.few_shot().query(
        "dataset == 'cifar-fs' and backbone == 'conv4-64' and shots == 1 and method == 'SIB' and K in (0, @STEPS)"
    )
    scores = {f"paper, K = {row.K}": Score(row.value, row.ci95) for row in printed.itertuples()}
    found = {f"ours, K = {K}": results.sib.get((1, K)) for K in (0, STEPS)}
    for name, K in [(WEAK_START, 0), *((name, STEPS) for name in REASONS)]:
        found[f"{name}, K = {K}"] = results.variants.get((name, K))
    return scores | _scores(found)


def gains(results: FewShotRuns, K: int = STEPS) -> dict[int, Score]:
    """Return how many points K steps add to K = 0 on the same tasks, by the number of shots.

    Args:
        results: the published runs of one image set and backbone.
        K: the number of steps.
    """
    return {shots: gain(*pair) for shots, pair in _pairs(results.sib, K).items()}


def network_gains() -> pd.DataFrame:
    """Return what three steps add to K = 0, for every image set, backbone and number of shots.

    Columns: whose ("ours" or "paper"), dataset, backbone, shots, start (the accuracy at K = 0), gain, and ci95 of the
    gain, which the paper does not print.
    """
    rows = []
    for dataset, backbone in ORIGINS:
        results = published(dataset, backbone)
        weak = {(1, K): records for (name, K), records in results.variants.items() if name == WEAK_START}
        for name, runs in {backbone: results.sib, f"{backbone}, {WEAK_START}": weak}.items():
            for shots, (before, after) in _pairs(runs, STEPS).items():
                rows.append(("ours", dataset, name, shots, sib_score(before).mean, *gain(before, after)))
    printed = paper.few_shot().query("method == 'SIB' and K in (0, @STEPS)").dropna(subset="value")
    for setting, part in printed.groupby(["dataset", "backbone", "shots"]):
        before, after = part.sort_values("K")["value"]
        rows.append(("paper", *setting, before, after - before, float("nan")))
    return pd.DataFrame(rows, columns=["whose", "dataset", "backbone", "shots", "start", "gain", "ci95"])


def tried(results: FewShotRuns) -> dict[str, Record]:
    """Return the 1-shot runs on unbalanced queries and other orders of the classes, by the name of their SIB."""
    found = {}
    for (method, shots, K), records in trained(results).items():
        if shots == 1 and records[0].id in results.unbalanced:
            found[f"{method}, K = {K}"] = results.unbalanced[records[0].id]
    return found


def _pairs(runs: Runs, K: int) -> dict[int, tuple[list[Record], list[Record]]]:
    """Return the runs with K = 0 and with K steps, by the number of shots, where both are published."""
    both = [shots for shots in SHOTS if (shots, 0) in runs and (shots, K) in runs]
    return {shots: (runs[shots, 0], runs[shots, K]) for shots in both}


def _scores(found: Mapping[str, Sequence[Record] | None]) -> dict[str, Score]:
    """Return the score of each label that has published runs."""
    return {label: sib_score(records) for label, records in found.items() if records}
