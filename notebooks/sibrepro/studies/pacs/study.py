"""The study behind notebook 05: SIB adapts a classifier to a domain of PACS for which it has no labels."""

from __future__ import annotations

from sibrepro.studies.pacs import plan, tables
from sibrepro.studies.pacs.claims import claims
from sibrepro.study import Study, Table

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
    claims=claims,
)
