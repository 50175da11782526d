"""The runs of notebook 02: SIB, the BNN and the exact optimum at the notebook's settings, and SIB at others."""

from __future__ import annotations

import dataclasses

from sibrepro.facts import Experiment, Record
from sibrepro.studies.spinning_lines import optimum
from sibrepro.studies.spinning_lines.model import (
    SpinningLines,
    SpinningLinesNotebook,
    bnn_experiment,
    sib_experiment,
)

_OLDEST = "n K mu sigma mu_w sigma_w eta width tasks epochs batch lr seeds seed".split()
SIB = Experiment(
    "spinning_lines", SpinningLines, sib_experiment, oldest=_OLDEST, tolerance={"*": 0.02}
)  # nats, and squared errors
BNN = Experiment("spinning_lines_bnn", SpinningLines, bnn_experiment, oldest=_OLDEST, tolerance={"*": 0.002})
OPTIMUM = Experiment("spinning_lines_optimum", SpinningLines, optimum.experiment, oldest=_OLDEST, tolerance={"*": 1e-4})

PAPER = SpinningLines()  # the paper's settings
# One thing changed at a time, four seeds each.
_CHANGES = [("n", 128), ("K", 1), ("K", 5), ("sigma", 2.0), ("sigma", 3.0), ("sigma_w", 0.3), ("epochs", 600)]
OTHERS = [dataclasses.replace(PAPER, seeds=4, **{name: value}) for name, value in _CHANGES]


def published() -> list[Record]:
    """Trained SIBs at the paper's settings and at others."""
    return SIB.facts([PAPER, *OTHERS])


def declared() -> dict[Experiment, list[SpinningLines]]:
    """Every run of this study that is published."""
    return {SIB: [PAPER, *OTHERS], BNN: [PAPER], OPTIMUM: [PAPER]}


def asked(p: SpinningLinesNotebook) -> dict[Experiment, list[SpinningLines]]:
    """Return the runs that the notebook's parameters ask for."""
    return {experiment: [p.experiment()] for experiment in (SIB, BNN, OPTIMUM)}
