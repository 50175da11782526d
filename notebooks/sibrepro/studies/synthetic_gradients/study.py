"""The declaration of the study of notebook 04: what synthetic gradients gain, over K and η.

It reproduces the appendix's table that compares SIB with inductive SIB, which takes true gradients on the support set.
"""

from __future__ import annotations

from sibrepro.studies.synthetic_gradients import plan
from sibrepro.studies.synthetic_gradients.claims import claims
from sibrepro.study import Study, Table

STUDY = Study(
    notebook="04_synthetic_gradients",
    parameters=plan.SyntheticGradientsNotebook,
    asked=plan.asked,
    published=plan.declared,
    tables={
        "synthetic_gradients": Table(
            title="K and η",
            make=plan.table,
            how="the mean of the accuracies of all test tasks (the array best/<tested shots>shot), over seeds; the "
            "interval is 1.96 standard errors over tasks and over seeds",
            # Every number that the paper prints here is one of its own method.
            own=lambda table: table,
        )
    },
    claims=claims,
)
