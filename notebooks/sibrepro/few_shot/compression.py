"""What the compression of the project's own features costs: the same trained SIB on exact and on shipped features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sibcore import train as meta
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.evaluate import evaluate
from sibcore.files import sha256
from sibcore.vision import pretrain
from sibcore.vision.features import feature_bank
from sibrepro.facts import runs
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import shipped
from sibrepro.few_shot.experiment import FewShot
from sibrepro.few_shot.rivals import paired


def compression(trained: runs.Record, data: ImageSet, network: Path | None = None) -> runs.Record:
    """The record of testing the SIB of a few-shot run on shipped features (its best checkpoint) on both kinds.

    metrics: accuracies in percent on the same tasks, "exact" and "shipped"; the paired "difference" and its "..._ci95";
    "megabytes" of the file; arrays: queries answered rightly in each task
    """
    p, checkpoint = FewShot(**trained.params), trained.folder / meta.BEST
    if p.features != "shipped":
        raise ValueError(f"features = {p.features!r}: the effect of compression is that on features='shipped'")
    network = network or few_shot.pretrained(data, backbone=p.backbone).folder / pretrain.BACKBONE
    origin = few_shot.source(p)

    def compute(p: FewShot, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        sib = meta.load_sib(checkpoint)[0].to(pick_device())
        banks = {"exact": feature_bank(network, data, "test"), "shipped": origin.banks()["test"]}
        tasks = few_shot.tasks(p, banks["shipped"], "test").to(pick_device())
        scores = {name: evaluate(sib, bank.features, tasks) for name, bank in banks.items()}
        arrays = {name: score.right(p.ways * p.queries) for name, score in scores.items()}
        difference = paired(arrays["exact"], arrays["shipped"], p.ways * p.queries)
        metrics = {name: 100 * score.mean for name, score in scores.items()}
        metrics |= {"difference": difference.mean, "difference_ci95": difference.ci95}
        return metrics | {"megabytes": shipped.file(p.dataset, p.backbone).stat().st_size / 1e6}, arrays

    hashes = origin.hashes | {"trained": sha256(checkpoint)}
    return runs.compute_or_load("compression", p, compute, data=hashes, long=True)
