"""Notebook 07: SIB and its rivals on the same features, tasks and budget."""

from __future__ import annotations

from sibrepro.facts import flat
from sibrepro.studies.equal_footing import figures, plan, tables
from sibrepro.studies.equal_footing.claims import claims
from sibrepro.study import Figure, Study, Table

ACCURACY = (
    "the mean of the accuracies of all test tasks of a kind (the array of its name), over seeds; the interval is 1.96 "
    "standard errors over tasks and over seeds"
)
DIFFERENCE = "the best SIB's accuracy minus the rival's on the same tasks, over the seeds that both have"

STUDY = Study(
    notebook="07_equal_footing",
    parameters=plan.EqualFootingNotebook,
    asked=plan.asked,
    published=plan.declared,
    tables={
        "equal_footing": Table(
            title="Equal footing",
            make=lambda: tables.comparison(plan.published()),
            how=ACCURACY,
            records=lambda: flat(plan.published()),
        ),
        "equal_footing_differences": Table(
            title="The best SIB minus each rival",
            make=lambda: tables.differences(plan.published()),
            how=DIFFERENCE,
            records=lambda: flat(plan.published()),
            behind=tables.behind_difference,
        ),
        "equal_footing_shapes": Table(
            title="Equal footing, other shapes",
            make=lambda: tables.shapes(plan.published(plan.elsewhere())),
            how=ACCURACY,
            records=lambda: flat(plan.published()),
        ),
        "equal_footing_confirmation": Table(
            title="Equal footing, confirmation",
            make=lambda: tables.comparison(plan.published(plan.confirmation())),
            how=ACCURACY,
            records=lambda: flat(plan.published(plan.confirmation())),
        ),
    },
    figures={
        "07_field": Figure(
            draw=lambda: figures.footing(tables.comparison(plan.published())), records=lambda: flat(plan.published())
        ),
    },
    claims=claims,
    cite=tables.cite,
)
