"""The parts of notebook 03 that need images: compression, JPEG, augmented views and a shorter pretraining."""

from __future__ import annotations

from collections.abc import Sequence

from sibcore import datasets
from sibrepro.facts import runs
from sibrepro.few_shot import compression
from sibrepro.few_shot import jpeg as recoding
from sibrepro.few_shot import together as many
from sibrepro.few_shot.results import FewShotNotebook


def with_images(p: FewShotNotebook, trained: Sequence[runs.Record]) -> list[runs.Record]:
    """Their records, for the first image set and backbone; none, with a message, where the images are not at hand."""
    try:
        data = datasets.load(p.datasets[0])
    except FileNotFoundError as error:
        print(f"left out for want of images: {error}")
        return []
    first = [r for r in trained if (r.params["dataset"], r.params["backbone"]) == (p.datasets[0], p.backbones[0])]
    first = [r for r in first if r.params["seed"] == p.seed and r.params["K"] in (0, 3)]
    made = [compression.compression(record, data) for record in first if record.params["features"] == "shipped"]
    made += [recoding.recoding(record, data) for record in first if record.params["shots"] == 1]
    return made + many.few_shot(p.image_experiments(), data)
