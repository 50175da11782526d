"""The declaration of the study of notebook 06: how many queries per class SIB needs, in training and in testing.

It reproduces the appendix's table over n, the number of queries per class, and measures the quantities of Theorem 2.
"""

from __future__ import annotations

from functools import partial

from sibrepro.facts import flat
from sibrepro.studies.query_size import figures, plan, tables
from sibrepro.studies.query_size.claims import claims
from sibrepro.study import Figure, Study, Table


def over_n(dataset: str) -> Figure:
    """Declare the figure of the accuracy over n on an image set."""
    return Figure(draw=partial(figures.over_n, dataset), records=partial(figures.over_n_records, dataset))


STUDY = Study(
    notebook="06_query_size_ablation",
    parameters=plan.QuerySizeNotebook,
    asked=plan.asked,
    published=plan.declared,
    tables={
        "query_size": Table(
            title="Query size",
            make=tables.table,
            how="the mean of the accuracies of all tasks of a split (the array <split>/usual for 15 queries per class "
            "in testing, <split>/own for n), over seeds; the interval is 1.96 standard errors over tasks and seeds",
            own=lambda table: table,
        )
    },
    figures={
        "06_accuracy_over_n": over_n("cifar-fs"),
        "06_mini_imagenet": over_n("mini-imagenet"),
        "06_corollary": Figure(draw=figures.published_corollary, records=lambda: flat(plan.published())),
    },
    claims=claims,
)
