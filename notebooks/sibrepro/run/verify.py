"""Compute published runs again and compare: what a sceptical reviewer runs.

sib verify                          the cheapest runs, for ten minutes
sib verify few_shot-fa0b2c1d3e4f    this run
sib verify few_shot --budget 2h     runs of one experiment, cheapest first
sib verify --sample 5               five runs drawn at random
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence

from sibcore import datasets
from sibrepro import paths
from sibrepro.facts import Experiment, Record, compare, local, published
from sibrepro.facts.ids import experiment_of
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import settings
from sibrepro.few_shot.compression import compression
from sibrepro.few_shot.inside import inside
from sibrepro.few_shot.jpeg import jpeg
from sibrepro.few_shot.rivals import rival
from sibrepro.few_shot.unbalanced import unbalanced
from sibrepro.pacs.experiment import ADAPTATION, adapt
from sibrepro.query_size.experiment import query_size, rescaled
from sibrepro.run.pipeline import environment
from sibrepro.spinning_lines import model, optimum
from sibrepro.spinning_lines.plan import BNN, OPTIMUM, SIB
from sibrepro.theory.study import THEORY, study
from sibrepro.zoo.any_way import ANY_WAY, any_way

STEPS_PER_SECOND = 100  # of a training whose time is not known: only their order matters


def _again(experiment: Experiment, run: Callable) -> tuple[Experiment, Callable[[Record], Record]]:
    """An experiment whose runs need nothing but their settings."""
    return experiment, lambda record: run(experiment.settings_of(record))


def _look(experiment: Experiment, look: Callable) -> tuple[Experiment, Callable[[Record], Record]]:
    """An experiment that looks at what a few-shot run trained: at the published one."""
    return experiment, lambda record: look(settings.FEW_SHOT.published(settings.FEW_SHOT.settings_of(record)))


def _pretrain(record: Record) -> Record:
    changes = {name: value for name, value in record.params.items() if name != "dataset"}
    return few_shot.pretrained(datasets.load(record.params["dataset"]), **changes)


RUNS = {
    experiment.name: (experiment, again)
    for experiment, again in (
        _again(THEORY, lambda p: THEORY.run(p, study)),
        _again(SIB, lambda p: SIB.run(p, model.sib_experiment)),
        _again(BNN, lambda p: BNN.run(p, model.bnn_experiment)),
        _again(OPTIMUM, lambda p: OPTIMUM.run(p, optimum.experiment)),
        (settings.PRETRAIN, _pretrain),
        _again(settings.FEW_SHOT, few_shot.few_shot),
        _again(settings.RIVAL, rival),
        _look(settings.UNBALANCED, unbalanced),
        _look(settings.INSIDE, inside),
        _look(settings.JPEG, lambda trained: jpeg(trained, datasets.load(trained.params["dataset"]))),
        _look(settings.COMPRESSION, lambda trained: compression(trained, datasets.load(trained.params["dataset"]))),
        _look(settings.QUERY_SIZE, query_size),
        _look(settings.RESCALED, rescaled),
        _again(ADAPTATION, adapt),
        _again(ANY_WAY, any_way),
    )
}


def verify(names: Sequence[str] = (), sample: int = 0, budget: float = 600.0, seed: int = 0) -> int:
    """Compute again what was asked for, until the seconds of `budget` are over; 1 if a number disagrees."""
    todo = chosen(names)
    if sample:
        todo = random.Random(seed).sample(todo, min(sample, len(todo)))
    todo.sort(key=cost)
    began, verdicts, left_out = time.monotonic(), [], []
    for number, record in enumerate(todo, start=1):
        if time.monotonic() - began > budget:
            left_out.append(f"{len(todo) - number + 1} runs for want of time (--budget {budget:.0f}s)")
            break
        left = (budget - time.monotonic() + began) / 60
        print(f"[{number}/{len(todo)}] {record.id}, {left:.0f} min left", flush=True)
        try:
            verdict = again(record)
        except FileNotFoundError as error:  # images that are not here
            verdict, why = None, str(error)
        else:
            why = "it was made of other data or features than are here"
        if verdict is None:
            left_out.append(f"{record.id}: {why}")
            continue
        verdicts.append(verdict)
        print(f"    {verdict}", flush=True)
    return _conclude(verdicts, left_out)


def again(record: Record) -> compare.Comparison | None:
    """A published run computed here and compared; None where it is of other data than are here."""
    experiment, run = RUNS[experiment_of(record.id)]
    with environment(SIB_RECOMPUTE="1"):
        run(record)
    here = local.load(record.id, experiment.version, record.provenance.get("data", {}))
    return compare.compare(record, here, experiment.tolerance) if here else None


def chosen(names: Sequence[str]) -> list[Record]:
    """The published runs of these ids and experiments, or all."""
    everything = {name: r for experiment in published.experiments() for name, r in published.find(experiment).items()}
    if not everything:
        raise ValueError(f"there are no published runs in {paths.published()}: set SIB_HOME to a checkout's folder")
    unknown = [name for name in names if name not in everything and name not in RUNS]
    if unknown:
        raise ValueError(
            f"{unknown[0]} is neither a published run nor an experiment; experiments are {', '.join(RUNS)}, and "
            "results/facts/<experiment>.jsonl has the ids of their runs"
        )
    return [r for name, r in everything.items() if not names or name in names or experiment_of(name) in names]


def cost(record: Record) -> float:
    """Seconds that a run took, or an estimate."""
    return record.provenance.get("wall_seconds") or record.params.get("steps", 0) / STEPS_PER_SECOND


def seconds(text: str) -> float:
    """ "90s", "10m" or "2h" in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found:
        raise ValueError(f"--budget {text}: expected a time such as 90s, 10m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _conclude(verdicts: Sequence[compare.Comparison], left_out: Sequence[str]) -> int:
    wrong = [verdict for verdict in verdicts if not verdict.agrees]
    for verdict in wrong:
        print(verdict)
    for text in left_out:
        print(f"left out: {text}")
    print(compare.said(verdicts))
    return 1 if wrong else 0
