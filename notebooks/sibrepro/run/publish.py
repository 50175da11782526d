"""The maintainer's command: planned runs computed here become facts, and what is made of facts is made anew.

./run_all.sh publish                 facts, then every notebook executed in place, figures, tables and README
./run_all.sh publish --only-facts    facts alone
"""

from __future__ import annotations

from collections.abc import Iterable

from sibrepro import paths, readme
from sibrepro.facts import Experiment, Record, local, publish, published
from sibrepro.run import notebook_files, pipeline
from sibrepro.run.plans import planned


def facts() -> list[str]:
    """Publish planned runs of this machine that are not published yet, or in an older version; returns their ids."""
    added = []
    for experiment, settings in planned().items():
        new = list(_new(experiment, settings))
        if new:
            added += publish.add(experiment, new)
    return added


def everything(only: Iterable[str] = ()) -> None:
    """Facts, then notebooks in place with their figures and tables, then the README's numbers."""
    for name in facts():
        print(f"published {name}")
    tracked = {"SIB_FIGURES": str(paths.root() / "figures"), "SIB_TABLES": str(paths.published() / "tables")}
    with pipeline.environment(**tracked, SIB_RECOMPUTE=""):
        for job in pipeline.jobs("quick", only):
            notebook_files.refresh(job.notebook)
    readme.write()


def _new(experiment: Experiment, settings: Iterable[object]) -> Iterable[Record]:
    known = published.find(experiment.name)
    for name in dict.fromkeys(map(experiment.id, settings)):
        fact = known.get(name)
        if fact and not experiment.is_stale(fact):
            continue
        folder = local.folder_of(name)
        if (folder / local.DONE).is_file():
            record = local.read(folder)
            if record.provenance.get("dirty"):
                raise ValueError(
                    f"{name} was computed with uncommitted code: commit, compute it again, then publish it"
                )
            yield record
