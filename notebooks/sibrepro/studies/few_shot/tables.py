"""The tables of notebook 03, as data frames made of published runs, and those of the notebook's own runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sibrepro import paper, tables
from sibrepro.facts import Record
from sibrepro.meta_training.runs import gain, queries, sib_score
from sibrepro.rivals import BASELINES
from sibrepro.statistics import Score, metric, paired, right
from sibrepro.studies.few_shot.compression import JPEG
from sibrepro.studies.few_shot.plan import (
    BACKBONES,
    ORIGINS,
    PLAIN,
    REASONS,
    SHOTS,
    WEAK_START,
    FewShotRuns,
    compressed,
    published,
)

Runs = Mapping[tuple[int, int], list[Record]]  # By (shots, K), one run of each seed.
# The variants of SIB that are compared on balanced and unbalanced queries.
BALANCE = ("running statistics", "no statistics", "equivariant ξ", "trained unbalanced")
STEPS = 3  # The number of synthetic gradient steps K that the studies compare with K = 0.


@functools.cache
def table() -> pd.DataFrame:
    """Return Table 1 with every number of the paper and, beside it, every number of ours."""
    return tables.few_shot(table_rows())


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


def table_1() -> dict[str, pd.DataFrame]:
    """Return Table 1 for reading, by backbone: the paper's methods and SIB, each cell with the paper's number and ours.

    The other methods that we ran on our features have a comparison of their own, and the variants of SIB their figures.
    """
    cells = table()
    shown = cells[cells["paper"].notna() | cells["method"].eq("SIB")]
    parts = tables.wide(shown).groupby("backbone", sort=False)
    by_backbone = {backbone: part.drop(columns="backbone") for backbone, part in parts}
    for part in by_backbone.values():
        if not part["to measure"].any():
            part.pop("to measure")
    return by_backbone


def this_run(runs: Runs) -> pd.DataFrame:
    """Return the accuracies of the notebook's own runs, a row for each (shots, K), and the gain over K = 0.

    Args:
        runs: the runs by (shots, K), one of each seed.
    """
    rows = {}
    for (shots, K), records in runs.items():
        p, before = records[0].params, runs.get((shots, 0))
        rows[shots, K] = {
            "test accuracy (%)": str(sib_score(records)),
            "gain over K = 0 (points)": str(gain(before, records)) if K and before else "",
            "meta-training steps": p["steps"],
            "test episodes": p["test_episodes"],
            "seeds": len(records),
        }
    return _frame(rows, "shots", "K")


def seeds(results: FewShotRuns) -> pd.DataFrame:
    """Return how much the accuracy of SIB depends on the checkpoint and on the seed, in percent, by (shots, K).

    Columns: the mean over seeds of the checkpoint that was best on validation classes, and of the last one; the lowest
    and the highest seed of the best; and the 95 % interval of one seed over test episodes.

    Args:
        results: the published runs of one image set and backbone.
    """
    rows = {}
    for (shots, K), records in results.sib.items():
        best, last = ([r.metrics[f"{name}/{shots}shot"] for r in records] for name in ("best", "last"))
        rows[shots, K] = {
            "best checkpoint": np.mean(best),
            "last checkpoint": np.mean(last),
            "lowest seed": min(best),
            "highest seed": max(best),
            "± over episodes": records[0].metrics[f"best/{shots}shot_ci95"],
        }
    return _frame(rows, "shots", "K").round(2)


def averaging() -> pd.DataFrame:
    """Return what averaged features change on mini-ImageNet, 1-shot: K = 0, and the gain of three steps."""
    rows = {}
    for backbone in BACKBONES:
        results = published("mini-imagenet", backbone)
        kinds = {
            "averaged": [results.sib.get((1, K)) for K in (0, STEPS)],
            "not averaged": [results.variants.get((PLAIN, K)) for K in (0, STEPS)],
        }
        for kind, (before, after) in kinds.items():
            if before and after:
                rows[backbone, kind] = {
                    "K = 0 (%)": str(sib_score(before)),
                    "gain of three steps (points)": str(gain(before, after)),
                    "seeds": len(before),
                }
    return _frame(rows, "backbone", "features")


def method_scores(results: FewShotRuns) -> pd.DataFrame:
    """Return the accuracy of every method on the same features and tasks.

    Args:
        results: the published runs of one image set and backbone.

    Returns:
        a row for each method and number of shots, with the columns method, kind ("transductive" or "inductive"; SIB
        without steps is inductive), shots, mean and ci95, both in percent.
    """
    rows = []
    for (shots, K), records in results.sib.items():
        rows.append((f"SIB, K = {K}", "transductive" if K else "inductive", shots, *sib_score(records)))
    for (shots, K), records in results.inductive.items():
        rows.append((f"inductive SIB (MAML), K = {K}", "inductive", shots, *sib_score(records)))
    for (name, shots), record in results.rivals.items():
        kind = "transductive" if BASELINES[name].transductive else "inductive"
        rows.append((BASELINES[name].title, kind, shots, *metric(record, "balanced")))
    return pd.DataFrame(rows, columns=["method", "kind", "shots", "mean", "ci95"])


def comparison(results: FewShotRuns) -> pd.DataFrame:
    """Return every other method beside SIB with three steps, on the same features and test episodes.

    Columns: where the method is from; whether it is transductive; for each number of shots its accuracy in percent, and
    how many points SIB is ahead of it, paired by episode; and how many 1-shot episodes it answers in a second.

    Args:
        results: the published runs of one image set and backbone.
    """
    rows: dict[str, dict[str, object]] = {}
    for (name, shots), record in results.rivals.items():
        method = BASELINES[name]
        origin = {"from": method.paper, "transductive": tables.readable(method.transductive)}
        row = rows.setdefault(method.title, origin)
        row[f"{shots}-shot (%)"] = str(metric(record, "balanced"))
        if (shots, STEPS) in results.sib:
            sib = right(results.sib[shots, STEPS], f"best/{shots}shot")
            row[f"SIB ahead, {shots}-shot"] = _signed(paired(record.arrays["balanced"], sib, queries(record)))
        if shots == 1:
            row["episodes per second"] = f"{record.metrics['episodes_per_second']:,.0f}"
    return _frame(rows, "method").fillna("")


def literature() -> pd.DataFrame:
    """Return what other publications print for these methods, with their own backbones: accuracies in percent.

    Numbers that the SIB paper itself prints are left out, because Table 1 shows them.
    """
    printed = paper.literature().replace({"method": {name: cls.title for name, cls in BASELINES.items()}})
    printed = printed[~printed["source"].str.contains("(SIB)", regex=False)]
    names = {"one_shot": "1-shot", "five_shot": "5-shot", "source": "printed in"}
    return printed.replace({"dataset": tables.DATASETS}).rename(columns=names).set_index("method")


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


def balance(results: FewShotRuns) -> pd.DataFrame:
    """Return the gain of SIB and of its variants over K = 0, 1-shot, on balanced and on unbalanced queries, in points.

    Args:
        results: the published runs of one image set and backbone.
    """
    found = tried(results)
    start = found["SIB, K = 0"]
    rows = {}
    for name in (f"SIB, K = {STEPS}", *(f"SIB, {variant}, K = {STEPS}" for variant in BALANCE)):
        if name in found:
            rows[name] = {
                f"gain on {kind} queries": _signed(paired(start.arrays[kind], found[name].arrays[kind], queries(start)))
                for kind in ("balanced", "unbalanced")
            }
    return pd.DataFrame(rows).T


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


def orders(results: FewShotRuns) -> pd.DataFrame:
    """Return how SIB with three steps depends on the order of the classes, 1-shot: accuracies in percent.

    Columns: the lowest and the highest of ten orders, the accuracy of their averaged probabilities, and the share of
    queries whose answer depends on the order.

    Args:
        results: the published runs of one image set and backbone.
    """
    names = {
        "orders/lowest": "lowest order",
        "orders/highest": "highest order",
        "averaged": "averaged over orders",
        "orders/changed": "answers that change (%)",
    }
    kinds = (f"SIB, K = {STEPS}", *(f"SIB, {variant}, K = {STEPS}" for variant in BALANCE))
    found = {kind: record.metrics for kind, record in tried(results).items() if kind in kinds}
    return (
        pd.DataFrame(found, index=list(names))
        .T.reindex([kind for kind in kinds if kind in found])
        .rename(columns=names)
        .round(2)
    )


def jpeg() -> pd.DataFrame:
    """Return the 1-shot accuracy on test images as they are and as JPEG, and the paper's number, by K."""
    printed = _printed_sib("cifar-fs", "conv4-64", 1)
    rows = {}
    for record in compressed(JPEG):
        K = record.params["K"]
        names = {"original": "original images", "jpeg95": "JPEG, quality 95", "jpeg75": "JPEG, quality 75"}
        rows[f"K = {K}"] = {title: str(metric(record, name)) for name, title in names.items()} | {
            "paper": str(printed[K])
        }
    return pd.DataFrame(rows).T


def reasons(results: FewShotRuns) -> dict[str, Score]:
    """Return the 1-shot scores of the paper's SIB, of ours, and of ours with one thing changed.

    Our SIB is more accurate than the paper's. Each change is a possible reason for that.

    Args:
        results: the published runs of one image set and backbone.
    """
    printed = _printed_sib("cifar-fs", "conv4-64", 1)
    scores = {f"paper, K = {K}": printed[K] for K in (0, STEPS)}
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


def gains_by_backbone(backbones: Sequence[str] = (*BACKBONES, "wrn-16-2", "wrn-28-10")) -> pd.DataFrame:
    """Return what SIB and PT-MAP each add to their start, in points, on CIFAR-FS, by (shots, backbone).

    The last column tells how easy the training episodes are: the accuracy of K = 0 on them at the end, in percent.

    Args:
        backbones: the backbones that are shown, if their runs are published.
    """
    rows = {}
    for backbone in backbones:
        results = published("cifar-fs", backbone)
        for shots, (before, after) in _pairs(results.sib, STEPS).items():
            start, transport = (results.rivals.get((name, shots)) for name in ("nearest-centroid", "pt-map"))
            if start and transport:
                ahead = paired(start.arrays["balanced"], transport.arrays["balanced"], queries(start))
                easy = np.mean([record.arrays["accuracy"][-1] for record in before])
                rows[f"{shots}-shot", backbone] = {
                    "SIB, three steps over none": str(gain(before, after)),
                    "PT-MAP over nearest centroid": str(ahead),
                    "accuracy on training episodes, K = 0 (%)": f"{100 * easy:.1f}",
                }
    return _frame(rows, "shots", "backbone").sort_index(level=0, sort_remaining=False)


def rotation(results: FewShotRuns) -> pd.DataFrame:
    """Return SIB on a backbone that also learned rotations, beside SIB on the usual one: a row for each shots and K.

    Accuracies are in percent; the difference, paired by episode and seed, is in points. The last column has the number
    that Table 1 prints for Gidaris et al., who use such a backbone without steps.

    Args:
        results: the published runs of one image set and backbone.
    """
    printed = paper.few_shot().query("method == 'Gidaris et al.' and backbone == 'conv4-64' and dataset == 'cifar-fs'")
    printed, rows = printed.set_index("shots"), {}
    for (shots, K), turned in results.rotation.items():
        if (shots, K) in results.sib:
            usual, theirs = results.sib[shots, K], Score(*printed.loc[shots, ["value", "ci95"]])
            rows[shots, K] = {
                "without rotations (%)": str(sib_score(usual)),
                "with rotations (%)": str(sib_score(turned)),
                "difference (points)": _signed(gain(usual, turned)),
                "Gidaris et al. (%)": str(theirs) if K == 0 else "",
            }
    return _frame(rows, "shots", "K")


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


def _printed_sib(dataset: str, backbone: str, shots: int) -> dict[int, Score]:
    """Return the numbers of SIB in the paper's Table 1, by K."""
    rows = paper.few_shot().query("dataset == @dataset and backbone == @backbone and shots == @shots")
    return {int(row.K): Score(row.value, row.ci95) for row in rows.query("method == 'SIB'").itertuples()}


def _frame(rows: Mapping[Any, Mapping[str, Any]], *names: str) -> pd.DataFrame:
    """Return a table of rows by their index, whose levels have these names. There may be no rows."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    if frame.empty:
        return frame
    return frame.rename_axis([*names])


def _signed(score: Score) -> str:
    """Return a difference in points as a text, such as "+10.35 ± 0.22"."""
    return f"{round(score.mean, 2) + 0.0:+.2f} ± {score.ci95:.2f}".replace("-", "−")
