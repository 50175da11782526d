"""The declaration of the study of notebook 04: what synthetic gradients gain, over K and η.

It reproduces the appendix's table that compares SIB with inductive SIB, which follows the true gradient on the support
set.
"""

from __future__ import annotations

from sibrepro.facts import flat
from sibrepro.studies.synthetic_gradients import figures, plan, tables
from sibrepro.studies.synthetic_gradients.claims import claims
from sibrepro.study import Figure, Study, Table

STUDY = Study(
    notebook="04_synthetic_gradients",
    parameters=plan.SyntheticGradientsNotebook,
    asked=plan.asked,
    published=plan.declared,
    tables={
        "synthetic_gradients": Table(
            title="K and η",
            make=tables.table,
            how="the mean of the accuracies of all test tasks (the array best/<tested shots>shot), over seeds; the "
            "interval is 1.96 standard errors over tasks and over seeds",
            # Every number that the paper prints here is one of its own method.
            own=lambda table: table,
        )
    },
    figures={
        "04_gain_over_eta": Figure(
            draw=lambda: figures.gain_over_eta(figures.printed_rows()),
            records=lambda: flat(plan.published()),
        ),
        "04_along_the_steps": Figure(
            draw=lambda: figures.along_the_steps(plan.diagnostics()),
            records=lambda: list(plan.diagnostics().values()),
        ),
        "04_over_training": Figure(
            draw=lambda: figures.over_training(plan.stages()),
            records=plan.stages,
        ),
        "04_learning_rate": Figure(
            draw=lambda: figures.learning_rates(plan.published(), plan.equal_rates(), figures.printed_rows()),
            records=figures.learning_rate_records,
        ),
    },
    claims=claims,
)
