"""Facts: every number that this project shows comes from a run, which has an id, parameters and provenance.

`Experiment.run` computes a run on this machine (in `results/local/runs/`). `Experiment.published` reads a run that came
with the project (from `results/facts/`). Tables, figures and claims use published runs only, and exactly those that a
study declares.
"""

from sibrepro.facts.experiment import Experiment, Inputs, Numbers, facts, flat, single_facts
from sibrepro.facts.record import Record, Spelling

__all__ = ["Experiment", "Inputs", "Numbers", "Record", "Spelling", "facts", "flat", "single_facts"]
