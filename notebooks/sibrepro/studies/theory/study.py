"""The declaration of the study of notebook 01, the ELBO and the information bottleneck."""

from __future__ import annotations

from sibrepro.studies.theory.claims import claims
from sibrepro.studies.theory.worlds import THEORY, ElboParams
from sibrepro.study import Study

STUDY = Study(
    notebook="01_elbo_and_information_bottleneck",
    parameters=ElboParams,
    asked=lambda parameters: {THEORY: [parameters]},
    published=lambda: {THEORY: [ElboParams()]},
    claims=claims,
)
