"""Facts of an older version are marked where they are shown."""

from __future__ import annotations

import dataclasses

from made_up import record

from sibrepro.facts import Experiment
from sibrepro.facts.experiment import STALE, is_stale, named


@dataclasses.dataclass(frozen=True)
class Settings:
    n: int = 1


def test_tables_mark_facts_of_an_older_version():
    experiment = Experiment("growing", Settings, None, version=2)
    old, new = (record(experiment, Settings(n), {"x": 1.0}, version=n) for n in (1, 2))
    assert (is_stale(old), is_stale(new)) == (True, False)
    assert named([old, new]) == f"{old.id}{STALE} {new.id}"
