"""All runs that are, or are to be, published: what the studies declare, and the quick profile of each notebook."""

from __future__ import annotations

from typing import Any

from sibrepro.facts import Experiment
from sibrepro.few_shot import plan as few_shot
from sibrepro.few_shot.settings import FEW_SHOT, INSIDE, QUERY_SIZE, RESCALED, RIVAL, UNBALANCED
from sibrepro.pacs import plan as pacs
from sibrepro.pacs.experiment import ADAPTATION
from sibrepro.query_size import plan as query_size
from sibrepro.run.pipeline import profile_parameters
from sibrepro.spinning_lines import plan as spinning_lines
from sibrepro.synthetic_gradients import plan as synthetic_gradients
from sibrepro.theory.study import THEORY, ElboParams
from sibrepro.zoo.any_way import ANY_WAY, GENERAL, SPECIAL


def planned() -> dict[Experiment, list[Any]]:
    """Settings by experiment."""
    studies = (few_shot, synthetic_gradients, pacs, query_size, spinning_lines)
    found: dict[Experiment, list[Any]] = {}
    for part in (
        *(study.declared() for study in studies),
        {THEORY: [ElboParams()], ANY_WAY: [SPECIAL, GENERAL]},
        quick(),
    ):
        for experiment, settings in part.items():
            found.setdefault(experiment, []).extend(settings)
    return found


def quick() -> dict[Experiment, list[Any]]:
    """What `./run_all.sh` computes again and compares."""
    shown = few_shot.FewShotNotebook(**profile_parameters("03_few_shot_tables", "quick"))
    grid = synthetic_gradients.SyntheticGradientsNotebook(**profile_parameters("04_synthetic_gradients", "quick"))
    domains = pacs.AdaptationNotebook(**profile_parameters("05_pacs_adaptation", "quick"))
    sizes = query_size.QuerySizeNotebook(**profile_parameters("06_query_size_ablation", "quick"))
    stages = grid.stage_experiments()
    return {
        FEW_SHOT: [*shown.experiments(), *grid.experiments(), *stages, *sizes.experiments()],
        RIVAL: shown.rivals(),
        UNBALANCED: [p for p in shown.experiments() if p.shots == 1],
        INSIDE: stages,
        QUERY_SIZE: sizes.experiments(),
        RESCALED: sizes.experiments(),
        ADAPTATION: domains.experiments(),
    }
