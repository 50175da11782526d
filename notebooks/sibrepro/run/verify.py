"""Compute published runs again and compare: what a sceptical reviewer runs.

sib verify                          the cheapest runs, for ten minutes
sib verify few_shot-fa0b2c1d3e4f    this run
sib verify few_shot --budget 2h     runs of one experiment, cheapest first
sib verify --sample 5               five runs drawn at random

A run is always computed now, by the code that is there, whatever was computed here before. What it is made of, such as
a pretrained network, is not: that is a run of its own.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from sibrepro import paths
from sibrepro.facts import Record, compare, published
from sibrepro.facts.experiment import EXPERIMENTS
from sibrepro.facts.record import experiment_of
from sibrepro.study import studies

STEPS_PER_SECOND = 100  # of a training whose time is not known: only their order matters


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
            verdict, here = EXPERIMENTS[experiment_of(record.id)].verify(record)
        except FileNotFoundError as error:  # images that are not here, or others
            left_out.append(f"{record.id}: {error}")
            continue
        verdicts.append(verdict)
        print(f"    {verdict}\n{described(verdict, here)}", flush=True)
    wrong = [str(verdict) for verdict in verdicts if not verdict.agrees]
    print(*wrong, *(f"left out: {text}" for text in left_out), compare.said(verdicts), sep="\n")
    return 1 if wrong else 0


def described(verdict: compare.Comparison, here: Record) -> str:
    """Return what was computed: each number with its tolerance, the seconds, and the fingerprint of the code."""
    made = here.provenance
    lines = [f"    {line}" for line in verdict.lines]
    return "\n".join([*lines, f"    {made['wall_seconds']:.1f} s, code {made['fingerprint']}"])


def chosen(names: Sequence[str]) -> list[Record]:
    """The published runs of these ids and experiments, or all."""
    studies()  # declares the experiments
    everything = {record.id: record for record in published.everything()}
    if not everything:
        raise ValueError(f"there are no published runs in {paths.published()}: set SIB_HOME to a checkout's folder")
    for name in names:
        if name not in everything and name not in EXPERIMENTS:
            raise ValueError(
                f"{name} is neither a published run nor an experiment; experiments are {', '.join(EXPERIMENTS)}, and "
                "results/facts/<experiment>.jsonl has the ids of their runs"
            )
    return [r for name, r in everything.items() if not names or name in names or experiment_of(name) in names]


def cost(record: Record) -> float:
    """Seconds that a run took, or an estimate."""
    return record.provenance.get("wall_seconds") or record.params.get("steps", 0) / STEPS_PER_SECOND
