"""Labels and probabilities as CSV, the form in which both `sib predict` and `SIBClassifier.to_csv` export them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from sibcore.transduce import Answers

COLUMNS = ("file", "label", "probability", "label_before", "probability_before")


def as_csv(names: Iterable[object], classes: Sequence[object], answers: Answers) -> str:
    """Return a table with one line per query: its label and probability after adaptation, and both before it.

    Args:
        names: names of the n queries.
        classes: names of the k classes.
        answers: the probabilities `[n, k]` before and after adaptation.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    after, before = answers.after.max(1), answers.before.max(1)
    for name, sure, label, sure_before, label_before in zip(names, *after, *before, strict=True):
        writer.writerow((name, classes[label], f"{sure:.4f}", classes[label_before], f"{sure_before:.4f}"))
    return text.getvalue()
