"""`sib verify`: compute published runs again and compare the numbers.

sib verify                          the cheapest runs, for ten minutes
sib verify few_shot-fa0b2c1d3e4f    this run
sib verify few_shot --budget 2h     runs of one experiment, cheapest first
sib verify --sample 5               five runs drawn at random

A run is always computed by the present code, even if this machine has computed it before. Its inputs are not computed
again: a pretrained network, for example, is a run of its own.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from sibrepro import paths
from sibrepro.facts import Record, compare, published
from sibrepro.facts.experiment import EXPERIMENTS
from sibrepro.facts.record import experiment_of, todays_name
from sibrepro.study import studies

STEPS_PER_SECOND = 100  # a guess for trainings whose time is not known; it only decides on the order of runs


def main(options: argparse.Namespace) -> int:
    """Compute the runs asked for until the time is over. Return 1 if a number disagrees."""
    todo = chosen(options.names)
    if options.sample:
        todo = random.Random(options.seed).sample(todo, min(options.sample, len(todo)))
    todo.sort(key=cost)
    end = time.monotonic() + options.budget
    verdicts, left_out = [], []
    for number, record in enumerate(todo, start=1):
        left = end - time.monotonic()
        if left < 0:
            remaining = len(todo) - number + 1
            left_out.append(f"{remaining} runs, because {options.budget:.0f} s are over (--budget)")
            break
        minutes = f"{left / 60:.0f} min"
        print(f"[{number}/{len(todo)}] {record.id}, {minutes} left", flush=True)
        try:
            verdict, here = EXPERIMENTS[experiment_of(record.id)].verify(record)
        except FileNotFoundError as error:  # the images are missing, or are not those of the published run
            left_out.append(f"{record.id}: {error}")
            continue
        verdicts.append(verdict)
        print(f"    {verdict}\n{described(verdict, here)}", flush=True)
    wrong = [str(verdict) for verdict in verdicts if not verdict.agrees]
    print(*wrong, *(f"not recomputed: {text}" for text in left_out), compare.said(verdicts), sep="\n")
    return 1 if wrong else 0


def described(verdict: compare.Comparison, here: Record) -> str:
    """Return a text with each number and its tolerance, the time the run took, and the fingerprint of its code."""
    made = here.provenance
    lines = [f"    {line}" for line in verdict.lines]
    return "\n".join([*lines, f"    {made['wall_seconds']:.1f} s, code {made['fingerprint']}"])


def chosen(names: Sequence[str]) -> list[Record]:
    """Return the published runs with these ids or of these experiments, or all if no names are given."""
    studies()  # importing the studies declares their experiments
    everything = {record.id: record for record in published.everything()}
    if not everything:
        raise ValueError(f"{paths.published()} has no published runs: set SIB_HOME to the folder of a checkout")
    names = [todays_name(name) for name in names]
    for name in names:
        if name not in everything and name not in EXPERIMENTS:
            raise ValueError(
                f"{name} is neither a published run nor an experiment. The experiments are {', '.join(EXPERIMENTS)}, "
                "and results/facts/<experiment>.jsonl lists the ids of their runs"
            )
    return [r for name, r in everything.items() if not names or name in names or experiment_of(name) in names]


def cost(record: Record) -> float:
    """Return the seconds that a run took, or an estimate if they are not known."""
    return record.provenance.get("wall_seconds") or record.params.get("steps", 0) / STEPS_PER_SECOND
