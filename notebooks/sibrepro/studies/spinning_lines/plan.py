"""The runs of notebook 02: SIB, a Bayesian neural network and the exact optimum.

All three are run at the settings of the notebook. SIB is also trained at other published settings, which change one
thing at a time.
"""

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
# Tolerances are in nats, and for "mse" in squared units of y.
SIB = Experiment("spinning_lines", SpinningLines, sib_experiment, oldest=_OLDEST, tolerance={"*": 0.02})
BNN = Experiment("spinning_lines_bnn", SpinningLines, bnn_experiment, oldest=_OLDEST, tolerance={"*": 0.002})
OPTIMUM = Experiment("spinning_lines_optimum", SpinningLines, optimum.experiment, oldest=_OLDEST, tolerance={"*": 1e-4})

PAPER = SpinningLines()  # the defaults are the paper's settings
# One thing is changed at a time, with four seeds each.
_CHANGES = [("n", 128), ("K", 1), ("K", 5), ("sigma", 2.0), ("sigma", 3.0), ("sigma_w", 0.3), ("epochs", 600)]
OTHERS = [dataclasses.replace(PAPER, seeds=4, **{name: value}) for name, value in _CHANGES]


def published() -> list[Record]:
    """Return the published runs of SIB: at the paper's settings, then at the others."""
    return SIB.facts([PAPER, *OTHERS])


def declared() -> dict[Experiment, list[SpinningLines]]:
    """Return the settings of every run of this study that is, or is to be, published."""
    return {SIB: [PAPER, *OTHERS], BNN: [PAPER], OPTIMUM: [PAPER]}


def asked(p: SpinningLinesNotebook) -> dict[Experiment, list[SpinningLines]]:
    """Return the runs that the notebook's parameters ask for."""
    return {experiment: [p.experiment()] for experiment in (SIB, BNN, OPTIMUM)}
