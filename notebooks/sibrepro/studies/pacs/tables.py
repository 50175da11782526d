"""The tables of notebook 05, made from runs: scores, paired differences, and the paper's numbers next to ours."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sibcore.adapt import METHODS
from sibcore.datasets.pacs import CLASSES, DOMAINS
from sibrepro import paper, statistics, tables
from sibrepro.facts import Record, flat
from sibrepro.statistics import Score, over_seeds
from sibrepro.studies.pacs import banks, plan
from sibrepro.studies.pacs.plan import FINE_TUNED, RIVALS, SECOND_STAGE, Scores, name_of, published
from sibrepro.studies.pacs.second_stage import chosen_variant, variant_accuracy

AVERAGE = "average"  # over the four targets
ByTarget = Mapping[str, Sequence[Record]]  # the runs of a method: one run of each seed for every target

# Methods to compare, before and after.
PAIRS = [
    (("source-only", 0), ("Rot", 0)),
    (("Rot", 0), ("SIB", 1)),
    (("Rot", 0), ("SIB", 3)),
    (("Rot", 0), ("SIB", 5)),
    (("Rot", 0), ("SIB-Rot", 0)),
    (("SIB-Rot", 0), ("SIB-Rot", 3)),
    (("SIB", 3), ("SIB-Rot", 3)),
    (("source-only", 0), ("SIB-Rot", 3)),
]


def correct(records: Sequence[Record], predictions: str = "predicted") -> np.ndarray:
    """Tell whether each target image was classified rightly, bool `[S, N]`: one row for each seed."""
    return np.stack([record.arrays[predictions] == record.arrays["labels"] for record in records])


def score(records: Sequence[Record], predictions: str = "predicted") -> Score:
    """Return the accuracy on one target, with an interval over images and seeds."""
    return over_seeds(correct(records, predictions), 1)


def gain(before: Sequence[Record], after: Sequence[Record]) -> Score:
    """Return how many points `after` is better on the same images, with the seeds that both have."""
    return statistics.gain(before, after, lambda record: correct([record])[0], 1)


def scores(by_target: ByTarget, predictions: str = "predicted") -> dict[str, Score]:
    """Return the accuracy on each target and on average."""
    return _with_average({target: score(records, predictions) for target, records in by_target.items()})


def gains(before: ByTarget, after: ByTarget) -> dict[str, Score]:
    """Return the `gain` on each target that both have, and on average."""
    both = [target for target in DOMAINS if target in before and target in after]
    return _with_average({target: gain(before[target], after[target]) for target in both})


def _with_average(found: dict[str, Score]) -> dict[str, Score]:
    """Add the average to the numbers of the targets if all four are there.

    Targets have different images and trainings, so that their errors are independent and the variances add up.
    """
    if not set(DOMAINS) <= set(found):
        return found
    mean = float(np.mean([found[domain].mean for domain in DOMAINS]))
    ci95 = math.sqrt(sum(found[domain].ci95 ** 2 for domain in DOMAINS)) / len(DOMAINS)
    return found | {AVERAGE: Score(mean, ci95)}


def class_gains(before: ByTarget, after: ByTarget) -> pd.DataFrame:
    """Return the points gained in each domain (a row) and class (a column), averaged over seeds.

    Where a domain is missing, the values are NaN.
    """
    gained = {}
    for target in set(before) & set(after):
        labels = after[target][0].arrays["labels"]
        difference = correct(after[target]).mean(0) - correct(before[target]).mean(0)
        gained[target] = [100 * difference[labels == label].mean() for label in range(len(CLASSES))]
    return pd.DataFrame(gained, index=CLASSES).T.reindex(DOMAINS)


def confusion(records: Sequence[Record]) -> np.ndarray:
    """Return the share of the images of class i that are taken for class j, `[7, 7]`, over all seeds."""
    labels = np.concatenate([record.arrays["labels"] for record in records])
    predicted = np.concatenate([record.arrays["predicted"] for record in records])
    places = range(len(CLASSES))
    return pd.crosstab(labels, predicted, normalize="index").reindex(places, columns=places, fill_value=0).to_numpy()


def table(found: Mapping[str, Scores]) -> pd.DataFrame:
    """Return a row for each number, with the paper's and ours side by side where target, method and K agree.

    The column "backbone" is that of our number, or the paper's ResNet-18 if we have none. The column "features" tells
    how much of f was trained.
    """
    rows = []
    for features, methods in found.items():
        for (method, K), by_target in methods.items():
            setting = {"method": method, "K": K if "SIB" in method else None, "features": features}
            for target, number in scores(by_target).items():
                behind = flat(by_target) if target == AVERAGE else by_target[target]
                rows.append(tables.row(behind, number, target=target, **setting))
    same, numbers = ["target", "method", "K"], [*tables.OURS, "seeds", "steps", "run"]
    ours = pd.DataFrame(rows, columns=[*same, "backbone", "features", *numbers])
    ours = ours.astype({"K": "Int64", "seeds": "Int64", "steps": "Int64", **dict.fromkeys(tables.OURS, "float64")})
    both = paper.pacs().rename(columns={"value": "paper"})[[*same, "paper"]].merge(ours, on=same, how="outer")
    places = {name: place for place, name in enumerate((*DOMAINS, AVERAGE, "JiGen", *METHODS))}  # in this order
    both = both.fillna({"backbone": "resnet18"}).sort_values(
        [*same, "features"],
        key=lambda column: column.map(places) if column.name in same[:2] else column,
        kind="stable",
        ignore_index=True,
    )
    return both[[*same, "backbone", "features", "paper", *numbers]]


def differences(found: Mapping[str, Scores]) -> pd.DataFrame:
    """Return the gain of each of `PAIRS` in points, by kind of features and target."""
    rows = []
    for features, methods in found.items():
        for before, after in PAIRS:
            for target, number in gains(methods.get(before, {}), methods.get(after, {})).items():
                rows.append((features, name_of(before), name_of(after), target, *number))
    return pd.DataFrame(rows, columns=["features", "before", "after", "target", "gain", "ci95"])


@functools.cache
def _read_once() -> dict[str, Scores]:
    """Return the published runs. They are looked up once for all rows of a table."""
    return published()


def behind_difference(row: Mapping[str, Any]) -> list[Record]:
    """Return the runs behind a row of `differences`: those of both methods, on its target or on all."""
    methods = {name_of(key): by_target for key, by_target in _read_once()[row["features"]].items()}
    targets = DOMAINS if row["target"] == AVERAGE else [row["target"]]
    return [record for side in ("before", "after") for target in targets for record in methods[row[side]][target]]


def reading(methods: Scores) -> pd.DataFrame:
    """Return a table to read, with a row for each method, a column for each target, and cells such as "85.1 ± 0.9"."""
    rows = []
    for key, by_target in methods.items():
        rows.append({"method": name_of(key)} | {target: str(score) for target, score in scores(by_target).items()})
    return pd.DataFrame(rows, columns=["method", *DOMAINS, AVERAGE]).fillna("")


def with_paper(methods: Scores) -> pd.DataFrame:
    """Return a table to read: our accuracies as in `reading`, and below them the paper's."""
    printed = paper.pacs().pivot(index=["method", "K"], columns="target", values="value").reset_index()
    printed["method"] = [
        method if pd.isna(K) else name_of((method, K))
        for method, K in zip(printed["method"], printed["K"], strict=True)
    ]
    places = [*DOMAINS, AVERAGE]
    parts = {
        "ours": reading(methods).set_index("method"),
        "paper": printed.set_index("method")[places].map("{:.1f}".format),
    }
    return pd.concat(parts, names=["", "method"])


def this_run(records: Sequence[Record]) -> pd.DataFrame:
    """Return the mean accuracy (%) of each method on each target, and on average, of the runs of one notebook."""
    rows = []
    for record in records:
        p = record.params
        method = p["method"] if "features" in p else "SIB" if p["K"] else p["network"]
        rows.append(
            {"method": name_of((method, p["K"])), "target": p["target"], "accuracy": record.metrics["accuracy"]}
        )
    found = pd.DataFrame(rows).pivot_table(index="method", columns="target", values="accuracy", sort=False)
    return found.assign(average=found.mean(axis=1))


def chosen_variants(bank: banks.Bank) -> pd.DataFrame:
    """Return for each target the feature variant that its sources choose, and accuracies (%) on these sources."""
    rows = {}
    for target in DOMAINS:
        variant = chosen_variant(bank, target)
        rows[target] = {
            "batch-norm statistics": variant.statistics,
            "mean": variant.centre,
            "weight of ImageNet's features": variant.imagenet,
            "accuracy on the sources (%)": 100 * variant_accuracy(bank, target, variant),
            "sources' statistics and mean, weight 0 (%)": 100 * variant_accuracy(bank, target, banks.FeatureVariant()),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("target")


def ingredients() -> dict[str, dict[str, Score]]:
    """Return the scores by target as one ingredient after another is added, under the labels that a figure shows."""
    found, variants = published(), plan.others(plan.FEATURE_ABLATION)
    main = found["fine-tuned"]
    return {
        "ImageNet's\nfeatures": scores(found["frozen"]["source-only", 0]),
        "+ fine-\ntuning": scores(variants["source-only, sources/sources/0"]),
        "+ domain's\nown mean": scores(variants["source-only, sources/own/0"]),
        "+ feature\nvariant": scores(main["source-only", 0]),
        "+ rotations\n(Rot)": scores(main["Rot", 0]),
        "+ 3 steps\n(SIB)": scores(main["SIB", 3]),
        "+ mini-\nbatches\nof 256": scores(main["SIB", 3], "predicted/256/shuffled"),
    }


def gains_at_test_time() -> dict[str, dict[str, Score]]:
    """Return what SIB, its ablations and other methods gain over the network's own classifier, by target."""
    main, others = published()["fine-tuned"], plan.others(plan.ABLATIONS | plan.RIVALS)
    found = {"SIB, set-aware ξ, K = 3": gains(main["Rot", 0], main["SIB", 3])}
    for name, by_target in others.items():
        title = RIVALS[name].title if name in RIVALS else f"SIB, {name}"
        found[title] = gains(main["source-only" if "source-only" in name else "Rot", 0], by_target)
    return dict(sorted(found.items(), key=lambda item: -item[1][AVERAGE].mean))


def gains_to_read(found: Mapping[str, Mapping[str, Score]]) -> pd.DataFrame:
    """Return gains by method and target as a table with cells such as "+0.89 ± 0.46"."""
    rows = {
        name: {target: f"{score.mean:+.2f} ± {score.ci95:.2f}" for target, score in by_target.items()}
        for name, by_target in found.items()
    }
    return pd.DataFrame(rows).T.rename_axis("method")


def rotation_rates() -> pd.DataFrame:
    """Return for each step size of eq. (ssup) its gain over Rot, averaged over targets, and how many runs chose it."""
    main = published()["fine-tuned"]
    chosen = [record.metrics["turn_rate"] for record in flat(main["SIB-Rot", 0])]
    rows = [{"step size": 0.0, "gain over Rot (points)": "0 (θ⁰ = λ)", "runs that choose it": chosen.count(0.0)}]
    for name, by_target in plan.others(plan.ROTATION_RATES).items():
        rate, gain = plan.ROTATION_RATES[name]["turn_rate"], gains(main["Rot", 0], by_target)[AVERAGE]
        rows.append(
            {
                "step size": rate,
                "gain over Rot (points)": f"{gain.mean:+.2f} ± {gain.ci95:.2f}",
                "runs that choose it": chosen.count(rate),
            }
        )
    return pd.DataFrame(rows).set_index("step size")


def first_stage_search() -> pd.DataFrame:
    """Return the accuracies (%) of short fine-tunings that differ in one setting, on held-out and on unseen images.

    Unseen domains are those without labels; their two accuracies for each network are averaged.
    """
    default, found = plan.SEARCH[0], {}
    for record in FINE_TUNED.facts(plan.SEARCH):
        p, metrics = record.params, record.metrics
        changed = [f"{name} = {p[name]:g}" for name in ("peak_lr", "size", "grey") if p[name] != getattr(default, name)]
        others = p["without"].split("+")
        sources = " and ".join(domain for domain in DOMAINS if domain not in others)
        row = found.setdefault(" ".join(changed) or "default", {})
        row[f"{sources}, held out"] = metrics["held_out"]
        row[f"{' and '.join(others)}"] = np.mean([metrics[name] for name in others])
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("changed")


def one_stage() -> pd.DataFrame:
    """Return a table to read of the earlier study in one stage, with accuracies as in `reading`."""
    parts = {name: reading(found).set_index("method") for name, found in published().items() if name != "fine-tuned"}
    return pd.concat(parts, names=["features", "method"])


def validation_gains(bank: banks.Bank) -> pd.DataFrame:
    """Return the points that three steps gain on sources in the target's place, by the target, the tasks and eta."""
    rows = []
    for record in SECOND_STAGE.facts(plan.VALIDATION):
        p = record.params
        left_out, variant = p["held"], chosen_variant(bank, p["target"])
        view = banks.view(bank, banks.key([p["target"], left_out]), left_out, variant)
        before = ((view.features @ view.start.T).argmax(1) == view.labels).double().mean().item()
        gained = record.metrics["accuracy"] - 100 * before
        rows.append({"target": p["target"], "tasks": p["tasks"], "eta": p["eta"], "gain": gained})
    return pd.DataFrame(rows).pivot_table(index="target", columns=["tasks", "eta"], values="gain")


def sentences(differences: pd.DataFrame) -> list[str]:
    """Return for each difference of averages whether its 95 % interval is above zero, below zero or around it."""
    found = []
    for row in differences[differences["target"] == AVERAGE].itertuples():
        verdict = "no significant difference"
        if abs(row.gain) > row.ci95:
            verdict = "a gain" if row.gain > 0 else "a loss"
        found.append(f"{row.before} → {row.after}: {verdict}")
    return found


def own(table: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's numbers of SIB-Rot. None of them is measured, because our numbers are of another network."""
    rows = table[table["method"] == "SIB-Rot"].drop_duplicates(["target", "K"])
    return rows.assign(verdict=tables.NOT_MEASURED)
