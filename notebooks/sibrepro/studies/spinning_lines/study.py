"""The declaration of notebook 02: the spinning lines, a toy problem with closed forms."""

from __future__ import annotations

from sibrepro.studies.spinning_lines import plan
from sibrepro.studies.spinning_lines.claims import claims
from sibrepro.studies.spinning_lines.model import SpinningLinesNotebook
from sibrepro.study import Study

STUDY = Study(
    notebook="02_spinning_lines",
    parameters=SpinningLinesNotebook,
    asked=plan.asked,
    published=plan.declared,
    claims=claims,
)
