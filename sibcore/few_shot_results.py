"""What has been measured of few-shot learning: the run records of notebook 03, gathered, and their tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from sibcore import paper, realism, runs
from sibcore.baselines import BASELINES
from sibcore.baselines.literature import LITERATURE
from sibcore.comparison import Baseline, Score, over_seeds, paired
from sibcore.few_shot import FewShot
from sibcore.params import Count, NonNegative, Positive, parameters
from sibcore.runs import Record

FULL = 40_000  # steps of the paper's protocol
PLAIN = runs.as_dict(FewShot())
VARIABLES = ("dataset", "backbone", "features", "shots", "K", "eta", "transductive", "steps", "val_episodes")
VARIABLES += ("test_episodes", "seed")  # what runs of the paper's own SIB, inductive or not, may differ in


@parameters
class FewShotNotebook:
    """Notebook 03."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    features: Literal["images", "shipped"] = Field("shipped", description="computed from images, or the project's own")
    shots: list[Count] = Field([1, 5], min_length=1, description="labelled images per class, one experiment each")
    K: list[NonNegative] = Field([0, 3], min_length=1, description="synthetic gradient steps, one experiment each")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    steps: Count = Field(2000, description="meta-training steps")
    seeds: Count = Field(1, description="meta-trainings of each experiment")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: Count = Field(1000, description="tasks of test classes")
    baseline_episodes: Count = Field(500, description="tasks of test classes on which baselines are tested")
    variants: bool = Field(False, description="train the variants of the realism study too")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """All meta-trainings, seed after seed."""
        common = self._like(FewShot, "eta", "steps", "val_episodes", "test_episodes")
        return [
            dataclasses.replace(common, shots=shots, K=K, seed=seed)
            for seed in range(self.seed, self.seed + self.seeds)
            for shots in self.shots
            for K in self.K
        ]

    def variant_experiments(self) -> list[FewShot]:
        """One seed of what the realism study and the search for reasons compare: 1-shot, K = 3, one thing changed."""
        base = dataclasses.replace(self.experiments()[0], shots=1, K=3)
        changes: list[dict[str, Any]] = [
            *({"normalise": name} for name in ("running", "none")),
            {"equivariant": True},
            {"alpha": realism.ALPHA},
            {"reduction": "mean"},
            {"optimiser": "paper"},
            {"fidelity": "paper"},
            {"transductive": False},
            {"transductive": False, "shots": 5},
        ]
        return [dataclasses.replace(base, **change) for change in changes]

    def baselines(self) -> list[Baseline]:
        common = dataclasses.replace(self._like(Baseline, "val_episodes"), test_episodes=self.baseline_episodes)
        return [dataclasses.replace(common, method=name, shots=shots) for shots in self.shots for name in BASELINES]

    def _like(self, cls: type, *names: str) -> Any:
        return cls(**{name: getattr(self, name) for name in ("dataset", "backbone", "features", *names)})


@dataclasses.dataclass(frozen=True)
class Results:
    """The fullest runs there are of one image set and backbone; a list has one record of each seed.

    sib, inductive: by (shots, K), at eta = 1e-3; variants: by (shots, K, what differs from the plain SIB)
    baselines: by (method, shots); realism: by the id of the run that was tried
    """

    sib: Mapping[tuple[int, int], list[Record]]
    inductive: Mapping[tuple[int, int], list[Record]]
    variants: Mapping[tuple[int, int, str], list[Record]]
    baselines: Mapping[tuple[str, int], Record]
    realism: Mapping[str, Record]

    @property
    def records(self) -> list[Record]:
        return [record for seeds in self.sib.values() for record in seeds]


def gather(dataset: str, backbone: str) -> Results:
    """From the project's own runs and those made here."""
    here = [r for r in runs.published("few_shot") if (r.params["dataset"], r.params["backbone"]) == (dataset, backbone)]
    plain = [r for r in here if is_plain(r.params) and (r.params["eta"] == 1e-3 or r.params["K"] == 0)]
    others = [r for r in here if not is_plain(r.params)]
    tested = [r for r in runs.published("baseline") if r.params["backbone"] == backbone]
    return Results(
        sib=by_shots_and_K(r for r in plain if r.params["transductive"]),
        inductive=by_shots_and_K(r for r in plain if not r.params["transductive"]),
        variants=_fullest_by(others, lambda p: (p["shots"], p["K"], sib_label(p))),
        baselines={
            key: records[0] for key, records in _fullest_by(tested, lambda p: (p["method"], p["shots"])).items()
        },
        realism={run_of(r): r for r in runs.published("realism")},
    )


def by_shots_and_K(records: Iterable[Record]) -> dict[tuple[int, int], list[Record]]:
    """The fullest runs, by (shots, K)."""
    return _fullest_by(records, lambda p: (p["shots"], p["K"]))


def _fullest_by(records: Iterable[Record], key: Any) -> dict[Any, list[Record]]:
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record.params), []).append(record)
    return {name: fullest(groups[name]) for name in sorted(groups)}


def fullest(records: Sequence[Record]) -> list[Record]:
    """Those trained, and tested, longest; in the order of their seeds."""
    effort = [(r.params.get("steps", 0), r.params["test_episodes"]) for r in records]
    chosen = [record for record, spent in zip(records, effort, strict=True) if spent == max(effort)]
    return sorted(chosen, key=lambda record: record.params.get("seed", 0))


def is_plain(params: Mapping[str, Any]) -> bool:
    """Whether it is the paper's own SIB, or its inductive variant."""
    return all(params[name] == PLAIN[name] for name in PLAIN if name not in VARIABLES)


def run_of(record: Record) -> str:
    """The id of the few-shot run that a record looks into."""
    return runs.run_id("few_shot", record.params)


def right(records: Sequence[Record], name: str) -> np.ndarray:
    """Right answers [S, N] of several seeds."""
    return np.stack([record.arrays[name] for record in records])


def queries(record: Record) -> int:
    return record.params["ways"] * record.params["queries"]


def sib_score(records: Sequence[Record], checkpoint: str = "best") -> Score:
    """The test score of several seeds of one setting."""
    return over_seeds(right(records, f"{checkpoint}/{records[0].params['shots']}shot"), queries(records[0]))


def gain(before: Sequence[Record], after: Sequence[Record]) -> Score:
    """How much better `after` answers the same tasks, both tested on the shots that `before` was trained with."""
    name = f"best/{before[0].params['shots']}shot"
    return paired(right(before, name), right(after, name), queries(before[0]))


def sib_label(params: Mapping[str, Any]) -> str:
    """The name of a kind of SIB in tables; the paper's own is plain "SIB"."""
    parts = ["SIB" if params["transductive"] else "inductive SIB"]
    parts += ["equivariant ξ"] * params["equivariant"]
    shown = ("fidelity", "optimiser", "normalise", "reduction", "alpha", "epochs", "views", "queries")
    parts += [f"{name} {params[name]}" for name in shown if params[name] != PLAIN[name]]
    return ", ".join(parts)


def profile(params: Mapping[str, Any]) -> str:
    """Which profile makes such a run."""
    if params.get("steps", FULL) < FULL or params["test_episodes"] < 2000:
        return "quick"
    return "cpu" if params["dataset"] == "cifar-fs" and params["backbone"].startswith("conv4") else "paper"


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
    """A table with quick numbers left out where the full protocol has one, and with eta = 1e-3 alone."""
    settings = ["dataset", "backbone", "method", "K", "shots"]
    table = table[table["eta"].isna() | (table["eta"] == 1e-3)]
    rank = table["profile"].map({"quick": 1}).fillna(0)
    best = rank.groupby([table[name].astype(str) for name in settings]).transform("min")
    return table[rank == best]


def checkpoints_and_seeds(results: Results) -> pd.DataFrame:
    """The accuracy of each seed at its best and at its last checkpoint, in percent."""
    rows = {}
    for (shots, K), records in results.sib.items():
        for record in records:
            name = f"{shots}shot"
            row = {kind: record.metrics[f"{kind}/{name}"] for kind in ("best", "last")}
            rows[shots, K, record.params["seed"]] = row | {"± (tasks)": record.metrics[f"best/{name}_ci95"]}
    return pd.DataFrame(rows).T.rename_axis(["shots", "K", "seed"])


def balanced(record: Record) -> Score:
    return Score(record.metrics["balanced"], record.metrics["balanced_ci95"])


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
    kinds |= {f"{label}, K = {k}": records for (shots, k, label), records in results.variants.items() if shots == 1}
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


def variant_scores(results: Results, *options: str, K: int = 3) -> dict[str, Score]:
    """1-shot scores of K = 0, of SIB, and of its variants whose label begins with one of these options."""
    scores = {f"SIB, K = {k}": sib_score(results.sib[1, k]) for k in (0, K) if (1, k) in results.sib}
    for (shots, k, label), records in results.variants.items():
        if (shots, k) == (1, K) and any(label.startswith(f"SIB, {option}") for option in options):
            scores[label] = sib_score(records)
    return scores


def order_scores(results: Results, K: int = 3) -> dict[str, Score]:
    """1-shot scores of one order of the classes, of probabilities averaged over orders, and of an equivariant xi."""
    scores = variant_scores(results, "equivariant ξ", K=K)
    for record in results.sib.get((1, K), [])[:1]:
        if record.id in results.realism:
            metrics = results.realism[record.id].metrics
            scores["averaged over ten orders"] = Score(metrics["averaged"], metrics["averaged_ci95"])
    return scores


def order_table(results: Results) -> pd.DataFrame:
    """How much the order of the classes matters to each SIB that was tried: accuracies, and answers that change."""
    names = ["orders/lowest", "orders/highest", "averaged", "orders/changed"]
    rows = {}
    for record in results.realism.values():
        if names[0] in record.metrics:
            p = record.params
            label = f"{p['shots']}-shot, {sib_label(p)}, K = {p['K']}"
            rows[label] = {name: record.metrics[name] for name in names}
    return pd.DataFrame(rows, index=names).T.round(2)


def reasons(results: Results, K: int = 3) -> dict[str, Score]:
    """1-shot scores of the paper's SIB, of ours, and of ours with one thing changed."""
    printed = paper.few_shot().query(
        "dataset == 'cifar-fs' and backbone == 'conv4-64' and shots == 1 and method == 'SIB'"
    )
    scores = {f"paper, K = {row.K}": Score(row.value, row.ci95) for row in printed.itertuples() if row.K in (0, K)}
    scores |= {f"ours, K = {k}": sib_score(results.sib[1, k]) for k in (0, K) if (1, k) in results.sib}
    for (shots, k, label), records in results.variants.items():
        if shots == 1 and not label.startswith(("SIB, equivariant", "SIB, alpha", "inductive")):
            scores[f"{label.removeprefix('SIB, ')}, K = {k}"] = sib_score(records)
    return scores


def _row(p: Mapping[str, Any], score: Score, records: Sequence[Record]) -> dict[str, Any]:
    return {
        **{name: p[name] for name in ("dataset", "backbone", "shots")},
        **{"ours": score.mean, "ours_ci95": score.ci95, "episodes": p["test_episodes"], "seeds": len(records)},
        **{"profile": profile(p), "run": " ".join(record.id for record in records)},
    }
