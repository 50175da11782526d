"""The declaration of notebook 00: one task, and what SIB's steps do to it. It publishes no runs of its own."""

from __future__ import annotations

from sibrepro.studies.ten_minutes.one_task import TenMinutes
from sibrepro.study import Study

STUDY = Study(notebook="00_sib_in_ten_minutes", parameters=TenMinutes)
