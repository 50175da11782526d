"""The declaration of the study of notebook 03, the few-shot tables.

It reproduces the paper's Table 1, and asks how SIB's gain depends on the number of steps, the backbone, the balance of
the queries, the order of the classes, and the details in which our training differs from the paper's.
"""

from __future__ import annotations

from sibrepro.studies.few_shot import plan, tables
from sibrepro.studies.few_shot.claims import claims
from sibrepro.study import Study, Table

# The figures of this study also show what the notebook computes itself, so they are drawn in its cells.
STUDY = Study(
    notebook="03_few_shot_tables",
    parameters=plan.FewShotNotebook,
    asked=plan.asked,
    published=plan.declared,
    tables={
        "few_shot": Table(
            title="Table 1",
            make=tables.table,
            how="the mean of the accuracies of all test tasks (the array best/<shots>shot), over seeds; the interval "
            "is 1.96 standard errors over tasks and over seeds",
            # Only the paper's numbers for SIB are counted by their verdict, not those it prints for other methods.
            own=lambda table: table[table["method"] == "SIB"],
        )
    },
    claims=claims,
)
