"""Rival methods as runs, on the very tasks that SIB is tested on."""

from __future__ import annotations

import time
from typing import Any

from sibcore.baselines import BASELINES, tune
from sibcore.evaluate import evaluate
from sibrepro.facts import Record
from sibrepro.few_shot.experiment import Numbers, source, tasks
from sibrepro.few_shot.settings import RIVAL, Rival
from sibrepro.few_shot.unbalanced import ALPHA


def rival(p: Rival, **images: Any) -> Record:
    """The run of a rival.

    metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet queries), each with "..._ci95"; the chosen
    "options"; "episodes_per_second"; arrays: queries answered rightly in each task, "balanced" and "unbalanced"
    """
    if p.method not in BASELINES:
        raise ValueError(f"there is no method {p.method!r}: expected one of {', '.join(BASELINES)}")
    origin = source(p, **images)

    def compute(p: Rival) -> Numbers:
        banks, cls = origin.banks(), BASELINES[p.method]
        chosen, _ = tune(cls, p.ways, banks["val"].features, tasks(p, banks["val"], "val"))
        metrics, arrays = {"options": chosen}, {}
        for name, alpha in {"balanced": None, "unbalanced": ALPHA}.items():
            fixed = tasks(p, banks["test"], "test", alpha)
            began = time.perf_counter()
            score = evaluate(cls(p.ways, **chosen), banks["test"].features, fixed)
            metrics["episodes_per_second"] = len(fixed) / (time.perf_counter() - began)
            metrics |= {name: 100 * score.mean, f"{name}_ci95": 100 * score.interval}
            arrays[name] = score.right(p.ways * p.queries)
        return metrics, arrays

    return RIVAL.run(p, compute, data=origin.hashes)
