"""The study of the any-way SIBs of the zoo: their trainings and tests, which notebook 07 reports."""

from __future__ import annotations

from sibrepro.studies.any_way.any_way import ANY_WAY, GENERAL, SET_AWARE, SPECIAL
from sibrepro.study import Study

STUDY = Study(notebook="07_equal_footing", published=lambda: {ANY_WAY: [SPECIAL, GENERAL, SET_AWARE]})
