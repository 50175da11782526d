"""Facts: every number this project shows is the result of a run with an id, parameters and provenance.

`Experiment.run` computes a run here (`results/local/runs/`), `Experiment.published` reads one that came with the
project (`results/facts/`). Tables, figures and claims take exactly the published runs that a study declares.
"""

from sibrepro.facts.experiment import Experiment, Inputs, Numbers, facts, flat, single_facts
from sibrepro.facts.record import Record

__all__ = ["Experiment", "Inputs", "Numbers", "Record", "facts", "flat", "single_facts"]
