"""The declaration of notebook 07: SIB and its rivals on the same features, tasks and training budget.

"Equal footing" means that no method has an advantage from its surroundings: all get the same features and test tasks,
and all that learn get the same training tasks.
"""

from __future__ import annotations

from sibrepro.facts import Record, flat
from sibrepro.studies.equal_footing import figures, plan, tables
from sibrepro.studies.equal_footing.claims import claims
from sibrepro.study import Figure, Study, Table

# How numbers of the tables follow from runs, as the report explains them to readers.
ACCURACY = (
    "the mean of the accuracies of all test tasks of a kind (the array of its name), over seeds; the interval is 1.96 "
    "standard errors over tasks and over seeds"
)
DIFFERENCE = "the best SIB's accuracy minus the rival's on the same tasks, over the seeds that both have"


def compared() -> list[Record]:
    """Return the published runs of the comparison."""
    return flat(plan.published())


def confirmed() -> list[Record]:
    """Return the published runs that repeat the comparison on mini-ImageNet, where no SIB was tuned."""
    return flat(plan.published(plan.confirmation()))


STUDY = Study(
    notebook="07_equal_footing",
    parameters=plan.EqualFootingNotebook,
    asked=plan.asked,
    published=plan.declared,
    tables={
        "equal_footing": Table(
            title="SIB and its rivals on the same features and tasks",
            make=lambda: tables.comparison(plan.published()),
            how=ACCURACY,
            records=compared,
        ),
        "equal_footing_differences": Table(
            title="The best SIB minus each rival",
            make=lambda: tables.differences(plan.published()),
            how=DIFFERENCE,
            records=compared,
            behind=tables.behind_difference,
        ),
        "equal_footing_shapes": Table(
            title="Tasks with other numbers of ways and queries",
            make=lambda: tables.shapes(plan.published(plan.elsewhere())),
            how=ACCURACY,
            records=compared,
        ),
        "equal_footing_confirmation": Table(
            title="SIB and its rivals on mini-ImageNet, where no SIB was tuned",
            make=lambda: tables.comparison(plan.published(plan.confirmation())),
            how=ACCURACY,
            records=confirmed,
        ),
    },
    figures={
        "07_field": Figure(draw=lambda: figures.accuracies(tables.comparison(plan.published())), records=compared),
        "07_speed": Figure(draw=lambda: figures.speeds(tables.comparison(plan.published())), records=compared),
    },
    claims=claims,
)
