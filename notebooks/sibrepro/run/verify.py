"""Compute published runs again and compare: what a sceptical reviewer runs.

sib verify                          the cheapest runs, for ten minutes
sib verify few_shot-fa0b2c1d3e4f    this run
sib verify few_shot --budget 2h     runs of one experiment, cheapest first
sib verify --sample 5               five runs drawn at random
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Sequence
from unittest import mock

from sibcore import datasets
from sibrepro.facts import Experiment, Record, compare, local, published
from sibrepro.facts.record import experiment_of
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import settings
from sibrepro.few_shot.compression import compression
from sibrepro.few_shot.inside import inside
from sibrepro.few_shot.jpeg import jpeg
from sibrepro.few_shot.rivals import rival
from sibrepro.few_shot.unbalanced import unbalanced
from sibrepro.pacs.experiment import ADAPTATION, adapt
from sibrepro.query_size.experiment import query_size, rescaled
from sibrepro.spinning_lines import model, optimum
from sibrepro.spinning_lines.plan import BNN, OPTIMUM, SIB
from sibrepro.theory.study import THEORY, study

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
    )
}


def main(options: argparse.Namespace) -> int:
    """`sib verify`: compute again what was asked for, until its time is over; 1 if a number disagrees."""
    todo = chosen(options.names)
    if options.sample:
        todo = random.Random(options.seed).sample(todo, min(options.sample, len(todo)))
    todo.sort(key=cost)
    end, verdicts, left_out = time.monotonic() + options.budget, [], []
    for number, record in enumerate(todo):
        left = end - time.monotonic()
        if left < 0:
            left_out.append(f"{len(todo) - number} runs for want of time (--budget {options.budget:.0f}s)")
            break
        print(f"[{number + 1}/{len(todo)}] {record.id}, {left / 60:.0f} min left", flush=True)
        try:
            verdicts.append(again(record))
            print(f"    {verdicts[-1]}", flush=True)
        except FileNotFoundError as error:  # images that are not here, or others
            left_out.append(f"{record.id}: {error}")
    wrong = [str(verdict) for verdict in verdicts if not verdict.agrees]
    print(*wrong, *(f"left out: {text}" for text in left_out), compare.said(verdicts), sep="\n")
    return 1 if wrong else 0


def again(record: Record) -> compare.Comparison:
    """A published run computed here and compared; a FileNotFoundError where the data it is of are not here."""
    experiment, run = RUNS[experiment_of(record.id)]
    with mock.patch.dict(os.environ, SIB_RECOMPUTE="1"):
        run(record)
    here = local.load(record.id, experiment.version, record.provenance.get("data", {}))
    if here is None:
        raise FileNotFoundError("it was made of other data or features than are here")
    return compare.compare(record, here, experiment.tolerance)


def chosen(names: Sequence[str]) -> list[Record]:
    """The published runs of these ids and experiments, or all."""
    everything = {name: r for experiment in published.experiments() for name, r in published.find(experiment).items()}
    for name in names:
        if name not in everything and name not in RUNS:
            raise ValueError(
                f"{name} is neither a published run nor an experiment; experiments are {', '.join(RUNS)}, and "
                "results/facts/<experiment>.jsonl has the ids of their runs"
            )
    return [r for name, r in everything.items() if not names or name in names or experiment_of(name) in names]


def cost(record: Record) -> float:
    """Seconds that a run took, or an estimate."""
    return record.provenance.get("wall_seconds") or record.params.get("steps", 0) / STEPS_PER_SECOND
