"""What the compression of the project's own features costs: the same trained SIB on exact and on shipped features."""

from __future__ import annotations

from pathlib import Path

from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibcore.vision.features import feature_bank
from sibrepro.facts import Record
from sibrepro.few_shot import shipped
from sibrepro.few_shot.experiment import Banks, Numbers, examine, pretrained_network, tasks
from sibrepro.few_shot.settings import COMPRESSION, FewShot
from sibrepro.statistics import paired


def compression(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """The run of testing the SIB of a few-shot run on shipped features on both kinds.

    metrics: accuracies in percent on the same tasks, "exact" and "shipped"; the paired "difference" and its "..._ci95";
    "megabytes" of the file; arrays: queries answered rightly in each task
    """
    if trained.params["features"] != "shipped":
        raise ValueError(f"{trained.id} is of images: the effect of compression is that on features='shipped'")

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        exact = feature_bank(network or pretrained_network(data, p.backbone), data, "test")
        fixed = tasks(p, banks["test"], "test").to(pick_device())
        kinds = {"exact": exact, "shipped": banks["test"]}
        scores = {name: evaluate(sib, bank.features, fixed) for name, bank in kinds.items()}
        arrays = {name: score.right(p.ways * p.queries) for name, score in scores.items()}
        difference = paired(arrays["exact"], arrays["shipped"], p.ways * p.queries)
        metrics = {name: 100 * score.mean for name, score in scores.items()}
        metrics |= {"difference": difference.mean, "difference_ci95": difference.ci95}
        return metrics | {"megabytes": shipped.file(p.dataset, p.backbone).stat().st_size / 1e6}, arrays

    return examine(COMPRESSION, trained, compute)
