"""`sib publish`, for maintainers: publish runs of this machine, and update everything that is made from published runs.

./run_all.sh publish                 facts, then all notebooks (executed in place), figures, tables and the README
./run_all.sh publish --only-facts    facts alone
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from unittest import mock

from sibcore import fingerprint
from sibrepro import documents, paths
from sibrepro.facts import Experiment, Record, local, publish, published
from sibrepro.facts.record import todays_name
from sibrepro.run import budget, pipeline
from sibrepro.run.notebook import refresh
from sibrepro.study import planned


def main(options: argparse.Namespace) -> int:
    """Publish runs, then execute the notebooks in place, which writes figures and tables, then update the README."""
    if options.keep:
        os.environ[fingerprint.KEEP] = ",".join(map(todays_name, options.keep))
    for name in facts():
        print(f"published {name}")
    if options.only_facts:
        return 0
    tracked = {"SIB_FIGURES": str(paths.root() / "figures"), "SIB_TABLES": str(paths.published() / "tables")}
    with mock.patch.dict(os.environ, tracked, SIB_RECOMPUTE=""):
        for job in pipeline.jobs("quick", options.only):
            refresh(job.notebook)
    documents.write()
    budget.check()
    return 0


def facts() -> list[str]:
    """Publish those runs of this machine that studies declare and that are not published yet. Return their ids."""
    added = []
    for experiment, settings in planned().items():
        if new := list(_new(experiment, settings)):
            added += publish.add(experiment, new)
    return added


def _new(experiment: Experiment, settings: Iterable[object]) -> Iterable[Record]:
    """Yield the finished runs with these settings that are not published, or published in an older version.

    Raises:
        ValueError: if a run was computed by code that is uncommitted, or that changed since.
    """
    known = published.find(experiment.name)
    for name in dict.fromkeys(map(experiment.id, settings)):
        folder, fact = local.folder_of(name), known.get(name)
        if (fact and not experiment.is_stale(fact)) or not (folder / local.DONE).is_file():
            continue
        record = local.read(folder)
        if record.provenance.get("dirty"):
            raise ValueError(f"{name} was computed with uncommitted code: commit it, recompute the run, then publish")
        changes = local.code_changes(folder, experiment.code)
        if changes and not fingerprint.is_kept(name):
            raise ValueError(
                f"{name} was computed before the code changed ({fingerprint.listed(changes)}): recompute it, or "
                f"publish it with the commit that computed it: --keep {name}"
            )
        yield record
