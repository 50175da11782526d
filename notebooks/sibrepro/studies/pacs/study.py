"""The study behind notebook 05: SIB adapts a classifier to a domain of PACS for which it has no labels."""

from __future__ import annotations

from sibrepro.facts import Record
from sibrepro.studies.pacs import figures, plan, tables
from sibrepro.studies.pacs.claims import claims
from sibrepro.study import Figure, Study, Table


def main() -> plan.Scores:
    """Return the published runs in two stages."""
    return plan.published()["fine-tuned"]


def records() -> list[Record]:
    """Return the same runs as a list."""
    return plan.records(main())


def compared() -> list[Record]:
    """Return the published runs of the ablations and of the methods that SIB is compared with."""
    return [*records(), *plan.records(plan.others(plan.ABLATIONS | plan.RIVALS))]


def of_ingredients() -> list[Record]:
    """Return the published runs behind the figure of the ingredients."""
    first = plan.published()["frozen"]["source-only", 0]
    return [*plan.records({"": first}), *plan.records(plan.others(plan.FEATURE_ABLATION)), *records()]


STUDY = Study(
    notebook="05_pacs_adaptation",
    parameters=plan.StagesNotebook,
    asked=plan.asked,
    published=plan.declared,
    tables={
        "pacs": Table(
            title="PACS",
            make=lambda: tables.table(plan.published()),
            how="the share of target images that are classified rightly (arrays predicted and labels), over seeds; the "
            "average is that of the four targets; the interval is 1.96 standard errors over images and over seeds",
            own=tables.own,
        ),
        "pacs_differences": Table(
            title="PACS, differences",
            make=lambda: tables.differences(plan.published()),
            how="the difference of two methods on the same target images, with the seeds that both have",
            behind=tables.behind_difference,
        ),
    },
    figures={
        "05_accuracy_fine_tuned": Figure(draw=lambda: figures.accuracy_over_steps(main()), records=records),
        "05_ladder": Figure(draw=lambda: figures.ingredients(tables.ingredients()), records=of_ingredients),
        "05_gain_by_class": Figure(draw=lambda: figures.gain_by_class(main()), records=records),
        "05_gain_by_accuracy": Figure(draw=lambda: figures.gain_by_accuracy(main()), records=records),
        "05_minibatches": Figure(draw=lambda: figures.minibatch_sizes(main()), records=records),
        "05_beside": Figure(draw=lambda: figures.methods_at_test_time(tables.gains_at_test_time()), records=compared),
    },
    claims=claims,
)
