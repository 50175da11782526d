"""The maintainer's command: planned runs computed here become facts, and what is made of facts is made anew.

./run_all.sh publish                 facts, then every notebook executed in place, figures, tables and README
./run_all.sh publish --only-facts    facts alone
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any
from unittest import mock

from sibrepro import paths, readme
from sibrepro.equal_footing import plan as equal_footing
from sibrepro.equal_footing.experiment import CONTENDER
from sibrepro.facts import Experiment, Record, local, publish, published
from sibrepro.few_shot import plan as few_shot
from sibrepro.few_shot.settings import FEW_SHOT, INSIDE, QUERY_SIZE, RESCALED, RIVAL, UNBALANCED
from sibrepro.pacs import plan as pacs
from sibrepro.pacs.second_stage import SECOND_STAGE
from sibrepro.params import of_profile
from sibrepro.query_size import plan as query_size
from sibrepro.run import pipeline
from sibrepro.run.notebook import refresh
from sibrepro.spinning_lines import plan as spinning_lines
from sibrepro.synthetic_gradients import plan as synthetic_gradients
from sibrepro.theory.study import THEORY, ElboParams
from sibrepro.zoo.any_way import ANY_WAY, GENERAL, SET_AWARE, SPECIAL


def main(options: argparse.Namespace) -> int:
    """`sib publish`: facts, then notebooks in place with their figures and tables, then the README's numbers."""
    for name in facts():
        print(f"published {name}")
    if options.only_facts:
        return 0
    tracked = {"SIB_FIGURES": str(paths.root() / "figures"), "SIB_TABLES": str(paths.published() / "tables")}
    with mock.patch.dict(os.environ, tracked, SIB_RECOMPUTE=""):
        for job in pipeline.jobs("quick", options.only):
            refresh(job.notebook)
    readme.write()
    return 0


def facts() -> list[str]:
    """Publish planned runs of this machine that are not published yet, or in an older version; returns their ids."""
    added = []
    for experiment, settings in planned().items():
        new = list(_new(experiment, settings))
        added += publish.add(experiment, new) if new else []
    return added


def _new(experiment: Experiment, settings: Iterable[object]) -> Iterable[Record]:
    known = published.find(experiment.name)
    for name in dict.fromkeys(map(experiment.id, settings)):
        folder, fact = local.folder_of(name), known.get(name)
        if (fact and not experiment.is_stale(fact)) or not (folder / local.DONE).is_file():
            continue
        record = local.read(folder)
        if record.provenance.get("dirty"):
            raise ValueError(f"{name} was computed with uncommitted code: commit, compute it again, then publish it")
        yield record


def planned() -> dict[Experiment, list[Any]]:
    """All runs that are, or are to be, published: what the studies declare, and the quick profile of each notebook."""
    studies = (few_shot, synthetic_gradients, pacs, query_size, equal_footing, spinning_lines)
    found: dict[Experiment, list[Any]] = {}
    others = {THEORY: [ElboParams()], ANY_WAY: [SPECIAL, GENERAL, SET_AWARE]}
    for part in (*(study.declared() for study in studies), others, quick()):
        for experiment, settings in part.items():
            found.setdefault(experiment, []).extend(settings)
    return found


def quick() -> dict[Experiment, list[Any]]:
    """What `./run_all.sh` computes again and compares."""
    shown = few_shot.FewShotNotebook(**of_profile("quick", "03_few_shot_tables"))
    grid = synthetic_gradients.SyntheticGradientsNotebook(**of_profile("quick", "04_synthetic_gradients"))
    domains = pacs.StagesNotebook(**of_profile("quick", "05_pacs_adaptation"))
    sizes = query_size.QuerySizeNotebook(**of_profile("quick", "06_query_size_ablation"))
    footing = equal_footing.EqualFootingNotebook(**of_profile("quick", "07_equal_footing"))
    stages = grid.stage_experiments()
    return {
        FEW_SHOT: [*shown.experiments(), *grid.experiments(), *stages, *sizes.experiments()],
        RIVAL: shown.rivals(),
        UNBALANCED: [p for p in shown.experiments() if p.shots == 1],
        INSIDE: stages,
        QUERY_SIZE: sizes.experiments(),
        RESCALED: sizes.experiments(),
        SECOND_STAGE: domains.experiments(),
        CONTENDER: footing.contenders(),
    }
