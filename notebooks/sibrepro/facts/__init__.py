"""Facts: every number this project shows is the result of a run with an id, parameters and provenance.

`Experiment.run` computes a run here (`results/local/runs/`), `Experiment.published` reads one that came with the
project (`results/facts/`). Tables, figures and claims take exactly the published runs that a study's plan names.
"""

from sibrepro.facts.experiment import Experiment
from sibrepro.facts.record import Record

__all__ = ["Experiment", "Record"]
