from __future__ import annotations

import dataclasses

from few_shot_records import FULL, sib
from sibrepro.few_shot.results import FewShotNotebook

from sibcore import datasets
from sibrepro.few_shot import compression
from sibrepro.few_shot import jpeg as recoding
from sibrepro.few_shot import together as many
from sibrepro.few_shot import with_images as studies


def test_without_images_there_is_a_message_and_no_record(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("SIB_DATA", raising=False)
    monkeypatch.setenv("SIB_CACHE", str(tmp_path))
    assert studies.with_images(FewShotNotebook(), []) == []
    assert "left out for want of images: cifar-fs: found none of" in capsys.readouterr().out


def test_each_study_gets_the_runs_that_it_is_about(monkeypatch):
    seen = []
    monkeypatch.setattr(datasets, "load", lambda name: name)
    monkeypatch.setattr(compression, "compression", lambda record, data: seen.append(("compression", record.params)))
    monkeypatch.setattr(recoding, "recoding", lambda record, data: seen.append(("recoding", record.params)))
    monkeypatch.setattr(many, "few_shot", lambda settings, data: [(p.views, p.epochs > 0, p.K) for p in settings])
    kinds = [{}, {"K": 0}, {"K": 5}, {"shots": 5}, {"seed": 1}, {"backbone": "conv4-128"}]
    trained = [sib(60, dataclasses.replace(FULL, **change)) for change in kinds]
    made = studies.with_images(FewShotNotebook(), trained)
    assert made[-3:] == [(4, False, 3), (0, True, 3), (0, True, 0)]
    found = {(name, p["shots"], p["K"]) for name, p in seen}
    assert found == {(s, 1, K) for s in ("compression", "recoding") for K in (0, 3)} | {("compression", 5, 3)}
