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
from functools import partial
from unittest import mock

from sibcore import datasets
from sibrepro import paths
from sibrepro.equal_footing.experiment import CONTENDER, contender
from sibrepro.facts import Record, compare, published
from sibrepro.facts.record import as_dict, experiment_of
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import settings
from sibrepro.few_shot.looks import compression, inside, jpeg, unbalanced
from sibrepro.pacs.experiment import ADAPTATION, adapt
from sibrepro.pacs.first_stage import FINE_TUNED, first_stage
from sibrepro.pacs.second_stage import SECOND_STAGE, second_stage
from sibrepro.query_size.experiment import query_size, rescaled
from sibrepro.spinning_lines import model, optimum
from sibrepro.spinning_lines.plan import BNN, OPTIMUM, SIB
from sibrepro.theory.study import THEORY, study
from sibrepro.zoo.any_way import ANY_WAY, any_way

STEPS_PER_SECOND = 100  # of a training whose time is not known: only their order matters


def _pretrain(p: settings.Pretraining) -> Record:
    return few_shot.pretrained(datasets.load(p.dataset), **{n: v for n, v in as_dict(p).items() if n != "dataset"})


def _look(at: Callable[..., Record], images: bool = False) -> Callable[[settings.FewShot], Record]:
    """A look at what a few-shot run trained: at the published one."""

    def again(p: settings.FewShot) -> Record:
        trained = settings.FEW_SHOT.published(p)
        return at(trained, datasets.load(p.dataset)) if images else at(trained)

    return again


AGAIN = {  # what computes the run of some settings
    THEORY: partial(THEORY.run, compute=study),
    SIB: partial(SIB.run, compute=model.sib_experiment),
    BNN: partial(BNN.run, compute=model.bnn_experiment),
    OPTIMUM: partial(OPTIMUM.run, compute=optimum.experiment),
    settings.PRETRAIN: _pretrain,
    settings.FEW_SHOT: few_shot.few_shot,
    settings.RIVAL: few_shot.rival,
    ADAPTATION: adapt,
    FINE_TUNED: first_stage,
    SECOND_STAGE: second_stage,
    ANY_WAY: any_way,
    CONTENDER: contender,
    settings.UNBALANCED: _look(unbalanced),
    settings.INSIDE: _look(inside),
    settings.JPEG: _look(jpeg, images=True),
    settings.COMPRESSION: _look(compression, images=True),
    settings.QUERY_SIZE: _look(query_size),
    settings.RESCALED: _look(rescaled),
}
RUNS = {experiment.name: experiment for experiment in AGAIN}


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
    experiment = RUNS[experiment_of(record.id)]
    with mock.patch.dict(os.environ, SIB_RECOMPUTE="1"):
        AGAIN[experiment](experiment.settings_of(record))
    if verdict := experiment.recomputed(record):
        return verdict
    raise FileNotFoundError("it was made of other data or features than are here")


def chosen(names: Sequence[str]) -> list[Record]:
    """The published runs of these ids and experiments, or all."""
    everything = {record.id: record for record in published.everything()}
    if not everything:
        raise ValueError(f"there are no published runs in {paths.published()}: set SIB_HOME to a checkout's folder")
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
