"""Notebook 90: accuracy over the number of ways. The template of a new study: these files are all that it takes."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure as Drawing
from sibrepro.studies.number_of_ways.experiment import WAYS, WaysNotebook

from sibrepro import tables
from sibrepro.claim import AGREES, DIFFERS, Claim
from sibrepro.facts import Record
from sibrepro.facts.experiment import named
from sibrepro.plots import BLUE
from sibrepro.study import Figure, Study, Table


def published() -> dict:
    """Return the runs that are published: those of the notebook as a reader opens it."""
    return {WAYS: WaysNotebook().experiments()}


def found() -> list[Record]:
    """Return the published runs, as far as they are there."""
    return WAYS.facts(published()[WAYS])


def table() -> pd.DataFrame:
    """Return a row for each number of ways."""
    columns = ["ways", *tables.OURS, "run"]
    rows = [(r.params["ways"], r.metrics["accuracy"], r.metrics["accuracy_ci95"], named([r])) for r in found()]
    return pd.DataFrame(rows, columns=columns)


def figure() -> Drawing:
    """Draw the accuracy over the number of ways."""
    shown = table()
    drawing, axis = plt.subplots(figsize=(4, 3))
    axis.errorbar(shown["ways"], shown["ours"], shown["ours_ci95"], fmt="o-", color=BLUE)
    axis.set(xlabel="ways", ylabel="accuracy (%), 1-shot")
    return drawing


def claims() -> list[Claim]:
    """Return the one claim: more classes are harder to tell apart."""
    claim = Claim("A study added as a trial", "more ways are harder", "not in the paper", "–")
    runs = found()
    if len(runs) < 2:
        return [claim]
    accuracies = [run.metrics["accuracy"] for run in runs]
    falls = accuracies == sorted(accuracies, reverse=True)
    ours = " → ".join(f"{accuracy:.1f}" for accuracy in accuracies)
    return [claim.measured(f"{ours} %", AGREES if falls else DIFFERS, runs)]


STUDY = Study(
    notebook="90_number_of_ways",
    parameters=WaysNotebook,
    asked=lambda parameters: {WAYS: parameters.experiments()},
    published=published,
    tables={
        "number_of_ways": Table(title="Number of ways", make=table, how="the mean accuracy of all test tasks of a run")
    },
    figures={"90_accuracy_over_ways": Figure(draw=figure, records=found)},
    claims=claims,
)
